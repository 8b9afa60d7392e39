//! About how much memory a site takes, by what is in it. Never less than it takes but for what the allocator keeps for itself, so that
//! a limit on it is a limit on memory.

use std::collections::BTreeSet;

use vocabulary::{ClusterName, HostName, LabelKey, LabelValue, Namespace, NetworkId, SipLabels};

use super::Site;
use super::column::{self, Column};
use super::row::Row;
use super::set::{Set, Slot};
use crate::host::{Consumer, Host};

/// Texts up to this length take nothing beside what has them.
const INLINE: usize = 23;

/// Bytes of a text beside what has it.
#[must_use]
pub const fn text(length: usize) -> usize {
    // Counts of who has it, and what the allocator adds.
    const SHARED: usize = 32;
    if length <= INLINE { 0 } else { length + SHARED }
}

/// Bytes for each entry of a large sorted map or set whose entries take so many: nodes have room for more than is in them.
#[must_use]
pub const fn entry(bytes: usize) -> usize {
    bytes * 7 / 4
}

/// Bytes of a small sorted map or set of so many entries, which take so many bytes each: a node has room for several.
#[must_use]
pub const fn small_map(entries: usize, bytes: usize) -> usize {
    const CAPACITY: usize = 11;
    /// As full as nodes are.
    const FULL: usize = 9;
    const HEADER: usize = 16;
    entries.div_ceil(FULL) * (CAPACITY * bytes + HEADER)
}

/// Vectors that grow have room for twice as much as is in them.
const GROWN: usize = 2;

/// A host, without its labels and networks: its row, its rank, its place in the sets.
const ROW: usize = GROWN * (size_of::<Option<Row>>() + size_of::<u64>())
    + entry(size_of::<(HostName, Slot)>())
    + entry(size_of::<(u64, Slot)>());
/// A label of a host: its number in the row, and the host in the sets of its column.
const LABEL: usize = size_of::<(u32, u32)>() + 6 * size_of::<Slot>();
/// A network of a host.
const NETWORK: usize = 3 * size_of::<Slot>();
/// A key that no other host has, with its first value.
const KEY: usize = GROWN * size_of::<(LabelKey, Column)>()
    + entry(size_of::<(LabelKey, u32)>())
    + small_map(1, size_of::<(LabelValue, u32)>())
    + 4 * column::ENTRY
    + SETS;
/// The least that a value's, a key's or a network's sets take.
const SETS: usize = 48;
/// A value that no other host has.
const VALUE: usize = GROWN * column::ENTRY + entry(size_of::<(LabelValue, u32)>()) + SETS / 3;
/// A network that no other host has.
const ONE_NETWORK: usize =
    GROWN * size_of::<(NetworkId, Set)>() + entry(size_of::<(NetworkId, u32)>()) + SETS / 3;
/// A namespace that no other host has.
const NAMESPACE: usize = entry(size_of::<(Namespace, Set)>()) + SETS / 3;
/// A host that may be the machine of members.
const FORMER: usize = entry(size_of::<(HostName, Box<[ClusterName]>)>()) + 2 * size_of::<ClusterName>();

impl Site {
    /// About how many bytes it takes, without who holds its hosts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.host_bytes
            + self.column_bytes
            + (self.rows.len() - self.ranks.len()) * GROWN * size_of::<Option<Row>>()
            + self.columns.len() * KEY
            + self.network_hosts.len() * ONE_NETWORK
            + self.namespaces.len() * NAMESPACE
            + self.former.len() * FORMER
    }

    /// About how many bytes more it takes with these hosts, in the place of those of their names.
    #[must_use]
    pub fn bytes_of_more<'a>(&self, hosts: impl IntoIterator<Item = &'a Host>) -> usize {
        let (mut keys, mut values) = (BTreeSet::new(), BTreeSet::new());
        let (mut networks, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
        let mut bytes = 0_usize;
        for host in hosts {
            let before = self.ranks.slot(&host.id.name).and_then(|slot| self.row(slot));
            bytes += of_host(host).saturating_sub(before.map_or(0, of_row));
            for (key, value) in &host.labels {
                let column = self.keys.get(key).and_then(|key| self.column_at(*key));
                if column.is_none_or(|(_, column)| column.number(value.as_str()).is_none()) {
                    values.insert((key, value));
                }
                if column.is_none() {
                    keys.insert(key);
                }
            }
            networks.extend(
                host.networks
                    .iter()
                    .filter(|network| !self.networks.contains_key(*network)),
            );
            let namespace = host.id.name.namespace();
            if !self.namespaces.contains_key(namespace) {
                namespaces.insert(namespace);
            }
        }
        let texts = values.iter().map(|(_, value)| text(value.as_str().len()));
        bytes
            + texts.sum::<usize>()
            + values.len() * VALUE
            + keys.len() * KEY
            + networks.len() * ONE_NETWORK
            + namespaces.len() * NAMESPACE
    }
}

/// Of a column beside its key: unused numbers of values take memory too.
pub(super) fn of_column(values: usize, texts: usize) -> usize {
    values * VALUE + texts
}

/// Texts are those of the host that was given; only what is not shared counts.
fn of_host(host: &Host) -> usize {
    let problem = host.problem.as_ref().map_or(0, String::len);
    let has_labels = host.sip_labels != SipLabels::None;
    of_parts(
        host.labels.len(),
        host.networks.len(),
        host.consumer.is_some(),
        has_labels,
        problem,
    )
}

pub(super) fn of_row(row: &Row) -> usize {
    let (problem, has_labels) = (
        row.problem.as_deref().map_or(0, str::len),
        row.sip_labels.is_some(),
    );
    of_parts(
        row.labels.len(),
        row.networks.len(),
        row.consumer.is_some(),
        has_labels,
        problem,
    )
}

fn of_parts(labels: usize, networks: usize, has_consumer: bool, has_labels: bool, problem: usize) -> usize {
    let consumer = if has_consumer { size_of::<Consumer>() } else { 0 };
    let sip_labels = if has_labels { size_of::<SipLabels>() } else { 0 };
    ROW + labels * LABEL + networks * NETWORK + consumer + sip_labels + problem
}

#[cfg(test)]
mod tests {
    use vocabulary::{HostId, Uid};

    use super::*;

    fn host(name: &str, label: &str) -> Host {
        let id = HostId {
            name: HostName::new("metal", name).unwrap(),
            uid: Uid::new("u").unwrap(),
        };
        let mut host = Host::available(id);
        let value = LabelValue::new(label).unwrap();
        host.labels.insert(LabelKey::new("key").unwrap(), value);
        host.networks.insert(NetworkId::new(label).unwrap());
        host
    }

    #[test]
    fn what_is_expected_of_new_hosts_is_what_they_take() {
        let mut site = Site::default();
        let hosts: Vec<_> = (0..100)
            .map(|number| host(&format!("h{number}"), &format!("l{}", number % 9)))
            .collect();
        let expected = site.bytes_of_more(&hosts);
        for host in &hosts {
            site.upsert(host.clone());
        }
        assert_eq!(site.bytes(), expected);
        assert_eq!(site.bytes_of_more(&hosts), 0, "they are there");
    }

    #[test]
    fn what_has_gone_is_not_counted_again_when_it_comes_back() {
        let mut site = Site::default();
        let sizes = [(); 3].map(|()| {
            for number in 0..50 {
                site.upsert(host(&format!("h{number}"), &format!("l{number}")));
            }
            let size = site.bytes();
            for number in 0..50 {
                site.remove(&HostName::new("metal", format!("h{number}")).unwrap());
            }
            size
        });
        assert!(sizes[2] <= sizes[1], "{sizes:?}");
    }
}
