//! What must be true of every ledger, whoever wrote it.

use std::collections::{BTreeMap, BTreeSet};

use placement::{ClusterName, HostId};
use prost::Message as _;
use proto::ledger::v1 as disk;

use super::{Position, codec, export::Counts};

/// Most findings that are kept; all are counted.
const KEPT: usize = 100;

/// Looks at entries one after the other.
#[derive(Debug, Default)]
pub struct Checker {
    position: Option<Position>,
    counts: Counts,
    members: u64,
    sites: BTreeSet<String>,
    /// Who holds a host, by site.
    holders: BTreeMap<(String, HostId), ClusterName>,
    findings: Vec<String>,
    found: u64,
    last_decision: u64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Where the history stands.
    pub position: Position,
    /// What there is.
    pub counts: Counts,
    /// Sites with records or fences.
    pub sites: u64,
    /// Members of all records.
    pub members: u64,
    /// What is wrong, for people: the first ones.
    pub findings: Vec<String>,
    /// How much is wrong.
    pub found: u64,
}

impl Checker {
    /// Looks at the next entry of an export.
    pub fn look(&mut self, entry: &disk::Entry) {
        use disk::entry::Entry;
        self.counts.add(entry);
        match &entry.entry {
            Some(Entry::Header(disk::Header { epoch, revision })) => {
                if self.position.is_some() {
                    self.find("there are two headers".to_owned());
                }
                if *epoch == 0 {
                    self.find("the epoch is 0; the first one is 1".to_owned());
                }
                self.position = Some(Position {
                    epoch: *epoch,
                    revision: *revision,
                });
            }
            Some(Entry::Record(record)) => self.record(record),
            Some(Entry::Removal(disk::RemovalEntry { site, revision })) => {
                self.sites.insert(site.clone());
                self.number(&format!("last removal of site {site}"), *revision);
            }
            Some(Entry::Fence(disk::FenceEntry { site, fence })) => {
                self.sites.insert(site.clone());
                let bytes = fence.clone().unwrap_or_default().encode_to_vec();
                if let Err(error) = codec::decode_fence(site, &bytes) {
                    self.find(error.chain());
                }
            }
            Some(Entry::Decision(decision)) => {
                let revision = decision.revision.unwrap_or_default().revision;
                self.number(&format!("decision {revision}"), revision);
                if revision <= self.last_decision {
                    let last = self.last_decision;
                    self.find(format!("decision {revision} comes after decision {last}"));
                }
                self.last_decision = revision;
            }
            Some(Entry::End(_)) => {}
            None => self.find("an entry is of a kind that this program does not know".to_owned()),
        }
    }

    fn record(&mut self, entry: &disk::RecordEntry) {
        let disk::RecordEntry {
            site,
            namespace,
            name,
            record,
        } = entry;
        self.sites.insert(site.clone());
        let what = format!("record {site}/{namespace}/{name}");
        let bytes = record.clone().unwrap_or_default().encode_to_vec();
        let (key, record) = match codec::decode((site, namespace, name), &bytes) {
            Ok(parsed) => parsed,
            Err(error) => return self.find(error.chain()),
        };
        self.number(&what, record.revision);
        if record.uid.is_empty() {
            self.find(format!("{what}: has no uid"));
        }
        if record.releasing && record.members.is_empty() {
            self.find(format!("{what}: gives hosts back and holds none"));
        }
        for (id, member) in &record.members {
            self.members += 1;
            self.number(&format!("{what}: member {}", id.name), member.revision);
            if member.revision > record.revision {
                self.find(format!(
                    "{what}: member {} is of revision {}, and the record of {}",
                    id.name, member.revision, record.revision
                ));
            }
            let holder = self
                .holders
                .insert((site.clone(), id.clone()), key.cluster.clone());
            if let Some(other) = holder {
                self.find(format!(
                    "site {site}: host {} is held twice, by {other} and by {}",
                    id.name, key.cluster
                ));
            }
        }
    }

    fn number(&mut self, what: &str, revision: u64) {
        let reached = self.position.unwrap_or_default().revision;
        if revision == 0 || revision > reached {
            self.find(format!(
                "{what}: is of revision {revision}, and the ledger stands at {reached}"
            ));
        }
    }

    fn find(&mut self, finding: String) {
        self.found += 1;
        if self.findings.len() < KEPT {
            self.findings.push(finding);
        }
    }

    /// What was found in all of it.
    #[must_use]
    pub fn finish(mut self) -> Report {
        if self.position.is_none() {
            self.find("there is no header".to_owned());
        }
        Report {
            position: self.position.unwrap_or_default(),
            counts: self.counts,
            sites: u64::try_from(self.sites.len()).unwrap_or(u64::MAX),
            members: self.members,
            findings: self.findings,
            found: self.found,
        }
    }
}
