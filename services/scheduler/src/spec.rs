//! The wanted shape of a cluster, parsed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use placement::{Expression, NetworkId, Role};

use crate::violation::Violation;

/// Maximum number of members that a cluster may want, of all roles together: as many as fit into the status of a `SIPCluster` when every
/// name in it is as short as can be. A decision takes longer the more hosts are wanted, so what can never be given is refused before it is
/// decided.
pub const MAX_MEMBERS: u64 = 2_315;

/// Maximum product of the roles and members that a cluster may want: the work of a decision grows with both, since every host can be tried
/// for each role. A decision at this bound takes less than a second.
pub const MAX_CHOICES: u64 = 10_000;

/// What a cluster wants (the default is nothing). Every copy of a record shares it. Only [`crate::convert`] builds others than the
/// default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec(Arc<Shape>);

#[derive(Debug, Default, PartialEq)]
struct Shape {
    roles: Vec<Role>,
    /// Of each role, in the same order.
    declared: Vec<Declared>,
    /// As they were declared: in their order, and repeated where they were.
    network_ids: Vec<NetworkId>,
    networks: BTreeSet<NetworkId>,
    other_bytes: u32,
}

/// What a role's declaration has and its parsed form has not: it is given back and stored as it came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// Labels of its selector.
    pub labels: BTreeMap<String, String>,
    /// Expressions of its selector.
    pub expressions: Vec<Expression>,
    /// Hosts at work.
    pub active: u32,
    /// Hosts as slack.
    pub standby: u32,
}

impl Spec {
    pub(crate) fn new(roles: Vec<(Role, Declared)>, network_ids: Vec<NetworkId>, other_bytes: u32) -> Self {
        let (roles, declared) = roles.into_iter().unzip();
        Self(Arc::new(Shape {
            roles,
            declared,
            networks: network_ids.iter().cloned().collect(),
            network_ids,
            other_bytes,
        }))
    }

    /// Wanted roles.
    #[must_use]
    pub fn roles(&self) -> &[Role] {
        &self.0.roles
    }

    /// Wanted roles, each with the rest of its declaration.
    pub fn declared(&self) -> impl Iterator<Item = (&Role, &Declared)> {
        self.0.roles.iter().zip(&self.0.declared)
    }

    /// How many members it wants, of all roles together.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.0.roles.iter().map(|role| u64::from(role.want)).sum()
    }

    /// The most members that a cluster of so many roles may want.
    fn most_members(&self) -> u64 {
        let roles = u64::try_from(self.0.roles.len()).unwrap_or(u64::MAX);
        (MAX_CHOICES / roles.max(1)).min(MAX_MEMBERS)
    }

    /// Whether it wants more members than a cluster of so many roles may: an earlier version has taken it. It is not given more than it has.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.wanted() > self.most_members()
    }

    /// Refuses a shape that wants more members than a cluster of so many roles may, and in any role more than the one `before` it. A cluster
    /// of an earlier version, which has more, can be declared again and shrink.
    ///
    /// # Errors
    /// The roles, which are at `path`.
    pub(crate) fn require_members(&self, before: Option<&Self>, path: &str) -> Result<(), Violation> {
        let grows = |role: &Role| {
            let mut known = before.into_iter().flat_map(Self::roles);
            let known = known.find(|known| known.name == role.name);
            role.want > known.map_or(0, |known| known.want)
        };
        if !self.is_too_large() || !self.roles().iter().any(grows) {
            return Ok(());
        }
        let (wanted, most) = (self.wanted(), self.most_members());
        let why = if most < MAX_MEMBERS {
            format!(
                "of {} roles, since roles times hosts are {MAX_CHOICES} at most: divide the cluster, or declare fewer roles",
                self.0.roles.len()
            )
        } else {
            "since the status of a SIPCluster has room for no more: divide the cluster".to_owned()
        };
        let rule =
            format!("{wanted} hosts are wanted, of all roles together; at most {most} are allowed, {why}");
        Err(Violation::new(format!("{path}.roles"), rule))
    }

    /// Networks in which every member needs an address.
    #[must_use]
    pub fn networks(&self) -> &BTreeSet<NetworkId> {
        &self.0.networks
    }

    /// The same, as they were declared.
    #[must_use]
    pub fn network_ids(&self) -> &[NetworkId] {
        &self.0.network_ids
    }

    /// Bytes that the `SIPCluster` takes besides its members; 0 where they are not known, or need no more than is reserved for them.
    #[must_use]
    pub fn other_bytes(&self) -> u32 {
        self.0.other_bytes
    }
}
