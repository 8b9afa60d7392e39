//! What `override` changes in a Service, and where the status says that it is reached.

use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{balanced, change, objects, workers};
use crate::fixtures::{Role, cluster, on_shared_site};

const NAME: &str = "loadbalancer-controlplane-shop";

fn changes(spec: &Value) -> Value {
    json!({"override": {"service": {
        "metadata": {"labels": {"team": "blue"}, "annotations": {"metallb.universe.tf/address-pool": "tenants"}},
        "spec": spec,
    }}})
}

#[test]
fn a_service_changes_to_load_balancer_and_back() {
    on_shared_site("exposed", async |stage| {
        let of = objects(stage, "exposed");
        let shop = balanced("exposed", "shop", 31_130, &json!({"clusterIP": "192.0.2.20"}));
        stage.create(&shop).await;
        let ready = stage.ready(&shop).await;
        let endpoint = json!([{"name": NAME, "address": "192.0.2.20", "port": 31_130, "protocol": "https"}]);
        assert_eq!(ready.data["status"]["endpoints"], endpoint);

        let spec = json!({
            "type": "LoadBalancer", "loadBalancerClass": "example.org/metallb", "allocateLoadBalancerNodePorts": false,
            "externalTrafficPolicy": "Local",
        });
        let mut fields = changes(&spec);
        fields["nodePort"] = Value::Null;
        stage
            .edit(&shop, change("exposed", "shop", 31_130, &fields))
            .await;
        stage
            .condition_mentions(
                &shop,
                "LoadBalancerReady",
                "False",
                "Progressing",
                "no address yet",
            )
            .await;
        let service = of.services.get(NAME).await.unwrap();
        assert_eq!(service.metadata.labels.as_ref().unwrap()["team"], "blue");
        assert_eq!(
            service.metadata.annotations.as_ref().unwrap()["metallb.universe.tf/address-pool"],
            "tenants"
        );
        let spec = serde_json::to_value(service.spec.unwrap()).unwrap();
        assert_eq!(spec["type"], "LoadBalancer");
        assert_eq!(spec["loadBalancerClass"], "example.org/metallb");
        assert_eq!(spec["externalTrafficPolicy"], "Local");
        assert_eq!(spec["selector"]["app.kubernetes.io/instance"], NAME);
        let given = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.9"}]}}});
        of.services
            .patch_status(NAME, &PatchParams::default(), &Patch::Merge(given))
            .await
            .unwrap();
        let ready = stage.ready(&shop).await;
        let endpoint = json!([{"name": NAME, "address": "198.51.100.9", "port": 6443, "protocol": "https"}]);
        assert_eq!(ready.data["status"]["endpoints"], endpoint);

        stage
            .edit(
                &shop,
                change("exposed", "shop", 31_131, &json!({"override": null})),
            )
            .await;
        let ready = stage.ready(&shop).await;
        assert_eq!(ready.data["status"]["endpoints"][0]["port"], 31_131);
        let service = of.services.get(NAME).await.unwrap();
        let annotations: Vec<_> = service.annotations().keys().collect();
        assert_eq!(annotations, ["sip.airshipit.org/served"]);
        let spec = serde_json::to_value(service.spec.unwrap()).unwrap();
        assert_eq!(
            (
                &spec["type"],
                &spec["loadBalancerClass"],
                &spec["externalTrafficPolicy"]
            ),
            (&json!("NodePort"), &Value::Null, &json!("Cluster"))
        );
    });
}

#[test]
fn keys_that_are_not_known_are_refused_with_their_path() {
    on_shared_site("unknown-keys", async |stage| {
        let spec = json!({"selector": {"app": "mine"}});
        let shop = balanced("unknown-keys", "shop", 31_132, &changes(&spec));
        stage.create(&shop).await;
        let why = stage
            .condition_is(&shop, "Scheduled", "False", "InvalidSpec")
            .await;
        let path = "spec.services.loadBalancerControlPlane[0].override.service.spec.selector";
        assert!(why.contains(path) && why.contains("is an unknown field"), "{why}");
        assert!(
            objects(stage, "unknown-keys")
                .services
                .get_opt(NAME)
                .await
                .unwrap()
                .is_none()
        );
    });
}

#[test]
fn overrides_that_the_site_does_not_list_are_refused() {
    on_shared_site("overrides", async |stage| {
        let fields = json!({"override": {"service": {
            "metadata": {
                "labels": {"team": "blue", "exposed-by": "tenant"},
                "annotations": {"external-dns.alpha.kubernetes.io/hostname": "api.other-tenant.example"},
            },
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.org/other"},
        }}});
        let shop = balanced("overrides", "shop", 31_136, &fields);
        stage.create(&shop).await;
        let why = stage
            .condition_is(&shop, "LoadBalancerReady", "False", "OverrideNotAllowed")
            .await;
        for refused in [
            "metadata.labels[exposed-by]",
            "metadata.annotations[external-dns.alpha.kubernetes.io/hostname]",
            "spec.loadBalancerClass example.org/other",
        ] {
            assert!(why.contains(refused), "{why}");
        }
        assert!(
            !why.contains("team") && !why.contains("api.other-tenant.example"),
            "{why}"
        );
        let of = objects(stage, "overrides");
        assert!(of.services.get_opt(NAME).await.unwrap().is_none());

        stage
            .edit(
                &shop,
                change("overrides", "shop", 31_136, &json!({"override": null})),
            )
            .await;
        stage.ready(&shop).await;
        // What runs stays as it is when an override is added that is not listed.
        stage
            .edit(&shop, change("overrides", "shop", 31_136, &fields))
            .await;
        stage
            .condition_is(&shop, "LoadBalancerReady", "False", "OverrideNotAllowed")
            .await;
        let service = of.services.get(NAME).await.unwrap();
        let annotations: Vec<_> = service.annotations().keys().collect();
        assert_eq!(annotations, ["sip.airshipit.org/served"]);
        assert_eq!(service.spec.unwrap().type_.as_deref(), Some("NodePort"));
    });
}

#[test]
fn two_clusters_share_ports_where_no_node_has_them() {
    on_shared_site("shared-ports", async |stage| {
        let of = objects(stage, "shared-ports");
        let fields = changes(&json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}));
        let both = ["one", "other"].map(|name| {
            let entry = workers(31_133, 31_135, &fields);
            cluster("shared-ports", name)
                .role(Role::Worker, 0)
                .with("/services/loadBalancerWorker", json!([entry]))
        });
        for shop in &both {
            stage.create(shop).await;
        }
        for (shop, address) in both.iter().zip(["198.51.100.10", "198.51.100.11"]) {
            stage
                .condition_mentions(
                    shop,
                    "LoadBalancerReady",
                    "False",
                    "Progressing",
                    "no address yet",
                )
                .await;
            let name = format!("loadbalancer-worker-{}", shop.name);
            let given = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
            of.services
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(given))
                .await
                .unwrap();
            let ready = stage.ready(shop).await;
            assert_eq!(ready.data["status"]["endpoints"][2]["address"], address);
            let service = of.services.get(&name).await.unwrap();
            let ports = service.spec.unwrap().ports.unwrap();
            assert!(ports.iter().all(|port| port.node_port.is_none()), "{ports:?}");
        }
    });
}
