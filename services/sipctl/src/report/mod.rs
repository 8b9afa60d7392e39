//! What a plan says: the types of the stable contract, `docs/sipctl-plan.schema.json`.
//!
//! Fields are only ever added. Hosts and clusters are written `namespace/name`; arrays are sorted by host, as texts.

mod fill;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

pub(crate) use fill::{cluster, invalid, released_whole, remark};

/// What would be decided for each SIPCluster.
#[derive(Clone, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The clusters, sorted by name.
    pub clusters: Vec<Cluster>,
}

/// What would be decided for one SIPCluster.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// The SIPCluster, `namespace/name`.
    pub cluster: String,
    /// How the decision ends.
    pub outcome: Outcome,
    /// Each role that is wanted or has members, by name. Empty for an invalid cluster.
    pub roles: BTreeMap<String, Role>,
    /// Members that are released, sorted by host. Nothing of it is free yet.
    pub release: Vec<Release>,
    /// What people should know though it changes nothing, sorted by host; what is about no host comes first.
    pub reports: Vec<Remark>,
    /// Why not all that is wanted is there; null exactly when the outcome is `placed`.
    pub refusal: Option<Refusal>,
}

/// How a decision ends.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Every role has exactly the hosts that it wants.
    Placed,
    /// A shrink or a replacement is decided, but not all that is wanted.
    Partial,
    /// Nothing is taken or released; members stay.
    Refused,
    /// The SIPCluster breaks a rule; nothing is decided.
    Invalid,
}

impl Outcome {
    /// As it is written in the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Partial => "partial",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
        }
    }
}

/// What one role has after the decision.
#[derive(Clone, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Role {
    /// Hosts wanted: active and standby. 0 for a role that is gone from the spec, or when the cluster is being deleted.
    pub want: u32,
    /// Hosts that stay and hosts that are taken, sorted by host.
    pub hosts: Vec<Host>,
}

/// A host of a role.
#[derive(Clone, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// The BareMetalHost, `namespace/name`.
    pub host: String,
    /// Value of the role's topology key; null without a key, or when the host has no such label.
    pub domain: Option<String>,
    /// Whether it stays or is taken.
    pub change: Change,
}

/// What happens to a host.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// A member that stays.
    Keep,
    /// A free host that is claimed.
    Take,
}

/// A member that is released.
#[derive(Clone, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// The BareMetalHost, `namespace/name`.
    pub host: String,
    /// The role that it served.
    pub role: String,
    /// Reason for the release.
    pub reason: ReleaseReason,
}

/// Why a member is released.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ReleaseReason {
    /// The role has more members than it wants, or is gone from the spec.
    Surplus,
    /// It is marked as failed, and a host that is taken replaces it.
    Failed,
    /// Its BareMetalHost no longer exists, and a host that is taken replaces it.
    Gone,
    /// The SIPCluster is being deleted.
    Deleted,
}

impl ReleaseReason {
    /// As it is written in the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Surplus => "surplus",
            Self::Failed => "failed",
            Self::Gone => "gone",
            Self::Deleted => "deleted",
        }
    }
}

/// Something that people should know.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Remark {
    /// What, in one word. More kinds may come.
    ///
    /// Of the input: `addresses-unchecked`, `state-unknown`, `labels-partial`, `orphaned`, `not-labelled`,
    /// `not-a-member`, `releasing`, `problem`. Of members that stay though they could not be taken today: `selector`,
    /// `no-topology-label`, `empty-topology-label`, `deleting`, `paused`, `detached`, `in-error`, `servicing`,
    /// `unknown-status`, `state`, `cordoned`, `cordoned-domain`, `no-address`, `topology-shared`, `domain-changed`,
    /// `host-missing`. Of failed members: `replacement-waits`, `no-replacement`, `being-replaced`. Of the whole:
    /// `spans-namespaces`.
    pub kind: String,
    /// The BareMetalHost, `namespace/name`, if it is about one.
    pub host: Option<String>,
    /// The role, if it is about one.
    pub role: Option<String>,
    /// The same as a sentence for people; its words may change.
    pub message: String,
}

/// Why a cluster does not get all that it wants.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// `no-fit`: there are no hosts that complete all roles. `quota`: the site's policy allows the namespace fewer hosts.
    /// `replacement-limit`: members to be replaced wait for earlier replacements. `invalid`: the SIPCluster breaks a rule.
    pub kind: String,
    /// Each wanted role's funnel, by name.
    pub roles: BTreeMap<String, Funnel>,
    /// The bottleneck; empty unless the kind is `no-fit`.
    pub tight: Tight,
    /// What would help, each checked by deciding again with it.
    pub helps: Vec<String>,
    /// The whole as a sentence for people; its words may change.
    pub message: String,
}

/// How many hosts are left for a role after each condition.
#[derive(Clone, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Funnel {
    /// Hosts that match the selector.
    pub matched: u32,
    /// Of those, hosts that have the topology label with a value; the same number without a key.
    pub with_topology: u32,
    /// Of those, hosts that are eligible.
    pub eligible: u32,
    /// Of those, hosts that no cluster holds.
    pub free: u32,
    /// Different values of the topology key among the free ones; the number of free ones without a key.
    pub domains: u32,
    /// Hosts that are missing.
    pub short: u32,
}

/// Why it is impossible: these roles need `demand` hosts, and all hosts that could serve are in these domains (one place
/// each), are these hosts (one role each), or are in domains of failed members that `waiting` replacements use up;
/// together that is `demand - deficit`.
#[derive(Clone, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tight {
    /// Roles that compete, sorted.
    pub roles: Vec<String>,
    /// Hosts that they need.
    pub demand: u32,
    /// Hosts by which they fail at least.
    pub deficit: u32,
    /// Domains that bind, sorted.
    pub domains: Vec<TightDomain>,
    /// Hosts that bind, sorted.
    pub hosts: Vec<String>,
    /// Places in the domains of failed members that may not all be replaced now.
    pub waiting: u32,
}

/// A domain that binds a role.
#[derive(Clone, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TightDomain {
    /// The role.
    pub role: String,
    /// Value of its topology key.
    pub domain: String,
}

impl Remark {
    /// By what remarks are sorted: the host first.
    #[must_use]
    pub fn order(&self) -> (Option<&str>, &str, Option<&str>, &str) {
        let Self {
            kind,
            host,
            role,
            message,
        } = self;
        (host.as_deref(), kind, role.as_deref(), message)
    }
}

impl Report {
    /// Whether every cluster gets all that it wants.
    #[must_use]
    pub fn all_placed(&self) -> bool {
        self.clusters
            .iter()
            .all(|cluster| cluster.outcome == Outcome::Placed)
    }
}

/// The JSON Schema of [`Report`].
#[must_use]
pub fn schema() -> schemars::Schema {
    // As it is written: a null is always there.
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<Report>()
}
