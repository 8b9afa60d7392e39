//! Records to bytes and back.

use std::collections::{BTreeMap, BTreeSet};

use placement::{ClusterName, Domain, HostId, LabelKey, LabelValue, Replaces, RoleName};
use prost::Message as _;
use proto::{ledger::v1 as disk, placement::v1 as api};

use super::{Decision, Error, Fence, History, RecordKey, SiteFence};
use crate::{
    convert,
    record::{Member, Record, ReleaseReason, Report, ordinals},
    spec::Spec,
};

/// A record's bytes.
pub(crate) fn encode(site: &str, record: &Record) -> Vec<u8> {
    let confirmed = record
        .members
        .iter()
        .filter(|(_, member)| member.confirmed)
        .map(|(id, _)| convert::host_ref(id))
        .collect();
    let reports = |reports: &[Report]| reports.iter().map(convert::report).collect();
    let placement = api::Placement {
        reports: reports(&record.reports),
        ..convert::placement(site, 0, record)
    };
    disk::Record {
        placement: Some(placement),
        conflicts: reports(&record.conflicts),
        spec: Some(convert::cluster_spec(&record.spec)),
        created: record.created.map(Into::into),
        confirmed,
    }
    .encode_to_vec()
}

/// What [`encode`] made, under the key that it was stored at.
///
/// # Errors
/// [`Error::Corrupt`] names what does not parse.
pub(crate) fn decode(
    (site, namespace, name): (&str, &str, &str),
    bytes: &[u8],
) -> Result<(RecordKey, Record), Error> {
    let corrupt = |rule: String| Error::Corrupt {
        what: format!("record {site}/{namespace}/{name}"),
        rule,
    };
    let disk::Record {
        placement,
        spec,
        created,
        confirmed,
        conflicts,
    } = disk::Record::decode(bytes).map_err(|error| corrupt(error.to_string()))?;
    let placement = placement.ok_or_else(|| corrupt("has no placement".to_owned()))?;
    let cluster = ClusterName::new(namespace, name).map_err(|error| corrupt(error.to_string()))?;
    let spec = convert::parse_spec(spec.unwrap_or_default(), "spec")
        .map_err(|violations| corrupt(crate::violation::sentence(&violations)))?;
    let confirmed: BTreeSet<HostId> = confirmed
        .iter()
        .filter_map(|id| convert::host_id(id).ok())
        .collect();
    let mut record = Record::new(
        cluster.clone(),
        placement.cluster.map(|cluster| cluster.uid).unwrap_or_default(),
        convert::time(created),
        placement.generation,
        spec,
    );
    record.members = placement
        .members
        .into_iter()
        .map(|member| self::member(member, &confirmed, &record.spec).map_err(&corrupt))
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    // Members of an earlier version have none.
    ordinals::assign(&mut record.members);
    let reports = |wire: Vec<api::Report>| wire.into_iter().map(convert::parse_report).collect();
    record.refusal = placement.refusal.map(convert::parse_refusal);
    record.reports = reports(placement.reports);
    record.conflicts = reports(conflicts);
    record.releasing = placement.releasing;
    record.revision = placement.revision.unwrap_or_default().revision;
    Ok((
        RecordKey {
            site: site.to_owned(),
            cluster,
        },
        record,
    ))
}

/// The bytes of an entry of the log of decisions.
pub(crate) fn encode_decision(entry: &Decision) -> Vec<u8> {
    convert::decision(entry).encode_to_vec()
}

/// A history's bytes.
pub(crate) fn encode_history(history: &History) -> Vec<u8> {
    history.stored().encode_to_vec()
}

/// What [`encode_history`] made, of a site.
///
/// # Errors
/// [`Error::Corrupt`] names the site.
pub(crate) fn decode_history(site: &str, bytes: &[u8]) -> Result<History, Error> {
    let parsed = disk::SiteHistory::decode(bytes)
        .map_err(|error| error.to_string())
        .and_then(History::parse);
    parsed.map_err(|rule| Error::Corrupt {
        what: format!("history of site {site}"),
        rule,
    })
}

/// A fence's bytes.
pub(crate) fn encode_fence(fence: &SiteFence) -> Vec<u8> {
    let SiteFence {
        highest: Fence { lease, transitions },
        retired,
    } = fence;
    disk::SiteFence {
        lease_uid: lease.clone(),
        lease_transitions: *transitions,
        retired_lease_uids: retired.iter().cloned().collect(),
    }
    .encode_to_vec()
}

/// What [`encode_fence`] made, of a site.
///
/// # Errors
/// [`Error::Corrupt`] names the site.
pub(crate) fn decode_fence(site: &str, bytes: &[u8]) -> Result<SiteFence, Error> {
    let disk::SiteFence {
        lease_uid,
        lease_transitions,
        retired_lease_uids,
    } = disk::SiteFence::decode(bytes).map_err(|error| Error::Corrupt {
        what: format!("fence of site {site}"),
        rule: error.to_string(),
    })?;
    Ok(SiteFence {
        highest: Fence {
            lease: lease_uid,
            transitions: lease_transitions,
        },
        retired: retired_lease_uids.into_iter().collect(),
    })
}

fn member(wire: api::Member, confirmed: &BTreeSet<HostId>, spec: &Spec) -> Result<(HostId, Member), String> {
    let state = convert::parse_member_state(wire.state());
    let state = state.ok_or_else(|| "a member has no state".to_owned())?;
    let id = convert::host_id(&wire.host.unwrap_or_default()).map_err(|error| error.to_string())?;
    let replaces = wire
        .replaces
        .map(|id| convert::host_id(&id))
        .transpose()
        .map_err(|error| error.to_string())?;
    let role = RoleName::new(wire.role).map_err(|error| error.to_string())?;
    let member = Member {
        domain: domain(&wire.domain, &wire.domain_key, &role, spec)?,
        role,
        ordinal: wire.ordinal,
        state,
        revision: wire.revision,
        addresses: convert::addresses(&wire.addresses),
        bmc_address: wire.bmc_address,
        failed_since: convert::time(wire.failed_since),
        move_requested: wire.move_requested,
        unwell_since: convert::time(wire.unwell_since),
        suspended: wire.suspended,
        replaces: replaces.map(if wire.replaces_alone {
            Replaces::Alone
        } else {
            Replaces::Beside
        }),
        release_reason: ReleaseReason::parse(&wire.release_reason),
        confirmed: confirmed.contains(&id),
    };
    Ok((id, member))
}

/// A record of an earlier version has no key: it is of the key that the role had.
fn domain(value: &str, key: &str, role: &RoleName, spec: &Spec) -> Result<Option<Domain>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    let value = LabelValue::new(value).map_err(|error| error.to_string())?;
    let key = if key.is_empty() {
        let role = spec.roles().iter().find(|wanted| wanted.name == *role);
        role.and_then(|role| role.topology_key.clone())
    } else {
        Some(LabelKey::new(key).map_err(|error| error.to_string())?)
    };
    Ok(key.map(|key| Domain { key, value }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proto::inventory::v1 as inventory;

    use super::*;

    fn key() -> impl Strategy<Value = (String, String, String)> {
        let part = || prop_oneof![4 => "[a-z]{1,8}", 1 => ".{0,12}"];
        (part(), part(), part())
    }

    fn host() -> impl Strategy<Value = inventory::HostRef> {
        ("[a-z]{1,8}|.{0,8}", "[a-z0-9.]{1,8}|.{0,8}", ".{0,8}")
            .prop_map(|(namespace, name, uid)| inventory::HostRef { namespace, name, uid })
    }

    fn stored_member() -> impl Strategy<Value = api::Member> {
        (
            proptest::option::of(host()),
            "[A-Za-z]{1,8}|.{0,8}",
            ".{0,4}|[a-z]{70}",
            any::<i32>().prop_map(|state| state % 6),
            any::<u64>(),
            proptest::collection::btree_map(".{0,6}", ".{0,6}|192\\.0\\.2\\.1", 0..3),
            proptest::option::of((any::<i64>(), any::<i32>())),
            proptest::option::of(host()),
            ".{0,8}|surplus",
        )
            .prop_map(
                |(host, role, domain, state, revision, addresses, failed, replaces, release_reason)| {
                    api::Member {
                        host,
                        role,
                        ordinal: u32::try_from(revision).ok(),
                        domain,
                        state,
                        revision,
                        addresses,
                        bmc_address: String::new(),
                        failed_since: failed
                            .map(|(seconds, nanos)| prost_types::Timestamp { seconds, nanos }),
                        replaces,
                        release_reason,
                        unwell_since: failed.map(|(nanos, seconds)| prost_types::Timestamp {
                            seconds: nanos,
                            nanos: seconds,
                        }),
                        suspended: revision % 2 == 0,
                        move_requested: revision % 7 == 0,
                        replaces_alone: revision % 3 == 0,
                        domain_key: if revision % 5 == 0 {
                            String::new()
                        } else {
                            "example.org/rack".to_owned()
                        },
                    }
                },
            )
    }

    fn stored_record() -> impl Strategy<Value = disk::Record> {
        (
            proptest::option::of(proptest::collection::vec(stored_member(), 0..3)),
            proptest::option::of((".{0,8}", any::<u32>(), proptest::option::of(".{0,8}"))),
            proptest::option::of((any::<i64>(), any::<i32>())),
            proptest::collection::vec(host(), 0..3),
        )
            .prop_map(|(members, role, created, confirmed)| disk::Record {
                placement: members.map(|members| api::Placement {
                    members,
                    ..api::Placement::default()
                }),
                spec: role.map(|(name, active, operator)| inventory::ClusterSpec {
                    roles: vec![inventory::Role {
                        name,
                        label_selector: operator.map(|operator| inventory::LabelSelector {
                            match_expressions: vec![inventory::LabelSelectorRequirement {
                                key: "rack".to_owned(),
                                operator,
                                values: Vec::new(),
                            }],
                            ..inventory::LabelSelector::default()
                        }),
                        active,
                        standby: active,
                        ..inventory::Role::default()
                    }],
                    ..inventory::ClusterSpec::default()
                }),
                created: created.map(|(seconds, nanos)| prost_types::Timestamp { seconds, nanos }),
                conflicts: confirmed
                    .iter()
                    .map(|host| api::Report {
                        host: Some(host.clone()),
                        ..api::Report::default()
                    })
                    .collect(),
                confirmed,
            })
    }

    /// A record that parses comes back as it is; one that does not is named.
    fn read((site, namespace, name): &(String, String, String), bytes: &[u8]) -> Result<(), TestCaseError> {
        match decode((site, namespace, name), bytes) {
            Ok((key, record)) => {
                let again = decode((site, namespace, name), &encode(&key.site, &record));
                prop_assert_eq!(again.unwrap(), (key, record));
            }
            Err(error) => {
                let Error::Corrupt { what, rule } = error else {
                    return Err(TestCaseError::fail(format!("{error}")));
                };
                prop_assert_eq!(what, format!("record {site}/{namespace}/{name}"));
                prop_assert!(!rule.is_empty());
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bytes_of_any_kind_are_a_record_or_an_error_that_names_it(
            key in key(), bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            read(&key, &bytes)?;
        }

        #[test]
        fn records_are_read_as_written_or_named_in_an_error(
            key in key(), record in stored_record(), damage in proptest::option::of((any::<usize>(), any::<u8>())),
        ) {
            let mut bytes = record.encode_to_vec();
            if let Some((at, byte)) = damage && !bytes.is_empty() {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            read(&key, &bytes)?;
        }
    }
}
