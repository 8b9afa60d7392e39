//! Hosts whose labels name a `SIPCluster` that does not exist: never free by themselves.

use ::placement::{ClusterName, Holder, HostId, MemberState, SipLabels};

use super::{Author, Outcome, Site, claims::begin_release};
use crate::{
    convert,
    error::Error,
    ledger::commit::Permit,
    record::{Record, ReleaseReason},
    spec::Spec,
};

/// In the place of the uid of a `SIPCluster` that does not exist. Kubernetes' uids are never like it.
pub const ABSENT: &str = "absent";

impl Site {
    /// Marks the hosts that name a cluster, after it came or went.
    pub(super) fn mark_all(&mut self, cluster: &ClusterName) {
        let hosts: Vec<HostId> = self
            .labelled
            .get(cluster)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        for id in hosts {
            self.mark(&id);
        }
    }

    /// Marks a host as orphaned or not, unless somebody holds it.
    pub(super) fn mark(&mut self, id: &HostId) {
        let orphaned = self.session.synced() && self.names_nobody(id);
        match (self.model.holder(id), orphaned) {
            (None, true) => self.model.hold(id, Holder::Orphaned),
            (Some(Holder::Orphaned), false) => {
                self.model.unhold(id);
            }
            (None, false) | (Some(Holder::Orphaned), true) | (Some(Holder::Cluster { .. }), _) => {}
        }
    }

    fn names_nobody(&self, id: &HostId) -> bool {
        let labels = self.reported(id).map(|host| convert::sip_labels(&host.labels));
        match labels {
            Some(SipLabels::Complete { cluster, role: _ }) => !self.exists(&cluster),
            Some(SipLabels::None | SipLabels::Partial) | None => false,
        }
    }

    /// Begins to release a host whose labels name a `SIPCluster` that does not exist, or that is held for one. The
    /// watch shows its release; the cluster agent writes and confirms it, and only then the host is free.
    ///
    /// # Errors
    /// [`Error::NotSynced`], [`Error::NotFound`]; [`Error::NotOrphaned`] says why the host is none.
    pub fn release_orphan(
        &mut self,
        id: &HostId,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Outcome, Error> {
        self.require_synced()?;
        let mut record = self.orphaned_record(id)?;
        record.releasing = true;
        record.refusal = None;
        record.reports.clear();
        if let Some(member) = record.members.get_mut(id) {
            begin_release(member, ReleaseReason::Orphaned);
        }
        self.absent.insert(record.cluster.clone());
        self.settle_record(&mut record, author.now);
        self.store(record, author, permit)
    }

    /// The record of the cluster that the host would be released from, with the host in it.
    fn orphaned_record(&self, id: &HostId) -> Result<Record, Error> {
        let host = self.reported(id).ok_or_else(|| Error::NotFound {
            what: format!("host {} with uid {} in site {:?}", id.name, id.uid, self.name),
        })?;
        let not = |why: String| Error::NotOrphaned {
            host: id.name.to_string(),
            why,
        };
        if let Some(Holder::Cluster {
            cluster,
            role: _,
            state: _,
        }) = self.model.holder(id)
        {
            return match self.records.get(cluster) {
                Some(record) if self.absent.contains(cluster) => Ok(Record::clone(record)),
                Some(_) | None => Err(not(format!("{cluster} holds it, which exists"))),
            };
        }
        match convert::sip_labels(&host.labels) {
            SipLabels::None => Err(not("it has no label of a cluster".to_owned())),
            SipLabels::Partial => Err(not(
                "its labels name no cluster completely; remove them from the BareMetalHost, and it is free"
                    .to_owned(),
            )),
            SipLabels::Complete { cluster, role: _ } if self.exists(&cluster) => {
                Err(not(format!("its labels name {cluster}, which exists")))
            }
            SipLabels::Complete { cluster, role } => {
                let mut record = match self.records.get(&cluster) {
                    Some(known) => Record::clone(known),
                    None => Record::new(cluster.clone(), ABSENT.to_owned(), None, 0, Spec::default()),
                };
                let member = self.adopted(&record, id, role, MemberState::Bound);
                record.members.insert(id.clone(), member);
                Ok(record)
            }
        }
    }
}
