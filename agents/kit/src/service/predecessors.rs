//! Predecessors: instances that serve and that the spec no longer names, while it names new ones of their kind, as when an entry is renamed. An
//! instance is new until its pods have been available; its Service records that they were. Predecessors stay until no entry of their kind is new:
//! one that is refused would leave nothing. One of them goes earlier only where an entry that can be made wants a node port that it has.

use std::collections::{BTreeMap, BTreeSet};

use api::PortSet;
use kube::ResourceExt as _;

use super::{
    context::Context,
    definition::Service,
    desired::{name, names},
    error::{Error, Errors},
    identity::Identity,
    instances::{OrUnserved, failed},
    node_port_conflicts::{conflict, conflict_with_other_agents},
    node_ports::node_ports,
    objects::{Objects, Prepared},
    observed::Observed,
    outcome::{Outcome, Predecessor, Rendered},
    ownership::{foreign, foreign_child},
    problem::{NAME_CONFLICT, Problem, Unserved},
    pruning::Pruned,
    site::Site,
    vacancy,
};

/// The predecessors of a cluster with their node ports, and which of the desired instances are not new. Which entry succeeds which predecessor
/// is not known.
#[derive(Debug, Default)]
pub(super) struct Predecessors<'a> {
    held: BTreeMap<&'a str, PortSet>,
    /// Desired instances that have served; also in a cluster that is being deleted, which has no predecessors, so that the record stays as it is.
    served: BTreeSet<&'a str>,
    /// How many of the desired instances are new.
    new: usize,
}

impl<'a> Predecessors<'a> {
    /// Of the instances of a cluster. There is none where instances are applied without the scheduler, since one that the spec drops may let
    /// somebody in, nor in a cluster that is being deleted, which gets nothing new. An entry that is to have no pods is not new.
    pub(super) fn new<S: Service>(observed: &'a Observed<'_>, entries: &'a [S::Entry]) -> Self {
        if S::APPLIES_WITHOUT_SCHEDULER {
            return Self::default();
        }
        let have_served = observed.have_served();
        let with_pods = entries.iter().filter(|entry| S::service(entry).replicas() > 0);
        let (served, new): (BTreeSet<&str>, BTreeSet<&str>) = with_pods
            .map(name::<S>)
            .partition(|name| have_served.contains(name));
        let among = if observed.is_deleting() {
            Vec::new()
        } else {
            find_predecessors(S::IDENTITY, observed.serving(), &names::<S>(entries), &new)
        };
        let ports = |name: &str| {
            let mut services = observed.services();
            let service = services.find(|service| service.metadata.name.as_deref() == Some(name));
            service.map(node_ports).unwrap_or_default()
        };
        Self {
            held: among.into_iter().map(|name| (name, ports(name))).collect(),
            served,
            new: new.len(),
        }
    }

    /// Records of each of the rendered instances whether it has served, for the time when its pods are away.
    pub(super) fn record_served<S: Service>(&self, rendered: &mut [OrUnserved<Rendered>]) {
        if S::APPLIES_WITHOUT_SCHEDULER {
            return;
        }
        for Rendered { objects, .. } in rendered.iter_mut().flatten() {
            objects.record_served(self.served.contains(&*objects.name()));
        }
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.held.keys().copied()
    }

    /// Deletes those that have a node port of an entry that is about to be made, or to get this port. An entry that cannot be made is not served
    /// in this pass; one of which only the Service is rendered yet is exposed without the port.
    pub(super) async fn free_node_ports<S: Service>(
        &mut self,
        context: &Context<S>,
        observed: &Observed<'_>,
        rendered: &mut [OrUnserved<Rendered>],
    ) -> Pruned {
        let mut wanted = PortSet::default();
        let mut errors = Errors::new();
        for entry in rendered {
            let Ok(Rendered { objects, .. }) = entry else {
                continue;
            };
            let ports = node_ports(objects.service());
            let held = self.held_among(&ports);
            if held.is_empty() {
                continue;
            }
            if objects.has_only_service() {
                objects.leave_node_ports(&held);
                continue;
            }
            match obstacle(&context.site, observed, objects).await {
                Ok(None) => held.iter().for_each(|port| wanted.add(port)),
                Ok(Some(problem)) => *entry = Err(Unserved::Refused(problem)),
                Err(error) => *entry = Err(failed(error, &mut errors)),
            }
        }
        let in_the_way = self.take_with_any_port(&wanted);
        let mut pruned = Pruned::delete(context, observed, in_the_way.into_iter()).await;
        pruned.errors.extend(errors);
        pruned
    }

    /// What is reported of those that stay. Users reach them at their endpoints; the status has those of as many as there are new entries, which bounds it.
    pub(super) fn outcomes(&self, observed: &Observed<'_>) -> impl Iterator<Item = Outcome> {
        self.names().enumerate().map(move |(index, name)| {
            let endpoints = (index < self.new).then(|| observed.endpoints_of_service(name));
            Outcome::Predecessor(Predecessor {
                name: name.to_owned(),
                endpoints: endpoints.unwrap_or_default(),
            })
        })
    }

    /// Those of these node ports that any of them has.
    fn held_among(&self, ports: &PortSet) -> PortSet {
        let held = |port: &u16| self.held.values().any(|held| held.contains(*port));
        ports.iter().filter(held).collect()
    }

    fn take_with_any_port(&mut self, ports: &PortSet) -> Vec<&'a str> {
        let has_one = |held: &PortSet| held.iter().any(|port| ports.contains(port));
        let taken = self.held.extract_if(.., |_, held| has_one(held));
        taken.map(|(name, _)| name).collect()
    }
}

/// Those of the instances that serve which the spec drops, of the kinds of which an instance is new.
fn find_predecessors<'a>(
    identity: &Identity,
    serving: BTreeSet<&'a str>,
    desired: &[&str],
    new: &BTreeSet<&str>,
) -> Vec<&'a str> {
    let dropped = serving.into_iter().filter(|name| !desired.contains(name));
    dropped
        .filter(|name| {
            new.iter()
                .any(|new| identity.kind_of(new) == identity.kind_of(name))
        })
        .collect()
}

/// Why an instance cannot be made, as far as that is known before anything of it is applied: a node port that another cluster has, or an object of
/// somebody else that has a name of its objects.
async fn obstacle(
    site: &Site,
    observed: &Observed<'_>,
    objects: &Objects<Prepared>,
) -> Result<Option<Problem>, Error> {
    let object = observed.object();
    let service = objects.service();
    let taken = conflict(site, object, service).or_else(|| conflict_with_other_agents(site, object, service));
    if taken.is_some() {
        return Ok(taken);
    }
    let conflict = |message| Ok(Some(Problem::new(NAME_CONFLICT, message)));
    let name = objects.name();
    if let Some(message) = foreign(site, object, &name).await? {
        return conflict(message);
    }
    let read = || Error::kubernetes("read what has the names of the instance's objects");
    if let Some(message) = vacancy::occupant(site, object, &name).await.map_err(read())? {
        return conflict(message);
    }
    let (namespace, uid, cluster) = (
        observed.namespace(),
        object.uid().unwrap_or_default(),
        object.name_any(),
    );
    let children = objects.configuration_children().iter();
    let children = children
        .chain(objects.access_children())
        .chain(objects.guard_children());
    for child in children {
        let name = child.metadata().name.as_deref().unwrap_or_default();
        let found = child.kind().find(&site.client, &namespace, name).await;
        let foreign = found
            .map_err(read())?
            .and_then(|found| foreign_child(site.identity, (&uid, &cluster), child.kind(), &found));
        if let Some(message) = foreign {
            return conflict(message);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::{super::identity::BALANCERS, *};

    const API: &str = "loadbalancer-controlplane-shop";
    const NAMED: &str = "loadbalancer-controlplane-shop-api";
    const FIRST: &str = "loadbalancer-worker-shop";
    const SECOND: &str = "loadbalancer-worker-shop-1";
    const WEB: &str = "loadbalancer-worker-shop-web";

    #[test]
    fn a_dropped_instance_precedes_a_new_one_of_its_kind() {
        let all = [API, FIRST, SECOND];
        for (serving, desired, new, expected) in [
            (&all[..], &[][..], &[][..], &[][..]),
            (&all, &[API, FIRST], &[], &[]),
            (&all, &[NAMED, FIRST], &[NAMED], &[API]),
            // Which of them it succeeds is not known.
            (&all, &[API, WEB], &[WEB], &[FIRST, SECOND]),
            (&all, &[API, FIRST, SECOND, NAMED], &[NAMED], &[]),
            // It has served, or is to have no pods.
            (&[FIRST, WEB], &[WEB], &[], &[]),
            // What does not serve is no predecessor, whatever objects there are of it.
            (&[], &[WEB], &[WEB], &[]),
        ] {
            let serving: BTreeSet<&str> = serving.iter().copied().collect();
            let among = find_predecessors(
                BALANCERS,
                serving.clone(),
                desired,
                &new.iter().copied().collect(),
            );
            assert_eq!(among, expected, "{serving:?} {desired:?} {new:?}");
        }
    }

    #[test]
    fn only_those_with_a_wanted_port_make_way() {
        let ports = |ports: &[u16]| ports.iter().copied().collect::<PortSet>();
        for (wanted, held, gone) in [
            (&[][..], &[][..], &[][..]),
            (&[9], &[], &[]),
            (&[3, 9], &[3], &[FIRST]),
            (&[2, 4, 9], &[2, 4], &[FIRST, SECOND]),
        ] {
            let all = [(API, &[1][..]), (FIRST, &[2, 3]), (SECOND, &[4])];
            let mut predecessors = Predecessors {
                held: all.map(|(name, held)| (name, ports(held))).into(),
                new: 1,
                ..Predecessors::default()
            };
            let wanted = ports(wanted);
            assert_eq!(predecessors.held_among(&wanted), ports(held));
            assert_eq!(predecessors.take_with_any_port(&wanted), gone);
            assert_eq!(predecessors.names().count(), all.len() - gone.len());
        }
    }
}
