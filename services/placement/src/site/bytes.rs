//! About how much memory a site takes, by what is in it.

use std::collections::BTreeSet;

use vocabulary::{ClusterName, HostName, LabelKey, LabelValue, Namespace, NetworkId};

use super::Site;
use super::column::{Column, ENTRY_BYTES, VALUE_BYTES};
use super::row::Row;
use super::set::{SMALL_SET_BYTES, Set};
use super::size::{VECTOR_GROWTH, entry, small_map, text};
use crate::host::Host;

/// Bytes of a label key that no other host has, with its first value.
const KEY_BYTES: usize = VECTOR_GROWTH * size_of::<(LabelKey, Column)>()
    + entry(size_of::<(LabelKey, u32)>())
    + small_map(1, size_of::<(LabelValue, u32)>())
    + 4 * ENTRY_BYTES
    + 3 * SMALL_SET_BYTES;
/// Bytes of a network that no other host has.
const NETWORK_BYTES: usize =
    VECTOR_GROWTH * size_of::<(NetworkId, Set)>() + entry(size_of::<(NetworkId, u32)>()) + SMALL_SET_BYTES;
/// Bytes of a namespace that no other host has.
const NAMESPACE_BYTES: usize = entry(size_of::<(Namespace, Set)>()) + SMALL_SET_BYTES;
/// Bytes of the record that a host may be the machine of members.
const FORMER_BYTES: usize = entry(size_of::<(HostName, Box<[ClusterName]>)>()) + 2 * size_of::<ClusterName>();

impl Site {
    /// About how many bytes it takes, without who holds its hosts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.host_bytes
            + self.column_bytes
            + (self.rows.len() - self.ranks.len()) * VECTOR_GROWTH * size_of::<Option<Row>>()
            + self.columns.len() * KEY_BYTES
            + self.network_hosts.len() * NETWORK_BYTES
            + self.namespaces.len() * NAMESPACE_BYTES
            + self.former.len() * FORMER_BYTES
    }

    /// About how many bytes more it takes with these hosts, in the place of those of their names.
    #[must_use]
    pub fn bytes_of_more<'a>(&self, hosts: impl IntoIterator<Item = &'a Host>) -> usize {
        let (mut keys, mut values) = (BTreeSet::new(), BTreeSet::new());
        let (mut networks, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
        let mut bytes = 0_usize;
        for host in hosts {
            let before = self.ranks.slot(&host.id.name).and_then(|slot| self.row(slot));
            bytes += Row::bytes_of(host).saturating_sub(before.map_or(0, Row::bytes));
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
            + values.len() * VALUE_BYTES
            + keys.len() * KEY_BYTES
            + networks.len() * NETWORK_BYTES
            + namespaces.len() * NAMESPACE_BYTES
    }
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
