//! What people do to hosts and domains with `sipctl`: said first, done once, seen in status and in the log of decisions.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt as _, api::PostParams};
use sandbox::{inventory::RACK, programs, wait};
use serde_json::{Value, json};

use crate::fixtures::{
    AGENTS, Cluster, PATIENCE, Role, Stage, cluster, fleet, given_back, held, host, members, written_statuses,
};

const CORDONED: &str = "sip.airshipit.org/cordoned";
const REPLACE: &str = "sip.airshipit.org/replace";
const DECISIONS: &str = "sip.placement.v1.PlacementService/ListDecisions";

/// Exit code, standard output, standard error.
pub(crate) async fn sipctl(stage: &Stage, arguments: &[&str]) -> (i32, String, String) {
    let output = tokio::process::Command::new(programs::path("sipctl").unwrap())
        .args(arguments)
        .env("KUBECONFIG", stage.site.admin_kubeconfig())
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Runs a command that must do what it is asked to.
pub(crate) async fn does(stage: &Stage, arguments: &[&str], words: &str) {
    let (code, text, error) = sipctl(stage, arguments).await;
    assert_eq!((code, &*error), (0, ""), "{arguments:?}: {text}");
    assert!(text.contains(words), "{arguments:?}: {text}");
}

/// Annotations of a host, but for the one that the cluster agent writes with the labels.
async fn annotations(stage: &Stage, host: &str) -> Vec<String> {
    let host = stage.hosts().get(host).await.unwrap();
    let keys = host.annotations().keys().cloned();
    keys.filter(|key| key != "sip.airshipit.org/network-data")
        .collect()
}

/// Waits until the log of decisions has an entry whose reason contains a text.
async fn logged(stage: &Stage, text: &str) -> Value {
    let asked = json!({"site": "hands"});
    let log = stage
        .until_answer(DECISIONS, asked, |answer| entry(answer, text).is_some())
        .await;
    entry(&log, text).unwrap()
}

fn entry(log: &Value, text: &str) -> Option<Value> {
    let entries = log["decisions"].as_array()?;
    let entry = entries
        .iter()
        .find(|entry| entry["reason"].as_str().is_some_and(|why| why.contains(text)));
    entry.cloned()
}

#[tokio::test]
async fn hosts_and_domains_are_cordoned_moved_off_and_marked_by_hand() {
    let stage = Stage::start("hands", &AGENTS).await;
    stage.site.create_tenant_namespace("hands").await.unwrap();
    stage.load(&fleet("hands", 3, 1, 0)).await;
    let shop = cluster("hands", "shop")
        .role(Role::ControlPlane, 3)
        .balanced(30_650);
    stage.create(&shop).await;
    stage.ready(&shop).await;

    says_no(&stage).await;
    cordons_a_host(&stage, &shop).await;
    moves_a_member_off(&stage, &shop).await;
    marks_a_host(&stage, &shop).await;
    cordons_a_domain(&stage).await;
    edits_a_config_map(&stage).await;
}

async fn says_no(stage: &Stage) {
    for (arguments, code, words) in [
        (&["cordon", "metal/nobody"][..], 2, "not found"),
        (&["replace", "nowhere/hands-r1-cp1"], 2, "not found"),
        (&["cordon", "rack=r1"], 2, "no policy of the site is named"),
        (
            &["cordon", "rack=r1", "--policy-configmap", "hands/none"],
            2,
            "not found",
        ),
        (
            &["cordon", "rack=r1", "--policy", "/dev/null/none"],
            1,
            "cannot be read",
        ),
        (
            &["cordon", "metal/hands-r1-cp1", "--context", "none"],
            1,
            "kubeconfig cannot be used",
        ),
        (&["cordon", "hands-r1-cp1"], 1, "expected NS/NAME or KEY=VALUE"),
    ] {
        let (is, _, error) = sipctl(stage, arguments).await;
        assert_eq!(is, code, "{arguments:?}: {error}");
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
}

async fn cordons_a_host(stage: &Stage, shop: &Cluster) {
    let name = "hands-r1-cp1";
    let dry = ["cordon", "metal/hands-r1-cp1", "--dry-run"];
    does(stage, &dry, "its labels name ControlPlane of hands/shop").await;
    assert_eq!(annotations(stage, name).await, [""; 0]);

    let cordon = ["cordon", "metal/hands-r1-cp1"];
    does(stage, &cordon, "Done: it is cordoned.").await;
    does(stage, &cordon, "Nothing to do: it is cordoned already.").await;
    assert_eq!(annotations(stage, name).await, [CORDONED]);
    let stays = "hands-r1-cp1: its host could not be claimed today, but the member is kept: it is cordoned";
    stage
        .condition_mentions(shop, "Scheduled", "True", "Placed", stays)
        .await;
    let entry = logged(stage, "metal/hands-r1-cp1: is cordoned").await;
    assert_eq!(entry["cluster"]["name"], "shop", "{entry}");

    does(
        stage,
        &["uncordon", "metal/hands-r1-cp1"],
        "Done: it is not cordoned.",
    )
    .await;
    stage
        .until(shop, "say nothing of it any more", |object| {
            wait::condition(object, "Scheduled").is_some_and(|(_, _, message)| !message.contains("cordoned"))
        })
        .await;
}

async fn moves_a_member_off(stage: &Stage, shop: &Cluster) {
    stage.load(&[host("hands", "cp", "r4", "r4-cp1")]).await;
    does(
        stage,
        &["replace", "metal/hands-r2-cp1"],
        "Done: its replacement is requested.",
    )
    .await;
    let moved = stage
        .until(shop, "hold the other host", |object| {
            let names = held(&members(object));
            names.contains_key("hands-r4-cp1") && !names.contains_key("hands-r2-cp1")
        })
        .await;
    assert_eq!(members(&moved).len(), 3);
    for status in written_statuses(stage, shop) {
        let state = |name: &str| {
            let member = status.iter().find(|member| member["name"] == name);
            member.map(|member| member["state"].clone())
        };
        if state("hands-r2-cp1") == Some(json!("Releasing")) {
            assert_eq!(state("hands-r4-cp1"), Some(json!("Bound")), "{status:#?}");
        }
    }
    logged(stage, "metal/hands-r2-cp1: is to be moved off").await;
    assert!(given_back(&stage.hosts().get("hands-r2-cp1").await.unwrap()));
    assert!(
        annotations(stage, "hands-r2-cp1")
            .await
            .contains(&REPLACE.to_owned())
    );

    // It is left alone until somebody says otherwise: nobody else gets it.
    let late = cluster("hands", "late").role(Role::ControlPlane, 1);
    stage.create(&late).await;
    stage.condition_is(&late, "Ready", "False", "Unschedulable").await;
    does(
        stage,
        &["uncordon", "metal/hands-r2-cp1"],
        "Done: it is not cordoned.",
    )
    .await;
    stage.ready(&late).await;
    stage.delete(&late).await;
    stage.gone(&late).await;
}

async fn marks_a_host(stage: &Stage, shop: &Cluster) {
    does(
        stage,
        &["mark-failed", "metal/hands-r3-cp1"],
        "Done: it is marked as failed.",
    )
    .await;
    stage
        .until(shop, "hold another host", |object| {
            !held(&members(object)).contains_key("hands-r3-cp1")
        })
        .await;
    logged(stage, "metal/hands-r3-cp1: is marked as failed").await;
    does(
        stage,
        &["mark-failed", "metal/hands-r3-cp1", "--undo"],
        "Done: it is not marked as failed.",
    )
    .await;
}

async fn cordons_a_domain(stage: &Stage) {
    stage.load(&[host("hands", "worker", "r9", "r9-w1")]).await;
    let policy = stage.region.policy();
    let policy = policy.display().to_string();
    let domain = format!("{RACK}=r9");
    let cordon = ["cordon", &domain, "--policy", &policy];
    does(
        stage,
        &[&cordon[..], &["--dry-run"]].concat(),
        "Nothing was changed",
    )
    .await;
    does(stage, &cordon, "a running scheduler reloads it").await;
    does(stage, &cordon, "is cordoned already").await;
    let entry = logged(stage, &format!("{domain} is cordoned")).await;
    assert_eq!(
        (&entry["action"], &entry["caller"]),
        (&json!("policy"), &json!("scheduler"))
    );

    let late = cluster("hands", "rack").role(Role::Worker, 1);
    stage.create(&late).await;
    stage.condition_is(&late, "Ready", "False", "Unschedulable").await;

    // A file that is none changes nothing, and the next good one counts.
    let good = std::fs::read_to_string(&policy).unwrap();
    std::fs::write(&policy, "hierachy: []").unwrap();
    let read = async {
        while !stage.region.log_tails(1_000).contains("a policy is invalid") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, read)
        .await
        .expect("the bad file is read");
    std::fs::write(&policy, good).unwrap();
    does(
        stage,
        &["uncordon", &domain, "--policy", &policy],
        "is not cordoned, in",
    )
    .await;
    stage.ready(&late).await;
}

async fn edits_a_config_map(stage: &Stage) {
    let maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), "hands");
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "site-policy"},
        "data": {"policy.yaml": "hierarchy: [rack]\n", "other": "stays"},
    }))
    .unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let place = ["--policy-configmap", "hands/site-policy"];
    let cordon = [&["cordon", "rack=r1"][..], &place].concat();
    does(stage, &[&cordon[..], &["--dry-run"]].concat(), "value: r1").await;
    let data = async || maps.get("site-policy").await.unwrap().data.unwrap();
    assert_eq!(data().await["policy.yaml"], "hierarchy: [rack]\n");

    does(stage, &cordon, "Done: rack=r1 is cordoned").await;
    let now = data().await;
    assert!(now["policy.yaml"].contains("r1"), "{now:?}");
    assert_eq!(now["other"], "stays");
    does(stage, &cordon, "Nothing to do").await;
    let uncordon = [&["uncordon", "rack=r1"][..], &place].concat();
    does(stage, &uncordon, "Done: rack=r1 is not cordoned").await;
    assert!(!data().await["policy.yaml"].contains("r1"));
}
