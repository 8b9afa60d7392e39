//! Frees node ports where entries of one cluster ask for each other's. Each would wait for the other without end, so the Service of one entry in
//! the cycle gives up the ports that its entry no longer asks for. After the edit these carry no traffic any more.

use std::collections::{BTreeMap, BTreeSet};

use api::PortSet;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;

use super::{
    error::{Error, refusal},
    made_for,
    node_ports::{node_ports, without_ports},
    observed::Observed,
    site::Site,
};
use crate::apply;

/// The node ports of an entry's Service.
#[derive(Clone, Debug)]
struct Ports {
    held: PortSet,
    wanted: PortSet,
}

/// Frees the ports of one Service in each cycle. If the API server refuses that, the Service stays, and the conflict is reported.
pub(super) async fn free<'a>(
    site: &Site,
    observed: &Observed<'_>,
    rendered: impl Iterator<Item = &'a Service>,
) -> Result<(), Error> {
    let own = observed
        .services()
        .filter(|service| made_for::is_of(service, observed.object()));
    let own: BTreeMap<String, &Service> = own.map(|service| (service.name_any(), service)).collect();
    let wanted: BTreeMap<String, &Service> = rendered.map(|service| (service.name_any(), service)).collect();
    let entries = wanted.iter().filter_map(|(name, service)| {
        let ports = Ports {
            held: node_ports(own.get(name)?),
            wanted: node_ports(service),
        };
        Some((name.as_str(), ports))
    });
    let entries: BTreeMap<&str, Ports> = entries.collect();
    for name in in_cycles(&entries) {
        let (Some(service), Some(ports), Some(own)) = (wanted.get(name), entries.get(name), own.get(name))
        else {
            continue;
        };
        let mut kept = without_ports(service, &ports.held);
        // Only the same object may be changed, and no other one of its name.
        kept.metadata.uid = own.uid();
        tracing::info!(service = name, held = %ports.held, wanted = %ports.wanted, "removing node ports from the Service for a moment: it exchanges ports with another Service of the cluster");
        if let Err(error) = apply::apply(&site.client, site.identity.manager, &kept).await {
            refusal("free node ports of the Service", error)?;
        }
    }
    Ok(())
}

/// One entry of each cycle in which every entry waits for a port that the next one has and no longer asks for.
fn in_cycles<'a>(entries: &BTreeMap<&'a str, Ports>) -> Vec<&'a str> {
    let mut left = entries.clone();
    let mut freed = Vec::new();
    while let Some(name) = left.keys().copied().find(|name| is_in_cycle(&left, name)) {
        left.remove(name);
        freed.push(name);
    }
    freed
}

fn is_in_cycle(entries: &BTreeMap<&str, Ports>, name: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&str> = awaited(entries, name).collect();
    while let Some(other) = next.pop() {
        if other == name {
            return true;
        }
        if seen.insert(other) {
            next.extend(awaited(entries, other));
        }
    }
    false
}

/// The other entries that have a port for which this one waits, and that no longer ask for it.
fn awaited<'a>(entries: &'a BTreeMap<&str, Ports>, name: &'a str) -> impl Iterator<Item = &'a str> {
    let own = entries.get(name).into_iter();
    own.flat_map(move |own| {
        let others = entries.iter().filter(move |(other, ports)| {
            let mut left = ports.held.iter().filter(|port| !ports.wanted.contains(*port));
            **other != name && left.any(|port| own.wanted.contains(port) && !own.held.contains(port))
        });
        others.map(|(other, _)| *other)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries<'a>(all: &[(&'a str, &[u16], &[u16])]) -> BTreeMap<&'a str, Ports> {
        let ports = |ports: &[u16]| ports.iter().copied().collect();
        let all = all.iter();
        all.map(|(name, held, wanted)| {
            let ports = Ports {
                held: ports(held),
                wanted: ports(wanted),
            };
            (*name, ports)
        })
        .collect()
    }

    #[test]
    fn one_entry_of_each_cycle_gives_its_ports_up() {
        for (what, all, expected) in [
            (
                "they stay",
                vec![("a", &[1][..], &[1][..]), ("b", &[2], &[2])],
                vec![],
            ),
            (
                "two exchange",
                vec![("a", &[1], &[2]), ("b", &[2], &[1])],
                vec!["a"],
            ),
            (
                "one follows another",
                vec![("a", &[1], &[2]), ("b", &[2], &[3])],
                vec![],
            ),
            (
                "three exchange, and one waits",
                vec![
                    ("a", &[1], &[2]),
                    ("b", &[2], &[3]),
                    ("c", &[3], &[1]),
                    ("d", &[4], &[1]),
                ],
                vec!["a"],
            ),
            (
                "both want one",
                vec![("a", &[1], &[1, 2]), ("b", &[2], &[1, 2])],
                vec![],
            ),
            (
                "two pairs",
                vec![
                    ("a", &[1], &[2]),
                    ("b", &[2], &[1]),
                    ("c", &[3], &[4]),
                    ("d", &[4], &[3]),
                ],
                vec!["a", "c"],
            ),
            (
                "a range moves on",
                vec![("a", &[1, 2], &[2, 3]), ("b", &[3], &[1])],
                vec!["a"],
            ),
        ] {
            assert_eq!(in_cycles(&entries(&all)), expected, "{what}");
        }
    }
}
