//! A stand-in of Cluster API's provider for metal3 (CAPM3). It takes hosts as the real one does, under an identity of its own.
//!
//! What it does, and what of it is not played here, is in `docs/assumptions.md`. One [`Capm3`] handles one claim at a time, as
//! the real process does under its lock; several of them race as the processes of several management clusters would.

mod choice;
mod claim;
mod late;
mod lives;
mod race;
mod release;
mod scenarios;
mod webhook;

use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use sandbox::{
    inventory,
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
    site::Site,
};
use serde_json::{Value, json};

pub(crate) use claim::Claim;

use crate::fixtures::{Cluster, Role};

pub(crate) const API_VERSION: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
/// On a host: the Cluster API cluster whose Machine uses it.
pub(crate) const CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
/// On a host: it is kept for the Machines of this owner.
pub(crate) const NODE_REUSE: &str = "infrastructure.cluster.x-k8s.io/node-reuse";
/// On a host: the failure domain that Machines may ask for.
pub(crate) const FAILURE_DOMAIN: &str = "infrastructure.cluster.x-k8s.io/failure-domain";

/// The address of every host that has its networkData by a `Metal3DataTemplate`.
pub(crate) const TEMPLATED: &str = "203.0.113.20";

const NAMESPACE: &str = "capm3-system";
const ACCOUNT: &str = "capm3-manager";

/// Pauses of the stand-in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    /// Between two searches while there is no host. The real one waits 30 s.
    pub(crate) search: Duration,
    /// The longest pause between the choice of a host and the patch; each is drawn at random. On the real one about 8 ms, and
    /// 0.8 s were seen under load.
    pub(crate) delay: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            search: Duration::from_millis(50),
            delay: Duration::ZERO,
        }
    }
}

/// A `Metal3Machine` with what its Machine and its template say.
#[derive(Clone, Debug)]
pub(crate) struct Metal3Machine {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The Cluster that its Machine belongs to.
    pub(crate) cluster: String,
    /// `spec.hostSelector.matchLabels`.
    pub(crate) selector: String,
    /// Owner of the Machine, where its template says `nodeReuse`.
    pub(crate) reuses_for: Option<String>,
    /// `spec.failureDomain` of its Machine.
    pub(crate) failure_domain: Option<String>,
    /// Whether it has a `Metal3DataTemplate` that writes networkData.
    pub(crate) writes_network_data: bool,
}

impl Metal3Machine {
    /// One of the Cluster of the same name as a `SIPCluster`, for its hosts in a role.
    pub(crate) fn new(cluster: &Cluster, role: Role, index: usize) -> Self {
        let (Cluster { namespace, name, .. }, role) = (cluster, role.name());
        Self {
            namespace: "metal".to_owned(),
            name: format!("{name}-{}-{index}", role.to_lowercase()),
            cluster: name.clone(),
            selector: format!("{CLUSTER_NAMESPACE}={namespace},{CLUSTER_NAME}={name},{NODE_TYPE}={role}"),
            reuses_for: None,
            failure_domain: None,
            writes_network_data: false,
        }
    }

    pub(crate) fn reference(&self) -> Value {
        json!({"apiVersion": API_VERSION, "kind": "Metal3Machine", "namespace": self.namespace, "name": self.name})
    }

    /// Whether a host is used by it. The version of the reference does not matter.
    fn uses(&self, host: &DynamicObject) -> bool {
        let consumer = &host.data["spec"]["consumerRef"];
        let group = consumer["apiVersion"]
            .as_str()
            .and_then(|version| version.split('/').next());
        group == API_VERSION.split('/').next()
            && consumer["kind"] == "Metal3Machine"
            && consumer["namespace"] == *self.namespace
            && consumer["name"] == *self.name
    }
}

/// The stand-in.
pub(crate) struct Capm3 {
    client: Client,
    pauses: Pauses,
    random: StdRng,
}

impl Capm3 {
    /// Installs its `ServiceAccount` and its rights in a site, and starts it with a seed for its choices.
    pub(crate) async fn install(site: &Site, pauses: Pauses, seed: u64) -> Self {
        site.create_namespace(NAMESPACE).await.unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(site.client(), NAMESPACE);
        let account = ServiceAccount {
            metadata: ObjectMeta {
                name: Some(ACCOUNT.to_owned()),
                ..ObjectMeta::default()
            },
            ..ServiceAccount::default()
        };
        match accounts.create(&PostParams::default(), &account).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => panic!("{error}"),
        }
        site.apply_yaml(RIGHTS).await.unwrap();
        let kubeconfig = site.service_account_kubeconfig(NAMESPACE, ACCOUNT).await.unwrap();
        Self {
            client: site.client_from(&kubeconfig).await.unwrap(),
            pauses,
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// Another process of it, with choices of its own.
    pub(crate) fn another(&self, seed: u64) -> Self {
        Self {
            client: self.client.clone(),
            pauses: self.pauses,
            random: StdRng::seed_from_u64(seed),
        }
    }

    fn hosts(&self, machine: &Metal3Machine) -> Api<DynamicObject> {
        inventory::api(self.client.clone(), &machine.namespace)
    }

    fn delay(&mut self) -> Duration {
        let longest = u64::try_from(self.pauses.delay.as_micros()).unwrap();
        Duration::from_micros(self.random.random_range(0..=longest))
    }
}

const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: capm3-manager}
rules:
  - {apiGroups: [metal3.io], resources: [baremetalhosts, baremetalhosts/status], verbs: [get, list, watch, update, patch]}
  - {apiGroups: [''], resources: [secrets], verbs: [get, create, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: capm3-manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: capm3-manager}
subjects: [{kind: ServiceAccount, name: capm3-manager, namespace: capm3-system}]
";

/// One merge patch without resourceVersion and uid.
async fn merge(hosts: &Api<DynamicObject>, name: &str, patch: &Value) -> kube::Result<String> {
    let patched = hosts
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(patched.name_any())
}
