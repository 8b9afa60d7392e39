//! The cluster agent: it reports the site's hosts, requests placements, and labels hosts.
//!
//! | module | what it does |
//! |---|---|
//! | [`answered`] | the positions that the scheduler has answered from |
//! | [`late_claims`] | when a host that was released is free of late claims, and whether a policy refuses them |
//! | [`host_events`] | Events on `BareMetalHost`s |
//! | [`inventory`] | watches `BareMetalHost`s, Secrets and `SIPCluster`s, and reports them to the scheduler |
//! | [`namespace_checks`] | whether a namespace with held hosts was dropped from the configuration |
//! | [`reconcile`] | one `SIPCluster`: observe, plan, act, report |
//! | [`run`] | the process |
//! | [`tenant_nodes`] | the Nodes of tenants' clusters: which are ready, and drains |
//! | [`triggers`] | what makes a cluster be reconciled |

pub mod answered;
pub mod host_events;
pub mod inventory;
pub mod late_claims;
pub mod namespace_checks;
pub mod reconcile;
pub mod run;
pub mod tenant_nodes;
pub mod triggers;

#[cfg(test)]
mod fixtures;
