//! What a site reports.

use std::collections::BTreeMap;

use placement::{ClusterName, Domain, HostName, LabelKey, LabelValue, MemberState, RoleName, Uid};
use proto::inventory::v1 as inventory;

use super::{
    host::observed_host,
    names::{host_id, time},
};
use crate::{
    observed::{Changes, Cluster, Member, Replaced},
    record::{ClusterId, ReleaseReason},
};

/// Maximum length of a uid, in bytes.
const MAX_UID_BYTES: usize = 253;

/// Number of objects in a slice of a report.
const OBJECTS_PER_SLICE: usize = 128;

/// A report in slices, in the order in which a report is taken in: parsing one and taking it in takes about a
/// millisecond, however much one message reports. An empty report is one empty slice.
pub fn slices(wire: inventory::HostChanges) -> impl Iterator<Item = inventory::HostChanges> + Send {
    let inventory::HostChanges {
        hosts,
        deleted_hosts,
        clusters,
        deleted_clusters,
    } = wire;
    let (mut hosts, mut deleted_hosts) = (hosts.into_iter(), deleted_hosts.into_iter());
    let (mut clusters, mut deleted_clusters) = (clusters.into_iter(), deleted_clusters.into_iter());
    let mut first = true;
    std::iter::from_fn(move || {
        let mut room = OBJECTS_PER_SLICE;
        let slice = inventory::HostChanges {
            hosts: take(&mut hosts, &mut room),
            deleted_hosts: take(&mut deleted_hosts, &mut room),
            clusters: take(&mut clusters, &mut room),
            deleted_clusters: take(&mut deleted_clusters, &mut room),
        };
        let is_first = std::mem::take(&mut first);
        (room < OBJECTS_PER_SLICE || is_first).then_some(slice)
    })
}

fn take<T>(items: &mut std::vec::IntoIter<T>, room: &mut usize) -> Vec<T> {
    let taken: Vec<T> = items.by_ref().take(*room).collect();
    *room -= taken.len();
    taken
}

/// Parses a report of a site. What has no usable identity is left out: there are as many hosts less.
#[must_use]
pub fn changes(site: &str, wire: inventory::HostChanges) -> Changes {
    let inventory::HostChanges {
        hosts,
        deleted_hosts,
        clusters,
        deleted_clusters,
    } = wire;
    let mut changes = Changes {
        hosts: Vec::with_capacity(hosts.len()),
        unreadable: Vec::new(),
        deleted_hosts: deleted_hosts
            .iter()
            .filter_map(|host| host_id(host).ok())
            .collect(),
        clusters: clusters.into_iter().filter_map(observed_cluster).collect(),
        deleted_clusters: deleted_clusters
            .into_iter()
            .filter_map(|cluster| cluster_id(Some(cluster)))
            .collect(),
        faults: Vec::new(),
    };
    for host in hosts {
        let name = host
            .r#ref
            .as_ref()
            .map(|host| HostName::new(&host.namespace, &host.name));
        match observed_host(host, &mut changes.faults) {
            Ok(host) => changes.hosts.push(host),
            Err(error) => {
                changes.faults.push(format!(
                    "a reported host of site {site} has no usable identity and is left out: {error}"
                ));
                changes.unreadable.extend(name.and_then(Result::ok));
            }
        }
    }
    changes
}

/// A cluster that is reported; an empty uid says that it is not known.
fn cluster_id(wire: Option<inventory::ClusterRef>) -> Option<ClusterId> {
    let inventory::ClusterRef { namespace, name, uid } = wire?;
    let is_uid = uid.len() <= MAX_UID_BYTES && !uid.chars().any(char::is_control);
    let name = ClusterName::new(namespace, name).ok().filter(|_| is_uid)?;
    Some(ClusterId { name, uid })
}

fn observed_cluster(wire: inventory::ObservedCluster) -> Option<Cluster> {
    let inventory::ObservedCluster {
        r#ref,
        generation,
        created,
        deleting,
        members,
        revision,
        topology_keys,
    } = wire;
    // Once for all members of a role, which share them.
    let keys: TopologyKeys<'_> = topology_keys
        .iter()
        .filter_map(|(role, key)| Some((role.as_str(), LabelKey::new(key).ok()?)))
        .collect();
    Some(Cluster {
        id: cluster_id(r#ref)?,
        generation,
        created: time(created),
        deleting,
        position: revision.map(Into::into),
        members: members.iter().filter_map(|wire| member(wire, &keys)).collect(),
    })
}

/// Topology keys by role.
type TopologyKeys<'a> = BTreeMap<&'a str, LabelKey>;

fn member(wire: &inventory::ObservedMember, keys: &TopologyKeys<'_>) -> Option<Member> {
    let domain = |value: &String| {
        Some(Domain {
            key: keys.get(wire.role.as_str())?.clone(),
            value: LabelValue::new(value).ok()?,
        })
    };
    Some(Member {
        host: host_id(wire.host.as_ref()?).ok()?,
        role: RoleName::new(&wire.role).ok(),
        domain: wire.domain.as_ref().and_then(domain),
        state: match wire.state() {
            inventory::MemberState::Claimed => Some(MemberState::Claimed),
            inventory::MemberState::Bound => Some(MemberState::Bound),
            inventory::MemberState::Releasing => Some(MemberState::Releasing),
            inventory::MemberState::Unspecified => None,
        },
        revision: wire.revision,
        replaces: wire.replaces.as_ref().and_then(|old| {
            Some(Replaced {
                name: HostName::new(&old.namespace, &old.name).ok()?,
                uid: Uid::new(&old.uid).ok(),
            })
        }),
        ordinal: wire.ordinal,
        release_reason: ReleaseReason::parse(&wire.release_reason),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(uid: &str) -> inventory::Host {
        inventory::Host {
            r#ref: Some(inventory::HostRef {
                namespace: "metal".to_owned(),
                name: "h1".to_owned(),
                uid: uid.to_owned(),
            }),
            ..inventory::Host::default()
        }
    }

    #[test]
    fn a_host_without_uid_exists_and_is_not_observed() {
        let parsed = changes(
            "a",
            inventory::HostChanges {
                hosts: vec![host(""), host("u"), inventory::Host::default()],
                ..inventory::HostChanges::default()
            },
        );
        assert_eq!(parsed.hosts.len(), 1);
        assert_eq!(parsed.unreadable, [HostName::new("metal", "h1").unwrap()]);
    }

    #[test]
    fn slices_have_everything_in_its_order() {
        let named = |number: usize| inventory::HostRef {
            uid: number.to_string(),
            ..inventory::HostRef::default()
        };
        let whole = inventory::HostChanges {
            hosts: vec![host("u"); 2 * OBJECTS_PER_SLICE + 1],
            deleted_hosts: (0..OBJECTS_PER_SLICE).map(named).collect(),
            clusters: Vec::new(),
            deleted_clusters: vec![inventory::ClusterRef::default(); 3],
        };
        let parts: Vec<_> = slices(whole.clone()).collect();
        let sizes: Vec<_> = parts
            .iter()
            .map(|part| {
                (
                    part.hosts.len(),
                    part.deleted_hosts.len(),
                    part.deleted_clusters.len(),
                )
            })
            .collect();
        assert_eq!(
            sizes,
            [
                (OBJECTS_PER_SLICE, 0, 0),
                (OBJECTS_PER_SLICE, 0, 0),
                (1, OBJECTS_PER_SLICE - 1, 0),
                (0, 1, 3)
            ]
        );
        let deleted: Vec<_> = parts.into_iter().flat_map(|part| part.deleted_hosts).collect();
        assert_eq!(deleted, whole.deleted_hosts);
        assert_eq!(slices(inventory::HostChanges::default()).count(), 1);
    }

    #[test]
    fn a_domain_needs_a_valid_key_and_a_valid_value() {
        let long = "x".repeat(64);
        for (key, value, known) in [
            (Some("rack"), Some("r1"), true),
            (Some("rack"), Some(""), true),
            (Some("rack"), None, false),
            (None, Some("r1"), false),
            (Some(""), Some("r1"), false),
            (Some("Not/a/key"), Some("r1"), false),
            (Some("rack"), Some("r\n1"), false),
            (Some("rack"), Some(&*long), false),
        ] {
            let mut keys: BTreeMap<&str, LabelKey> = BTreeMap::new();
            keys.extend(key.and_then(|key| Some(("Worker", LabelKey::new(key).ok()?))));
            let wire = |role: &str| inventory::ObservedMember {
                host: host("u").r#ref,
                role: role.to_owned(),
                domain: value.map(str::to_owned),
                ..inventory::ObservedMember::default()
            };
            let parsed = member(&wire("Worker"), &keys).unwrap().domain;
            let named = parsed.map(|domain| domain.to_string());
            let expected = known.then(|| format!("rack={}", value.unwrap_or_default()));
            assert_eq!(named, expected, "{key:?} {value:?}");
            assert_eq!(member(&wire("Other"), &keys).unwrap().domain, None);
        }
    }

    #[test]
    fn clusters_with_invalid_names_or_uids_are_left_out() {
        for (name, uid, parsed) in [
            ("one", "", true),
            ("one", "u", true),
            ("", "u", false),
            ("one", "a\nb", false),
            ("one", &*"u".repeat(MAX_UID_BYTES + 1), false),
        ] {
            let reference = inventory::ClusterRef {
                namespace: "tenant".to_owned(),
                name: name.to_owned(),
                uid: uid.to_owned(),
            };
            assert_eq!(cluster_id(Some(reference)).is_some(), parsed, "{name:?} {uid:?}");
        }
    }
}
