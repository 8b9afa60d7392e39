//! `SIPCluster`s become what the decision is asked.

use std::collections::BTreeSet;

use api::{Cluster, SIPCluster};
use placement::{
    ClusterName, HostName, LabelKey, LabelValue, MAX_ROLES, MAX_WANTED, MemberState, Namespace, Request,
    Role, RoleName, Uid,
};
use serde::Deserialize;
use serde_json::Value;

use super::Error;
use super::document::{Document, Location};
use super::object::{NO_UID, fields, metadata, name};

const KIND: &str = "SIPCluster";

/// The reason in a status of a member that was released because its role had too many.
const SURPLUS: &str = "surplus";

/// A SIPCluster of the input.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) name: ClusterName,
    /// None: the input does not state it.
    #[cfg_attr(
        not(feature = "region"),
        expect(dead_code, reason = "a rehearsal compares it")
    )]
    pub(crate) uid: Option<String>,
    pub(crate) deleting: bool,
    /// `creationTimestamp` in seconds since 1970.
    pub(crate) created: Option<i64>,
    /// What it wants, or the rule that it breaks.
    pub(crate) request: Result<Request, String>,
    /// The roles that its spec names, as far as they can be read.
    pub(crate) roles: BTreeSet<RoleName>,
    /// `status.placement.members`, sorted by host.
    pub(crate) claims: Vec<Claim>,
    /// Epoch and revision of `status.placement`, if there is one.
    #[cfg_attr(
        not(feature = "region"),
        expect(dead_code, reason = "a rehearsal compares it")
    )]
    pub(crate) position: Option<(u64, u64)>,
    /// The rule that its status breaks: then nothing of it is read.
    #[cfg_attr(
        not(feature = "region"),
        expect(dead_code, reason = "a rehearsal compares it")
    )]
    pub(crate) status_fault: Option<String>,
}

impl Declared {
    /// The topology key of a role.
    pub(crate) fn topology_key(&self, role: &RoleName) -> Option<&LabelKey> {
        let mut roles = self.request.iter().flat_map(|request| &request.roles);
        roles.find(|wanted| wanted.name == *role)?.topology_key.as_ref()
    }

    /// What its status states of a host of this name.
    pub(crate) fn claim_of(&self, host: &HostName) -> Option<&Claim> {
        let place = self.claims.binary_search_by(|claim| claim.host.cmp(host)).ok()?;
        self.claims.get(place)
    }
}

/// An entry of `status.placement.members`.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) host: HostName,
    /// None: the entry does not state it.
    pub(crate) uid: Option<Uid>,
    pub(crate) role: RoleName,
    pub(crate) domain: Option<LabelValue>,
    pub(crate) state: MemberState,
    /// Revision at which it came into this state; 0: the entry does not state it.
    pub(crate) revision: u64,
    /// The member in whose place it comes.
    pub(crate) replaces: Option<HostName>,
    /// It is releasing because its role had too many members. An entry that gives no reason says nothing of that.
    pub(crate) is_surplus: bool,
}

pub(super) fn read(mut document: Document, default: &Namespace) -> Result<(Location, Declared), Error> {
    let metadata = metadata(&mut document, KIND, default)?;
    let name = name(&document, KIND, &metadata, |namespace, name| {
        ClusterName::new(namespace, name)
    })?;
    let Document { location, mut object } = document;
    let status = object.remove("status").unwrap_or_default();
    let deleting = metadata.deletion_timestamp.is_some();
    let uid = metadata.uid.clone().filter(|uid| uid != NO_UID);
    let created = metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0.as_second());
    let roles = object
        .get("spec")
        .and_then(|spec| spec.get("nodes"))
        .and_then(Value::as_object)
        .map(|nodes| nodes.keys().filter_map(|role| RoleName::new(role).ok()).collect())
        .unwrap_or_default();
    object.insert("metadata".to_owned(), Value::Object(serde_json::Map::default()));
    let parsed = fields::<SIPCluster>(Value::Object(object)).map(|mut typed| {
        typed.metadata = metadata;
        typed
    });
    let invalid = |(path, rule): (String, String)| format!("SIPCluster {name}: {path}: {rule}");
    let (claims, position, status_fault) = match claims(status, name.namespace()) {
        Ok((claims, position)) => (claims, position, None),
        Err(fault) => (Vec::new(), None, Some(invalid(fault))),
    };
    let request = match status_fault.clone() {
        Some(rule) => Err(rule),
        None => parsed
            .map_err(invalid)
            .and_then(|typed| Cluster::parse(&typed).map_err(|error| error.to_string()))
            .and_then(|cluster| request(&name, &cluster)),
    };
    Ok((
        location,
        Declared {
            name,
            uid,
            deleting,
            created,
            request,
            roles,
            claims,
            position,
            status_fault,
        },
    ))
}

fn request(name: &ClusterName, cluster: &Cluster) -> Result<Request, String> {
    let invalid = |path: &str, rule: &dyn std::fmt::Display| format!("SIPCluster {name}: {path}: {rule}");
    if cluster.roles().len() > MAX_ROLES {
        let rule = format!("{} roles, at most {MAX_ROLES} are allowed", cluster.roles().len());
        return Err(invalid("spec.nodes", &rule));
    }
    let role = |role: &api::Role| {
        if role.wanted() > MAX_WANTED {
            let rule = format!("{} hosts, at most {MAX_WANTED} are allowed", role.wanted());
            return Err(invalid(&format!("spec.nodes[{}]", role.name()), &rule));
        }
        Ok(Role {
            name: role.name().clone(),
            selector: role.selector().clone(),
            topology_key: role.topology_key().cloned(),
            want: role.wanted(),
            replace_after_error: role.replace_after_error(),
        })
    };
    Ok(Request {
        cluster: name.clone(),
        roles: cluster.roles().iter().map(role).collect::<Result<_, _>>()?,
        networks: cluster.network_ids().into_iter().cloned().collect(),
    })
}

/// The part of a status that says who is a member. Read loosely: a status is cut down by hand for a plan.
#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    placement: Option<PlacementStatus>,
}

#[derive(Default, Deserialize)]
struct PlacementStatus {
    #[serde(default)]
    epoch: u64,
    #[serde(default)]
    revision: u64,
    #[serde(default)]
    members: Vec<MemberStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MemberStatus {
    #[serde(default)]
    namespace: Option<String>,
    name: String,
    #[serde(default)]
    uid: Option<String>,
    role: String,
    #[serde(default)]
    domain: Option<String>,
    #[serde(default)]
    state: Option<api::MemberState>,
    #[serde(default)]
    revision: u64,
    #[serde(default)]
    replaces: Option<String>,
    #[serde(default)]
    release_reason: Option<String>,
}

/// Claims, with the epoch and the revision of the placement.
type Placement = (Vec<Claim>, Option<(u64, u64)>);

fn claims(status: Value, namespace: &Namespace) -> Result<Placement, (String, String)> {
    let status: Option<Status> = fields(status).map_err(|(path, rule)| (format!("status.{path}"), rule))?;
    let placement = status.unwrap_or_default().placement;
    let position = placement
        .as_ref()
        .map(|placement| (placement.epoch, placement.revision));
    let members = placement.unwrap_or_default().members;
    let mut claims = Vec::with_capacity(members.len());
    let mut seen = BTreeSet::new();
    for (index, member) in members.into_iter().enumerate() {
        let path = format!("status.placement.members[{index}]");
        let claim = claim(member, namespace).map_err(|error| (path.clone(), error.to_string()))?;
        if !seen.insert(claim.host.clone()) {
            return Err((path, format!("{} is listed twice", claim.host)));
        }
        claims.push(claim);
    }
    claims.sort_by(|a, b| a.host.cmp(&b.host));
    Ok((claims, position.filter(|(epoch, _)| *epoch > 0)))
}

fn claim(member: MemberStatus, default: &Namespace) -> Result<Claim, placement::NameError> {
    let MemberStatus {
        namespace,
        name,
        uid,
        role,
        domain,
        state,
        revision,
        replaces,
        release_reason,
    } = member;
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    Ok(Claim {
        host: HostName::new(given(namespace).as_deref().unwrap_or(default.as_str()), name)?,
        uid: given(uid).map(Uid::new).transpose()?,
        role: RoleName::new(role)?,
        domain: domain.map(LabelValue::new).transpose()?,
        state: match state {
            Some(api::MemberState::Claimed) => MemberState::Claimed,
            Some(api::MemberState::Bound) | None => MemberState::Bound,
            Some(api::MemberState::Releasing) => MemberState::Releasing,
        },
        revision,
        replaces: given(replaces).map(|old| old.parse()).transpose()?,
        is_surplus: release_reason.as_deref() == Some(SURPLUS),
    })
}
