//! Why a cluster does not get all that it wants, in words for people: nothing is decided by it.

use std::borrow::Cow;

/// Maximum number of domains of a tight set that are named.
const MAX_DOMAINS: usize = 16;

/// Why a cluster does not get all that it wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The stable name of its kind.
    pub kind: Cow<'static, str>,
    /// How many hosts each role is left with, rule by rule.
    pub roles: Vec<Funnel>,
    /// Roles that compete for too few hosts.
    pub tight_roles: Vec<String>,
    /// Domains of those hosts.
    pub tight_domains: Vec<String>,
    /// What would help.
    pub helps: Vec<String>,
    /// All of it in one sentence.
    pub message: String,
}

/// How many hosts are left for a role, rule by rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Funnel {
    /// The role.
    pub role: String,
    /// Hosts that it wants.
    pub wanted: u32,
    /// Hosts that its selector matches.
    pub matched: u32,
    /// Of these, those with its topology key.
    pub with_topology: u32,
    /// Of these, those without an address in a network that the cluster needs.
    pub without_address: u32,
    /// Of those with its topology key, those that may be claimed.
    pub eligible: u32,
    /// Of these, those that no cluster holds.
    pub free: u32,
    /// Domains in which these are.
    pub domains: u32,
    /// Hosts that are missing.
    pub short: u32,
}

impl Refusal {
    /// An older cluster may get the hosts that this one would: both are decided in a moment.
    #[must_use]
    pub fn older_first() -> Self {
        Self {
            kind: "older-first".into(),
            message: "an older SIPCluster waits for hosts and is decided first; this SIPCluster is decided after it, within seconds".to_owned(),
            ..Self::default()
        }
    }
}

impl From<&placement::Refusal> for Refusal {
    fn from(refusal: &placement::Refusal) -> Self {
        let roles = refusal.roles.iter().map(|(role, funnel)| Funnel {
            role: role.as_str().to_owned(),
            wanted: funnel.want,
            matched: funnel.matched,
            with_topology: funnel.with_topology,
            without_address: funnel.without_address,
            eligible: funnel.eligible,
            free: funnel.free,
            domains: funnel.domains,
            short: funnel.short,
        });
        let tight = &refusal.tight;
        let tight_domains = tight.domains.iter().take(MAX_DOMAINS);
        Self {
            kind: refusal.kind.kind().into(),
            roles: roles.collect(),
            tight_roles: tight.roles.iter().map(ToString::to_string).collect(),
            tight_domains: tight_domains.map(|(_, domain)| domain.to_string()).collect(),
            helps: refusal
                .helps
                .iter()
                .map(|help| refusal.help_message(help))
                .collect(),
            message: refusal.message(),
        }
    }
}
