//! Compares a ledger with what a site shows. The rules are those of `services/scheduler/src/site/settle.rs`,
//! `services/scheduler/src/site/completed_releases.rs` and `services/scheduler/src/site/claims_of_lost_ledger.rs`.

use std::collections::{BTreeMap, BTreeSet};

use placement::{ClusterName, HostId, HostName, MemberState, RoleName, SipLabels, Uid};
use scheduler::ledger::SitePosition;
use scheduler::record::{Member, Record};

use super::rehearsal::{Rehearsal, Rehearsed};
use super::site_ledger::{Restored, SiteLedger};
use crate::input::{Claim, Declared, Input, Observed};
use crate::report::{Remark, remark};

/// What a restore of the ledger would do to the site of the input.
pub(super) fn rehearsal(ledger: &SiteLedger, input: &Input) -> Rehearsal {
    let observed = observed(ledger, input);
    let restored = ledger.restored(observed);
    let comparison = Comparison {
        ledger,
        input,
        restored: &restored,
    };
    let mut labelled: BTreeMap<&ClusterName, Vec<(&HostName, &RoleName)>> = BTreeMap::new();
    for (host, observed) in &input.hosts {
        if let SipLabels::Complete { cluster, role } = &observed.host.sip_labels {
            labelled.entry(cluster).or_default().push((host, role));
        }
    }
    let names: BTreeSet<&ClusterName> = ledger.records.keys().chain(input.clusters.keys()).collect();
    let clusters = names.iter().map(|name| {
        let hosts = labelled.get(name).map(Vec::as_slice).unwrap_or_default();
        comparison.cluster(name, hosts)
    });
    let strays = labelled.iter().filter(|(name, _)| !names.contains(**name));
    let orphans = strays.flat_map(|(name, hosts)| {
        let why = format!("its labels name SIPCluster {name}, which neither the export nor the site has");
        let orphan =
            move |(host, role): &(&HostName, &RoleName)| remark("orphaned", Some(host), Some(role), &why);
        hosts.iter().map(orphan)
    });
    Rehearsal {
        site: ledger.site.clone(),
        exported: ledger.position().to_string(),
        observed: observed.to_string(),
        raised: restored.raised.map(|position| position.to_string()),
        clusters: clusters.collect(),
        conflicts: orphans.chain(impossible(ledger, input)).collect(),
    }
}

/// The highest numbers that the site shows, of those that a ledger can have issued.
fn observed(ledger: &SiteLedger, input: &Input) -> SitePosition {
    let statuses = input.clusters.values().filter_map(position);
    let marks = input.hosts.values().map(mark);
    let numbers = statuses.chain(marks).filter(|shown| ledger.is_possible(*shown));
    numbers.fold(SitePosition::default(), SitePosition::joined)
}

fn position(declared: &Declared) -> Option<SitePosition> {
    let (epoch, revision) = declared.position?;
    Some(SitePosition::new(epoch, revision))
}

fn mark(observed: &Observed) -> SitePosition {
    SitePosition::new(0, observed.release_mark)
}

/// The uid of a host, if the input states it.
fn uid(observed: &Observed) -> Option<&Uid> {
    observed.has_uid.then_some(&observed.host.id.uid)
}

/// Hosts with a mark that no ledger can have issued: they are not eligible.
fn impossible<'a>(ledger: &'a SiteLedger, input: &'a Input) -> impl Iterator<Item = Remark> + 'a {
    let marked = input.hosts.iter();
    let faulty = marked.filter(|(_, observed)| !ledger.is_possible(mark(observed)));
    faulty.map(|(host, observed)| {
        let mark = observed.release_mark;
        let why = format!(
            "no ledger can have issued its release mark {mark}: it cannot be claimed until that is removed"
        );
        remark("release-mark", Some(host), None, &why)
    })
}

/// What the clusters are compared with.
struct Comparison<'a> {
    ledger: &'a SiteLedger,
    input: &'a Input,
    restored: &'a Restored<'a>,
}

/// A cluster of the input, with whether its status is accepted over the record.
struct Status<'a> {
    declared: &'a Declared,
    /// Whether the scheduler would take the hosts of this status over those of the record.
    is_believed: bool,
}

impl Comparison<'_> {
    fn cluster(&self, name: &ClusterName, labelled: &[(&HostName, &RoleName)]) -> Rehearsed {
        let mut found = Rehearsed {
            cluster: name.to_string(),
            ..Rehearsed::default()
        };
        let record = self.ledger.records.get(name);
        let Some(declared) = self.input.clusters.get(name) else {
            found
                .conflicts
                .extend(record.map(|record| missing_cluster(record)));
            return found;
        };
        if let Some(fault) = &declared.status_fault {
            found.conflicts.push(remark("status", None, None, fault));
        }
        let status = Status {
            declared,
            is_believed: position(declared).is_some_and(|at| self.restored.is_believed(name, at)),
        };
        if let Some(record) = record {
            if declared.uid.as_ref().is_some_and(|uid| *uid != record.uid) {
                let why = "the SIPCluster of the export was deleted; the present one takes over what it held";
                found.reported.push(remark("recreated", None, None, why));
            }
            for (id, member) in &record.members {
                self.member(name, &status, (id, member), &mut found);
            }
        }
        let mut named = BTreeSet::new();
        for claim in &declared.claims {
            named.insert(&claim.host);
            self.claim(name, &status, claim, &mut found);
        }
        for (host, role) in labelled {
            if !named.contains(host) {
                self.labelled(name, host, role, &mut found);
            }
        }
        found
    }

    /// The host of a member, if the site has it.
    fn host(&self, id: &HostId) -> Option<&Observed> {
        let observed = self.input.hosts.get(&id.name)?;
        uid(observed).is_none_or(|uid| *uid == id.uid).then_some(observed)
    }

    /// Compares a claim of the export with the site.
    fn member(
        &self,
        name: &ClusterName,
        status: &Status<'_>,
        (id, member): (&HostId, &Member),
        found: &mut Rehearsed,
    ) {
        let role = &member.role;
        let says = |kind: &str, why: &str| remark(kind, Some(&id.name), Some(role), why);
        let claim = status.declared.claim_of(&id.name);
        let claim = claim.filter(|claim| claim.uid.as_ref().is_none_or(|uid| *uid == id.uid));
        let is_releasing = member.state == MemberState::Releasing;
        let Some(observed) = self.host(id) else {
            if is_releasing {
                let why = "the export releases it, and the site does not have it: the release continues";
                found.reported.push(says("releasing", why));
            } else if self.is_recreated(name, id, role) {
                let why =
                    "it was recreated, with the labels of the cluster: the member continues on the new host";
                found.reported.push(says("host-recreated", why));
            } else {
                let why = "the export claims it, and the site does not have it: it would be replaced";
                found.conflicts.push(says("host-missing", why));
            }
            return;
        };
        let mark = observed.release_mark;
        let labels = &observed.host.sip_labels;
        if let SipLabels::Complete { cluster, role: _ } = labels
            && cluster != name
        {
            let (kind, others) = ("labels-of-another", format!("it has the labels of {cluster}"));
            // Only a lost ledger can have given the host to another cluster.
            let is_given_away = mark >= member.revision && is_releasing
                || mark > member.revision && self.restored.is_lost(mark);
            if is_given_away {
                let why =
                    format!("the export holds it, and {others} since its release: it is free for that one");
                found.reported.push(says(kind, &why));
            } else {
                let why = format!("the export holds it, and {others}: neither cluster could use it");
                found.conflicts.push(says(kind, &why));
            }
            return;
        }
        let is_ours = matches!(labels, SipLabels::Complete { .. });
        let is_released = matches!(labels, SipLabels::None)
            && claim.is_none_or(|claim| claim.state == MemberState::Releasing)
            && mark > member.revision
            && self.restored.is_lost(mark);
        match (member.state, claim) {
            (MemberState::Claimed | MemberState::Bound, _) if is_released => {
                let why = "it was released after the export: it is free";
                found.reported.push(says("released", why));
            }
            (MemberState::Releasing, Some(claim))
                if status.is_believed && claim.state != MemberState::Releasing =>
            {
                let why = "the export releases it, and the newer status holds it: it stays a member";
                found.reported.push(says("reported-back", why));
            }
            (MemberState::Releasing, Some(_) | None) => {
                let why = format!(
                    "the export releases it since revision {}: the release continues",
                    member.revision
                );
                found.reported.push(says("releasing", &why));
            }
            (MemberState::Claimed | MemberState::Bound, Some(claim))
                if claim.state == MemberState::Releasing =>
            {
                released_since(status, says, found);
            }
            (MemberState::Claimed | MemberState::Bound, Some(_)) => {
                found.keeps.push(format!("{} ({role})", id.name));
            }
            (MemberState::Claimed | MemberState::Bound, None) if is_ours => {
                found.keeps.push(format!("{} ({role})", id.name));
            }
            (MemberState::Claimed | MemberState::Bound, None) => {
                let why = "the export claims it, and neither its labels nor the status do: it would be labelled again";
                found.conflicts.push(says("labels-missing", why));
            }
        }
    }

    /// Whether a member's host was made again with the labels of its cluster and its role.
    fn is_recreated(&self, name: &ClusterName, id: &HostId, role: &RoleName) -> bool {
        let Some(observed) = self.input.hosts.get(&id.name) else {
            return false;
        };
        let ours = SipLabels::Complete {
            cluster: name.clone(),
            role: role.clone(),
        };
        let holder = self.ledger.holder(&id.name, uid(observed));
        observed.host.sip_labels == ours && holder.is_none_or(|holder| holder == name)
    }

    /// Compares an entry of the status with the export.
    fn claim(&self, name: &ClusterName, status: &Status<'_>, claim: &Claim, found: &mut Rehearsed) {
        let says = |kind: &str, why: &str| remark(kind, Some(&claim.host), Some(&claim.role), why);
        let Some(observed) = self.input.hosts.get(&claim.host) else {
            return self.claim_of_missing(name, claim, found);
        };
        let (own, claimed) = (uid(observed), claim.uid.as_ref());
        let holder = self.ledger.holder(&claim.host, claimed.or(own));
        if holder == Some(name) || self.is_continued(name, observed) {
            return;
        }
        if own.zip(claimed).is_some_and(|(own, claimed)| own != claimed) {
            return self.claim_of_missing(name, claim, found);
        }
        let labels = &observed.host.sip_labels;
        let is_releasing = claim.state == MemberState::Releasing;
        if is_releasing && *labels == SipLabels::None && observed.release_mark >= claim.revision {
            // The host is free, so no claim is lost.
            return;
        }
        match (holder, labels) {
            (Some(holder), _) if is_releasing => {
                let why = format!("the status releases it, and the export holds it for {holder}");
                found.reported.push(says("held-by-another", &why));
            }
            (Some(holder), _) => {
                let why = format!(
                    "the status claims it, and the export holds it for {holder}: the cluster would lose it"
                );
                found.conflicts.push(says("held-by-another", &why));
            }
            (None, SipLabels::Complete { cluster, role: _ }) if cluster != name => {
                let why =
                    format!("the status names it, the export does not, and it has the labels of {cluster}");
                found.conflicts.push(says("labels-of-another", &why));
            }
            (None, SipLabels::Complete { .. }) => self.labelled(name, &claim.host, &claim.role, found),
            (None, SipLabels::None | SipLabels::Partial) if status.is_believed => {
                let why = "the export does not have it: the scheduler takes it over from the status";
                found.reported.push(says("reported-back", why));
            }
            (None, SipLabels::None | SipLabels::Partial) if is_releasing => {
                let why = "the status releases it, and the export does not have it: the release would not be confirmed";
                found.conflicts.push(says("lost", why));
            }
            (None, SipLabels::None | SipLabels::Partial) => {
                let why = "the status claims it and is not newer than the export, which does not have it: the claim would be lost";
                found.conflicts.push(says("lost", why));
            }
        }
    }

    /// An entry of a status whose host the site does not have; nothing is lost with it where the export has its member.
    fn claim_of_missing(&self, name: &ClusterName, claim: &Claim, found: &mut Rehearsed) {
        let record = self.ledger.records.get(name);
        let is_held = record.is_some_and(|record| record.members.keys().any(|id| id.name == claim.host));
        if !is_held {
            let why = "the status names it, and neither the export nor the site has it: the cluster gets another host if it needs one";
            found
                .reported
                .push(remark("host-missing", Some(&claim.host), Some(&claim.role), why));
        }
    }

    /// Whether a host is the one that a member of the export continues on.
    fn is_continued(&self, name: &ClusterName, observed: &Observed) -> bool {
        let record = self.ledger.records.get(name);
        let mut members = record.into_iter().flat_map(|record| &record.members);
        members.any(|(id, member)| {
            let is_gone = id.name == observed.host.id.name && self.host(id).is_none();
            is_gone && self.is_recreated(name, id, &member.role)
        })
    }

    /// A host with the labels of the cluster: it becomes a member if no cluster of the export holds it.
    fn labelled(&self, name: &ClusterName, host: &HostName, role: &RoleName, found: &mut Rehearsed) {
        let Some(observed) = self.input.hosts.get(host) else {
            return;
        };
        let is_member = self.ledger.holder(host, uid(observed)).is_some();
        // What the export holds for another cluster is that one's conflict.
        if !is_member && !self.is_continued(name, observed) {
            let why =
                "it has the labels of the cluster, and the export does not have it: it is adopted as bound";
            found
                .reported
                .push(remark("adopted", Some(host), Some(role), why));
        }
    }
}

/// A release that only the site knows of.
fn released_since(status: &Status<'_>, says: impl Fn(&str, &str) -> Remark, found: &mut Rehearsed) {
    if status.is_believed {
        let why = "the status releases it since the export: the release continues";
        found.reported.push(says("releasing", why));
    } else {
        let why = "the status releases it and is not newer than the export: it would be a member again";
        found.conflicts.push(says("release-withdrawn", why));
    }
}

/// The export has a cluster that the site does not have.
fn missing_cluster(record: &Record) -> Remark {
    let hosts: Vec<String> = record.members.keys().map(|id| id.name.to_string()).collect();
    let why = match hosts.as_slice() {
        [] => "the export has it, and the site does not have its SIPCluster".to_owned(),
        _ => format!(
            "the export has it, and the site does not have its SIPCluster: {} would stay held until an operator releases each",
            hosts.join(", ")
        ),
    };
    remark("cluster-missing", None, None, &why)
}
