//! What must hold in every state.

use std::collections::BTreeSet;

use crate::{
    ledger::Held,
    protocol::State,
    world::{self, HostKey},
};

impl State {
    /// Hosts that more than one record has.
    pub(crate) fn held_twice(&self) -> bool {
        [&self.ledger.records, self.scheduler.records()]
            .into_iter()
            .any(|records| {
                let mut seen = BTreeSet::new();
                !records
                    .values()
                    .flat_map(Held::members)
                    .all(|member| seen.insert(member.host))
            })
    }

    /// Whether every label on a host is backed by the ledger.
    pub(crate) fn labels_are_claims(&self) -> bool {
        (0u8..).zip(&self.world.now.hosts).all(|(index, host)| {
            let Some(host) = host else { return true };
            let key = HostKey::new(index, host.uid);
            host.label.is_none_or(|cluster| {
                let record = self.ledger.records.get(&cluster);
                record.is_some_and(|held| held.members().any(|member| member.host == key))
            })
        })
    }

    pub(crate) fn promises_are_kept(&self) -> bool {
        self.promised.iter().all(|(cluster, promised)| {
            let record = self.ledger.records.get(cluster);
            let held = record.is_some_and(|held| held.members().any(|member| member.host == *promised));
            held || self.may_seem_released(*promised)
        })
    }

    /// Whether somebody has forged a mark on the host, and it is still there.
    pub(crate) fn shows_forged(&self, host: HostKey) -> bool {
        let forged = self.forged.iter().rev().find(|(key, _)| *key == host);
        forged.is_some_and(|(_, mark)| self.world.host(host).is_some_and(|there| there.mark == *mark))
    }

    /// Whether a forged mark cannot be told from that of a release by a ledger that is lost: the position was raised, as after
    /// a loss, and the host has shown it.
    fn may_seem_released(&self, host: HostKey) -> bool {
        self.ledger.history.epoch() > 1 && self.forged.iter().any(|(key, _)| *key == host)
    }

    /// Whether a cluster is being released that nobody deletes.
    pub(crate) fn released_unasked(&self) -> bool {
        self.ledger.records.iter().any(|(cluster, held)| {
            let there = self.world.now.clusters[usize::from(*cluster)].as_ref();
            held.0.releasing
                && there.is_some_and(|there| !there.deleting && world::cluster_uid(there.uid) == held.0.uid)
        })
    }
}
