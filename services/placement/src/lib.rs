//! The decision: which hosts a cluster gets. Pure: no I/O, clock, randomness, logging or order of a hash map; the same
//! input gives the same output, whatever the order in which it was put together.

mod decide;
mod decision;
mod host;
mod ineligible;
mod kinds;
pub mod life;
mod limits;
mod names;
mod policy;
mod request;
mod selector;
mod sentences;
mod site;
pub mod whatif;

pub use decide::{decide, explain, failure, settled};
pub use decision::{
    Decision, Funnel, Help, Keep, Need, Outcome, Refusal, RefusalKind, Release, ReleaseReason, Report,
    ReportKind, Take, Tight,
};
pub use host::{Consumer, Host, OperationalStatus, Provisioning, SipLabels};
pub use ineligible::Ineligible;
pub use limits::{MAX_HELPS, MAX_REPORTS, MAX_ROLES, MAX_WANTED};
pub use names::{
    ClusterName, Error as NameError, HostId, HostName, LabelKey, LabelValue, Namespace, NetworkId, RoleName,
    Uid,
};
pub use policy::{Domain, Policy};
pub use request::{FailReason, Holder, Member, MemberState, Replaces, Request, Role};
pub use selector::{Error as SelectorError, Expression, Requirement, Selector};
pub use site::Site;
