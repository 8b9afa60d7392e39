//! Whose record an operator's release of an orphaned host is about.

use ::placement::{ClusterName, HostId, MemberState, SipLabels};

use super::{
    settle::{self, MISSING_UID},
    state::Site,
};
use crate::{error::Error, record::Record, spec::Spec};

impl Site {
    /// The record of a cluster without `SIPCluster` that has members which are gone and whose machine the host may be: those members
    /// would be released.
    pub(super) fn former_record(&self, id: &HostId) -> Option<(Record, Vec<HostId>)> {
        self.inventory.reported(id)?;
        let is_missing = |cluster: &ClusterName| self.existence.is_missing(cluster);
        let mut missing = self
            .inventory
            .routed_by(&id.name, usize::MAX)
            .into_iter()
            .filter(|cluster| is_missing(cluster));
        missing.find_map(|cluster| {
            let released = self.inventory.former(&id.name, cluster);
            let record = self.claims.get(cluster).filter(|_| !released.is_empty())?;
            Some((Record::clone(record), released.into_iter().collect()))
        })
    }

    /// The record of the cluster that the host would be released from, with the host in it.
    pub(super) fn orphaned_record(&self, id: &HostId) -> Result<Record, Error> {
        let host = self.inventory.reported(id).ok_or_else(|| Error::NotFound {
            what: format!("host {} with uid {} in site {:?}", id.name, id.uid, self.name),
        })?;
        let not = |why: String| Error::NotOrphaned {
            host: id.name.to_string(),
            why,
        };
        if let Some(cluster) = self.inventory.holding_cluster(id) {
            return match self.claims.get(cluster) {
                Some(record) if self.existence.is_missing(cluster) => Ok(Record::clone(record)),
                Some(_) | None => Err(not(format!("{cluster} holds it, which exists"))),
            };
        }
        match &host.facts().sip_labels {
            SipLabels::None => Err(not("it has no label of a cluster".to_owned())),
            SipLabels::Partial => Err(not(
                "it has only some of the labels cluster-namespace, cluster-name and node-type; remove them from the BareMetalHost, and it is free"
                    .to_owned(),
            )),
            SipLabels::Complete { cluster, role: _ } if self.exists(cluster) => {
                Err(not(format!("its labels name {cluster}, which exists")))
            }
            SipLabels::Complete { cluster, role } => {
                let mut record = match self.claims.get(cluster) {
                    Some(known) => Record::clone(known),
                    None => Record::new(cluster.clone(), MISSING_UID.to_owned(), None, 0, Spec::default()),
                };
                let state = MemberState::Bound;
                let member = settle::adopted(self.view(), &record, id, role.clone(), state);
                record.members.insert(id.clone(), member);
                Ok(record)
            }
        }
    }
}
