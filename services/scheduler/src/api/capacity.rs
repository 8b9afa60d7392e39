//! How many copies of a cluster fit in a site.

use std::time::Instant;

use placement::{ClusterName, Holder, Member, MemberState, Namespace, Refusal, Request, Site};

use crate::{error::Error, ledger::StageMetrics, region::SLICE, spec::Spec, violation::Violation};

/// The name of a cluster that is only asked about.
///
/// # Errors
/// When the namespace cannot hold clusters.
pub(super) fn probe(namespace: &Namespace, copy: u32) -> Result<ClusterName, Error> {
    ClusterName::new(namespace.as_str(), format!("capacity-{copy}"))
        .map_err(|error| Error::Invalid(vec![Violation::new("namespace", error)]))
}

/// Copies of a cluster that are placed one after the other in a copy of a site, a slice at a time.
#[derive(Debug)]
pub(super) struct Count {
    model: Site,
    spec: Spec,
    namespace: Namespace,
    copies: u32,
    most: u32,
}

/// What a slice has found.
#[derive(Debug)]
pub(super) enum Counted {
    /// There is more to count.
    More(Box<Count>),
    /// So many copies fit, and why not one more; empty when no more were asked for.
    All(u32, String),
}

impl Count {
    pub(super) fn new(model: Site, spec: Spec, namespace: Namespace, most: u32) -> Box<Self> {
        Box::new(Self {
            model,
            spec,
            namespace,
            copies: 0,
            most,
        })
    }

    /// Places copies for a while.
    ///
    /// # Errors
    /// When the namespace cannot hold clusters.
    pub(super) fn advance(mut self: Box<Self>, metrics: &StageMetrics) -> Result<Counted, Error> {
        let begun = Instant::now();
        while self.copies < self.most {
            let cluster = probe(&self.namespace, self.copies)?;
            if let Some(refusal) = metrics.decide("capacity", || self.place(&cluster)) {
                return Ok(Counted::All(self.copies, refusal.message()));
            }
            self.copies += 1;
            if begun.elapsed() >= SLICE {
                return Ok(Counted::More(self));
            }
        }
        Ok(Counted::All(self.copies, String::new()))
    }

    /// Places one more copy; what speaks against it.
    fn place(&mut self, cluster: &ClusterName) -> Option<Refusal> {
        let request = Request {
            cluster: cluster.clone(),
            roles: self.spec.roles().to_vec(),
            networks: self.spec.networks().clone(),
        };
        let none: [Member; 0] = [];
        let decision = placement::decide(&self.model, &request, &none);
        if decision.refusal.is_some() {
            return decision.refusal;
        }
        for take in decision.take {
            let holder = Holder::Cluster {
                cluster: cluster.clone(),
                role: take.role,
                state: MemberState::Claimed,
            };
            self.model.hold(&take.host, holder);
        }
        None
    }
}
