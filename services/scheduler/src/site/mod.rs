//! One site as the scheduler holds it: what it reported, who holds what, and what to tell watchers.
//!
//! Everything here is synchronous and works on memory; [`crate::region`] puts it behind a lock and waits for
//! the ledger. Inventory lives only here; records are copies of what the ledger holds or is about to hold.

mod bounds;
mod changes;
mod claims;
mod conflicts;
mod existence;
mod failures;
mod freed;
mod inventory;
mod labels;
mod notes;
mod orphans;
mod positions;
mod promises;
mod session;
mod settle;
mod staging;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use ::placement::{ClusterName, Holder, HostId, HostName, Policy};
use proto::inventory::v1 as inventory_api;

pub use changes::{Changed, Cursor};
pub use claims::{Apply, Author, Outcome};
pub use existence::ABSENCE;
pub use failures::MOVE;
pub use notes::Note;
pub use orphans::ABSENT;
pub use positions::Repaired;
pub use session::{KEEPALIVE, Session, SessionId};

use crate::{
    convert,
    error::Error,
    ledger::{Commit, History, RecordKey, SiteFence},
    record::Record,
};

/// The state of one site. A copy goes its own way, which is how every order of events can be tried on it.
#[derive(Clone, Debug)]
pub struct Site {
    name: String,
    /// Hosts as columns, with their holders: what decisions are made on.
    model: ::placement::Site,
    /// Hosts as they were reported.
    hosts: BTreeMap<HostName, inventory_api::Host>,
    /// Hosts by the cluster that their labels name, completely or not, whoever holds them.
    labelled: BTreeMap<ClusterName, BTreeSet<HostId>>,
    /// `SIPCluster`s as they were reported.
    clusters: BTreeMap<ClusterName, inventory_api::ObservedCluster>,
    /// Records, committed or about to be.
    records: BTreeMap<ClusterName, Arc<Record>>,
    /// Clusters that have a record and no `SIPCluster`.
    absent: BTreeSet<ClusterName>,
    /// Clusters that have a record and whose `SIPCluster` the reports do not show, known to be absent or only declared.
    unseen: existence::Unseen,
    /// `SIPCluster`s that were reported and are gone.
    gone: existence::Gone,
    /// Hosts that are held for clusters by their status, until they declare themselves.
    promised: promises::Promises,
    /// Clusters whose status says what the ledger does not know.
    promising: BTreeSet<ClusterName>,
    /// Hosts that such a status claims and that another cluster's record holds, with the claiming cluster.
    wanted: BTreeMap<HostId, ClusterName>,
    /// Epoch of the ledger when the last snapshot was complete.
    epoch: u64,
    /// How its revisions are numbered.
    history: History,
    /// Highest revision that this ledger has issued to it.
    issued: u64,
    /// What the ledger knew of its position when it was opened.
    opened: positions::Opened,
    /// The commit that had raised its position last when a snapshot was complete for the first time since then.
    whole: Option<Commit>,
    /// Hosts whose release mark was not issued, with the mark.
    faulty: BTreeMap<HostName, u64>,
    /// Faults of hosts that are to be told to the reporter.
    faults: Vec<inventory_api::HostFault>,
    changes: changes::Changes,
    session: session::Sessions,
    last_report: Option<SystemTime>,
    notes: notes::Notes,
}

impl Site {
    /// A site with the records that the ledger holds of it, the last of them `removed` with that commit; not synced yet.
    #[must_use]
    pub fn new(
        name: String,
        policy: Policy,
        records: BTreeMap<ClusterName, Arc<Record>>,
        removed: Commit,
        fence: Option<SiteFence>,
        history: History,
    ) -> Self {
        // Nothing that was issued before it was raised is above where it was raised to.
        let horizon = if removed == Commit::NONE {
            0
        } else {
            history.at(removed.max(history.raised())).revision()
        };
        let issued = horizon.max(history.at(history.raised()).revision());
        let mut site = Self {
            name,
            model: ::placement::Site::new(policy),
            hosts: BTreeMap::new(),
            labelled: BTreeMap::new(),
            clusters: BTreeMap::new(),
            absent: BTreeSet::new(),
            unseen: existence::Unseen::new(),
            gone: existence::Gone::default(),
            promised: promises::Promises::new(),
            promising: BTreeSet::new(),
            wanted: BTreeMap::new(),
            epoch: 0,
            history,
            issued,
            opened: positions::Opened::new(&history, issued),
            whole: None,
            faulty: BTreeMap::new(),
            faults: Vec::new(),
            records: BTreeMap::new(),
            changes: changes::Changes::new(horizon),
            session: session::Sessions::new(fence),
            last_report: None,
            notes: notes::Notes::default(),
        };
        for (name, record) in records {
            site.issued = site.issued.max(record.revision);
            site.changes.put(None, record.revision, name.clone());
            site.install(&name, Some(record));
        }
        site.opened = positions::Opened::new(&history, site.issued);
        site
    }

    /// Forgets all that is not durable, and all that was reported: the reporter of now is cut off and reports again to what
    /// this leaves. Watchers begin anew; everything up to commit `upto` may have been decided on what is forgotten.
    pub(crate) fn reset(
        &mut self,
        records: BTreeMap<ClusterName, Arc<Record>>,
        fence: Option<SiteFence>,
        history: History,
        upto: Commit,
    ) {
        self.session.reset();
        let (name, policy) = (self.name.clone(), self.model.policy().clone());
        // A reset changes nothing about what the ledger knew when it was opened.
        let (opened, whole) = (self.opened, self.whole);
        *self = Self::new(name, policy, records, upto, fence, history);
        self.opened = opened;
        self.whole = whole.filter(|raised| *raised <= history.raised());
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key of a cluster's record.
    #[must_use]
    pub fn key(&self, cluster: &ClusterName) -> RecordKey {
        RecordKey {
            site: self.name.clone(),
            cluster: cluster.clone(),
        }
    }

    /// The record of a cluster; it may not be durable yet.
    #[must_use]
    pub fn record(&self, cluster: &ClusterName) -> Option<&Arc<Record>> {
        self.records.get(cluster)
    }

    /// Every record, by name.
    #[must_use]
    pub fn records(&self) -> &BTreeMap<ClusterName, Arc<Record>> {
        &self.records
    }

    /// Hosts as columns.
    #[must_use]
    pub fn model(&self) -> &::placement::Site {
        &self.model
    }

    /// Hosts as they were reported, by name.
    #[must_use]
    pub fn hosts(&self) -> &BTreeMap<HostName, inventory_api::Host> {
        &self.hosts
    }

    /// Who holds a host, as callers see it.
    #[must_use]
    pub fn holder(&self, id: &HostId) -> Option<inventory_api::Holder> {
        match self.model.holder(id)? {
            Holder::Cluster { cluster, role, state } => Some(inventory_api::Holder {
                cluster: self.records.get(cluster).map(|record| record.reference()),
                role: role.to_string(),
                state: convert::state(*state).into(),
            }),
            Holder::Orphaned => None,
        }
    }

    /// A summary for people.
    #[must_use]
    pub fn summary(&self) -> inventory_api::Site {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        inventory_api::Site {
            name: self.name.clone(),
            synced: self.session.synced(),
            hosts: count(self.hosts.len()),
            held_hosts: count(self.records.values().map(|record| record.members.len()).sum()),
            clusters: count(self.records.len()),
            last_report: self.last_report.map(Into::into),
        }
    }

    /// Refuses while the site's state is not fully known.
    ///
    /// # Errors
    /// [`Error::NotSynced`].
    pub fn require_synced(&self) -> Result<(), Error> {
        self.session.require_synced(&self.name)
    }

    /// Puts a record in the place of the one before it, and lets the model know who holds what.
    fn install(&mut self, name: &ClusterName, record: Option<Arc<Record>>) {
        let before = self.records.remove(name);
        let stays = |id: &HostId| {
            record
                .as_ref()
                .is_some_and(|record| record.members.contains_key(id))
        };
        let held = before.iter().flat_map(|before| before.members.keys());
        let freed: Vec<HostId> = held.filter(|id| !stays(id)).cloned().collect();
        for id in &freed {
            self.model.unhold(id);
        }
        for (id, member) in record.iter().flat_map(|record| &record.members) {
            let known = before.as_ref().and_then(|before| before.members.get(id));
            if known.is_some_and(|known| known.state == member.state && known.role == member.role) {
                continue;
            }
            let holder = Holder::Cluster {
                cluster: name.clone(),
                role: member.role.clone(),
                state: member.state,
            };
            self.model.hold(id, holder);
        }
        let came_or_went = before.is_some() != record.is_some();
        if let Some(record) = record {
            self.records.insert(name.clone(), record);
            self.keep_unknown(name);
        } else {
            self.absent.remove(name);
            self.unseen.remove(name);
            match before.as_deref() {
                Some(before) if self.is_made_again(before) => self.renew_promises(name),
                Some(_) | None => self.withdraw_promises(name),
            }
        }
        if !freed.is_empty() && !self.promising.is_empty() {
            self.hold_all(false);
        }
        for id in &freed {
            self.mark(id);
        }
        if came_or_went {
            self.mark_all(name);
        }
    }
}
