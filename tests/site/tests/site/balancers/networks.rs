//! Multus networks. There is no Multus here: the test plays its definitions and what it says of pods.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{balanced, objects};
use crate::fixtures::on_shared_site;

const NAME: &str = "loadbalancer-controlplane-shop";
const REASON: &str = "NetworkAttachmentMissing";
const DEFINITIONS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {plural: network-attachment-definitions, singular: network-attachment-definition, kind: NetworkAttachmentDefinition}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
const STORAGE: &str = "
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: storage, namespace: attached}
spec: {config: '{}'}
";

fn networks(pod: &Pod) -> Option<&str> {
    pod.annotations()
        .get("k8s.v1.cni.cncf.io/networks")
        .map(String::as_str)
}

#[test]
fn a_network_exists_before_the_load_balancer_is_ready() {
    on_shared_site("attached", async |stage| {
        let of = objects(stage, "attached");
        let shop = balanced(
            "attached",
            "shop",
            31_140,
            &json!({"networkAttachments": ["storage"]}),
        );
        stage.create(&shop).await;
        let ready = "LoadBalancerReady";
        stage
            .condition_mentions(&shop, ready, "False", REASON, "Multus is not installed")
            .await;
        stage.event(&shop, REASON, "Multus is not installed").await;
        assert!(
            of.services.get_opt(NAME).await.unwrap().is_none(),
            "nothing is applied"
        );

        stage.site.apply_yaml(DEFINITIONS).await.unwrap();
        let missing = "there is no NetworkAttachmentDefinition attached/storage";
        stage
            .condition_mentions(&shop, ready, "False", REASON, missing)
            .await;

        stage
            .kubectl(&[
                "wait",
                "--for=condition=Established",
                "crd/network-attachment-definitions.k8s.cni.cncf.io",
            ])
            .await;
        stage.site.apply_yaml(STORAGE).await.unwrap();
        let not_joined = "has no address in the network attached/storage";
        stage
            .condition_mentions(&shop, ready, "False", REASON, not_joined)
            .await;
        let pods = of.pods_of(NAME).await;
        for (index, pod) in pods.iter().enumerate() {
            assert_eq!(
                networks(pod),
                Some(r#"[{"name":"storage","namespace":"attached"}]"#)
            );
            // First a network without an address, as Multus tells while IPAM has given none.
            for ips in [json!([]), json!([format!("192.0.2.{index}")])] {
                let joined = json!([
                    {"name": "cbr0", "interface": "eth0", "ips": ["10.0.0.9"], "default": true},
                    {"name": "attached/storage", "interface": "net1", "ips": ips},
                ]);
                let status = json!({"metadata": {"annotations": {
                    "k8s.v1.cni.cncf.io/network-status": joined.to_string(),
                }}});
                of.pods
                    .patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status))
                    .await
                    .unwrap();
            }
        }
        stage.ready(&shop).await;
    });
}
