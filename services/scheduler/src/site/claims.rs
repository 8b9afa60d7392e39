//! Who holds what: the records of a site, committed or about to be, and in which order they have changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ::placement::{
    ClusterName, Holder, HostId, Namespace, NetworkId,
    size::{entry, small_map},
};

use super::{
    changes::{Changed, Changes, Cursor},
    inventory::Inventory,
    machine_identity::{self, Identity},
    shares::{Share, Shares},
};
use crate::{
    ledger::weight,
    record::{ClusterId, Member, Record},
};

/// The records of a site. What they hold is held in its inventory.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    records: BTreeMap<ClusterName, Arc<Record>>,
    /// What each namespace has of the records, see [`bytes`].
    shares: Shares,
    /// Members of all records.
    members: usize,
    changes: Changes,
    /// Clusters whose record is another one since the last [`publish`](Self::publish); `None`: all of them.
    unpublished: Option<BTreeSet<ClusterName>>,
}

/// About how many bytes a record takes here, with what is kept of the hosts that it holds. In the ledger it takes fewer.
fn bytes(record: &Record) -> usize {
    /// A record without members, and its place in the order of changes.
    const RECORD_BYTES: usize = size_of::<Record>()
        + entry(size_of::<(ClusterName, Arc<Record>)>())
        + entry(size_of::<(u64, ClusterName)>())
        + entry(size_of::<(Namespace, Share)>());
    /// A member, and who holds its host.
    const MEMBER_BYTES: usize = entry(size_of::<(HostId, Member)>()) + entry(size_of::<(HostId, Holder)>());
    /// How many times as many bytes a spec takes in memory as in the ledger, where most of its texts are short.
    const SPEC_MEMORY_FACTOR: usize = 8;
    let members = record.members.values().map(|member| {
        let addresses = small_map(member.addresses.len(), size_of::<(NetworkId, IpAddr)>());
        MEMBER_BYTES + addresses + machine_identity::member_bytes(member.addresses.len(), &member.bmc_address)
    });
    RECORD_BYTES
        + weight::record(record)
        + SPEC_MEMORY_FACTOR * weight::spec(&record.spec)
        + members.sum::<usize>()
}

/// What a step leaves behind when a record takes the place of the one before it.
#[derive(Debug)]
pub(super) struct Replaced {
    /// The record before.
    pub(super) before: Option<Arc<Record>>,
    /// Hosts that it held and that no cluster holds now.
    pub(super) freed: Vec<HostId>,
}

impl Claims {
    /// No records; removals up to revision `horizon` are not known.
    pub(super) fn new(horizon: u64) -> Self {
        Self {
            records: BTreeMap::new(),
            shares: Shares::default(),
            members: 0,
            changes: Changes::new(horizon),
            unpublished: None,
        }
    }

    /// Brings a copy of the records up to date that is read without the site's lock. Records are shared.
    pub(super) fn publish(&mut self, published: &mut BTreeMap<ClusterName, Arc<Record>>) {
        let Some(names) = self.unpublished.replace(BTreeSet::new()) else {
            published.clone_from(&self.records);
            return;
        };
        for name in names {
            match self.records.get(&name) {
                Some(record) => published.insert(name, Arc::clone(record)),
                None => published.remove(&name),
            };
        }
    }

    /// Every record, by name.
    pub(super) fn records(&self) -> &BTreeMap<ClusterName, Arc<Record>> {
        &self.records
    }

    pub(super) fn get(&self, name: &ClusterName) -> Option<&Arc<Record>> {
        self.records.get(name)
    }

    /// How many members all records have.
    pub(super) fn members(&self) -> usize {
        self.members
    }

    /// About how many bytes all records take.
    pub(super) fn bytes(&self) -> usize {
        self.shares.total().bytes
    }

    /// What all namespaces have, and what the namespace of a record has, with that in the place of the one of its cluster.
    pub(super) fn shares_with(&self, after: &Record) -> (Share, Share) {
        let before = self.records.get(&after.cluster);
        let with = |share: Share| Share {
            clusters: share.clusters + usize::from(before.is_none()),
            bytes: share.bytes - before.map_or(0, |before| bytes(before)) + bytes(after),
        };
        let own = self.shares.get(after.cluster.namespace());
        (with(self.shares.total()), with(own))
    }

    pub(super) fn contains(&self, name: &ClusterName) -> bool {
        self.records.contains_key(name)
    }

    /// Whether the cluster's record holds the host.
    pub(super) fn holds(&self, name: &ClusterName, id: &HostId) -> bool {
        let record = self.records.get(name);
        record.is_some_and(|record| record.members.contains_key(id))
    }

    /// Puts a record that the ledger holds.
    pub(super) fn load(&mut self, record: Arc<Record>, inventory: &mut Inventory) {
        self.changes.put(None, record.revision, record.cluster.clone());
        self.install(&record.cluster.clone(), Some(record), inventory);
    }

    /// Puts a record of that revision in the place of the one before it, or removes that. `cluster`: with the uid for which this
    /// is done, which may be a later one than that of the record before.
    pub(super) fn replace(
        &mut self,
        cluster: &ClusterId,
        record: Option<Arc<Record>>,
        revision: u64,
        inventory: &mut Inventory,
    ) -> Replaced {
        let removes = record.is_none();
        let replaced = self.install(&cluster.name, record, inventory);
        let earlier = replaced.before.as_ref().map(|before| before.revision);
        if removes {
            let earlier = earlier.unwrap_or(revision);
            self.changes.remove(earlier, revision, cluster.clone());
        } else {
            self.changes.put(earlier, revision, cluster.name.clone());
        }
        replaced
    }

    fn install(
        &mut self,
        name: &ClusterName,
        record: Option<Arc<Record>>,
        inventory: &mut Inventory,
    ) -> Replaced {
        if let Some(names) = &mut self.unpublished {
            names.insert(name.clone());
        }
        let before = self.records.remove(name);
        if let Some(before) = &before {
            self.shares.remove(name, bytes(before));
        }
        if let Some(record) = &record {
            self.shares.add(name, bytes(record));
        }
        let members = |record: Option<&Record>| record.map_or(0, |record| record.members.len());
        self.members += members(record.as_deref());
        self.members -= members(before.as_deref());
        let stays = |id: &HostId| {
            record
                .as_ref()
                .is_some_and(|record| record.members.contains_key(id))
        };
        let held = before.iter().flat_map(|before| before.members.keys());
        let freed: Vec<HostId> = held.filter(|id| !stays(id)).cloned().collect();
        for id in &freed {
            inventory.unhold(id);
        }
        for (id, member) in record.iter().flat_map(|record| &record.members) {
            let known = before.as_ref().and_then(|before| before.members.get(id));
            let is_same = |known: &Member| {
                known.state == member.state
                    && known.role == member.role
                    && known.addresses == member.addresses
                    && known.bmc_address == member.bmc_address
            };
            if known.is_some_and(is_same) {
                continue;
            }
            let holder = Holder::Cluster {
                cluster: name.clone(),
                role: member.role.clone(),
                state: member.state,
            };
            let known = Identity::new(&member.addresses, &member.bmc_address);
            inventory.hold(id, holder, known);
        }
        self.records.extend(record.map(|record| (name.clone(), record)));
        Replaced { before, freed }
    }

    /// Where a watcher begins that knows nothing.
    pub(super) fn beginning(&self) -> Cursor {
        self.changes.beginning()
    }

    /// The newest state of every cluster that changed after `cursor` and up to `upto`, as [`Changes::changed_after`] says.
    pub(super) fn changes(&self, cursor: Cursor, upto: u64, limit: usize) -> Option<Vec<Changed>> {
        self.changes.changed_after(cursor, upto, limit, &self.records)
    }
}

#[cfg(test)]
mod tests {
    use ::placement::{HostName, MemberState, Policy, RoleName, Uid};

    use super::*;
    use crate::spec::Spec;

    fn name() -> ClusterName {
        ClusterName::new("tenant", "one").unwrap()
    }

    fn id(uid: &str) -> ClusterId {
        ClusterId {
            name: name(),
            uid: uid.to_owned(),
        }
    }

    fn host(name: &str) -> HostId {
        HostId {
            name: HostName::new("metal", name).unwrap(),
            uid: Uid::new("u").unwrap(),
        }
    }

    fn record(revision: u64, hosts: &[&str]) -> Arc<Record> {
        let mut record = Record::new(name(), "uid".to_owned(), None, 1, Spec::default());
        record.revision = revision;
        let member = || Member::new(RoleName::new("Worker").unwrap(), None, MemberState::Claimed);
        record.members = hosts.iter().map(|host| (self::host(host), member())).collect();
        Arc::new(record)
    }

    #[test]
    fn the_inventory_shows_what_records_hold() {
        let mut inventory = Inventory::new(Policy::default());
        let mut claims = Claims::new(0);
        claims.load(record(1, &["a", "b"]), &mut inventory);
        assert_eq!(inventory.holding_cluster(&host("a")), Some(&name()));

        let replaced = claims.replace(&id("uid"), Some(record(2, &["b", "c"])), 2, &mut inventory);
        assert_eq!(replaced.freed, [host("a")]);
        assert_eq!(inventory.holding_cluster(&host("a")), None);
        assert!(claims.holds(&name(), &host("c")) && !claims.holds(&name(), &host("a")));

        let replaced = claims.replace(&id("later"), None, 3, &mut inventory);
        assert_eq!(replaced.freed, [host("b"), host("c")]);
        assert!(!claims.contains(&name()));
        let told = claims.changes(claims.beginning(), 3, 9).unwrap();
        let revisions: Vec<_> = told.iter().map(Changed::revision).collect();
        assert_eq!(revisions, [3], "only the newest state is told");
        let [Changed::Removed { revision: 3, cluster }] = &*told else {
            panic!("{told:?}");
        };
        assert_eq!(*cluster, id("later"), "it was released by that uid");
    }
}
