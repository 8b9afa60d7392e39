//! Objects of Cluster API whose `spec.replicas` follow the hosts of a role: those that `spec.clusterAPI` of a `SIPCluster` names.
//!
//! | module | what it does |
//! |---|---|
//! | [`lookup`] | reads the object and its template |
//! | [`object`] | what is known of both |
//! | [`machine_owner`] | which Machines it has made: pure |
//! | [`consent`] | whether the object is of this `SIPCluster`: pure |
//! | [`rule`] | which replicas it may have by now: pure |
//! | [`scale`] | replicas that are set |
//! | [`steps`] | what a pass does and reports: pure |
//! | [`contests`] | objects whose replicas another writer changes repeatedly |
//! | [`write`] | sets the replicas |
//!
//! A user who may edit a `SIPCluster` names objects here, and the cluster agent may write the objects of every tenant: nothing that the
//! `SIPCluster` states counts as evidence ([`consent`]).

mod consent;
mod contests;
#[cfg(test)]
mod fixtures;
mod lookup;
mod machine_owner;
mod object;
mod rule;
mod scale;
mod steps;
mod write;

pub use contests::Contests;
pub(super) use contests::Spec;
pub(super) use lookup::{Lookup, find};
pub(super) use machine_owner::has_made;
pub(super) use scale::Scale;
pub(super) use steps::steps;
pub(super) use write::set;
