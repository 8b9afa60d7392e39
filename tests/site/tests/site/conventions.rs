//! What people and tools expect of any Kubernetes API.

use std::collections::BTreeSet;

use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use sandbox::region::HOSTS_NAMESPACE;

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
        let managed = "app.kubernetes.io/managed-by=sip";
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
