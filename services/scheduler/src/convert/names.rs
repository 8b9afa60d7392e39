//! Names of clusters and hosts, and times.

use std::time::{Duration, SystemTime};

use placement::{ClusterName, HostId, HostName, Uid};
use proto::inventory::v1 as inventory;

use crate::{error::Error, record::ClusterId, violation::Violation};

/// Parses a cluster's name.
///
/// # Errors
/// [`Error::Invalid`] with paths below `path`.
pub fn cluster(wire: Option<&inventory::ClusterRef>, path: &str) -> Result<ClusterName, Error> {
    let invalid =
        |field: &str, rule: &dyn std::fmt::Display| Error::Invalid(vec![Violation::new(field, rule)]);
    let wire = wire.ok_or_else(|| invalid(path, &"is missing"))?;
    ClusterName::new(&wire.namespace, &wire.name).map_err(|error| invalid(path, &error))
}

/// The uid of a cluster in a request that needs one.
///
/// # Errors
/// [`Error::Invalid`] when it is missing, or cannot be a uid.
pub fn uid(wire: Option<&inventory::ClusterRef>) -> Result<String, Error> {
    match wire {
        Some(wire) if !wire.uid.is_empty() => match Uid::new(&wire.uid) {
            Ok(uid) => Ok(uid.as_str().to_owned()),
            Err(error) => Err(Error::Invalid(vec![Violation::new("cluster.uid", error)])),
        },
        _ => Err(Error::Invalid(vec![Violation::new("cluster.uid", "is missing")])),
    }
}

/// A cluster's name and uid as callers see it.
#[must_use]
pub fn cluster_ref(ClusterId { name, uid }: &ClusterId) -> inventory::ClusterRef {
    inventory::ClusterRef {
        namespace: name.namespace().as_str().to_owned(),
        name: name.name().to_owned(),
        uid: uid.clone(),
    }
}

/// Parses a host's identity.
///
/// # Errors
/// The rule that it breaks.
pub fn host_id(wire: &inventory::HostRef) -> Result<HostId, placement::NameError> {
    Ok(HostId {
        name: HostName::new(&wire.namespace, &wire.name)?,
        uid: Uid::new(&wire.uid)?,
    })
}

/// A host's identity as callers see it.
#[must_use]
pub fn host_ref(HostId { name, uid }: &HostId) -> inventory::HostRef {
    inventory::HostRef {
        namespace: name.namespace().as_str().to_owned(),
        name: name.name().to_owned(),
        uid: uid.as_str().to_owned(),
    }
}

/// Seconds since 1970 of the first and of the last second that a `Timestamp` may have: the years 1 to 9999.
const TIMESTAMP_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// Maximum length of a `Duration`, in seconds.
const MAX_DURATION_SECONDS: u64 = 315_576_000_000;
const NANOS_PER_SECOND: u32 = 1_000_000_000;

fn nanos(wire: i32) -> Option<u32> {
    u32::try_from(wire).ok().filter(|nanos| *nanos < NANOS_PER_SECOND)
}

/// The time in a request or a stored record; `None` when there is none, or it is none that a `Timestamp` may have.
#[must_use]
pub fn time(wire: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    let time = wire.filter(|time| TIMESTAMP_SECONDS.contains(&time.seconds) && nanos(time.nanos).is_some());
    time.and_then(|time| SystemTime::try_from(time).ok())
}

/// The duration in a request or a stored record; `None` when it is negative, or none that a `Duration` may have. Conversions of the
/// library overflow.
#[must_use]
pub fn duration(wire: prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(wire.seconds)
        .ok()
        .filter(|seconds| *seconds <= MAX_DURATION_SECONDS);
    Some(Duration::new(seconds?, nanos(wire.nanos)?))
}
