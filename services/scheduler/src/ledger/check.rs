//! What must be true of every ledger, whoever wrote it.

use std::collections::{BTreeMap, BTreeSet};

use placement::{ClusterName, HostId};
use prost::Message as _;
use proto::ledger::v1 as disk;

use super::{
    Commit, History, codec,
    export::Counts,
    parts::{self, Legacy},
};

/// Maximum number of findings that are listed; all are counted.
const MAX_FINDINGS: usize = 100;

/// Checks entries one after the other.
#[derive(Debug, Default)]
pub struct Checker {
    last: Option<Commit>,
    /// What sites have in common in an export from before they had histories.
    legacy: Option<Legacy>,
    histories: BTreeMap<String, History>,
    counts: Counts,
    members: u64,
    sites: BTreeSet<String>,
    /// Who holds a host, by site.
    holders: BTreeMap<(String, HostId), ClusterName>,
    findings: Vec<String>,
    found: u64,
    last_decision: Commit,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The last commit.
    pub last: Commit,
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
    /// Checks the next entry of an export.
    pub fn add(&mut self, entry: &disk::Entry) {
        use disk::entry::Entry;
        self.counts.add(entry);
        match &entry.entry {
            Some(Entry::Header(header)) => {
                if self.last.is_some() {
                    self.find("there are two headers".to_owned());
                }
                match parts::last(header) {
                    Ok((last, legacy)) => {
                        self.last = Some(last);
                        self.legacy = legacy;
                    }
                    Err(error) => self.find(error.chain()),
                }
            }
            Some(Entry::History(disk::HistoryEntry { site, history })) => {
                self.sites.insert(site.clone());
                let bytes = history.unwrap_or_default().encode_to_vec();
                match codec::decode_history(site, &bytes) {
                    Ok(history) => {
                        self.number(&format!("history of site {site}"), history.raised().number(), 0);
                        self.histories.insert(site.clone(), history);
                    }
                    Err(error) => self.find(error.chain()),
                }
            }
            Some(Entry::Record(record)) => self.record(record),
            Some(Entry::Removal(disk::RemovalEntry { site, commit })) => {
                self.sites.insert(site.clone());
                self.number(&format!("last removal of site {site}"), *commit, 1);
            }
            Some(Entry::Fence(disk::FenceEntry { site, fence })) => {
                self.sites.insert(site.clone());
                let bytes = fence.clone().unwrap_or_default().encode_to_vec();
                if let Err(error) = codec::decode_fence(site, &bytes) {
                    self.find(error.chain());
                }
            }
            Some(Entry::Decision(decision)) => {
                let commit = parts::place(decision);
                self.number(&format!("decision {commit}"), commit.number(), 1);
                if commit <= self.last_decision {
                    let last = self.last_decision;
                    self.find(format!("decision {commit} comes after decision {last}"));
                }
                self.last_decision = commit;
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
        self.revision(site, &what, record.revision);
        if record.uid.is_empty() {
            self.find(format!("{what}: has no uid"));
        }
        if record.releasing && record.members.is_empty() {
            self.find(format!("{what}: releases hosts and holds none"));
        }
        for (id, member) in &record.members {
            self.members += 1;
            self.revision(site, &format!("{what}: member {}", id.name), member.revision);
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

    /// Judges the number of a commit.
    fn number(&mut self, what: &str, number: u64, least: u64) {
        let last = self.last.unwrap_or_default();
        if number < least || number > last.number() {
            self.find(format!(
                "{what}: is of commit {number}, and the last one is {last}"
            ));
        }
    }

    /// Judges a revision by the history of its site.
    fn revision(&mut self, site: &str, what: &str, revision: u64) {
        let common = self.legacy.as_ref().map(|legacy| legacy.history);
        let history = self.histories.get(site).copied().or(common).unwrap_or_default();
        let reached = history.at(self.last.unwrap_or_default()).revision();
        if revision == 0 || revision > reached {
            self.find(format!(
                "{what}: is of revision {revision}, and the site is at {reached}"
            ));
        }
    }

    fn find(&mut self, finding: String) {
        self.found += 1;
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        }
    }

    /// What was found in all of it.
    #[must_use]
    pub fn finish(mut self) -> Report {
        if self.last.is_none() {
            self.find("there is no header".to_owned());
        }
        Report {
            last: self.last.unwrap_or_default(),
            counts: self.counts,
            sites: u64::try_from(self.sites.len()).unwrap_or(u64::MAX),
            members: self.members,
            findings: self.findings,
            found: self.found,
        }
    }
}
