//! Cluster API's provider for metal3 (CAPM3) and `HostClaim`s on real sites: the stand-in of `tests/metal3`, under an identity of its own.

mod host_claims;
mod late;
mod lives;
mod machine_sets;
mod moves;
mod operator;
mod race;
mod scenarios;
mod webhook;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, Client,
    api::{DynamicObject, ObjectMeta, PostParams},
};
use metal3::provider::{self, Release};
use sandbox::{
    inventory,
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
    site::Site,
};
use tokio::time::{Instant, sleep};

pub(crate) use metal3::{
    metal3_machine::Metal3Machine,
    names::{CLUSTER, FAILURE_DOMAIN, NODE_REUSE},
    provider::{Claim, Pauses, TEMPLATED},
};

use crate::fixtures::{Cluster, PATIENCE, Role};

const NAMESPACE: &str = "capm3-system";
const ACCOUNT: &str = "capm3-manager";

/// One of the Cluster of the same name as a `SIPCluster`, for its hosts in a role. No test beside it on the site has one of its name.
pub(crate) fn metal3_machine(cluster: &Cluster, role: Role, index: usize) -> Metal3Machine {
    let (Cluster { namespace, name, .. }, role) = (cluster, role.name());
    Metal3Machine {
        namespace: "metal".to_owned(),
        name: format!("{namespace}-{name}-{}-{index}", role.to_lowercase()),
        uid: None,
        cluster: name.clone(),
        selector: format!("{CLUSTER_NAMESPACE}={namespace},{CLUSTER_NAME}={name},{NODE_TYPE}={role}"),
        reuses_for: None,
        failure_domain: None,
        writes_network_data: false,
    }
}

/// Its `ServiceAccount` and its rights in a site; a client of that.
pub(crate) async fn account(site: &Site) -> Client {
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
    site.apply_yaml(metal3::RIGHTS).await.unwrap();
    let kubeconfig = site.service_account_kubeconfig(NAMESPACE, ACCOUNT).await.unwrap();
    site.client_from(&kubeconfig).await.unwrap()
}

/// The provider, of which a failed call ends the test.
pub(crate) struct Capm3(provider::Capm3);

impl Capm3 {
    /// Installs it in a site, with a seed for its choices.
    pub(crate) async fn install(site: &Site, pauses: Pauses, seed: u64) -> Self {
        Self(provider::Capm3::new(account(site).await, pauses, seed))
    }

    /// Another process of it, with choices of its own.
    pub(crate) fn another(&self, seed: u64) -> Self {
        Self(self.0.another(seed))
    }

    /// Searches once, and claims what it finds.
    pub(crate) async fn associate(&mut self, machine: &Metal3Machine) -> Claim {
        self.0.associate(machine).await.unwrap()
    }

    /// Claims a host that was chosen before, as it is now.
    pub(crate) async fn claim(&self, machine: &Metal3Machine, host: &str) -> Claim {
        let chosen = DynamicObject::new(host, &inventory::resource());
        self.0.claim(machine, &chosen).await.unwrap()
    }

    /// Lets the host of a `Metal3Machine` go, if it has one.
    pub(crate) async fn release(&mut self, machine: &Metal3Machine) -> Option<String> {
        match self.0.release(machine).await.unwrap() {
            Release::Released(host) => Some(host),
            Release::NoHost => None,
            Release::Waits(host) => panic!("{host} is still provisioned"),
        }
    }

    /// Searches for each in turn, until as many have a host as there are hosts for them.
    pub(crate) async fn associate_all(
        &mut self,
        machines: &[Metal3Machine],
        wanted: usize,
    ) -> Vec<Option<String>> {
        let begun = Instant::now();
        loop {
            let mut found = Vec::new();
            for machine in machines {
                found.push(self.associate(machine).await.host());
            }
            if found.iter().flatten().count() >= wanted {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{found:?}");
            sleep(self.0.pauses().search).await;
        }
    }
}
