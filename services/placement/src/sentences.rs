//! Sentences for people, made from the typed reasons; the only place where they are made. Each is of bounded size,
//! however many hosts or domains it is about: lists are cut, and say how much is left out. Where somebody must know the rest to follow
//! the sentence, it states a rule instead. A request has few roles ([`crate::MAX_ROLES`]), so what each needs is never left out.

mod unnamed;

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use vocabulary::{LabelKey, LabelValue, NetworkId, RoleName, Selector};

use crate::decision::{Funnel, Help, Need, Refusal, RefusalKind, ReleaseReason, ReportKind};
use crate::ineligible::Ineligible;
use crate::request::{FailReason, MemberState};
use unnamed::Unnamed;

/// Maximum number of entries of a list in a sentence.
const MAX_LIST_ENTRIES: usize = 6;
/// The same of a list that the reader must know in full to follow the sentence.
const MAX_FULL_LIST_ENTRIES: usize = 20;
/// Maximum number of roles that a refusal's message explains.
const MAX_EXPLAINED_ROLES: usize = 4;
/// Maximum number of characters of a selector or of a host's problem.
const MAX_TEXT_CHARACTERS: usize = 160;

fn list<T: Display>(entries: impl ExactSizeIterator<Item = T>) -> String {
    first(MAX_LIST_ENTRIES, entries)
}

/// So many entries, and how many more there are.
fn first<T: Display>(most: usize, entries: impl ExactSizeIterator<Item = T>) -> String {
    let more = entries.len().saturating_sub(most);
    let text = all(entries.take(most));
    if more > 0 {
        format!("{text} and {more} more")
    } else {
        text
    }
}

fn all<T: Display>(entries: impl Iterator<Item = T>) -> String {
    entries
        .map(|entry| entry.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn plural(count: u32, one: &str) -> String {
    if count == 1 {
        format!("1 {one}")
    } else {
        format!("{count} {one}s")
    }
}

/// The last part of a label key, e.g. "rack", for use in a sentence that names the whole key elsewhere.
fn short(key: &LabelKey) -> &str {
    key.as_str().rsplit('/').next().unwrap_or(key.as_str())
}

fn with_selector(selector: &Selector) -> String {
    let text = cut(&selector.to_string());
    if text.is_empty() {
        String::new()
    } else {
        format!(" with {text}")
    }
}

impl Refusal {
    /// The cause and what would help, e.g. "Worker: 4 wanted, 3 can be placed: 9 hosts match, 8 have
    /// airshipit.org/rack, 6 are eligible, 5 free, in 3 racks; would help: one more eligible host with
    /// flavor=worker in a rack other than r006, r007".
    #[must_use]
    pub fn message(&self) -> String {
        let Self {
            kind,
            roles,
            tight,
            helps,
        } = self;
        match kind {
            RefusalKind::Quota {
                namespace,
                limit,
                others,
                wanted,
                moving,
            } => {
                let more = match moving {
                    0 => String::new(),
                    1 => " and holds 1 more until its replacement is bound".to_owned(),
                    more => format!(" and holds {more} more until their replacements are bound"),
                };
                format!(
                    "the quota of namespace {namespace} is {}: other clusters hold {others}, this one wants {wanted}{more}",
                    plural(*limit, "host")
                )
            }
            RefusalKind::ReplacementLimit => {
                "members to be replaced wait until earlier replacements are bound".to_owned()
            }
            RefusalKind::NoFit => {
                let unmet: Vec<_> = roles.iter().filter(|(_, funnel)| funnel.short > 0).collect();
                let mut parts: Vec<String> = unmet
                    .iter()
                    .take(MAX_EXPLAINED_ROLES)
                    .map(|(name, funnel)| funnel_sentence(name, funnel))
                    .collect();
                if unmet.len() > MAX_EXPLAINED_ROLES {
                    parts.push(match unmet.len() - MAX_EXPLAINED_ROLES {
                        1 => "one more role is short".to_owned(),
                        more => format!("{more} more roles are short"),
                    });
                }
                if tight.compete {
                    parts.push(format!(
                        "{} compete: they need {} and can get {}",
                        list(tight.roles.iter()),
                        plural(tight.demand, "host"),
                        tight.demand.saturating_sub(tight.deficit)
                    ));
                }
                // Hosts that lack addresses only are as near as new ones, and nothing else of the message names them.
                let addressed = helps.iter().skip(1).find(|help| is_address(help));
                let helps = helps.first().into_iter().chain(addressed);
                let helps: Vec<String> = helps.map(|help| help_sentence(help, self)).collect();
                if !helps.is_empty() {
                    parts.push(format!("would help: {}", helps.join(", or ")));
                }
                parts.join("; ")
            }
        }
    }

    /// A help as a sentence without its end, e.g. "one more eligible host with flavor=worker".
    #[must_use]
    pub fn help_message(&self, help: &Help) -> String {
        help_sentence(help, self)
    }
}

fn funnel_sentence(name: &RoleName, funnel: &Funnel) -> String {
    let Funnel {
        key,
        selector: _,
        want,
        have: _,
        placeable,
        matched,
        with_topology,
        networks,
        without_address,
        eligible,
        free,
        domains,
        short: missing,
    } = funnel;
    let lead = if placeable < want {
        format!("{name}: {want} wanted, {placeable} can be placed")
    } else {
        format!("{name}: no host can replace {}", plural(*missing, "member"))
    };
    let topology = key
        .as_ref()
        .map(|key| format!(", {with_topology} have {key}"))
        .unwrap_or_default();
    let spread = key
        .as_ref()
        .map(|key| format!(", in {}", plural(*domains, short(key))))
        .unwrap_or_default();
    let addresses = if *without_address > 0 {
        format!(
            ", {without_address} without an address in {}",
            in_networks(networks)
        )
    } else {
        String::new()
    };
    format!(
        "{lead}: {} match{topology}{addresses}, {eligible} are eligible, {free} free{spread}",
        plural(*matched, "host")
    )
    .replace("1 host match", "1 host matches")
}

/// Whether it is addresses for hosts that lack nothing else.
fn is_address(help: &Help) -> bool {
    match help {
        Help::MakeEligible { reasons, .. } => reasons.iter().all(Ineligible::is_no_address),
        Help::MoreHosts(_) | Help::WantLess(_) => false,
    }
}

fn help_sentence(help: &Help, refusal: &Refusal) -> String {
    match help {
        Help::MoreHosts(needs) => {
            let (explained, others) = needs.split_at(needs.len().min(MAX_EXPLAINED_ROLES));
            let mut parts: Vec<String> = explained
                .iter()
                .map(|need| need_sentence(need, refusal))
                .collect();
            if !others.is_empty() {
                let others = others
                    .iter()
                    .map(|need| format!("{} for {}", need.count, need.role));
                parts.push(format!(
                    "more eligible hosts for other roles, each in a domain of its own where the site has no host and the role no \
                     member: {}",
                    all(others)
                ));
            }
            parts.join(" and ")
        }
        Help::MakeEligible { role, reasons, hosts } => {
            format!(
                "{} becoming eligible for {role} (now: {})",
                first(MAX_FULL_LIST_ENTRIES, hosts.iter()),
                all(reasons.iter().map(Unnamed))
            )
        }
        Help::WantLess(roles) => {
            format!(
                "a smaller count: {}",
                all(roles.iter().map(|(role, fits)| format!("{fits} {role}")))
            )
        }
    }
}

/// Networks, after "in".
fn in_networks(networks: &BTreeSet<NetworkId>) -> String {
    match networks.len() {
        1 => format!("network {}", all(networks.iter())),
        2..=MAX_FULL_LIST_ENTRIES => format!("networks {}", all(networks.iter())),
        more => format!("each of the cluster's {more} networks"),
    }
}

/// Where the hosts of a need would do.
fn place_sentence(need: &Need, key: &str) -> String {
    let Need {
        role,
        count,
        not_in,
        only_in,
    } = need;
    let named = |racks: &[LabelValue]| racks.len() <= MAX_FULL_LIST_ENTRIES;
    if let Some(racks) = only_in.as_ref().filter(|racks| named(racks) || !named(not_in)) {
        return match (count, racks.as_slice()) {
            (1, [rack]) => format!(" in {key} {rack}"),
            (1, racks) => format!(
                " in one of the {key}s {}",
                first(MAX_FULL_LIST_ENTRIES, racks.iter())
            ),
            (_, racks) => format!(
                ", each in another one of the {key}s {}",
                first(MAX_FULL_LIST_ENTRIES, racks.iter())
            ),
        };
    }
    let other = if not_in.is_empty() {
        String::new()
    } else if named(not_in) {
        format!(" other than {}", all(not_in.iter()))
    } else {
        // True of none of those that would not do.
        format!(" where the site has no host and {role} has no member")
    };
    if *count == 1 {
        format!(" in a {key}{other}")
    } else {
        format!(", each in a {key} of its own{other}")
    }
}

fn need_sentence(need: &Need, refusal: &Refusal) -> String {
    let funnel = refusal.roles.get(&need.role);
    let selector = funnel
        .map(|funnel| with_selector(&funnel.selector))
        .unwrap_or_default();
    let hosts = if need.count == 1 {
        "one more eligible host".to_owned()
    } else {
        format!("{} more eligible hosts", need.count)
    };
    let key = funnel.and_then(|funnel| funnel.key.as_ref()).map(short);
    let place = key.map(|key| place_sentence(need, key)).unwrap_or_default();
    // Where some host lacks one: whoever adds hosts must know.
    let address = match funnel.filter(|funnel| funnel.without_address > 0) {
        Some(funnel) => {
            let lead = if selector.is_empty() { "with" } else { "and" };
            format!(" {lead} an address in {}", in_networks(&funnel.networks))
        }
        None => String::new(),
    };
    format!("{hosts}{selector}{address}{place}")
}

impl Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("the site has no such host"),
            Self::Selector(requirement) => write!(f, "the selector wants {}", cut(&requirement.to_string())),
            Self::NoTopologyLabel(key) => write!(f, "it has no label {key}"),
            Self::EmptyTopologyLabel(key) => write!(f, "its label {key} is empty"),
            Self::Problem(text) => write!(f, "its data cannot be read: {}", cut(text)),
            Self::Deleting => f.write_str("it is being deleted"),
            Self::Paused => f.write_str("it is paused"),
            Self::Detached => f.write_str("it is detached"),
            Self::InError => f.write_str("it is in error"),
            Self::Servicing => f.write_str("it is being serviced"),
            Self::UnknownStatus(text) => write!(f, "its operational status {:?} is not known", cut(text)),
            Self::State(state) => write!(f, "its state is {}, not available", cut(&state.to_string())),
            Self::MarkedFailed => f.write_str("it is marked as failed"),
            Self::ReplaceRequested => f.write_str("its replacement was requested"),
            Self::WriteRefused => f.write_str("the API server refuses every write of it"),
            Self::Cordoned => f.write_str("it is cordoned"),
            Self::CordonedDomain(domain) => write!(f, "{domain} is cordoned by the site's policy"),
            Self::NoAddress(network) => write!(f, "it has no address in network {network}"),
            Self::Consumed(consumer) => write!(f, "{} uses it", cut(&consumer.to_string())),
            Self::Orphaned => f.write_str("its labels name a SIPCluster that does not exist"),
            Self::PartialLabels => f.write_str("it has only some of SIP's labels"),
            Self::Labelled(cluster) => write!(
                f,
                "it has the labels of cluster {cluster}, which does not hold it"
            ),
            Self::FormerMember(cluster) => former_member(f, &format_args!("cluster {cluster}"), cluster),
            Self::Held { cluster, role, state } => {
                let state = match state {
                    MemberState::Claimed | MemberState::Bound => "holds it",
                    MemberState::Releasing => "is releasing it",
                };
                write!(f, "cluster {cluster} {state} as {role}")
            }
        }
    }
}

/// The sentence about a host whose machine may be a member's of another cluster. `again`: that cluster, the second time.
fn former_member(f: &mut fmt::Formatter<'_>, cluster: &dyn Display, again: &dyn Display) -> fmt::Result {
    write!(
        f,
        "this host has the name, an address or the BMC address of a member of {cluster}, whose load balancers may still route to it; \
         other clusters can claim it once {again} has replaced or released that member, or one of the two hosts has another address"
    )
}

impl Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "its BareMetalHost no longer exists",
            Self::MarkedFailed => "it is marked as failed",
            Self::InError => "it has been in error for too long",
            Self::UsedBeforeLabelled => "it got a consumer before it had its labels",
            Self::WriteRefused => "the API server refuses every write of it",
            Self::MoveRequested => "its replacement was requested",
        })
    }
}

impl Display for ReleaseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Surplus => f.write_str("the role has more members than it wants"),
            Self::Failed(reason) => write!(f, "{reason}, and it is replaced"),
            Self::Moved => f.write_str("it was to be replaced, and its replacement is bound"),
        }
    }
}

impl Display for ReportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostMissing => f.write_str("its host is not in the inventory; the member is kept"),
            Self::WouldNotBeTaken(reason) => write!(
                f,
                "its host could not be claimed today, but the member is kept: {}",
                Unnamed(reason)
            ),
            Self::SharesDomain { domain } => {
                write!(f, "another member of its role is in {domain} too; both stay")
            }
            Self::DomainChanged { was, now } => {
                let text = |value: &Option<vocabulary::LabelValue>| {
                    value
                        .as_ref()
                        .map_or_else(|| "none".to_owned(), ToString::to_string)
                };
                write!(f, "its domain was {} and is {} now", text(was), text(now))
            }
            Self::ReplacementWaits { reason, limit } => {
                write!(
                    f,
                    "{reason}; it waits, since at most {} may be in progress",
                    plural(*limit, "replacement")
                )
            }
            Self::NoReplacement { reason } => write!(f, "{reason}, and no host can replace it"),
            Self::BeingReplaced { by } => write!(f, "it stays until its replacement {by} is bound"),
            Self::StateUnknown => f.write_str("it is taken though its provisioning state is not known"),
            Self::SpansNamespaces { namespaces } => write!(
                f,
                "its hosts are in {} namespaces ({}); Cluster API's provider for metal3 reads only its own",
                namespaces.len(),
                list(namespaces.iter())
            ),
        }
    }
}
