//! What is not kept of a `SIPCluster` that is read from a list or a watch.

use serde_json::Value;

use crate::fault::Invalid;

/// What the object of the API server has and the one that was read does not: [`crate::TolerantCluster`] fills it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeftOut {
    /// Why the spec is empty, but for topology keys, though the object has one.
    pub spec: Option<EmptySpec>,
    /// The placement as the status has it, where that cannot be read: who applies the status writes it as it is, since an apply removes what
    /// it leaves out.
    pub placement: Option<Value>,
    /// Bytes of annotations, as an API server stores them.
    pub annotations: usize,
    /// Bytes of labels, as an API server stores them.
    pub labels: usize,
    /// Whether there are more finalizers: who writes the list has to read it.
    pub finalizers: bool,
}

/// Why a spec is empty though the object has one. [`crate::Cluster::parse`] refuses it with the same faults.
#[derive(Clone, Debug, PartialEq)]
pub enum EmptySpec {
    /// The spec or the placement could not be read.
    Unreadable(Invalid),
    /// It is refused, and too large to be kept for nothing.
    Refused(Invalid),
}

impl EmptySpec {
    /// What is wrong with the object.
    #[must_use]
    pub fn faults(&self) -> &Invalid {
        match self {
            Self::Unreadable(invalid) | Self::Refused(invalid) => invalid,
        }
    }
}
