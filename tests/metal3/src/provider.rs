//! Searches and claims a host for a `Metal3Machine`, and lets it go, as CAPM3 does: list, choose at random, patch. What changes between list
//! and patch it does not notice.
//!
//! One [`Capm3`] handles one claim at a time, as the real process does under its lock; several of them race as the processes of
//! several management clusters would.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::{Value, json};

use crate::{
    choice::{self, Choice},
    metal3_machine::Metal3Machine,
    names::CLUSTER,
    patches, provisioning,
};

/// The address of every host that has its networkData by a `Metal3DataTemplate`.
pub const TEMPLATED: &str = "203.0.113.20";
/// The network of that address.
pub const TEMPLATED_NETWORK: &str = "oam-ipv4";

/// Pauses of the stand-in.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// Between two searches while there is no host. The real one waits 30 s.
    pub search: Duration,
    /// The longest pause between the choice of a host and the patch; each is drawn at random. On the real one about 8 ms, and
    /// 0.8 s were seen under load.
    pub delay: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            search: Duration::from_millis(50),
            delay: Duration::ZERO,
        }
    }
}

/// What came of one search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It has this host.
    Has(String),
    /// No host matches.
    NoHost,
    /// The API server refused the patch of this host, with these words.
    Refused {
        /// Which host.
        host: String,
        /// Why, for people.
        words: String,
    },
}

impl Claim {
    /// The host, if it has one.
    #[must_use]
    pub fn host(self) -> Option<String> {
        match self {
            Self::Has(host) => Some(host),
            Self::NoHost | Self::Refused { .. } => None,
        }
    }
}

/// What came of letting a host go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// It has no host.
    NoHost,
    /// This one is being deprovisioned.
    Waits(String),
    /// This one was let go.
    Released(String),
}

/// The provider.
pub struct Capm3 {
    client: Client,
    pauses: Pauses,
    random: StdRng,
}

impl Capm3 {
    /// One with an identity of its own, and a seed for its choices.
    #[must_use]
    pub fn new(client: Client, pauses: Pauses, seed: u64) -> Self {
        Self {
            client,
            pauses,
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// Another process of it, with choices of its own.
    #[must_use]
    pub fn another(&self, seed: u64) -> Self {
        Self::new(self.client.clone(), self.pauses, seed)
    }

    /// Its pauses.
    #[must_use]
    pub fn pauses(&self) -> Pauses {
        self.pauses
    }

    /// Searches once, and claims what it finds.
    ///
    /// # Errors
    /// What the API server answers, unless it refuses the claim.
    pub async fn associate(&mut self, machine: &Metal3Machine) -> kube::Result<Claim> {
        let selected = ListParams::default().labels(&machine.selector);
        let found = self.hosts(machine).list(&selected).await?.items;
        match choice::choose(machine, found) {
            Choice::Own(host) => Ok(Claim::Has(host)),
            Choice::None => Ok(Claim::NoHost),
            Choice::OneOf(hosts) => {
                let Some(chosen) = hosts.choose(&mut self.random) else {
                    return Ok(Claim::NoHost);
                };
                let delay = self.delay();
                tokio::time::sleep(delay).await;
                self.claim(machine, chosen).await
            }
        }
    }

    /// Claims a host that was chosen before, whatever it is now.
    ///
    /// # Errors
    /// What the API server answers, unless it refuses the claim.
    pub async fn claim(&self, machine: &Metal3Machine, chosen: &DynamicObject) -> kube::Result<Claim> {
        let secret = if machine.writes_network_data {
            Some(self.render_network_data(machine).await?)
        } else {
            None
        };
        let name = chosen.name_any();
        let patch = patches::claim(machine, chosen, secret.as_deref());
        match merge(&self.hosts(machine), &name, &patch).await {
            Ok(()) => Ok(Claim::Has(name)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Claim::NoHost),
            Err(kube::Error::Api(status)) if [403, 422].contains(&status.code) => Ok(Claim::Refused {
                host: name,
                words: status.message.clone(),
            }),
            Err(error) => Err(error),
        }
    }

    /// Goes one step towards letting the host of a `Metal3Machine` go: has it deprovisioned, and lets it go once it is. networkData
    /// of a data template still names its Secret, which is deleted.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn release(&mut self, machine: &Metal3Machine) -> kube::Result<Release> {
        let hosts = self.hosts(machine);
        let all = hosts.list(&ListParams::default()).await?.items;
        let Some(host) = all.into_iter().find(|host| machine.uses(host)) else {
            return Ok(Release::NoHost);
        };
        let name = host.name_any();
        if let Some(patch) = patches::deprovision(&host) {
            merge(&hosts, &name, &patch).await?;
        }
        let state = host.data["status"]["provisioning"]["state"]
            .as_str()
            .unwrap_or_default();
        if !provisioning::is_deprovisioned(state) {
            return Ok(Release::Waits(name));
        }
        if machine.writes_network_data {
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &machine.namespace);
            let deleted = secrets
                .delete(&network_data(machine), &DeleteParams::default())
                .await;
            found(deleted)?;
        }
        merge(&hosts, &name, &patches::release(machine, &host)).await?;
        Ok(Release::Released(name))
    }

    /// The Secret that a `Metal3DataTemplate` is rendered to: with the label of its Cluster, and an address of its own.
    async fn render_network_data(&self, machine: &Metal3Machine) -> kube::Result<String> {
        let name = network_data(machine);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &machine.namespace);
        let data = json!({"networks": [{"id": TEMPLATED_NETWORK, "type": "ipv4", "ip_address": TEMPLATED}]});
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
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            created => drop(created?),
        }
        Ok(name)
    }

    fn hosts(&self, machine: &Metal3Machine) -> Api<DynamicObject> {
        hosts(self.client.clone(), &machine.namespace)
    }

    fn delay(&mut self) -> Duration {
        let longest = u64::try_from(self.pauses.delay.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.random.random_range(0..=longest))
    }
}

fn network_data(machine: &Metal3Machine) -> String {
    format!("{}-networkdata", machine.name)
}

/// The hosts of a namespace.
pub(crate) fn hosts(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("metal3.io", "v1alpha1", "BareMetalHost");
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind))
}

/// One merge patch without resourceVersion and uid.
pub(crate) async fn merge(objects: &Api<DynamicObject>, name: &str, patch: &Value) -> kube::Result<()> {
    let patched = objects
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.map(drop)
}

/// What was answered, but for an object that is not there any more.
pub(crate) fn found<T>(answer: kube::Result<T>) -> kube::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop),
    }
}
