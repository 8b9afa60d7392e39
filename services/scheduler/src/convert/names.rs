//! Names of clusters and hosts, and times.

use std::time::SystemTime;

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

/// The time in a request or a stored record; `None` when there is none or it is not representable.
#[must_use]
pub fn time(wire: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    wire.and_then(|time| SystemTime::try_from(time).ok())
}
