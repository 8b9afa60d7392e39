//! How large the steps of a record may be.
//!
//! A backend stores a step at once, and may take only so much: etcd refuses a request of more than 1.5 MiB. A step that is
//! refused after others were decided on top of it is the end of the term, and the same step would end the next one. So a
//! step that is too large is refused before it is staged, to its caller. And a cluster that has grown as far as it
//! may must be able to go: a record is weighed as if all its hosts were being released, which is when it is largest.
//!
//! Nothing is encoded to weigh it: each part counts as the most that its encoding can take.

mod sizes;

use self::sizes::{FIELD_BYTES, host};
use super::{Change, RecordKey, SiteFence, TooLarge};
use crate::{record::Record, spec::Spec, violation::clip};

/// Bytes of all that an entry has once: names of caller and action, times, revisions, keys.
const FIXED_BYTES: usize = 2048;

/// Where a step does not fit.
pub(super) const LEDGER: &str = "the ledger";

/// Maximum length of a name in an error, in bytes.
const MAX_NAME_BYTES: usize = 300;

/// The parts of a record's weight.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    /// The record, with all its hosts releasing.
    record: usize,
    /// The part of `record` that is for confirmations which the record does not have yet.
    unconfirmed: usize,
    /// The names of the record's hosts in an entry of the log.
    hosts: usize,
    /// Its conflicts.
    conflicts: usize,
    /// Its reports, which are in the record too.
    reports: usize,
}

/// Refuses a step that may not fit, from `before` to `after`, or from which the record could not be released.
///
/// # Errors
/// [`TooLarge`] names the cluster.
pub fn require(
    site: &str,
    before: Option<&Record>,
    after: &Record,
    limit: Option<usize>,
) -> Result<(), TooLarge> {
    let Some(limit) = limit else { return Ok(()) };
    let now = weigh(after);
    let then = before.map(weigh).unwrap_or_default();
    let freed = before.into_iter().flat_map(|before| before.members.keys());
    let freed = freed.filter(|id| !after.members.contains_key(id)).map(host);
    let told = match before {
        Some(before) if (&before.conflicts, &before.reports) == (&after.conflicts, &after.reports) => 0,
        Some(_) | None => now.conflicts + then.conflicts + now.reports + then.reports,
    };
    // A step by which hosts continue under other uids names all of them twice in the log, and confirms none.
    let step = now.record - now.unconfirmed + now.conflicts + now.hosts + freed.sum::<usize>() + told;
    let leaving = now.record + 2 * now.conflicts + now.reports + now.hosts;
    let once = FIXED_BYTES + 4 * site.len() + 4 * (after.uid.len() + after.cluster.to_string().len());
    let bytes = once + step.max(leaving);
    if bytes <= limit {
        return Ok(());
    }
    Err(TooLarge {
        what: format!(
            "{} in site {site:?} with {} hosts",
            after.cluster,
            after.members.len()
        ),
        place: LEDGER,
        bytes,
        limit,
    })
}

/// Refuses a change of any kind that the ledger does not take, as it is. Every change passes here before it is staged.
///
/// # Errors
/// [`TooLarge`] names what is too large.
pub fn require_change(change: &Change, limit: Option<usize>) -> Result<(), TooLarge> {
    let Some(limit) = limit else { return Ok(()) };
    let bytes = self::change(change);
    if bytes <= limit {
        return Ok(());
    }
    Err(TooLarge {
        what: description(change),
        place: LEDGER,
        bytes,
        limit,
    })
}

/// What a change is about, for people.
fn description(change: &Change) -> String {
    let site = clip(change.site(), MAX_NAME_BYTES);
    match change {
        Change::Record {
            key,
            record: _,
            decision: _,
            commit: _,
        } => format!("{} in site {site:?}", key.cluster),
        Change::Fence {
            site: _,
            fence: _,
            decision: _,
            commit: _,
        } => format!("the reporter of site {site:?}"),
        Change::Raise {
            site: _,
            history: _,
            decision: _,
            commit: _,
        } => format!("the position of site {site:?}"),
    }
}

/// The most bytes that a change can take.
#[must_use]
pub fn change(change: &Change) -> usize {
    let bytes = match change {
        Change::Record {
            key: RecordKey { site, cluster },
            record,
            decision,
            commit: _,
        } => {
            let weight = record.as_deref().map(weigh).unwrap_or_default();
            let uid = decision.cluster.as_ref().map_or(0, |cluster| cluster.uid.len());
            // No more than `require` counts for the step: what the entry has once and its reason are counted there.
            let once = 4 * site.len() + 4 * (uid + cluster.to_string().len());
            once + weight.record - weight.unconfirmed + weight.conflicts + sizes::named(decision)
        }
        Change::Fence {
            site,
            fence,
            decision,
            commit: _,
        } => {
            let fence = fence.as_ref().map_or(0, |SiteFence { highest, retired }| {
                let uids = std::iter::once(&highest.lease).chain(retired);
                uids.map(|uid| FIELD_BYTES + uid.len()).sum::<usize>()
            });
            4 * site.len() + fence + sizes::decision(decision)
        }
        // The history itself has five numbers, which are counted with what is there once.
        Change::Raise {
            site,
            history: _,
            decision,
            commit: _,
        } => 4 * site.len() + sizes::decision(decision),
    };
    bytes + FIXED_BYTES
}

/// The most bytes that a declared shape can take.
#[must_use]
pub fn spec(spec: &Spec) -> usize {
    sizes::spec(spec)
}

/// The most bytes that a record can take.
#[must_use]
pub fn record(record: &Record) -> usize {
    let weight = weigh(record);
    FIXED_BYTES + weight.record + weight.conflicts
}

fn weigh(record: &Record) -> Weight {
    let Record {
        cluster: _,
        uid: _,
        created: _,
        generation: _,
        spec,
        members,
        refusal,
        reports,
        conflicts,
        releasing: _,
        revision: _,
    } = record;
    // A refusal's message is the entry's reason too.
    let refusal = refusal
        .as_ref()
        .map_or(0, |refusal| sizes::refusal(refusal) + refusal.message.len());
    let mut weight = Weight {
        record: sizes::spec(spec) + refusal + sizes::reports(reports) + 3 * FIELD_BYTES,
        unconfirmed: 0,
        hosts: 0,
        conflicts: sizes::reports(conflicts),
        reports: sizes::reports(reports),
    };
    for (id, member) in members {
        let name = host(id);
        // Twice: among those whose release is confirmed, too.
        weight.record += sizes::member(member) + 2 * name;
        weight.unconfirmed += if member.confirmed { 0 } else { name };
        weight.hosts += name;
    }
    weight
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, net::IpAddr, time::SystemTime};

    use placement::{
        ClusterName, Domain, HostId, HostName, LabelKey, LabelValue, MemberState, NetworkId, Replaces,
        RoleName, Uid,
    };
    use proto::inventory::v1 as inventory;
    use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

    use super::*;
    use crate::{
        convert,
        ledger::{Commit, Decision, codec},
        record::{Member, ReleaseReason, Report},
    };

    fn text(rng: &mut StdRng, most: usize) -> String {
        "a".repeat(rng.random_range(1..=most))
    }

    fn report(rng: &mut StdRng) -> Report {
        Report {
            message: text(rng, 300),
            ..Report::default()
        }
    }

    fn some_member(rng: &mut StdRng) -> (HostId, Member) {
        let id = HostId {
            name: HostName::new(text(rng, 20), text(rng, 40)).unwrap(),
            uid: Uid::new(format!("{:032x}", rng.random::<u128>())).unwrap(),
        };
        let mut addresses = BTreeMap::<NetworkId, IpAddr>::new();
        for index in 0..rng.random_range(0..4) {
            let network = NetworkId::new(format!("{}{index}", text(rng, 30))).unwrap();
            let (v4, v6): (IpAddr, IpAddr) = ([255; 4].into(), [u16::MAX; 8].into());
            addresses.insert(network, if rng.random() { v4 } else { v6 });
        }
        let member = Member {
            role: RoleName::new(text(rng, 20)).unwrap(),
            ordinal: Some(u32::MAX),
            domain: None,
            state: MemberState::Releasing,
            revision: u64::MAX,
            addresses,
            bmc_address: text(rng, 200),
            failed_since: Some(SystemTime::now()),
            move_requested: true,
            unwell_since: Some(SystemTime::now()),
            suspended: true,
            replaces: None,
            release_reason: Some(ReleaseReason::Orphaned),
            confirmed: true,
        };
        let member = Member {
            domain: rng.random::<bool>().then(|| Domain {
                key: LabelKey::new(text(rng, 60)).unwrap(),
                value: LabelValue::new(text(rng, 60)).unwrap(),
            }),
            replaces: rng.random::<bool>().then(|| Replaces::Alone(id.clone())),
            ..member
        };
        (id, member)
    }

    /// A record with all its hosts releasing, at its largest.
    fn leaving(rng: &mut StdRng) -> Record {
        let wire = inventory::ClusterSpec {
            network_ids: vec![text(rng, 60)],
            ..inventory::ClusterSpec::default()
        };
        let mut record = Record::new(
            ClusterName::new(text(rng, 60), text(rng, 200)).unwrap(),
            text(rng, 40),
            Some(SystemTime::now()),
            i64::MAX,
            convert::parse_spec(wire, "spec").unwrap(),
        );
        record.revision = u64::MAX;
        record.members = (0..rng.random_range(0..200)).map(|_| some_member(rng)).collect();
        record.reports = (0..rng.random_range(0..3)).map(|_| report(rng)).collect();
        record.conflicts = (0..rng.random_range(0..3)).map(|_| report(rng)).collect();
        record
    }

    /// The bytes of the step at which all its hosts begin to leave, and all its conflicts are found.
    fn encoded(site: &str, record: &Record) -> usize {
        let decision = Decision {
            site: site.to_owned(),
            cluster: Some(record.id()),
            releasing: record.members.keys().cloned().collect(),
            found: record.conflicts.clone(),
            ..Decision::default()
        };
        codec::encode(site, record).len() + codec::encode_decision(&decision).len()
    }

    #[test]
    fn a_records_weight_covers_its_release_without_doubling() {
        let mut rng = StdRng::seed_from_u64(1);
        for _ in 0..300 {
            let record = leaving(&mut rng);
            let needed = encoded("site", &record);
            let weighed = require("site", None, &record, Some(0)).unwrap_err().bytes;
            assert!(weighed >= needed, "{weighed} < {needed}: {record:?}");
            assert!(
                weighed < 2 * needed + 2 * FIXED_BYTES,
                "{weighed} is much more than {needed}"
            );
            assert!(require("site", None, &record, Some(weighed)).is_ok());
            assert!(require("site", None, &record, None).is_ok());
        }
    }

    #[test]
    fn a_step_that_may_be_taken_is_staged() {
        let mut rng = StdRng::seed_from_u64(3);
        for _ in 0..300 {
            let record = leaving(&mut rng);
            let limit = require("site", None, &record, Some(0)).unwrap_err().bytes;
            let decision = Decision {
                caller: "spiffe://example.org/site/site/agent/cluster".to_owned(),
                site: "site".to_owned(),
                cluster: Some(record.id()),
                action: "release".to_owned(),
                releasing: record.members.keys().cloned().collect(),
                found: [&*record.conflicts, &*record.reports].concat(),
                ..Decision::default()
            };
            let needed = codec::encode("site", &record).len() + codec::encode_decision(&decision).len();
            let change = Change::Record {
                key: RecordKey {
                    site: "site".to_owned(),
                    cluster: record.cluster.clone(),
                },
                record: Some(record.into()),
                decision: Box::new(decision),
                commit: Commit::NONE,
            };
            assert_eq!(require_change(&change, Some(limit)), Ok(()));
            let weighed = require_change(&change, Some(0)).unwrap_err().bytes;
            assert!(weighed >= needed, "{weighed} < {needed}");
        }
    }

    #[test]
    fn hosts_that_a_step_frees_count_as_they_are_named_once_more() {
        let mut rng = StdRng::seed_from_u64(2);
        let (before, after) = (leaving(&mut rng), leaving(&mut rng));
        let alone = require("site", None, &after, Some(0)).unwrap_err().bytes;
        let replacing = require("site", Some(&before), &after, Some(0)).unwrap_err().bytes;
        let freed: usize = before.members.keys().map(host).sum();
        assert!(replacing >= alone + freed, "{replacing}, {alone}, {freed}");
        for left in [50, 0] {
            let smaller = Record {
                members: after.members.clone().into_iter().take(left).collect(),
                ..after.clone()
            };
            let fits = require("site", Some(&after), &smaller, Some(alone));
            assert!(fits.is_ok(), "what has fitted can go: {fits:?}");
        }
    }
}
