//! Passes over the objects of a namespace, as the controllers of Cluster API, of CAPM3 and of the baremetal-operator go over them.
//!
//! Each pass lists, decides by the pure modules, and writes. One that fails is begun again: what changed meanwhile is no fault.

mod host_claims;
mod machines;
mod metal3_machines;
mod objects;
mod owners;
mod remediations;

use std::{collections::BTreeMap, time::Duration};

use kube::Client;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tokio::time::Instant;

use crate::{
    host_claims::HostClaims,
    provider::{Capm3, Pauses},
};
use objects::Objects;

/// How it runs.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Pauses of the provider.
    pub pauses: Pauses,
    /// Between two passes.
    pub period: Duration,
    /// Seed of names and choices.
    pub seed: u64,
    /// Whether it plays the baremetal-operator, too: hosts go through the states of provisioning, and `HostClaim`s get them.
    pub operates_hosts: bool,
}

/// The controllers of one namespace.
pub struct Controller {
    objects: Objects,
    provider: Capm3,
    host_claims: HostClaims,
    settings: Settings,
    random: StdRng,
    /// When a host is searched again, by the name of the `Metal3Machine`.
    searches: BTreeMap<String, Instant>,
    /// The same, by namespace and name of the `HostClaim`.
    claim_searches: BTreeMap<String, Instant>,
}

impl Controller {
    /// Controllers for the objects and hosts of a namespace.
    #[must_use]
    pub fn new(client: Client, namespace: &str, settings: Settings) -> Self {
        Self {
            objects: Objects::new(client.clone(), namespace),
            host_claims: HostClaims::new(client.clone(), namespace, settings.seed),
            provider: Capm3::new(client, settings.pauses, settings.seed),
            settings,
            random: StdRng::seed_from_u64(settings.seed),
            searches: BTreeMap::new(),
            claim_searches: BTreeMap::new(),
        }
    }

    /// Goes over everything once.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn pass(&mut self) -> kube::Result<()> {
        self.scale_owners().await?;
        self.reconcile_metal3_machines().await?;
        self.reconcile_machines().await?;
        self.remediate().await?;
        if self.settings.operates_hosts {
            self.serve_host_claims().await?;
            self.operate_hosts().await?;
        }
        Ok(())
    }

    /// Goes over everything again and again; a pass that fails is told and begun again.
    pub async fn run(mut self, tell: impl Fn(&kube::Error)) {
        let mut pace = tokio::time::interval(self.settings.period);
        loop {
            pace.tick().await;
            if let Err(error) = self.pass().await {
                tell(&error);
            }
        }
    }

    /// A suffix as Cluster API gives it to the names of Machines.
    fn suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5)
            .filter_map(|_| LETTERS.get(self.random.random_range(0..LETTERS.len())))
            .map(|letter| char::from(*letter))
            .collect()
    }
}
