//! What is looked for in a status.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use ::placement::{HostId, HostName, MemberState};

use crate::observed::{Cluster, Member};

/// A status, and what is looked for in it: once for each member, of which it may have many thousands.
pub(super) struct Status<'a> {
    pub(super) observed: &'a Cluster,
    hosts: OnceCell<BTreeSet<&'a HostId>>,
    beside: OnceCell<BTreeMap<&'a HostName, Vec<&'a Member>>>,
}

impl<'a> Status<'a> {
    pub(super) fn new(observed: &'a Cluster) -> Self {
        Self {
            observed,
            hosts: OnceCell::new(),
            beside: OnceCell::new(),
        }
    }

    /// Whether the status names this host, by name and uid.
    pub(super) fn names(&self, id: &HostId) -> bool {
        let members = self.observed.members().iter();
        let hosts = self
            .hosts
            .get_or_init(|| members.map(|member| &member.host).collect());
        hosts.contains(id)
    }

    /// The first member on a host of that name that is not released and whose claim was there when `new` was claimed in its place: its revision
    /// is not later. A rebuilt ledger gives members one revision that were claimed one after the other; but then each has a number of its own,
    /// and those of a pair have the same.
    pub(super) fn beside(&self, name: &HostName, new: &Member) -> Option<&'a Member> {
        let beside = self.beside.get_or_init(|| {
            let mut beside: BTreeMap<&HostName, Vec<&Member>> = BTreeMap::new();
            for member in self.observed.members() {
                if member.state == Some(MemberState::Releasing) {
                    continue;
                }
                let before = beside.entry(&member.host.name).or_default();
                // Whoever asks for this revision or a later one finds an earlier member first.
                if before.last().is_none_or(|last| member.revision < last.revision) {
                    before.push(member);
                }
            }
            beside
        });
        let members = beside.get(name)?;
        let first = members.partition_point(|old| old.revision > new.revision);
        let mut earlier = members.iter().skip(first).copied();
        earlier.find(|old| old.revision < new.revision || may_share_ordinal(old, new))
    }
}

/// Whether two members have one number, as far as the status states their numbers.
fn may_share_ordinal(old: &Member, new: &Member) -> bool {
    match (old.ordinal, new.ordinal) {
        (Some(old), Some(new)) => old == new,
        (None, _) | (_, None) => true,
    }
}
