//! How CAPM3 lets a host go when its `Metal3Machine` is deleted.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use super::{CLUSTER, Capm3, Metal3Machine, NODE_REUSE, merge};

impl Capm3 {
    /// Lets the host of a `Metal3Machine` go, if it has one: takes its image and consumer off, and its cluster label where that is the
    /// Machine's own. With `nodeReuse` a label stays that keeps the host for the Machine's owner. networkData of a data template
    /// still names its Secret, which is deleted.
    pub(crate) async fn release(&mut self, machine: &Metal3Machine) -> Option<String> {
        let hosts = self.hosts(machine);
        let all = hosts.list(&ListParams::default()).await.unwrap().items;
        let host = all.into_iter().find(|host| machine.uses(host))?;
        let mut labels = json!({});
        if host.labels().get(CLUSTER) == Some(&machine.cluster) {
            labels[CLUSTER] = Value::Null;
        }
        if let Some(owner) = &machine.reuses_for {
            labels[NODE_REUSE] = json!(owner);
        }
        if machine.writes_network_data {
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &machine.namespace);
            let name = format!("{}-networkdata", machine.name);
            secrets.delete(&name, &DeleteParams::default()).await.unwrap();
        }
        let patch = json!({
            "metadata": {"labels": labels},
            "spec": {"consumerRef": null, "image": null},
        });
        Some(merge(&hosts, &host.name_any(), &patch).await.unwrap())
    }
}
