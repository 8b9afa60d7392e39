//! The load-balancer agent: HAProxy for the tenants' API servers and workers.
//!
//! | module | what it does |
//! |---|---|
//! | [`reconcile`] | one `SIPCluster`: validate → render → apply → status |
//! | [`run`] | the process, and what it watches |

pub mod reconcile;
pub mod run;
mod watches;
