//! The scheduler, as grpcurl sees it: by reflection, without this project's proto files.

use sandbox::authority::Caller;
use serde_json::{Value, json};

use crate::fixtures::{Role, Stage, cluster, fleet, on_shared_site};

const PLACEMENT: &str = "sip.placement.v1.PlacementService";
const INVENTORY: &str = "sip.inventory.v1.InventoryService";

fn length(answer: &Value, pointer: &str) -> usize {
    answer
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(0, Vec::len)
}

/// A role on the wire that selects hosts of a flavor.
fn role(flavor: &str, active: u32) -> Value {
    json!({
        "name": "Worker",
        "labelSelector": {"matchLabels": {"vino.airshipit.org/flavor": flavor}},
        "topologyKey": "vino.airshipit.org/host",
        "active": active,
    })
}

#[test]
fn the_services_are_listed_and_described_by_reflection() {
    on_shared_site("reflection", async |stage| {
        let (region, operator) = (&stage.region, stage.region.operator());
        let list = region.grpcurl(operator, &["list"]).await.unwrap();
        for service in [PLACEMENT, INVENTORY, "grpc.health.v1.Health"] {
            assert!(list.stdout.lines().any(|line| line == service), "{list:?}");
        }
        let described = region.grpcurl(operator, &["describe", PLACEMENT]).await.unwrap();
        for call in ["ApplyCluster", "PlanCluster", "GetPlacement", "ListDecisions"] {
            assert!(described.stdout.contains(&format!("rpc {call}")), "{described:?}");
        }
    });
}

#[test]
fn every_question_about_a_site_is_answered() {
    on_shared_site("questions", async |stage| {
        stage.load(&fleet("questions", 2, 0, 2)).await;
        // Otherwise a retry may take the hosts, and not the call that declares the cluster.
        let all_hosts = |answer: &Value| length(answer, "/hosts") == 4;
        let listed = format!("{INVENTORY}/ListHosts");
        stage.until_answer(&listed, workers(), all_hosts).await;
        let shop = cluster("questions", "shop").role(Role::Worker, 3);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let shop_ref = json!({"site": "shared", "cluster": {"namespace": "questions", "name": "shop"}});

        let placement = stage
            .call(&format!("{PLACEMENT}/GetPlacement"), shop_ref.clone())
            .await;
        assert_eq!(length(&placement, "/placement/members"), 3, "{placement}");

        let plan = json!({
            "site": "shared",
            "cluster": {"namespace": "questions", "name": "next"},
            "spec": {"roles": [role("questions-worker", 2)]},
        });
        let plan = stage.call(&format!("{PLACEMENT}/PlanCluster"), plan).await;
        let message = plan["refusal"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("Worker: 2 wanted"), "{plan}");
        assert_eq!(plan["refusal"]["roles"][0]["matched"], 4, "{plan}");
        assert_eq!(plan["refusal"]["roles"][0]["free"], 1, "{plan}");

        let capacity = json!({"spec": {"roles": [role("questions-worker", 1)]}, "maxCopies": 10});
        let capacity = stage.call(&format!("{INVENTORY}/FindCapacity"), capacity).await;
        assert_eq!(
            capacity["sites"][0],
            json!({
                "site": "shared",
                "copies": 1,
                "limit": capacity["sites"][0]["limit"],
                "revision": capacity["sites"][0]["revision"],
            })
        );

        explains_and_lists(stage, &placement).await;

        let decisions = stage.call(&format!("{PLACEMENT}/ListDecisions"), shop_ref).await;
        let decisions = decisions["decisions"].as_array().unwrap();
        let took: Vec<&Value> = decisions
            .iter()
            .filter(|decision| length(decision, "/taken") > 0)
            .collect();
        let [took] = took[..] else {
            panic!("three hosts were taken in one decision: {decisions:#?}");
        };
        assert_eq!(length(took, "/taken"), 3, "{took}");
        assert!(
            took["caller"]
                .as_str()
                .unwrap()
                .contains("site/shared/agent/cluster"),
            "{took}"
        );
        let bound: usize = decisions.iter().map(|decision| length(decision, "/bound")).sum();
        assert_eq!(bound, 3, "{decisions:#?}");
    });
}

/// Asks for the hosts of this scenario.
fn workers() -> Value {
    json!({
        "site": "shared",
        "labelSelector": {"matchLabels": {"vino.airshipit.org/flavor": "questions-worker"}},
    })
}

async fn explains_and_lists(stage: &Stage, placement: &Value) {
    let held = placement.pointer("/placement/members/0/host/name").unwrap();
    let question = json!({
        "site": "shared", "namespace": "metal", "name": held, "role": role("another", 1), "networkIds": ["absent"],
    });
    let explained = stage.call(&format!("{INVENTORY}/ExplainHost"), question).await;
    let reasons: Vec<&str> = explained["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reason| reason["reason"].as_str().unwrap())
        .collect();
    assert!(
        reasons.len() >= 3,
        "every reason, not only the first: {explained}"
    );
    assert!(
        explained.to_string().contains("questions/shop"),
        "the holder is named: {explained}"
    );

    let hosts = stage.call(&format!("{INVENTORY}/ListHosts"), workers()).await;
    assert_eq!(length(&hosts, "/hosts"), 4, "{hosts}");
    let holders = hosts["hosts"].as_array().unwrap().iter();
    assert_eq!(
        holders.filter(|host| host.get("holder").is_some()).count(),
        3,
        "{hosts}"
    );
    assert!(!hosts.to_string().contains("password"), "{hosts}");

    let sites = stage.call(&format!("{INVENTORY}/ListSites"), json!({})).await;
    assert_eq!(sites["sites"][0]["name"], "shared", "{sites}");
    assert_eq!(sites["sites"][0]["synced"], true, "{sites}");
}

#[test]
fn callers_without_rights_are_refused() {
    on_shared_site("permissions", async |stage| {
        let apply = json!({"site": "shared", "cluster": {"namespace": "a", "name": "b", "uid": "c"}});
        let list = json!({"site": "shared"});
        let agent = |site, name| Caller::Agent { site, name };
        for (who, method, request) in [
            (
                agent("site-b", "cluster"),
                format!("{PLACEMENT}/ApplyCluster"),
                &apply,
            ),
            (
                agent("site-b", "cluster"),
                format!("{PLACEMENT}/GetPlacement"),
                &apply,
            ),
            (
                agent("site-b", "cluster"),
                format!("{INVENTORY}/ListHosts"),
                &list,
            ),
            (Caller::Reader("ben"), format!("{PLACEMENT}/ApplyCluster"), &apply),
            (
                Caller::Operator("ana"),
                format!("{PLACEMENT}/ReleaseCluster"),
                &apply,
            ),
            (
                agent("shared", "load-balancer"),
                format!("{INVENTORY}/ListHosts"),
                &list,
            ),
            (
                agent("shared", "load-balancer"),
                format!("{PLACEMENT}/ApplyCluster"),
                &apply,
            ),
        ] {
            let identity = stage.region.authority().issue(&who).unwrap();
            let answer = stage.region.call(&identity, &method, request).await.unwrap();
            assert!(!answer.success, "{who} {method}: {answer:?}");
            let call = method.rsplit('/').next().unwrap();
            for expected in [
                "PermissionDenied",
                &format!("{who} may not call {call}"),
                "\"reason\": \"FORBIDDEN\"",
                "\"domain\": \"sip.airshipit.org\"",
            ] {
                assert!(
                    answer.stderr.contains(expected),
                    "{who} {method}: {}",
                    answer.stderr
                );
            }
        }
        let reader = stage.region.authority().issue(&Caller::Reader("ben")).unwrap();
        let looks = stage
            .region
            .call(&reader, &format!("{INVENTORY}/ListHosts"), &list)
            .await
            .unwrap();
        assert!(looks.success, "{looks:?}");
    });
}
