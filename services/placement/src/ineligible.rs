//! Why a host cannot be claimed: each reason of its own, and a host can have several.

use vocabulary::{
    ClusterName, LabelKey, NetworkId, OperationalStatus, ProvisioningState, Requirement, RoleName, SipLabels,
};

use crate::host::{Consumer, Host, is_claimable};
use crate::policy::Domain;
use crate::request::{Holder, MemberState, Request, Role};
use crate::site::Site;

/// One reason why a host cannot be claimed for a role, in the order in which they are shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ineligible {
    /// The site has no such host.
    NotFound,
    /// A requirement of the role's selector is not met.
    Selector(Requirement),
    /// The role's topology label is absent.
    NoTopologyLabel(LabelKey),
    /// The role's topology label is there, but empty.
    EmptyTopologyLabel(LabelKey),
    /// The host's data could not be read.
    Problem(String),
    /// It is being deleted.
    Deleting,
    /// It is paused.
    Paused,
    /// It is detached.
    Detached,
    /// It is in error.
    InError,
    /// It is being serviced.
    Servicing,
    /// Its operational status is not one that this crate knows.
    UnknownStatus(String),
    /// It is not available: this is its state.
    State(ProvisioningState),
    /// An annotation marks it as failed.
    MarkedFailed,
    /// An annotation requests to move its member off.
    ReplaceRequested,
    /// The API server refuses every write of it.
    WriteRefused,
    /// It is cordoned.
    Cordoned,
    /// It is in a domain that the site's policy cordons.
    CordonedDomain(Domain),
    /// It has no address in a network that the cluster needs.
    NoAddress(NetworkId),
    /// It has a consumer that provisions it.
    Consumed(Consumer),
    /// Its SIP labels name a SIPCluster that does not exist.
    Orphaned,
    /// It has some of SIP's labels, but not all, or not valid ones.
    PartialLabels,
    /// It has the labels of a cluster that does not hold it.
    Labelled(ClusterName),
    /// Another cluster has a member whose machine this may be, by its name or an address: its load balancers may route here.
    FormerMember(ClusterName),
    /// A cluster holds it.
    Held {
        /// Which cluster.
        cluster: ClusterName,
        /// In which role.
        role: RoleName,
        /// How far the claim is.
        state: MemberState,
    },
}

impl Ineligible {
    /// Whether it is the lack of an address.
    pub(crate) fn is_no_address(&self) -> bool {
        matches!(self, Self::NoAddress(_))
    }
}

/// The reasons that follow from the host alone.
pub(crate) fn own_reasons(host: &Host) -> Vec<Ineligible> {
    let Host {
        id: _,
        labels: _,
        provisioning,
        operational,
        paused,
        detached,
        deleting,
        powered_on: _,
        unhealthy: _,
        inspected: _,
        cordoned,
        marked_failed,
        replace_requested,
        write_refused,
        consumer,
        networks: _,
        problem,
        sip_labels: _,
    } = host;
    let status = match operational {
        OperationalStatus::None
        | OperationalStatus::Ok
        | OperationalStatus::Discovered
        | OperationalStatus::Delayed => None,
        OperationalStatus::Error => Some(Ineligible::InError),
        OperationalStatus::Detached => Some(Ineligible::Detached),
        OperationalStatus::Servicing => Some(Ineligible::Servicing),
        OperationalStatus::Unknown(text) => Some(Ineligible::UnknownStatus(text.to_string())),
    };
    let detached = (*detached && status != Some(Ineligible::Detached)).then_some(Ineligible::Detached);
    let flags = [
        (*deleting, Ineligible::Deleting),
        (*paused, Ineligible::Paused),
        (*marked_failed, Ineligible::MarkedFailed),
        (*replace_requested, Ineligible::ReplaceRequested),
        (*write_refused, Ineligible::WriteRefused),
        (*cordoned, Ineligible::Cordoned),
        (
            !is_claimable(provisioning),
            Ineligible::State(provisioning.clone()),
        ),
    ];
    let mut reasons: Vec<Ineligible> = flags
        .into_iter()
        .filter_map(|(holds, reason)| holds.then_some(reason))
        .collect();
    reasons.extend(status);
    reasons.extend(detached);
    reasons.extend(problem.clone().map(Ineligible::Problem));
    reasons.extend(consumer.clone().map(Ineligible::Consumed));
    reasons.sort();
    reasons
}

/// The reasons that follow from SIP's labels on a host and who holds it.
pub(crate) fn claim_reasons(host: &Host, holder: Option<&Holder>) -> Option<Ineligible> {
    match (holder, &host.sip_labels) {
        (Some(Holder::Cluster { cluster, role, state }), _) => Some(Ineligible::Held {
            cluster: cluster.clone(),
            role: role.clone(),
            state: *state,
        }),
        (Some(Holder::Orphaned), _) => Some(Ineligible::Orphaned),
        (None, SipLabels::Partial) => Some(Ineligible::PartialLabels),
        (None, SipLabels::Complete { cluster, role: _ }) => Some(Ineligible::Labelled(cluster.clone())),
        (None, SipLabels::None) => None,
    }
}

/// Every reason why a host cannot be claimed for a role, in order; empty when it can. `holder`: who holds it, if that is a
/// reason.
pub(crate) fn all_reasons(
    host: &Host,
    holder: Option<&Holder>,
    site: &Site,
    request: &Request,
    role: &Role,
) -> Vec<Ineligible> {
    let unmet = role
        .selector
        .requirements()
        .filter(|requirement| !requirement.matches(&host.labels));
    let mut reasons: Vec<Ineligible> = unmet.cloned().map(Ineligible::Selector).collect();
    if let Some(key) = &role.topology_key {
        match host.labels.get(key) {
            None => reasons.push(Ineligible::NoTopologyLabel(key.clone())),
            Some(value) if value.is_empty() => reasons.push(Ineligible::EmptyTopologyLabel(key.clone())),
            Some(_) => {}
        }
    }
    reasons.extend(own_reasons(host));
    let cordoned = site
        .policy()
        .cordoned
        .iter()
        .filter(|domain| host.labels.get(&domain.key) == Some(&domain.value));
    reasons.extend(cordoned.cloned().map(Ineligible::CordonedDomain));
    let missing = request
        .networks
        .iter()
        .filter(|network| !host.networks.contains(*network));
    reasons.extend(missing.cloned().map(Ineligible::NoAddress));
    let former = site.former_holder(&host.id.name, &request.cluster);
    reasons.extend(former.cloned().map(Ineligible::FormerMember));
    reasons.extend(claim_reasons(host, holder));
    reasons.sort();
    reasons
}
