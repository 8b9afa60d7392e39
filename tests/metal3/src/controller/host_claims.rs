//! `HostClaim`s of all namespaces, as far as they may search in the namespace of these hosts.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use serde_json::json;
use tokio::time::Instant;

use super::{Controller, objects::Kind};
use crate::{
    host_claim::HostClaim,
    names::HOST_CLAIM_FINALIZER,
    provider::{Claim, Release},
};

impl Controller {
    pub(super) async fn serve_host_claims(&mut self) -> kube::Result<()> {
        let all = self.objects.all_namespaces(Kind::HostClaim).await?;
        let all: Vec<_> = all
            .into_iter()
            .map(|object| (HostClaim::read(&object), object))
            .collect();
        let keys: BTreeSet<String> = all.iter().map(|(claim, _)| key(claim)).collect();
        self.claim_searches.retain(|claim, _| keys.contains(claim));
        for (claim, object) in all {
            let is_elsewhere = |namespace: &String| namespace != self.objects.namespace();
            if claim.in_namespace.as_ref().is_some_and(is_elsewhere) {
                continue;
            }
            if object.metadata.deletion_timestamp.is_some() {
                let released = self.host_claims.release(&claim).await?;
                if !matches!(released, Release::Waits(_)) {
                    self.objects
                        .remove_finalizer(Kind::HostClaim, &object, HOST_CLAIM_FINALIZER)
                        .await?;
                }
                continue;
            }
            if !object
                .finalizers()
                .iter()
                .any(|name| name == HOST_CLAIM_FINALIZER)
            {
                let mut finalizers = object.finalizers().to_vec();
                finalizers.push(HOST_CLAIM_FINALIZER.to_owned());
                let patch = json!({"metadata": {"finalizers": finalizers}});
                self.objects.patch(Kind::HostClaim, &object, &patch).await?;
            }
            let now = Instant::now();
            let waits = |next: &Instant| *next > now;
            if self.claim_searches.get(&key(&claim)).is_some_and(waits) {
                continue;
            }
            match self.host_claims.associate(&claim).await? {
                Some(Claim::Has(host)) => {
                    let host = json!({"namespace": self.objects.namespace(), "name": host});
                    self.objects
                        .status(Kind::HostClaim, &object, &json!({"bareMetalHost": host}))
                        .await?;
                }
                // It is begun again at once.
                None => {}
                Some(Claim::NoHost | Claim::Refused { .. }) => {
                    let next = now + self.provider.pauses().search;
                    self.claim_searches.insert(key(&claim), next);
                }
            }
        }
        Ok(())
    }
}

fn key(claim: &HostClaim) -> String {
    format!("{}/{}", claim.namespace, claim.name)
}
