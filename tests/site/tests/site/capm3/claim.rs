//! How CAPM3 takes a host: list, choose at random, patch. What changed between list and patch it does not notice.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, ObjectMeta, PostParams},
};
use sandbox::inventory::NETWORK;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{CLUSTER, Capm3, Metal3Machine, TEMPLATED, choice, merge};
use crate::fixtures::PATIENCE;

/// What came of one search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It has this host.
    Has(String),
    /// No host matches.
    NoHost,
    /// The API server refused the patch of this host, with these words.
    Refused { host: String, words: String },
}

impl Claim {
    pub(crate) fn host(self) -> Option<String> {
        match self {
            Self::Has(host) => Some(host),
            Self::NoHost | Self::Refused { .. } => None,
        }
    }
}

impl Capm3 {
    /// Searches once, and claims what it finds.
    pub(crate) async fn associate(&mut self, machine: &Metal3Machine) -> Claim {
        let hosts = self.hosts(machine);
        let selected = ListParams::default().labels(&machine.selector);
        let found = hosts.list(&selected).await.unwrap().items;
        if let Some(own) = found.iter().find(|host| machine.uses(host)) {
            return Claim::Has(own.name_any());
        }
        let Some(chosen) = choice::choose(machine, found, &mut self.random) else {
            return Claim::NoHost;
        };
        let delay = self.delay();
        sleep(delay).await;
        self.claim(machine, &chosen.name_any()).await
    }

    /// Claims a host that was chosen before, as it is now.
    pub(crate) async fn claim(&self, machine: &Metal3Machine, host: &str) -> Claim {
        let hosts = self.hosts(machine);
        let mut patch = json!({
            "metadata": {"labels": {CLUSTER: machine.cluster}},
            "spec": {"consumerRef": machine.reference(), "online": true},
        });
        if machine.writes_network_data {
            let secret = self.render_network_data(machine).await;
            patch["spec"]["networkData"] = json!({"name": secret, "namespace": machine.namespace});
        }
        match merge(&hosts, host, &patch).await {
            Ok(host) => Claim::Has(host),
            Err(kube::Error::Api(status)) if status.code == 404 => Claim::NoHost,
            Err(kube::Error::Api(status)) if [403, 422].contains(&status.code) => Claim::Refused {
                host: host.to_owned(),
                words: status.message.clone(),
            },
            Err(error) => panic!("{error}"),
        }
    }

    /// The Secret that a `Metal3DataTemplate` is rendered to: with the label of its Cluster, and addresses of its own.
    async fn render_network_data(&self, machine: &Metal3Machine) -> String {
        let name = format!("{}-networkdata", machine.name);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &machine.namespace);
        let data = json!({"networks": [{"id": NETWORK, "type": "ipv4", "ip_address": TEMPLATED}]});
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some([(CLUSTER.to_owned(), machine.cluster.clone())].into()),
                ..ObjectMeta::default()
            },
            string_data: Some([("networkData".to_owned(), data.to_string())].into()),
            ..Secret::default()
        };
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => panic!("{error}"),
        }
        name
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
            sleep(self.pauses.search).await;
        }
    }
}
