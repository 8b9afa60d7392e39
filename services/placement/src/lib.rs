//! The decision: which hosts a cluster gets. Pure: no I/O, clock, randomness, logging or order of a hash map; the same
//! input gives the same output, whatever the order in which it was put together.

mod decide;
mod decision;
mod host;
mod ineligible;
mod kinds;
pub mod life;
mod policy;
mod request;
mod request_bounds;
mod sentences;
mod site;
pub mod whatif;

pub use decide::{
    Withheld, decide, decide_without, explain, failure, replacement_limit, reports_without_decision,
};
pub use decision::{
    Decision, Funnel, Help, Keep, Need, Outcome, Refusal, RefusalKind, Release, ReleaseReason, Report,
    ReportKind, Take, Tight,
};
pub use host::{Consumer, Host};
pub use ineligible::Ineligible;
pub use policy::{Domain, Policy};
pub use request::{FailReason, Holder, Member, MemberState, Replaces, Request, Role};
pub use request_bounds::{MAX_HELPS, MAX_REPORTS, MAX_ROLES, MAX_WANTED};
pub use site::{Site, size};
/// The words that requests, hosts and decisions are made of.
pub use vocabulary::{
    ClusterName, Expression, HostId, HostName, LabelKey, LabelValue, NameError, Namespace, NetworkId,
    OperationalStatus, ProvisioningState, Requirement, RoleName, Selector, SelectorError, SipLabels, Uid,
};
