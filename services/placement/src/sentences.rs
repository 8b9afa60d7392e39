//! Sentences for people, made from the typed reasons; the only place where they are made. Each is of bounded size,
//! however many roles, hosts or domains it is about: lists are cut, and say how much is left out.

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use vocabulary::{LabelKey, NetworkId, RoleName, Selector};

use crate::decision::{Funnel, Help, Need, Refusal, RefusalKind, ReleaseReason, ReportKind};
use crate::ineligible::Ineligible;
use crate::request::{FailReason, MemberState};

/// The most entries of a list in a sentence.
const LIST: usize = 6;
/// The most roles that a refusal's message explains.
const ROLES: usize = 4;
/// The most characters of a selector or of a host's problem.
const TEXT: usize = 160;

fn list<T: Display>(entries: impl ExactSizeIterator<Item = T>) -> String {
    let more = entries.len().saturating_sub(LIST);
    let mut text = entries
        .take(LIST)
        .map(|entry| entry.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    if more > 0 {
        text = format!("{text} and {more} more");
    }
    text
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
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
    /// What stands in the way and what would help, e.g. "Worker: 4 wanted, 3 can be placed: 9 hosts match, 8 have
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
            } => format!(
                "the quota of namespace {namespace} is {}: other clusters hold {others}, this one wants {wanted}",
                plural(*limit, "host")
            ),
            RefusalKind::ReplacementLimit => {
                "members to be replaced wait until earlier replacements are bound".to_owned()
            }
            RefusalKind::NoFit => {
                let unmet: Vec<_> = roles.iter().filter(|(_, funnel)| funnel.short > 0).collect();
                let mut parts: Vec<String> = unmet
                    .iter()
                    .take(ROLES)
                    .map(|(name, funnel)| funnel_sentence(name, funnel))
                    .collect();
                if unmet.len() > ROLES {
                    parts.push(match unmet.len() - ROLES {
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
            let more = needs.len().saturating_sub(ROLES);
            let mut parts: Vec<String> = needs
                .iter()
                .take(ROLES)
                .map(|need| need_sentence(need, refusal))
                .collect();
            if more > 0 {
                parts.push(format!("more hosts for {more} other roles"));
            }
            parts.join(" and ")
        }
        Help::MakeEligible { role, reasons, hosts } => {
            let reasons = reasons.iter().map(ToString::to_string);
            let reasons = reasons.collect::<Vec<_>>().join(", ");
            format!(
                "{} becoming eligible for {role} (now: {reasons})",
                list(hosts.iter())
            )
        }
        Help::WantLess(roles) => {
            format!(
                "a smaller count: {}",
                list(roles.iter().map(|(role, fits)| format!("{fits} {role}")))
            )
        }
    }
}

/// Networks, after "in".
fn in_networks(networks: &BTreeSet<NetworkId>) -> String {
    let word = if networks.len() == 1 {
        "network"
    } else {
        "networks"
    };
    format!("{word} {}", list(networks.iter()))
}

fn need_sentence(need: &Need, refusal: &Refusal) -> String {
    let Need {
        role,
        count,
        not_in,
        only_in: _,
    } = need;
    let funnel = refusal.roles.get(role);
    let selector = funnel
        .map(|funnel| with_selector(&funnel.selector))
        .unwrap_or_default();
    let hosts = if *count == 1 {
        "one more eligible host".to_owned()
    } else {
        format!("{count} more eligible hosts")
    };
    let other = if not_in.is_empty() {
        String::new()
    } else {
        format!(" other than {}", list(not_in.iter()))
    };
    let place = match funnel.and_then(|funnel| funnel.key.as_ref()).map(short) {
        None => String::new(),
        Some(key) if *count == 1 => format!(" in a {key}{other}"),
        Some(key) => format!(", each in a {key} of its own{other}"),
    };
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
            Self::FormerMember(cluster) => write!(
                f,
                "cluster {cluster} has a member of its name or with an address that it shows, of the machine or of its BMC, so load \
                 balancers may route here; it is free for others once {cluster} has replaced or released that member, or one of the two \
                 hosts has another address"
            ),
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

impl Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "its BareMetalHost does not exist any more",
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
            Self::HostMissing => f.write_str("its host is not in the inventory; it stays"),
            Self::WouldNotBeTaken(reason) => write!(f, "it would not be taken today, but stays: {reason}"),
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
                "its hosts are in {} namespaces ({}); Cluster API's provider for metal3 looks only in its own",
                namespaces.len(),
                list(namespaces.iter())
            ),
        }
    }
}
