//! Serves `HostClaim`s with the hosts of one namespace, as the baremetal-operator does with `--hostclaims`: list, choose at random, and write the
//! host with the resourceVersion that it was chosen with.

use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
    core::GroupVersionKind,
};
use rand::{SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::Value;

use crate::{
    choice::Choice,
    host_claim::HostClaim,
    provider::{Claim, Release, hosts},
    provisioning,
};

/// The part of the baremetal-operator that serves `HostClaim`s.
pub struct HostClaims {
    client: Client,
    /// Of the hosts.
    namespace: String,
    random: StdRng,
}

impl HostClaims {
    /// Serves them with the hosts of a namespace. `seed`: of its choices.
    #[must_use]
    pub fn new(client: Client, namespace: &str, seed: u64) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// Claims a host, or provisions the one that was claimed before; `None` when the host has changed since it was chosen.
    ///
    /// # Errors
    /// What the API server answers, unless it refuses the host.
    pub async fn associate(&mut self, claim: &HostClaim) -> kube::Result<Option<Claim>> {
        let policies = GroupVersionKind::gvk("metal3.io", "v1alpha1", "HostDeployPolicy");
        let policies: Api<DynamicObject> = Api::namespaced_with(
            self.client.clone(),
            &self.namespace,
            &ApiResource::from_gvk_with_plural(&policies, "hostdeploypolicies"),
        );
        let policies = policies.list(&ListParams::default()).await?.items;
        if !policies.iter().any(|policy| claim.is_let_in(policy)) {
            return Ok(Some(Claim::NoHost));
        }
        let selected = ListParams::default().labels(&claim.selector);
        let found = self.hosts().list(&selected).await?.items;
        match claim.choose(found) {
            Choice::Own(host) => self.provision(claim, &host).await,
            Choice::None => Ok(Some(Claim::NoHost)),
            Choice::OneOf(hosts) => match hosts.choose(&mut self.random) {
                Some(chosen) => self.claim(claim, chosen).await,
                None => Ok(Some(Claim::NoHost)),
            },
        }
    }

    /// Claims a host as it was when it was chosen; `None` when it has changed since.
    ///
    /// # Errors
    /// What the API server answers, unless it refuses the host.
    pub async fn claim(&self, claim: &HostClaim, chosen: &DynamicObject) -> kube::Result<Option<Claim>> {
        self.write(&claim.claimed(chosen)).await
    }

    async fn provision(&self, claim: &HostClaim, host: &str) -> kube::Result<Option<Claim>> {
        let host = self.hosts().get(host).await?;
        match claim.provisioned(&host) {
            Some(changed) => self.write(&changed).await,
            None => Ok(Some(Claim::Has(host.name_any()))),
        }
    }

    async fn write(&self, host: &DynamicObject) -> kube::Result<Option<Claim>> {
        let name = host.name_any();
        match self.hosts().replace(&name, &PostParams::default(), host).await {
            Ok(_) => Ok(Some(Claim::Has(name))),
            Err(kube::Error::Api(status)) => match status.code {
                404 => Ok(Some(Claim::NoHost)),
                409 => Ok(None),
                403 | 422 => Ok(Some(Claim::Refused {
                    host: name,
                    words: status.message.clone(),
                })),
                _ => Err(kube::Error::Api(status)),
            },
            Err(error) => Err(error),
        }
    }

    /// Releases the host of a claim: deprovisions it, and removes the consumer in a later call, once that is complete.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn release(&self, claim: &HostClaim) -> kube::Result<Release> {
        let hosts = self.hosts();
        let all = hosts.list(&ListParams::default()).await?.items;
        let Some(mut host) = all.into_iter().find(|host| claim.uses(host)) else {
            return Ok(Release::NoHost);
        };
        let name = host.name_any();
        let state = host.data["status"]["provisioning"]["state"]
            .as_str()
            .unwrap_or_default();
        if host.data["spec"]["image"].is_null() && provisioning::is_deprovisioned(state) {
            host.data["spec"]["consumerRef"] = Value::Null;
            hosts.replace(&name, &PostParams::default(), &host).await?;
            return Ok(Release::Released(name));
        }
        if !host.data["spec"]["image"].is_null() {
            host.data["spec"]["image"] = Value::Null;
            host.data["spec"]["online"] = Value::Bool(false);
            hosts.replace(&name, &PostParams::default(), &host).await?;
        }
        Ok(Release::Waits(name))
    }

    fn hosts(&self) -> Api<DynamicObject> {
        hosts(self.client.clone(), &self.namespace)
    }
}
