//! What is decided, as types. Sentences for people are made from them in [`crate::sentences`].

use std::collections::{BTreeMap, BTreeSet};

use vocabulary::{HostId, HostName, LabelKey, LabelValue, Namespace, NetworkId, RoleName};

use crate::host::Consumer;
use crate::ineligible::Ineligible;
use crate::policy::Domain;
use crate::request::{FailReason, Replaces};

/// What a cluster keeps, gets and releases. Every list is sorted by role, then host. Members that are already being
/// released appear in none of the lists; one whose release is only requested is kept, or released once more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Members that stay.
    pub keep: Vec<Keep>,
    /// Hosts to claim.
    pub take: Vec<Take>,
    /// Members to release.
    pub release: Vec<Release>,
    /// What people should know though it changes nothing.
    pub reports: Vec<Report>,
    /// Each wanted role's funnel, whether it gets what it wants or not.
    pub funnels: BTreeMap<RoleName, Funnel>,
    /// Why some role does not get what it wants, or a member to be replaced no replacement; None exactly when neither is so.
    pub refusal: Option<Refusal>,
}

/// How a decision ends, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Every role has what it wants, and nobody waits for a replacement.
    Placed,
    /// A shrink or a replacement is decided, but not all that is wanted.
    Partial,
    /// Nothing is taken.
    Refused,
}

impl Decision {
    /// How it ends.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match &self.refusal {
            None => Outcome::Placed,
            Some(refusal)
                if refusal.kind == RefusalKind::ReplacementLimit
                    || !self.take.is_empty()
                    || !self.release.is_empty() =>
            {
                Outcome::Partial
            }
            Some(_) => Outcome::Refused,
        }
    }
}

/// A member that stays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keep {
    /// Its role.
    pub role: RoleName,
    /// The host.
    pub host: HostId,
    /// Its value of the role's topology key; None without a key, or when the host has no such label.
    pub domain: Option<LabelValue>,
    /// What it still replaces, to be recorded in [`crate::Member::replaces`]; None once it is bound.
    pub replaces: Option<Replaces>,
}

/// A host to claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Take {
    /// The role in which it serves.
    pub role: RoleName,
    /// The host.
    pub host: HostId,
    /// Its value of the role's topology key; None without a key.
    pub domain: Option<LabelValue>,
    /// The member in whose place it comes; to be recorded in [`crate::Member::replaces`].
    pub replaces: Option<Replaces>,
}

/// A member to release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// Its role.
    pub role: RoleName,
    /// The host.
    pub host: HostId,
    /// Reason for the release.
    pub reason: ReleaseReason,
    /// Who still uses the host. The release of a surplus member with a consumer is only requested: it is decided anew
    /// whenever a consumer changes, and a member without consumer is released first.
    pub consumer: Option<Consumer>,
}

/// Why a member is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseReason {
    /// The role has more members than it wants, or is no longer wanted.
    Surplus,
    /// It failed and is replaced in this decision.
    Failed(FailReason),
    /// It was to be moved off, and its replacement is bound.
    Moved,
}

/// Something that people should know about a member, or about the whole decision.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Report {
    /// The role, if it is about one.
    pub role: Option<RoleName>,
    /// The host, if it is about one.
    pub host: Option<HostName>,
    /// Content of the report.
    pub kind: ReportKind,
}

/// What a report states.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportKind {
    /// The inventory does not have this member's host.
    HostMissing,
    /// The member could not be claimed today, for this reason; it stays.
    WouldNotBeTaken(Ineligible),
    /// Another member of the role is in the same domain (adopted so); both stay.
    SharesDomain {
        /// The topology key and its value.
        domain: Domain,
    },
    /// The member's host has another value of the topology key than when it was last known.
    DomainChanged {
        /// The value as last known.
        was: Option<LabelValue>,
        /// The value now.
        now: Option<LabelValue>,
    },
    /// The member is to be replaced, and its replacement waits until others are bound: so many at a time.
    ReplacementWaits {
        /// Why it is to be replaced.
        reason: FailReason,
        /// How many replacements the role may have under way.
        limit: u32,
    },
    /// The member is to be replaced, and no host can replace it.
    NoReplacement {
        /// Why it is to be replaced.
        reason: FailReason,
    },
    /// The member is kept until its replacement is bound.
    BeingReplaced {
        /// Its replacement.
        by: HostName,
    },
    /// The host was taken though its state is not known.
    StateUnknown,
    /// The hosts are in several namespaces; Cluster API's provider for metal3 reads only its own.
    SpansNamespaces {
        /// Which, sorted.
        namespaces: Vec<Namespace>,
    },
}

/// Why a cluster does not get all that it wants. It is a proof: see [`Tight`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What prevents the placement.
    pub kind: RefusalKind,
    /// [`Decision::funnels`], so that a refusal explains itself.
    pub roles: BTreeMap<RoleName, Funnel>,
    /// The bottleneck. Empty unless the kind is [`RefusalKind::NoFit`].
    pub tight: Tight,
    /// What would help, each verified by deciding again with it. Not complete, at most [`crate::MAX_HELPS`].
    pub helps: Vec<Help>,
}

/// What prevents the placement of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalKind {
    /// There are no hosts that complete all roles.
    NoFit,
    /// The clusters of the namespace would hold more hosts than the site's policy allows.
    Quota {
        /// The namespace of the clusters.
        namespace: Namespace,
        /// What the policy allows.
        limit: u32,
        /// What other clusters of the namespace hold.
        others: u32,
        /// What this cluster wants in all.
        wanted: u32,
        /// How many members it holds besides, each until its replacement is bound; 0 where the rest is too much as it is.
        moving: u32,
    },
    /// Members to be replaced wait for earlier replacements; hosts are not the problem.
    ReplacementLimit,
}

/// How many hosts are left for a role after each condition. Counts are hosts unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Funnel {
    /// The role's topology key.
    pub key: Option<LabelKey>,
    /// The role's selector.
    pub selector: vocabulary::Selector,
    /// Members wanted.
    pub want: u32,
    /// Members that stay and count: not releasing, failed ones that are not replaced included.
    pub have: u32,
    /// The most members that the role could have now, when the roles before it in order of name have theirs first.
    pub placeable: u32,
    /// Match the selector.
    pub matched: u32,
    /// Of those, have the topology label with a value; the same number without a key.
    pub with_topology: u32,
    /// The networks in which a host must have an address; empty where the role has all that it wants.
    pub networks: BTreeSet<NetworkId>,
    /// Of those with the topology label, lack an address in one of these networks; 0 where the role has all that it wants.
    pub without_address: u32,
    /// Of those with the topology label, are eligible.
    pub eligible: u32,
    /// Of those, are held by nobody.
    pub free: u32,
    /// The different values of the topology key among the free ones; the number of free ones without a key.
    pub domains: u32,
    /// `want - placeable`, and members to be replaced for which there is no host.
    pub short: u32,
}

/// Why it is impossible (Hall's theorem; the source side of a minimum cut). The roles of `roles` need `demand` more
/// hosts. Every free host that could serve one of them there is in one of the `domains`, in which its role can have only
/// one, or is one of the `hosts`, which can serve only one role each, or is in a failed member's domain that `waiting`
/// replacements use up. `domains`, `hosts` and `waiting` together are `demand - deficit`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tight {
    /// The roles that are short, and those that would have to give way to them, sorted.
    pub roles: Vec<RoleName>,
    /// Whether two of them could use the same host; otherwise each is short for itself.
    pub compete: bool,
    /// How many hosts they need.
    pub demand: u32,
    /// By how many they fail at least; all roles' `short` together may be more, since replacements go before growth.
    pub deficit: u32,
    /// The domains that bind, one place each, sorted.
    pub domains: Vec<(RoleName, LabelValue)>,
    /// The hosts that bind, one place each, sorted.
    pub hosts: Vec<HostName>,
    /// Places in the domains of failed members that may not all be replaced now.
    pub waiting: u32,
}

/// Something that would make the whole request fit. Each was verified by deciding again with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Help {
    /// More eligible hosts, for all of these roles.
    MoreHosts(Vec<Need>),
    /// Hosts that match but are not eligible, all for the same reason.
    MakeEligible {
        /// The role that they match.
        role: RoleName,
        /// What would have to go: one reason, or the lack of addresses in several networks.
        reasons: Vec<Ineligible>,
        /// Such hosts by name; not necessarily all.
        hosts: Vec<HostName>,
    },
    /// Asking for less: the roles that are short, with the number of members that fits.
    WantLess(Vec<(RoleName, u32)>),
}

/// Hosts that a role needs beyond those that the site has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The role.
    pub role: RoleName,
    /// How many, each in a domain of its own where the role has a topology key.
    pub count: u32,
    /// Domains that would not do, since the role has its one place there taken, or since a member that is to be moved would
    /// take the place; sorted. (A host that fits another role too might do even there.) In each of them is a host of the site or a
    /// member of the role.
    pub not_in: Vec<LabelValue>,
    /// Of the domains that the role's selector names those that would do, sorted: at least `count`. None where it names none.
    pub only_in: Option<Vec<LabelValue>>,
}
