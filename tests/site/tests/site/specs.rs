//! Specs that cannot be acted on: the API server takes them, and conditions and Events say what is wrong.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::fixtures::{Cluster, Role, cluster, fleet, on_shared_site};

/// A good cluster that holds nothing, so that only what is changed can be wrong with it.
fn good(name: &str) -> Cluster {
    cluster("specs", name)
        .role(Role::ControlPlane, 0)
        .role(Role::Worker, 0)
        .balanced(30_220)
}

fn requirement(operator: &str, values: &Value) -> Value {
    json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]})
}

/// Bad clusters, each with the field, the value and the rule that must be named.
fn bad() -> Vec<(Cluster, [&'static str; 3])> {
    let selector = "/nodes/Worker/labelSelector";
    let requirements = "spec.nodes[Worker].labelSelector.matchExpressions[0]";
    let long: &str = "a-name-of-forty-characters-is-too-long-x";
    let image = "/services/loadBalancerControlPlane/0/image";
    let port = "/services/loadBalancerControlPlane/0/nodePort";
    vec![
        (
            good("negative").with("/nodes/Worker/count/active", json!(-1)),
            ["spec.nodes[Worker].count.active", "-1", "must not be negative"],
        ),
        (
            good("operator").with(selector, requirement("Gt", &json!(["1"]))),
            [
                requirements,
                "\"Gt\"",
                "must be In, NotIn, Exists or DoesNotExist",
            ],
        ),
        (
            good("in-nothing").with(selector, requirement("In", &json!([]))),
            [
                requirements,
                "absent",
                "must have at least one value with operator In",
            ],
        ),
        (
            good("not-in-nothing").with(selector, requirement("NotIn", &json!([]))),
            [
                requirements,
                "absent",
                "must have at least one value with operator NotIn",
            ],
        ),
        (
            good("no-selector").with(selector, Value::Null),
            [
                "spec.nodes[Worker].labelSelector",
                "absent",
                "must be set; {} selects every host",
            ],
        ),
        (
            good("port-twice").with(port, json!(30_221)),
            [
                "spec.services.loadBalancerWorker[0].nodePortRange",
                "30221",
                "must be unique on a node, and is already set in spec.services.loadBalancerControlPlane[0].nodePort",
            ],
        ),
        (
            good("hostile-image").with(image, json!("haproxy\n  privileged: true")),
            [
                "spec.services.loadBalancerControlPlane[0].image",
                "\"haproxy\\n  privileged: true\"",
                "must not contain white space or control characters",
            ],
        ),
        (
            good(long),
            [
                "metadata.name",
                "\"a-name-of-forty-characters-is-too-long-x\"",
                "must be at most 63 lowercase letters, digits and '-'",
            ],
        ),
    ]
}

#[test]
fn invalid_specs_are_refused_with_field_value_and_rule() {
    on_shared_site("specs", async |stage| {
        let bad = bad();
        for (cluster, _) in &bad {
            stage.create(cluster).await;
        }
        for (cluster, expected) in &bad {
            let message = stage
                .condition_is(cluster, "Scheduled", "False", "InvalidSpec")
                .await;
            for part in expected {
                assert!(
                    message.contains(part),
                    "{}: no {part:?} in {message:?}",
                    cluster.name
                );
                stage.event(cluster, "InvalidSpec", part).await;
            }
            assert!(!message.contains('\n'), "{message:?}");
            assert_eq!(
                stage
                    .condition_is(cluster, "Ready", "False", "Unschedulable")
                    .await,
                message
            );
        }
        // Nothing holds them: they were never declared to the scheduler.
        for (cluster, _) in &bad {
            stage.delete(cluster).await;
            stage.gone(cluster).await;
        }
    });
}

#[test]
fn a_running_cluster_survives_an_invalid_spec() {
    on_shared_site("running", async |stage| {
        stage.load(&fleet("running", 3, 1, 2)).await;
        let shop = cluster("running", "shop")
            .role(Role::ControlPlane, 3)
            .role(Role::Worker, 2)
            .balanced(30_230);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let deployments: Api<Deployment> = Api::namespaced(stage.site.client(), "running");
        let deployment = async || deployments.get("loadbalancer-worker-shop").await.unwrap();
        let hosts = async || {
            let hosts = stage.hosts_of("running").await;
            let seen = hosts
                .iter()
                .map(|host| (host.name_any(), host.labels().clone(), host.resource_version()));
            seen.collect::<Vec<_>>()
        };
        let (hosts_before, config_before) = (hosts().await, stage.haproxy_config(&shop, "worker").await);
        let (uid, generation) = {
            let before = deployment().await.metadata;
            (before.uid, before.generation)
        };

        for nonsense in [
            json!({"nodes": {"Worker": {"count": {"active": -7}}}}),
            json!({"nodes": {"Worker": {"labelSelector": null}}}),
            json!({"services": {"loadBalancerWorker": []}}),
        ] {
            stage.edit(&shop, nonsense).await;
            stage
                .condition_is(&shop, "Scheduled", "False", "InvalidSpec")
                .await;
        }

        stage
            .condition_mentions(&shop, "Ready", "False", "Unschedulable", "-7")
            .await;
        assert_eq!(hosts().await, hosts_before);
        assert_eq!(stage.haproxy_config(&shop, "worker").await, config_before);
        let after = deployment().await.metadata;
        assert_eq!((after.uid, after.generation), (uid, generation));

        stage.edit(&shop, shop.spec().clone()).await;
        stage.ready(&shop).await;
        assert_eq!(
            hosts().await,
            hosts_before,
            "the same hosts, and nothing was written to them"
        );
    });
}
