//! Predecessors: instances that the spec no longer names while it names others of their kind that are not made yet, as when an entry is renamed.
//! A predecessor stays until its successor is made: an entry that is refused would leave nothing that serves. It goes earlier only where an
//! entry that can be made wants one of its node ports.

use std::collections::{BTreeMap, BTreeSet};

use api::{Cluster, PortSet};
use k8s_openapi::api::core::v1;
use kube::ResourceExt as _;

use super::{
    context::Context,
    definition::Service,
    desired::names,
    identity::Identity,
    instances::OrUnserved,
    node_port_conflicts::{conflict, node_ports},
    observed::Observed,
    outcome::Rendered,
    ownership,
    pruning::Pruned,
    site::Site,
};

/// The predecessors of a cluster with their node ports. Which entry succeeds which of them is not known.
#[derive(Debug, Default)]
pub(super) struct Predecessors<'a>(BTreeMap<&'a str, PortSet>);

impl<'a> Predecessors<'a> {
    /// Of the instances of a cluster. There is none where instances are applied without the scheduler, since one that the spec drops may let
    /// somebody in, nor in a cluster that is being deleted, which gets nothing new.
    pub(super) fn of<S: Service>(observed: &'a Observed<'_>, entries: &[S::Entry]) -> Self {
        if S::APPLIES_WITHOUT_SCHEDULER || observed.is_deleting() {
            return Self::default();
        }
        let among = among(
            S::IDENTITY,
            observed.names(),
            observed.made(),
            &names::<S>(entries),
        );
        let ports = |name: &str| {
            let mut services = observed.services();
            let service = services.find(|service| service.metadata.name.as_deref() == Some(name));
            service.map(node_ports).unwrap_or_default()
        };
        Self(among.into_iter().map(|name| (name, ports(name))).collect())
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.0.keys().copied()
    }

    /// Deletes those that have a node port of an entry that is about to be made, or to get this port.
    pub(super) async fn make_way<S: Service>(
        &mut self,
        context: &Context<S>,
        observed: &Observed<'_>,
        rendered: &[OrUnserved<Rendered>],
    ) -> Pruned {
        let mut wanted = PortSet::default();
        for rendered in rendered.iter().flatten() {
            let service = rendered.objects.service();
            let ports = node_ports(service);
            let needs = self.0.values().any(|held| intersect(held, &ports));
            if needs && is_possible(&context.site, observed, service).await {
                ports.iter().for_each(|port| wanted.add(port));
            }
        }
        let in_the_way = self.take_with(&wanted);
        Pruned::delete(context, observed, in_the_way.into_iter()).await
    }

    /// Deletes the others, but as many of each kind as new entries are not served.
    pub(super) async fn delete_succeeded<S: Service>(
        self,
        context: &Context<S>,
        observed: &Observed<'_>,
        cluster: &Cluster,
        unserved: impl Iterator<Item = &str>,
    ) -> Pruned {
        let new = unserved.filter(|name| !observed.made().contains(*name));
        let staying = self.staying(S::IDENTITY, new, &S::node_ports(cluster));
        let succeeded = self.names().filter(|name| !staying.contains(name));
        Pruned::delete(context, observed, succeeded).await
    }

    fn take_with(&mut self, ports: &PortSet) -> Vec<&'a str> {
        let taken = self.0.extract_if(.., |_, held| intersect(held, ports));
        taken.map(|(name, _)| name).collect()
    }

    /// Of each kind as many as entries of it are not served; those with a port that the spec asks for come first.
    fn staying<'e>(
        &self,
        identity: &Identity,
        unserved: impl Iterator<Item = &'e str>,
        asked: &PortSet,
    ) -> BTreeSet<&'a str> {
        let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
        for kind in unserved.filter_map(|name| identity.kind_of(name)) {
            *waiting.entry(kind).or_default() += 1;
        }
        let mut staying = BTreeSet::new();
        let (first, last): (Vec<_>, Vec<_>) = self.0.iter().partition(|(_, held)| intersect(held, asked));
        for (name, _) in first.into_iter().chain(last) {
            let waiting = identity.kind_of(name).and_then(|kind| waiting.get_mut(kind));
            if let Some(waiting) = waiting.filter(|waiting| **waiting > 0) {
                *waiting -= 1;
                staying.insert(*name);
            }
        }
        staying
    }
}

/// The existing instances that the spec drops, of the kinds of which it desires one that is not made.
fn among<'a>(
    identity: &Identity,
    existing: &'a BTreeSet<String>,
    made: &BTreeSet<String>,
    desired: &[&str],
) -> Vec<&'a str> {
    let new = desired.iter().filter(|name| !made.contains(**name));
    let kinds: BTreeSet<&str> = new.filter_map(|name| identity.kind_of(name)).collect();
    let dropped = existing.iter().map(String::as_str);
    dropped
        .filter(|name| !desired.contains(name))
        .filter(|name| identity.kind_of(name).is_some_and(|kind| kinds.contains(kind)))
        .collect()
}

fn intersect(held: &PortSet, ports: &PortSet) -> bool {
    ports.iter().any(|port| held.contains(port))
}

/// Whether nothing is known because of which the Service would be refused. If a call fails here, it is not known.
async fn is_possible(site: &Site, observed: &Observed<'_>, service: &v1::Service) -> bool {
    let object = observed.object();
    conflict(site, object, service).is_none()
        && matches!(
            ownership::foreign(site, object, &service.name_any()).await,
            Ok(None)
        )
}

#[cfg(test)]
mod tests {
    use super::{super::identity::BALANCERS, *};

    const API: &str = "loadbalancer-controlplane-shop";
    const NAMED: &str = "loadbalancer-controlplane-shop-api";
    const FIRST: &str = "loadbalancer-worker-shop";
    const SECOND: &str = "loadbalancer-worker-shop-1";
    const WEB: &str = "loadbalancer-worker-shop-web";

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_dropped_instance_precedes_a_new_one_of_its_kind() {
        for (existing, made, desired, expected) in [
            (
                &[API, FIRST, SECOND][..],
                &[API, FIRST, SECOND][..],
                &[][..],
                &[][..],
            ),
            (
                &[API, FIRST, SECOND],
                &[API, FIRST, SECOND],
                &[API, FIRST, SECOND],
                &[],
            ),
            (&[API, FIRST, SECOND], &[API, FIRST, SECOND], &[API, FIRST], &[]),
            (
                &[API, FIRST, SECOND],
                &[API, FIRST, SECOND],
                &[NAMED, FIRST],
                &[API],
            ),
            (
                &[API, FIRST, SECOND],
                &[API, FIRST, SECOND],
                &[API, WEB],
                &[FIRST, SECOND],
            ),
            (
                &[API, FIRST, SECOND],
                &[API, FIRST, SECOND],
                &[API, FIRST, SECOND, NAMED],
                &[],
            ),
            // A refused entry can have an object, but serves nothing.
            (&[FIRST, WEB], &[FIRST], &[WEB], &[FIRST]),
            (&[FIRST, WEB], &[FIRST, WEB], &[WEB], &[]),
            (&[SECOND, WEB], &[], &[WEB], &[SECOND]),
        ] {
            let (all, made) = (set(existing), set(made));
            let found = among(BALANCERS, &all, &made, desired);
            assert_eq!(found, expected, "{existing:?} {made:?} {desired:?}");
        }
    }

    #[test]
    fn as_many_stay_as_new_entries_are_not_served() {
        let ports = |ports: &[u16]| ports.iter().copied().collect::<PortSet>();
        let all = || {
            Predecessors(BTreeMap::from([
                (API, ports(&[1])),
                (FIRST, ports(&[2, 3])),
                (SECOND, ports(&[4])),
            ]))
        };
        for (made_with, unserved, asked, gone_first, stay) in [
            (&[][..], &[][..], &[][..], &[][..], &[][..]),
            (&[], &[WEB], &[], &[], &[FIRST]),
            (&[], &[WEB], &[4, 9], &[], &[SECOND]),
            (
                &[],
                &[WEB, "loadbalancer-worker-shop-x"],
                &[4],
                &[],
                &[FIRST, SECOND],
            ),
            (
                &[],
                &[NAMED, "loadbalancer-controlplane-shop-x"],
                &[],
                &[],
                &[API],
            ),
            // One entry that is made takes the port of its predecessor, another one is refused.
            (&[3, 9], &[WEB], &[3, 9, 4], &[FIRST], &[SECOND]),
            (&[2, 4], &[WEB], &[2, 4], &[FIRST, SECOND], &[]),
            (&[9], &[], &[9], &[], &[]),
        ] {
            let mut predecessors = all();
            let gone = predecessors.take_with(&ports(made_with));
            assert_eq!(gone, gone_first, "{made_with:?}");
            let staying = predecessors.staying(BALANCERS, unserved.iter().copied(), &ports(asked));
            assert_eq!(
                staying,
                stay.iter().copied().collect(),
                "{made_with:?} {unserved:?} {asked:?}"
            );
        }
    }
}
