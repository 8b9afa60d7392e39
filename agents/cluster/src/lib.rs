//! The cluster agent: it reports the site's hosts, asks for placements, and puts labels on hosts.
//!
//! | module | what it does |
//! |---|---|
//! | [`fence`] | when a host that was given back is free of late claims, and whether a policy refuses them |
//! | [`inventory`] | watches `BareMetalHost`s, Secrets and `SIPCluster`s, and reports them to the scheduler |
//! | [`reconcile`] | one `SIPCluster`: declare, write status, label or unlabel hosts, conditions |
//! | [`run`] | the process |

pub mod fence;
pub mod inventory;
pub mod reconcile;
pub mod run;

#[cfg(test)]
mod fixtures;
