//! Names of the objects of an entry without a `name`: those of the objects that were made for it, as long as its ports distinguish it from other
//! entries.
//!
//! The Airship SIP operator named objects by the index of an entry. Removing an entry changes the index of those after it, so existing objects
//! decide first, and the index only where none exists.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::service::ObjectName;

/// Node ports of the existing instances, by the instance's name; an empty set where an instance's ports are not known.
pub type MadePorts = BTreeMap<String, BTreeSet<u16>>;

/// An entry of one kind, in the order of the spec.
pub(super) struct DesiredEntry {
    /// The name in the spec; without one, the name by the entry's index.
    pub(super) name: ObjectName,
    /// Whether the spec sets the name.
    pub(super) is_named: bool,
    /// Its node ports, where the spec sets them.
    pub(super) ports: BTreeSet<u16>,
}

/// Which entries may take over an existing instance whose ports match no entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Takeover {
    /// Any entry that has no instance yet.
    AnyEntry,
    /// No entry with other ports, except the one with the instance's index: with the objects it would take over another entry's keys.
    SameIndex,
}

/// Assigns each entry the name of its objects. `indexed`: names by index, at least as many as there are entries and existing instances together.
pub(super) fn assign(
    wanted: &[DesiredEntry],
    indexed: &[ObjectName],
    made: &MadePorts,
    takeover: Takeover,
) -> Vec<ObjectName> {
    let mut names: Vec<Option<ObjectName>> = wanted
        .iter()
        .map(|entry| entry.is_named.then(|| entry.name.clone()))
        .collect();
    let mut used: BTreeSet<String> = names.iter().flatten().map(ToString::to_string).collect();
    for (entry, name) in by_ports(wanted, made) {
        if names[entry].is_none() && used.insert(name.to_string()) {
            names[entry] = Some(name);
        }
    }
    // An entry that has no port of any existing instance has changed its ports. It keeps the instance with its own index, or else one that no
    // other entry has.
    for (entry, name) in wanted.iter().zip(&mut names) {
        let own = entry.name.as_str();
        if name.is_none() && made.contains_key(own) && used.insert(own.to_owned()) {
            *name = Some(entry.name.clone());
        }
    }
    let base = indexed.first().map_or("", ObjectName::as_str);
    for (entry, name) in wanted.iter().zip(&mut names) {
        if name.is_some() {
            continue;
        }
        // Where the ports of the entry or of the instance are not known, the instance may have been made for the entry.
        let may_take_over = |ports: &BTreeSet<u16>| {
            takeover == Takeover::AnyEntry || entry.ports.is_empty() || ports.is_empty()
        };
        let mut left = made
            .iter()
            .filter(|(name, ports)| is_indexed(name, base) && may_take_over(ports));
        *name = left
            .find(|(left, _)| used.insert((*left).clone()))
            .map(|(left, _)| ObjectName::made(left));
    }
    for (entry, name) in wanted.iter().zip(&mut names) {
        if name.is_none() && used.insert(entry.name.to_string()) {
            *name = Some(entry.name.clone());
        }
    }
    // `indexed` has as many names as there are entries and instances, so a free one is left for each entry.
    let mut free = indexed
        .iter()
        .filter(|name| !used.contains(name.as_str()) && !made.contains_key(name.as_str()));
    let assigned = wanted.iter().zip(names);
    assigned
        .map(|(entry, name)| {
            name.or_else(|| free.next().cloned())
                .unwrap_or_else(|| entry.name.clone())
        })
        .collect()
}

/// Whether a name is one by index, as an entry without a `name` gets it.
fn is_indexed(name: &str, base: &str) -> bool {
    let index = name.strip_prefix(base).map(|rest| rest.strip_prefix('-'));
    name == base
        || index
            .flatten()
            .is_some_and(|index| !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Pairs of an entry without a name and an existing instance with common ports, the pair with most common ports first.
fn by_ports(wanted: &[DesiredEntry], made: &MadePorts) -> Vec<(usize, ObjectName)> {
    let mut pairs = Vec::new();
    for (index, entry) in wanted.iter().enumerate().filter(|(_, entry)| !entry.is_named) {
        for (name, ports) in made {
            let common = entry.ports.intersection(ports).count();
            let others = entry.ports.len() + ports.len() - 2 * common;
            if common > 0 {
                pairs.push((Reverse(common), others, index, ObjectName::made(name)));
            }
        }
    }
    pairs.sort();
    let best_first = pairs.into_iter();
    best_first.map(|(_, _, index, name)| (index, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(index: usize) -> ObjectName {
        ObjectName::made(&match index {
            0 => "lb".to_owned(),
            index => format!("lb-{index}"),
        })
    }

    #[test]
    fn entries_keep_what_has_their_ports_and_else_get_their_index() {
        for (what, entries, made, expected) in [
            (
                "nothing exists",
                vec![vec![1], vec![2]],
                vec![],
                vec!["lb", "lb-1"],
            ),
            (
                "swapped",
                vec![vec![2], vec![1]],
                vec![("lb", vec![1]), ("lb-1", vec![2])],
                vec!["lb-1", "lb"],
            ),
            (
                "the middle one is removed",
                vec![vec![1], vec![3]],
                vec![("lb", vec![1]), ("lb-1", vec![2]), ("lb-2", vec![3])],
                vec!["lb", "lb-2"],
            ),
            (
                "one comes before the others",
                vec![vec![9], vec![1], vec![2]],
                vec![("lb", vec![1]), ("lb-1", vec![2])],
                vec!["lb-2", "lb", "lb-1"],
            ),
            (
                "a port changes",
                vec![vec![1], vec![9]],
                vec![("lb", vec![1]), ("lb-1", vec![2])],
                vec!["lb", "lb-1"],
            ),
            (
                "ranges move into each other: who agrees best keeps it",
                vec![vec![3], vec![4, 5, 6]],
                vec![("lb", vec![1, 2]), ("lb-1", vec![3, 4, 5])],
                vec!["lb", "lb-1"],
            ),
            (
                "a port changes of one that has another's index",
                vec![vec![1], vec![9]],
                vec![("lb", vec![2]), ("lb-2", vec![1]), ("lb-a", vec![3])],
                vec!["lb-2", "lb"],
            ),
            (
                "no ports are named",
                vec![vec![], vec![]],
                vec![("lb", vec![30_000]), ("lb-1", vec![30_001])],
                vec!["lb", "lb-1"],
            ),
        ] {
            let wanted: Vec<DesiredEntry> = entries
                .into_iter()
                .enumerate()
                .map(|(index, ports)| DesiredEntry {
                    name: name(index),
                    is_named: false,
                    ports: ports.into_iter().collect(),
                })
                .collect();
            let made = made
                .into_iter()
                .map(|(name, ports)| (name.to_owned(), ports.into_iter().collect()));
            let names = assigned(&wanted, &made.collect(), Takeover::AnyEntry);
            assert_eq!(names, expected, "{what}");
        }
    }

    fn assigned(wanted: &[DesiredEntry], made: &MadePorts, takeover: Takeover) -> Vec<String> {
        let indexed: Vec<_> = (0..wanted.len() + made.len()).map(name).collect();
        let names = assign(wanted, &indexed, made, takeover);
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_has_keys_goes_to_no_entry_with_other_ports() {
        for (what, entries, made, expected) in [
            (
                "the first is removed",
                vec![vec![2]],
                vec![("lb", vec![1]), ("lb-1", vec![2])],
                vec!["lb-1"],
            ),
            (
                "swapped",
                vec![vec![2], vec![1]],
                vec![("lb", vec![1]), ("lb-1", vec![2])],
                vec!["lb-1", "lb"],
            ),
            (
                "the first is removed, and another is added",
                vec![vec![2], vec![3]],
                vec![("lb", vec![1]), ("lb-1", vec![2])],
                vec!["lb-1", "lb-2"],
            ),
            (
                "a port changes",
                vec![vec![1], vec![9]],
                vec![("lb", vec![1]), ("lb-1", vec![2])],
                vec!["lb", "lb-1"],
            ),
            (
                "the port of what exists is not known",
                vec![vec![2]],
                vec![("lb-1", vec![])],
                vec!["lb-1"],
            ),
            (
                "the entry names no port, and is moved",
                vec![vec![2], vec![]],
                vec![("lb", vec![30_000]), ("lb-1", vec![2])],
                vec!["lb-1", "lb"],
            ),
        ] {
            let wanted: Vec<DesiredEntry> = entries
                .into_iter()
                .enumerate()
                .map(|(index, ports)| DesiredEntry {
                    name: name(index),
                    is_named: false,
                    ports: ports.into_iter().collect(),
                })
                .collect();
            let made = made
                .into_iter()
                .map(|(name, ports)| (name.to_owned(), ports.into_iter().collect()));
            assert_eq!(
                assigned(&wanted, &made.collect(), Takeover::SameIndex),
                expected,
                "{what}"
            );
        }
    }
}
