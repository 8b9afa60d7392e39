//! The words of the contract between the scheduler and the agents: names of objects, labels and selectors, the states that
//! metal3 gives a host, and SIP's labels. Each is parsed in one place into a type that cannot be wrong.
//!
//! The Kubernetes side (`agents/api`) and the decision (`services/placement`) take these types from here, so that neither
//! knows the other and both accept the same texts. What a word leads to is decided there, not here. No I/O, no clock.

pub mod dns;
mod host;
pub mod labels;
mod names;
mod selector;

pub use host::{OperationalStatus, ProvisioningState};
pub use labels::SipLabels;
pub use names::{
    ClusterName, Error as NameError, HostId, HostName, LabelKey, LabelValue, Namespace, NetworkId, RoleName,
    Uid,
};
pub use selector::{Error as SelectorError, Expression, Operator, Place, Requirement, Selector};
