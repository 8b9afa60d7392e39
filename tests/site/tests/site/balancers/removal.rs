//! Load balancers that are removed against resistance: pods that stay, refused deletions, objects of others.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use sandbox::{region::Agent, wait};
use serde_json::json;
use tokio::time::timeout;

use super::{
    objects,
    releases::{
        FIRST, PAUSE, SECOND, behind, comes_to_rest, keep_pods, let_pods_go, nothing_is_given_back,
        status_writes, until_held,
    },
    workers,
};
use crate::{
    faults::{Call, Fault},
    fixtures::{
        AGENTS, PATIENCE, Policy, Role, Stage, applied, cluster, fleet, given_back, members, newest_revision,
        on_shared_site, remove_policy,
    },
};

#[test]
fn a_deletion_whose_pods_do_not_follow_comes_to_rest() {
    on_shared_site("at-rest", async |stage| {
        stage.load(&fleet("at-rest", 3, 0, 1)).await;
        let shop = behind("at-rest", &[31_314]);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        keep_pods(stage, "at-rest", FIRST).await;
        let of = objects(stage, "at-rest");

        stage.delete(&shop).await;
        wait::until_gone(of.services.clone(), FIRST, 2 * PATIENCE)
            .await
            .unwrap();
        stage
            .condition_mentions(
                &shop,
                "LoadBalancerReady",
                "False",
                "Progressing",
                "no longer has an entry for",
            )
            .await;
        let object = stage.clusters("at-rest").get("shop").await.unwrap();
        assert_eq!(object.data.pointer("/status/applied"), None);
        let before = status_writes(stage, &shop);
        let until = tokio::time::Instant::now() + Duration::from_secs(5);
        while tokio::time::Instant::now() < until {
            let service = of.services.get_opt(FIRST).await.unwrap();
            assert!(service.is_none(), "it is made again");
            tokio::time::sleep(PAUSE).await;
        }
        assert_eq!(status_writes(stage, &shop) - before, 0, "status writes at rest");
        nothing_is_given_back(stage, "at-rest", 3).await;

        let_pods_go(stage, "at-rest", FIRST).await;
        stage.gone(&shop).await;
        assert!(stage.hosts_of("at-rest").await.iter().all(given_back));
    });
}

/// The status does not name what is refused, and `--cascade=orphan` takes the owners off.
#[test]
fn a_refused_entry_without_an_owner_is_deleted() {
    on_shared_site("no-owner", async |stage| {
        let entry = |label: &str| {
            let changes = json!({"service": {"metadata": {"labels": {label: "blue"}}}});
            json!([workers(
                31_341,
                31_341,
                &json!({"name": "a", "override": changes})
            )])
        };
        let shop = cluster("no-owner", "shop")
            .role(Role::Worker, 0)
            .with("/services/loadBalancerWorker", entry("team"));
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let refused = json!({"services": {"loadBalancerWorker": entry("exposed-by")}});
        stage.edit(&shop, refused).await;
        stage
            .condition_is(&shop, "LoadBalancerReady", "False", "OverrideNotAllowed")
            .await;
        let delete = ["delete", "sipcluster", "shop", "-n", "no-owner"];
        stage
            .kubectl(&[&delete[..], &["--cascade=orphan"]].concat())
            .await;
        stage.gone(&shop).await;
        let of = objects(stage, "no-owner");
        wait::until_gone(of.services, "loadbalancer-worker-shop-a", PATIENCE)
            .await
            .unwrap();
        assert_eq!(
            of.deployments.list(&ListParams::default()).await.unwrap().items,
            []
        );
    });
}

/// No section of the spec lets the deletion wait for the agent, which does not run.
#[tokio::test]
async fn what_an_orphan_deletion_has_left_is_deleted_later() {
    const SCENARIO: &str = "left-behind";
    let mut stage = Stage::start(SCENARIO, &[Agent::Cluster]).await;
    stage
        .start_agent_where(Agent::LoadBalancer, |config| {
            config.ownerless_services_seconds = Some(1);
        })
        .await;
    stage.agents_are_ready().await;
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    let shop = cluster(SCENARIO, "shop").role(Role::Worker, 0).with(
        "/services/loadBalancerWorker",
        json!([
            workers(31_343, 31_343, &json!({"name": "a"})),
            workers(31_347, 31_347, &json!({"name": "b"})),
        ]),
    );
    // What has no Service is found in namespaces with clusters, and theirs stays.
    let bank = cluster(SCENARIO, "bank").role(Role::Worker, 0).with(
        "/services/loadBalancerWorker",
        json!([workers(31_348, 31_348, &json!({"name": "a"}))]),
    );
    for object in [&shop, &bank] {
        stage.create(object).await;
        stage.ready(object).await;
    }

    stage.agent(Agent::LoadBalancer).kill9().await.unwrap();
    stage
        .edit(&shop, json!({"services": {"loadBalancerWorker": []}}))
        .await;
    let delete = ["delete", "sipcluster", "shop", "-n", SCENARIO, "--cascade=orphan"];
    stage.kubectl(&delete).await;
    stage.gone(&shop).await;
    let of = objects(&stage, SCENARIO);
    let left = of.services.get("loadbalancer-worker-shop-a").await.unwrap();
    assert_eq!(left.owner_references(), []);
    let without = ["delete", "service", "loadbalancer-worker-shop-b", "-n", SCENARIO];
    stage.kubectl(&without).await;

    stage.agent(Agent::LoadBalancer).restart().await.unwrap();
    wait::until_gone(of.services.clone(), &left.name_any(), PATIENCE)
        .await
        .unwrap();
    wait::until_gone(of.deployments.clone(), "loadbalancer-worker-shop-b", PATIENCE)
        .await
        .unwrap();
    let left = of.deployments.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["loadbalancer-worker-bank-a"]);
    of.services.get("loadbalancer-worker-bank-a").await.unwrap();
}

/// Forbids to delete an object, and waits until that counts. Returns the name of the policy, to allow it again.
pub(super) async fn keep(stage: &Stage, namespace: &str, resource: &str, name: &str) -> String {
    let policy = format!("keep-{namespace}-{resource}");
    let try_it = ["delete", resource, name, "-n", namespace, "--dry-run=server"];
    let kept = Policy {
        name: &policy,
        matches: json!({
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": [resource]},
            ],
        }),
        expression: &format!("oldObject.metadata.name != '{name}'"),
        message: "it is kept until Monday",
    };
    kept.install(&stage.site, async || stage.site.kubectl_ok(&try_it).await.is_ok())
        .await;
    policy
}

#[test]
fn a_service_that_may_not_be_deleted_holds_nothing_else() {
    on_shared_site("kept-service", async |stage| {
        stage.load(&fleet("kept-service", 3, 0, 1)).await;
        let shop = behind("kept-service", &[31_315, 31_316]);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let policy = keep(stage, "kept-service", "services", SECOND).await;

        let entries = json!([workers(31_315, 31_315, &json!({}))]);
        let one_edit = json!({
            "nodes": {"Worker": {"count": {"active": 2}}}, "services": {"loadBalancerWorker": entries},
        });
        stage.edit(&shop, one_edit).await;
        let why = stage
            .condition_is(&shop, "LoadBalancerReady", "False", "Refused")
            .await;
        assert!(why.contains(SECOND) && why.contains("kept until Monday"), "{why}");
        for host in until_held(stage, "kept-service", 2).await {
            let config = stage.haproxy_config(&shop, "worker").await;
            assert!(!config.contains(&host.name_any()), "{config}");
        }
        let of = objects(stage, "kept-service");
        assert!(of.services.get_opt(SECOND).await.unwrap().is_some());
        let is_done = |object: &DynamicObject| {
            let [first] = &*applied(object) else {
                return false;
            };
            members(object).len() == 2 && Some(first.revision) == newest_revision(object)
        };
        stage.until(&shop, "report the release", is_done).await;
        comes_to_rest(stage, &shop).await;

        remove_policy(&stage.site, &policy).await;
        wait::until_gone(of.services, SECOND, PATIENCE).await.unwrap();
        stage.ready(&shop).await;
    });
}

#[test]
fn a_budget_that_may_not_be_deleted_is_reported() {
    on_shared_site("kept-budget", async |stage| {
        let two = json!([workers(31_317, 31_317, &json!({"replicas": 2}))]);
        let shop = behind("kept-budget", &[]).with("/services/loadBalancerWorker", two);
        stage.load(&fleet("kept-budget", 3, 0, 1)).await;
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let policy = keep(stage, "kept-budget", "poddisruptionbudgets", FIRST).await;

        let one = json!([workers(31_317, 31_317, &json!({"replicas": 1}))]);
        stage
            .edit(&shop, json!({"services": {"loadBalancerWorker": one}}))
            .await;
        let why = stage
            .condition_is(&shop, "LoadBalancerReady", "False", "Refused")
            .await;
        assert!(why.contains(FIRST) && why.contains("kept until Monday"), "{why}");

        remove_policy(&stage.site, &policy).await;
        stage.ready(&shop).await;
        let of = objects(stage, "kept-budget");
        assert!(of.budgets.get_opt(FIRST).await.unwrap().is_none());
    });
}

#[test]
fn what_is_left_of_a_dropped_entry_is_found() {
    on_shared_site("left-behind", async |stage| {
        let name = "loadbalancer-worker-shop-web";
        stage.load(&fleet("left-behind", 3, 0, 1)).await;
        let entry = json!([workers(31_382, 31_382, &json!({"name": "web"}))]);
        let shop = behind("left-behind", &[]).with("/services/loadBalancerWorker", entry);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let policy = keep(stage, "left-behind", "configmaps", name).await;
        stage
            .edit(&shop, json!({"services": {"loadBalancerWorker": null}}))
            .await;
        let of = objects(stage, "left-behind");
        wait::until_gone(of.deployments, name, PATIENCE).await.unwrap();
        stage
            .condition_mentions(&shop, "LoadBalancerReady", "False", "Refused", name)
            .await;
        of.services.delete(name, &DeleteParams::default()).await.unwrap();

        comes_to_rest(stage, &shop).await;
        stage
            .condition_mentions(&shop, "LoadBalancerReady", "False", "Refused", name)
            .await;
        remove_policy(&stage.site, &policy).await;
        let maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), "left-behind");
        wait::until_gone(maps, name, PATIENCE).await.unwrap();
        stage.ready(&shop).await;
    });
}

/// A cluster behind two load balancers that shrinks while the API server answers every write to the second one's Service in this way:
/// the first one follows, and the answer is reported with this reason.
async fn second_fails(scenario: &str, ports: [u16; 2], fault: Fault, reason: &str) {
    let mut stage = Stage::start(scenario, &[Agent::Cluster]).await;
    stage.site.create_tenant_namespace(scenario).await.unwrap();
    let proxy = stage.start_proxied_balancers().await;
    stage.load(&fleet(scenario, 3, 0, 1)).await;
    let shop = behind(scenario, &ports);
    stage.create(&shop).await;
    stage.ready(&shop).await;

    let writes = |call: &Call| (&*call.verb, &*call.resource, &*call.name) == ("patch", "services", SECOND);
    proxy.inject_always(writes, fault);
    let moved = workers(ports[1], ports[1], &json!({"clusterIP": "192.0.2.77"}));
    let entries = json!([workers(ports[0], ports[0], &json!({})), moved]);
    let one_edit = json!({
        "nodes": {"Worker": {"count": {"active": 2}}}, "services": {"loadBalancerWorker": entries},
    });
    stage.edit(&shop, one_edit).await;
    let why = stage
        .condition_is(&shop, "LoadBalancerReady", "False", reason)
        .await;
    assert!(why.contains("injected"), "{why}");
    let leaves = |object: &DynamicObject| members(object).iter().any(|member| member.state == "Releasing");
    let object = stage.until(&shop, "release a host", leaves).await;
    let mut held = members(&object).into_iter();
    let leaving = held.find(|member| member.state == "Releasing").unwrap().name;
    let follows = async {
        while stage.haproxy_config(&shop, "worker").await.contains(&leaving) {
            tokio::time::sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, follows).await.unwrap();
    stage
        .until(&shop, "report what the first one has applied", |object| {
            applied(object).first().map(|first| first.revision) == newest_revision(object)
        })
        .await;
    // Pods of the second one may still route to it.
    nothing_is_given_back(&stage, scenario, 3).await;
}

#[tokio::test]
async fn an_entry_that_a_webhook_rejects_holds_no_other() {
    second_fails("webhook", [31_340, 31_341], Fault::Refused(400), "Refused").await;
}

#[tokio::test]
async fn an_entry_whose_service_fails_holds_no_other() {
    second_fails("failing", [31_342, 31_343], Fault::Refused(500), "Progressing").await;
}

#[tokio::test]
async fn a_dropped_entry_whose_service_is_anothers_leaves_only_that() {
    let mut stage = Stage::start("others-service", &AGENTS).await;
    stage
        .site
        .create_tenant_namespace("others-service")
        .await
        .unwrap();
    stage.load(&fleet("others-service", 3, 0, 1)).await;
    let shop = behind("others-service", &[31_318]);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let of = objects(&stage, "others-service");
    stage.agent(Agent::LoadBalancer).kill9().await.unwrap();
    let theirs = json!([
        {"op": "replace", "path": "/metadata/labels", "value": {"app": "theirs"}},
        {"op": "remove", "path": "/metadata/ownerReferences"},
        {"op": "replace", "path": "/spec/selector", "value": {"app": "theirs"}},
    ]);
    let theirs = Patch::<Service>::Json(serde_json::from_value(theirs).unwrap());
    of.services
        .patch(FIRST, &PatchParams::default(), &theirs)
        .await
        .unwrap();
    stage.agent(Agent::LoadBalancer).restart().await.unwrap();
    stage
        .condition_is(&shop, "LoadBalancerReady", "False", "NameConflict")
        .await;

    stage
        .edit(&shop, json!({"services": {"loadBalancerWorker": null}}))
        .await;
    wait::until_gone(of.deployments, FIRST, PATIENCE).await.unwrap();
    wait::until_gone(of.policies, FIRST, PATIENCE).await.unwrap();
    stage.ready(&shop).await;
    let service = of.services.get(FIRST).await.unwrap();
    assert_eq!(service.metadata.labels.unwrap()["app"], "theirs");
}
