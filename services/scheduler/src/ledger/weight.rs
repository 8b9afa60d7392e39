//! How large the steps of a record may be.
//!
//! A backend stores a step at once, and may take only so much: etcd refuses a request of more than 1.5 MiB. A step that is
//! refused after others were decided on top of it is the end of the term, and the same step would end the next one. So a
//! step that is too large is refused before it is staged, to whoever asked for it. And a cluster that has grown as far as it
//! may must be able to go: a record is weighed as if all its hosts were being given back, which is when it is largest.
//!
//! Nothing is encoded to weigh it: each part counts as the most that its encoding can take.

use placement::{Domain, HostId};
use proto::placement::v1 as api;

use super::{Change, RecordKey, SiteFence, refusal::clip};
use crate::record::{Member, Record};

/// A field's tag, and its length if that is below 2 MiB.
const FIELD: usize = 4;
/// State and revision of a member.
const STATE: usize = 16;
/// A time.
const TIME: usize = 24;
/// The longest reason for a release.
const REASON: usize = 16;
/// All that is there once: names of caller and action, times, revisions, keys.
const ONCE: usize = 2048;

/// Most bytes of a name in an error.
const SHOWN: usize = 300;

/// A step that is larger than the ledger takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: may need {bytes} bytes in the ledger, which takes {limit} at once")]
pub struct TooLarge {
    /// What is too large.
    pub what: String,
    /// So large it may become.
    pub bytes: usize,
    /// The largest that fits.
    pub limit: usize,
}

/// The parts of a record's weight.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    /// The record, with all its hosts on their way out.
    record: usize,
    /// The names of its hosts in an entry of the log.
    hosts: usize,
    /// Its conflicts.
    conflicts: usize,
    /// Its reports, which are in the record too.
    reports: usize,
}

/// Refuses a step that may not fit, from `before` to `after`, or from which the record could not be given back.
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
    let step = now.record + now.conflicts + now.hosts + freed.sum::<usize>() + told;
    let leaving = now.record + 2 * now.conflicts + now.reports + now.hosts;
    let once = ONCE + 4 * site.len() + 4 * (after.uid.len() + after.cluster.to_string().len());
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
    let (what, bytes) = match change {
        Change::Record {
            key: RecordKey { site, cluster },
            record,
            decision,
            commit: _,
        } => {
            let weight = record.as_deref().map(weigh).unwrap_or_default();
            let once =
                4 * (site.len() + cluster.to_string().len()) + record.as_ref().map_or(0, |r| r.uid.len());
            (
                format!("{cluster} in site {:?}", clip(site, SHOWN)),
                once + weight.record + weight.conflicts + prost::Message::encoded_len(&**decision),
            )
        }
        Change::Fence {
            site,
            fence,
            decision,
            commit: _,
        } => {
            let fence = fence.as_ref().map_or(0, |SiteFence { highest, retired }| {
                let uids = std::iter::once(&highest.lease).chain(retired);
                uids.map(|uid| FIELD + uid.len()).sum::<usize>()
            });
            (
                format!("the reporter of site {:?}", clip(site, SHOWN)),
                4 * site.len() + fence + prost::Message::encoded_len(&**decision),
            )
        }
        // The history itself has five numbers, which are counted with what is there once.
        Change::Raise {
            site,
            history: _,
            decision,
            commit: _,
        } => (
            format!("the position of site {:?}", clip(site, SHOWN)),
            4 * site.len() + prost::Message::encoded_len(&**decision),
        ),
    };
    let bytes = bytes + ONCE;
    if bytes <= limit {
        return Ok(());
    }
    Err(TooLarge { what, bytes, limit })
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
    let reports_of = |reports: &[api::Report]| -> usize {
        let sizes = reports
            .iter()
            .map(|report| FIELD + prost::Message::encoded_len(report));
        sizes.sum()
    };
    // A refusal's message is the entry's reason too.
    let refusal = refusal.as_ref().map_or(0, |refusal| {
        prost::Message::encoded_len(refusal) + refusal.message.len()
    });
    let wire = prost::Message::encoded_len(spec.wire());
    let mut weight = Weight {
        record: wire + refusal + reports_of(reports) + 3 * FIELD,
        hosts: 0,
        conflicts: reports_of(conflicts),
        reports: reports_of(reports),
    };
    for (id, member) in members {
        let name = host(id);
        // Twice: among those whose release is confirmed, too.
        weight.record += self::member(member) + 2 * name;
        weight.hosts += name;
    }
    weight
}

fn host(HostId { name, uid }: &HostId) -> usize {
    4 * FIELD + name.namespace().as_str().len() + name.name().len() + uid.as_str().len()
}

fn member(member: &Member) -> usize {
    let Member {
        role,
        domain,
        state: _,
        revision: _,
        addresses,
        bmc_address,
        failed_since: _,
        unwell_since: _,
        suspended: _,
        replaces,
        release_reason: _,
        confirmed: _,
    } = member;
    let networks = addresses.iter().map(|(id, address)| {
        let text = if address.is_ipv4() { 15 } else { 45 };
        3 * FIELD + id.as_str().len() + text
    });
    FIELD
        + (FIELD + role.as_str().len())
        + domain.as_ref().map_or(0, |Domain { key, value }| {
            2 * FIELD + key.as_str().len() + value.as_str().len()
        })
        + STATE
        + networks.sum::<usize>()
        + (FIELD + bmc_address.len())
        + 2 * TIME
        + REASON
        + replaces.as_ref().map_or(0, |old| FIELD + host(old.host()))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, net::IpAddr, time::SystemTime};

    use placement::{
        ClusterName, HostName, LabelKey, LabelValue, MemberState, NetworkId, Replaces, RoleName, Uid,
    };
    use prost::Message as _;
    use proto::inventory::v1 as inventory;
    use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

    use super::*;
    use crate::{convert, ledger::codec, record::ReleaseReason, spec::Spec};

    fn text(rng: &mut StdRng, most: usize) -> String {
        "a".repeat(rng.random_range(1..=most))
    }

    fn report(rng: &mut StdRng) -> api::Report {
        api::Report {
            message: text(rng, 300),
            ..api::Report::default()
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
            domain: None,
            state: MemberState::Releasing,
            revision: u64::MAX,
            addresses,
            bmc_address: text(rng, 200),
            failed_since: Some(SystemTime::now()),
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

    /// A record with all its hosts on their way out, at its largest.
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
            Spec::parse(wire, "spec").unwrap(),
        );
        record.revision = u64::MAX;
        record.members = (0..rng.random_range(0..200)).map(|_| some_member(rng)).collect();
        record.reports = (0..rng.random_range(0..3)).map(|_| report(rng)).collect();
        record.conflicts = (0..rng.random_range(0..3)).map(|_| report(rng)).collect();
        record
    }

    /// The bytes of the step at which all its hosts begin to leave, and all its conflicts are found.
    fn encoded(site: &str, record: &Record) -> usize {
        let decision = api::Decision {
            site: site.to_owned(),
            cluster: Some(record.reference()),
            releasing: record.members.keys().map(convert::host_ref).collect(),
            found: record.conflicts.clone(),
            ..api::Decision::default()
        };
        codec::encode(site, record).len() + decision.encoded_len()
    }

    #[test]
    fn a_record_is_weighed_as_no_less_than_it_needs_to_be_given_back_and_not_as_twice_of_it() {
        let mut rng = StdRng::seed_from_u64(1);
        for _ in 0..300 {
            let record = leaving(&mut rng);
            let needed = encoded("site", &record);
            let weighed = require("site", None, &record, Some(0)).unwrap_err().bytes;
            assert!(weighed >= needed, "{weighed} < {needed}: {record:?}");
            assert!(
                weighed < 2 * needed + 2 * ONCE,
                "{weighed} is much more than {needed}"
            );
            assert!(require("site", None, &record, Some(weighed)).is_ok());
            assert!(require("site", None, &record, None).is_ok());
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
