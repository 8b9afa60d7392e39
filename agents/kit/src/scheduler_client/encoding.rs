//! Protobuf into the types of [`crate::placement`], and a checked `SIPCluster` into protobuf: each in one place.

use api::{Cluster, MemberState, Role};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use proto::{inventory::v1 as inventory, placement::v1 as wire};
use tonic::Status;

use crate::placement::{
    ClusterId, HeldHosts, HostId, Member, ObjectKey, Placement, Position, Refusal, Release,
};

/// A field of an answer that no correct scheduler sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scheduler's answer is invalid: {path}: {rule}")]
pub struct Invalid {
    path: String,
    rule: &'static str,
}

impl Invalid {
    fn missing(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            rule: "is missing",
        }
    }

    /// The same fault, of a message within another one.
    fn within(self, path: &str) -> Self {
        Self {
            path: format!("{path}.{}", self.path),
            ..self
        }
    }
}

impl From<Invalid> for Status {
    fn from(invalid: Invalid) -> Self {
        Self::internal(invalid.to_string())
    }
}

impl TryFrom<wire::Placement> for Placement {
    type Error = Invalid;

    fn try_from(wire: wire::Placement) -> Result<Self, Invalid> {
        let wire::Placement {
            site: _,
            cluster,
            generation,
            revision,
            members,
            refusal,
            reports,
            releasing: _,
        } = wire;
        let members = members.into_iter().enumerate().map(|(index, member)| {
            Member::try_from(member).map_err(|invalid| invalid.within(&format!("placement.members[{index}]")))
        });
        Ok(Self {
            cluster: cluster_id(cluster).map_err(|invalid| invalid.within("placement"))?,
            generation,
            position: revision
                .map(position)
                .ok_or_else(|| Invalid::missing("placement.revision"))?,
            members: members.collect::<Result<_, _>>()?,
            refusal: refusal.map(self::refusal),
            reports: reports.into_iter().map(|report| report.message).collect(),
        })
    }
}

/// Reads the hosts alone, so that no field that this version does not know hides a host that is held.
impl From<wire::Placement> for HeldHosts {
    fn from(wire: wire::Placement) -> Self {
        let wire::Placement { cluster, members, .. } = wire;
        let inventory::ClusterRef { namespace, name, uid } = cluster.unwrap_or_default();
        let all = members.len();
        let hosts = members.into_iter().filter_map(|member| {
            let inventory::HostRef { namespace, name, uid } = member.host?;
            (!namespace.is_empty()).then(|| HostId::new(ObjectKey { namespace, name }, uid))
        });
        let hosts: Vec<HostId> = hosts.collect();
        Self {
            cluster: ClusterId::new(ObjectKey { namespace, name }, uid),
            unknown: all - hosts.len(),
            hosts,
        }
    }
}

impl TryFrom<wire::Member> for Member {
    type Error = Invalid;

    fn try_from(wire: wire::Member) -> Result<Self, Invalid> {
        let state = match wire.state() {
            inventory::MemberState::Claimed => MemberState::Claimed,
            inventory::MemberState::Bound => MemberState::Bound,
            inventory::MemberState::Releasing => MemberState::Releasing,
            inventory::MemberState::Unspecified => return Err(Invalid::missing("state")),
        };
        let wire::Member {
            host,
            role,
            domain,
            state: _,
            revision,
            addresses,
            bmc_address: _,
            failed_since,
            release_reason,
            replaces,
            unwell_since: _,
            suspended: _,
            replaces_alone: _,
            domain_key: _,
            ordinal,
            move_requested,
        } = wire;
        let host = host_id(host.unwrap_or_default(), "host")?;
        if host.uid().is_empty() {
            return Err(Invalid::missing("host.uid"));
        }
        if role.is_empty() {
            return Err(Invalid::missing("role"));
        }
        // An address that cannot be parsed counts as absent; the service that needs it reports that.
        let addresses = addresses
            .into_iter()
            .filter_map(|(network, address)| Some((network, address.parse().ok()?)));
        Ok(Self {
            host,
            role,
            ordinal,
            domain: stated(domain),
            state,
            revision,
            addresses: addresses.collect(),
            failed_since: failed_since.map(time).transpose()?,
            move_requested,
            release_reason: stated(release_reason),
            replaces: replaces.map(|host| host_id(host, "replaces")).transpose()?,
        })
    }
}

fn refusal(wire: wire::Refusal) -> Refusal {
    let wire::Refusal {
        kind,
        roles: _,
        tight_roles: _,
        tight_domains: _,
        helps: _,
        message,
    } = wire;
    Refusal { kind, message }
}

fn position(wire: inventory::Revision) -> Position {
    let inventory::Revision { epoch, revision } = wire;
    Position::new(epoch, revision)
}

/// The text of a field that is empty when it is absent, as protobuf has no absent text.
fn stated(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// To the second, as every time of the API server.
fn time(wire: prost_types::Timestamp) -> Result<Timestamp, Invalid> {
    Timestamp::from_second(wire.seconds).map_err(|_| Invalid {
        path: "failed_since".to_owned(),
        rule: "must be a time between the years -9999 and 9999",
    })
}

pub(super) fn cluster_id(wire: Option<inventory::ClusterRef>) -> Result<ClusterId, Invalid> {
    let inventory::ClusterRef { namespace, name, uid } = wire.unwrap_or_default();
    Ok(ClusterId::new(object_key(namespace, name, "cluster")?, uid))
}

fn host_id(wire: inventory::HostRef, path: &str) -> Result<HostId, Invalid> {
    let inventory::HostRef { namespace, name, uid } = wire;
    Ok(HostId::new(object_key(namespace, name, path)?, uid))
}

fn object_key(namespace: String, name: String, path: &str) -> Result<ObjectKey, Invalid> {
    if namespace.is_empty() {
        return Err(Invalid::missing(&format!("{path}.namespace")));
    }
    if name.is_empty() {
        return Err(Invalid::missing(&format!("{path}.name")));
    }
    Ok(ObjectKey { namespace, name })
}

/// A cluster as calls name it.
pub(super) fn cluster_ref(cluster: &ClusterId) -> inventory::ClusterRef {
    inventory::ClusterRef {
        namespace: cluster.namespace().to_owned(),
        name: cluster.name().to_owned(),
        uid: cluster.uid().to_owned(),
    }
}

pub(super) fn revision(position: Position) -> inventory::Revision {
    inventory::Revision {
        epoch: position.epoch(),
        revision: position.revision(),
    }
}

pub(super) fn confirmation(release: &Release) -> wire::ReleaseConfirmation {
    let host = release.host();
    wire::ReleaseConfirmation {
        host: Some(inventory::HostRef {
            namespace: host.key().namespace.clone(),
            name: host.key().name.clone(),
            uid: host.uid().to_owned(),
        }),
        revision: release.revision(),
    }
}

/// The whole wanted shape of a cluster.
pub(super) fn declaration(
    site: &str,
    cluster: &Cluster,
    created: Option<&Time>,
) -> wire::ApplyClusterRequest {
    let reference = cluster.reference();
    wire::ApplyClusterRequest {
        site: site.to_owned(),
        cluster: Some(inventory::ClusterRef {
            namespace: reference.namespace().to_owned(),
            name: reference.name().to_owned(),
            uid: reference.uid().to_owned(),
        }),
        generation: cluster.generation(),
        created: created.map(|time| prost_types::Timestamp {
            seconds: time.0.as_second(),
            nanos: time.0.subsec_nanosecond(),
        }),
        spec: Some(inventory::ClusterSpec {
            roles: cluster.roles().iter().map(role).collect(),
            network_ids: cluster
                .network_ids()
                .into_iter()
                .map(|id| id.as_str().to_owned())
                .collect(),
            other_bytes: cluster.other_bytes(),
        }),
    }
}

fn role(role: &Role) -> inventory::Role {
    // In the order of keys, as earlier versions declared them, so that an upgrade does not change the declared shape.
    let mut requirements: Vec<_> = role.selector().requirements().collect();
    requirements.sort_by_key(|requirement| requirement.key());
    let requirements = requirements
        .into_iter()
        .map(|requirement| inventory::LabelSelectorRequirement {
            key: requirement.key().to_string(),
            operator: requirement.operator().to_string(),
            values: requirement.values().map(ToString::to_string).collect(),
        });
    inventory::Role {
        name: role.name().as_str().to_owned(),
        label_selector: Some(inventory::LabelSelector {
            match_labels: std::collections::BTreeMap::new(),
            match_expressions: requirements.collect(),
        }),
        topology_key: role
            .topology_key()
            .map(|key| key.as_str().to_owned())
            .unwrap_or_default(),
        active: role.active(),
        standby: role.standby(),
        replace_after_error: role.replace_after_error().and_then(|grace| grace.try_into().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> inventory::HostRef {
        inventory::HostRef {
            namespace: "metal".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        }
    }

    fn member() -> wire::Member {
        wire::Member {
            host: Some(host("h1")),
            role: "Worker".to_owned(),
            state: inventory::MemberState::Bound.into(),
            revision: 5,
            addresses: [("oam", "192.0.2.7"), ("bad", "nowhere")]
                .map(|(network, address)| (network.to_owned(), address.to_owned()))
                .into(),
            ..wire::Member::default()
        }
    }

    fn placement() -> wire::Placement {
        wire::Placement {
            cluster: Some(inventory::ClusterRef {
                namespace: "tenant".to_owned(),
                name: "one".to_owned(),
                uid: String::new(),
            }),
            generation: 3,
            revision: Some(inventory::Revision {
                epoch: 2,
                revision: 7,
            }),
            members: vec![member()],
            refusal: Some(wire::Refusal {
                kind: "no-fit".to_owned(),
                message: "too few hosts".to_owned(),
                ..wire::Refusal::default()
            }),
            ..wire::Placement::default()
        }
    }

    #[test]
    fn hosts_of_unreadable_members_are_held() {
        let mut answer = placement();
        let newer = wire::Member { state: 9, ..member() };
        let nowhere = wire::Member {
            host: None,
            ..member()
        };
        answer.revision = None;
        answer.members = vec![newer, nowhere];
        assert!(Placement::try_from(answer.clone()).is_err());
        let held = HeldHosts::from(answer);
        assert_eq!(held.cluster().key().to_string(), "tenant/one");
        let h1 = ObjectKey {
            namespace: "metal".to_owned(),
            name: "h1".to_owned(),
        };
        assert_eq!(held.hosts(), [HostId::new(h1, "uid-h1")]);
        assert_eq!(held.unknown(), 1);
    }

    #[test]
    fn an_answer_becomes_a_placement() {
        let parsed = Placement::try_from(placement()).unwrap();
        assert_eq!(parsed.cluster().key().to_string(), "tenant/one");
        assert_eq!(parsed.position(), Position::new(2, 7));
        assert_eq!(parsed.refusal().map(Refusal::message), Some("too few hosts"));
        let [member] = parsed.members() else {
            panic!("{parsed:?}")
        };
        assert_eq!((member.role(), member.state()), ("Worker", MemberState::Bound));
        assert_eq!(
            member.addresses.keys().collect::<Vec<_>>(),
            ["oam"],
            "one that cannot be read is none"
        );
        assert_eq!((member.domain(), member.release_reason()), (None, None));
        let wire::ReleaseConfirmation {
            host: confirmed,
            revision,
        } = confirmation(&member.release());
        assert_eq!((confirmed, revision), (Some(host("h1")), 5));
    }

    #[test]
    fn an_invalid_answer_is_refused_by_path() {
        type Change = fn(&mut wire::Placement);
        let cases: [(Change, &str); 7] = [
            (
                |wire| wire.cluster = None,
                "placement.cluster.namespace: is missing",
            ),
            (|wire| wire.revision = None, "placement.revision: is missing"),
            (
                |wire| wire.members[0].host = None,
                "placement.members[0].host.namespace: is missing",
            ),
            (
                |wire| wire.members[0].host.as_mut().unwrap().uid.clear(),
                "placement.members[0].host.uid: is missing",
            ),
            (
                |wire| wire.members[0].role.clear(),
                "placement.members[0].role: is missing",
            ),
            (
                |wire| wire.members[0].state = 9,
                "placement.members[0].state: is missing",
            ),
            (
                |wire| {
                    wire.members[0].failed_since = Some(prost_types::Timestamp {
                        seconds: i64::MAX,
                        nanos: 0,
                    });
                },
                "placement.members[0].failed_since: must be a time between the years -9999 and 9999",
            ),
        ];
        for (change, expected) in cases {
            let mut wire = placement();
            change(&mut wire);
            let error = Placement::try_from(wire).unwrap_err().to_string();
            assert_eq!(error, format!("the scheduler's answer is invalid: {expected}"));
        }
    }

    #[test]
    fn a_replaced_host_may_be_gone() {
        let mut wire = member();
        wire.replaces = Some(inventory::HostRef {
            uid: String::new(),
            ..host("h0")
        });
        let parsed = Member::try_from(wire).unwrap();
        assert_eq!(
            parsed.replaces().map(ToString::to_string).as_deref(),
            Some("metal/h0")
        );
    }
}
