//! How many copies of a cluster fit in a site.

use placement::{ClusterName, Holder, Member, MemberState, Namespace, Request, Site};

use crate::{error::Error, spec::Spec, violation::Violation};

/// The name of a cluster that is only asked about.
///
/// # Errors
/// When the namespace cannot hold clusters.
pub(super) fn probe(namespace: &Namespace, copy: u32) -> Result<ClusterName, Error> {
    ClusterName::new(namespace.as_str(), format!("capacity-{copy}"))
        .map_err(|error| Error::Invalid(vec![Violation::new("namespace", error)]))
}

/// How many copies of a cluster fit one after the other, and why not one more.
///
/// # Errors
/// When the namespace cannot hold clusters.
pub(super) fn count(
    mut model: Site,
    spec: &Spec,
    namespace: &Namespace,
    most: u32,
) -> Result<(u32, String), Error> {
    for copy in 0..most {
        let cluster = probe(namespace, copy)?;
        let request = Request {
            cluster: cluster.clone(),
            roles: spec.roles().to_vec(),
            networks: spec.networks().clone(),
        };
        let none: [Member; 0] = [];
        let decision = placement::decide(&model, &request, &none);
        if let Some(refusal) = decision.refusal {
            return Ok((copy, refusal.message()));
        }
        for take in decision.take {
            let holder = Holder::Cluster {
                cluster: cluster.clone(),
                role: take.role,
                state: MemberState::Claimed,
            };
            model.hold(&take.host, holder);
        }
    }
    Ok((most, String::new()))
}
