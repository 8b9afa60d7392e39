//! What a ledger has of one site, as a scheduler has it that has just loaded it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::bail;
use placement::{ClusterName, HostName, Policy, Uid};
use scheduler::ledger::position::Cause;
use scheduler::ledger::{Commit, Contents, History, SitePosition};
use scheduler::record::Record;
use scheduler::site::Site;

/// The ledger of one site.
pub(super) struct SiteLedger {
    pub(super) site: String,
    pub(super) records: BTreeMap<ClusterName, Arc<Record>>,
    /// Who holds a host, by its name and uid.
    holders: BTreeMap<HostName, BTreeMap<Uid, ClusterName>>,
    commit: Commit,
    history: History,
    issued: u64,
}

/// The site's position after a restore.
pub(super) struct Restored<'a> {
    ledger: &'a SiteLedger,
    /// Where the site's history continues, if it was raised.
    pub(super) raised: Option<SitePosition>,
    history: History,
}

impl SiteLedger {
    /// Takes a site out of a ledger.
    ///
    /// # Errors
    /// When the ledger has no such site.
    pub(super) fn new(site: &str, contents: Contents) -> anyhow::Result<Self> {
        let Contents {
            commit,
            histories,
            records,
            removals,
            fences,
        } = contents;
        let recorded = records.keys().map(|key| &key.site);
        let sites: BTreeSet<&String> = recorded
            .chain(histories.keys())
            .chain(removals.keys())
            .chain(fences.keys())
            .collect();
        if !sites.iter().any(|known| *known == site) {
            let known: Vec<&str> = sites.into_iter().map(String::as_str).collect();
            bail!("the export has no site {site}: it has {}", known.join(", "));
        }
        let records: BTreeMap<ClusterName, Arc<Record>> = records
            .into_iter()
            .filter(|(key, _)| key.site == site)
            .map(|(key, record)| (key.cluster, record))
            .collect();
        let mut holders: BTreeMap<HostName, BTreeMap<Uid, ClusterName>> = BTreeMap::new();
        for (name, record) in &records {
            for id in record.members.keys() {
                let of_name = holders.entry(id.name.clone()).or_default();
                of_name.insert(id.uid.clone(), name.clone());
            }
        }
        let history = histories.get(site).copied().unwrap_or_default();
        let loaded = Site::new(
            site.to_owned(),
            Policy::default(),
            records.clone(),
            removals.get(site).copied().unwrap_or_default(),
            fences.get(site).cloned(),
            history,
        );
        Ok(Self {
            site: site.to_owned(),
            holders,
            records,
            commit,
            history,
            issued: loaded.issued(),
        })
    }

    /// The position of the site: its epoch, and the highest revision that was issued to it.
    pub(super) fn position(&self) -> SitePosition {
        SitePosition::new(self.history.epoch(), self.issued)
    }

    /// Who holds a host; any of that name where the uid is not known.
    pub(super) fn holder(&self, host: &HostName, uid: Option<&Uid>) -> Option<&ClusterName> {
        let of_name = self.holders.get(host)?;
        match uid {
            Some(uid) => of_name.get(uid),
            None => of_name.values().next(),
        }
    }

    /// Whether any ledger can have come to what the site shows.
    pub(super) fn is_possible(&self, shown: SitePosition) -> bool {
        self.history.is_possible(shown, self.issued)
    }

    /// What becomes of the site's position when the site shows this.
    pub(super) fn restored(&self, shown: SitePosition) -> Restored<'_> {
        let is_beyond = shown.epoch() > self.history.epoch() || shown.revision() > self.issued;
        let next = self.commit.next();
        let raise = |known| self.history.raise(shown, Cause::Lost { known }, next);
        let history = if is_beyond {
            raise(self.issued)
        } else {
            self.history
        };
        Restored {
            ledger: self,
            raised: is_beyond.then(|| history.at(next)),
            history,
        }
    }
}

impl Restored<'_> {
    /// Whether a cluster's status of that position is accepted where the cluster's record states something else: it is of an earlier epoch
    /// than the restored site, and newer than the record.
    pub(super) fn is_believed(&self, cluster: &ClusterName, status: SitePosition) -> bool {
        let record = self.ledger.records.get(cluster);
        status.epoch() < self.history.epoch()
            && self.ledger.is_possible(status)
            && record.is_none_or(|record| status.revision() > record.revision)
    }

    /// Whether a ledger that is newer than the export has issued a release mark.
    pub(super) fn is_lost(&self, mark: u64) -> bool {
        self.history.is_lost(mark)
    }
}
