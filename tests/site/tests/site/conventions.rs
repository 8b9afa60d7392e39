//! What people and tools expect of any Kubernetes API.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use sandbox::region::HOSTS_NAMESPACE;
use serde_json::Value;

use crate::fixtures::{PATIENCE, Role, Stage, cluster, fleet, held, members, on_shared_site};

const SCENARIO: &str = "conventions";

/// Reasons of the Events on a host that name the cluster as the related object.
async fn reasons(stage: &Stage, host: &str) -> BTreeSet<String> {
    let events: Api<Event> = Api::namespaced(stage.site.client(), HOSTS_NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap();
    let about = events.into_iter().filter(|event| {
        let regarding = event.regarding.as_ref().and_then(|object| object.name.as_deref());
        let related = event.related.as_ref();
        let of_cluster = related.is_some_and(|object| {
            object.kind.as_deref() == Some("SIPCluster") && object.name.as_deref() == Some("shop")
        });
        regarding == Some(host) && of_cluster
    });
    about.filter_map(|event| event.reason).collect()
}

async fn has_reasons(stage: &Stage, host: &str, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|reason| (*reason).to_owned()).collect();
    let has = async {
        while reasons(stage, host).await != expected {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let has = tokio::time::timeout(PATIENCE, has).await;
    assert!(has.is_ok(), "{host}: {:?}", reasons(stage, host).await);
}

#[test]
fn events_on_a_host_tell_its_life_and_name_the_cluster() {
    on_shared_site(SCENARIO, async |stage| {
        stage.load(&fleet(SCENARIO, 1, 1, 1)).await;
        let shop = cluster(SCENARIO, "shop").role(Role::Worker, 1).balanced(31_970);
        stage.create(&shop).await;
        let ready = stage.ready(&shop).await;
        let host = held(&members(&ready)).into_keys().next().unwrap();
        has_reasons(stage, &host, &["Labeled"]).await;
        let described = stage
            .kubectl(&["describe", "baremetalhost", &host, "-n", HOSTS_NAMESPACE])
            .await;
        assert!(
            described.contains("claimed and labelled for SIPCluster conventions/shop"),
            "{described}"
        );

        // Tools find clusters by their category, wait for them as for anything, and see who manages what.
        let listed = stage.kubectl(&["get", "airship", "-n", SCENARIO]).await;
        assert!(listed.contains("shop"), "{listed}");
        let waited = ["wait", "--for=condition=Ready", "sipcluster/shop", "-n", SCENARIO];
        stage.kubectl(&waited).await;
        let managed = "app.kubernetes.io/managed-by=sip,app.kubernetes.io/version";
        let children = [
            "get",
            "deployments,services,configmaps,networkpolicies",
            "-n",
            SCENARIO,
        ];
        let all = stage.kubectl(&[&children[..], &["-o", "name"]].concat()).await;
        let managed = stage
            .kubectl(&[&children[..], &["-o", "name", "-l", managed]].concat())
            .await;
        let of_sip = |text: &str| {
            let names = text.lines().filter(|name| name.contains("loadbalancer"));
            names.map(str::to_owned).collect::<BTreeSet<_>>()
        };
        assert!(of_sip(&all).len() >= 4, "{all}");
        assert_eq!(of_sip(&all), of_sip(&managed));

        stage.delete(&shop).await;
        stage.gone(&shop).await;
        has_reasons(stage, &host, &["Labeled", "Released"]).await;
    });
}

/// The status that kstatus computes for an object without rules of its own; Flux, Argo CD and airshipctl use it.
fn kstatus(object: &Value) -> &'static str {
    let is = |kind: &str, status: &str| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let mut own = conditions.filter(|condition| condition["type"] == kind);
        own.any(|condition| condition["status"] == status)
    };
    if !object["metadata"]["deletionTimestamp"].is_null() {
        "Terminating"
    } else if object["status"]["observedGeneration"] != object["metadata"]["generation"] {
        "InProgress"
    } else if is("Stalled", "True") {
        "Failed"
    } else if is("Reconciling", "True") || is("Ready", "False") || is("Ready", "Unknown") {
        "InProgress"
    } else {
        "Current"
    }
}

#[test]
fn tools_read_the_state_of_a_cluster() {
    const SCENARIO: &str = "kstatus";
    on_shared_site(SCENARIO, async |stage| {
        stage.load(&fleet(SCENARIO, 1, 1, 1)).await;
        let fine = cluster(SCENARIO, "fine").role(Role::Worker, 1);
        let large = cluster(SCENARIO, "large").role(Role::Worker, 3);
        let invalid = cluster(SCENARIO, "invalid")
            .role(Role::Worker, 1)
            .with("/nodes/Worker/count", Value::Null);
        stage.create(&fine).await;
        stage.ready(&fine).await;
        stage.create(&large).await;
        stage
            .condition_is(&large, "Scheduled", "False", "Unschedulable")
            .await;
        stage.create(&invalid).await;
        stage
            .condition_is(&invalid, "Stalled", "True", "InvalidSpec")
            .await;
        let expected = BTreeMap::from([
            ("Current", "fine"),
            ("InProgress", "large"),
            ("Failed", "invalid"),
        ]);

        let all = stage
            .kubectl(&["get", "sipclusters", "-n", SCENARIO, "-o", "json"])
            .await;
        let all: Value = serde_json::from_str(&all).unwrap();
        let computed = all["items"].as_array().unwrap().iter();
        let computed: BTreeMap<&str, &str> = computed
            .map(|object| (kstatus(object), object["metadata"]["name"].as_str().unwrap()))
            .collect();
        assert_eq!(computed, expected);

        // airshipctl puts each expression into a filter of a list, as here.
        let crd = ["get", "crd", "sipclusters.airship.airshipit.org", "-o", "json"];
        let crd: Value = serde_json::from_str(&stage.kubectl(&crd).await).unwrap();
        let checks = crd["metadata"]["annotations"]["airshipit.org/status-check"]
            .as_str()
            .unwrap();
        let checks: Vec<BTreeMap<String, String>> = serde_json::from_str(checks).unwrap();
        assert_eq!(checks.len(), expected.len());
        for check in checks {
            let path = format!("jsonpath={{.items[?({})].metadata.name}}", check["condition"]);
            let matched = stage
                .kubectl(&["get", "sipclusters", "-n", SCENARIO, "-o", &path])
                .await;
            assert_eq!(Some(&&*matched), expected.get(&*check["status"]), "{check:?}");
        }

        // Alerts and scripts count without parsing text.
        let path = "jsonpath={.status.roles[?(@.role==\"Worker\")].bound}/{.status.roles[0].wanted}";
        let counted = stage
            .kubectl(&["get", "sipcluster", "fine", "-n", SCENARIO, "-o", path])
            .await;
        assert_eq!(counted, "1/1");

        // It is no longer stalled once somebody has acted.
        let amended = cluster(SCENARIO, "invalid").role(Role::Worker, 0);
        stage.edit(&invalid, amended.spec().clone()).await;
        let ready = stage.ready(&amended).await;
        let conditions = ready.data["status"]["conditions"].as_array().unwrap();
        assert!(
            conditions.iter().all(|condition| condition["type"] != "Stalled"),
            "{conditions:?}"
        );
    });
}
