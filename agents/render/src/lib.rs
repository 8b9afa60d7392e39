//! Desired objects and configuration text, from checked input.
//!
//! Pure: no clock, no I/O, no map whose order is not fixed. The same input gives the same bytes, so that an agent can apply the
//! result as often as it likes. What cannot be rendered never gets here ([`api::Cluster::parse`] refuses it), but for
//! templates of a site's operators ([`load_balancer::template`]): they alone can fail.
//!
//! | module | holds |
//! |---|---|
//! | [`metadata`] | names, labels and owner of every object of an instance |
//! | [`exposure`] | the Service of an instance, with what the spec changes in it |
//! | [`guards`] | disruption budget and network policy of an instance |
//! | [`pod`] | what the pods of every service share |
//! | [`api_access`] | what a container of ours may ask of the API server, and the token for it |
//! | [`running`] | what a sidecar reports of the program beside it |
//! | [`dex`] | Dex: configuration, pods, and what a tenant's API servers need of it |
//! | [`load_balancer`] | HAProxy: templates, configuration, pods and sidecar |
//! | [`jump_host`] | sshd: keys, configuration and pods |

pub mod api_access;
pub mod dex;
pub mod exposure;
pub mod guards;
pub mod jump_host;
pub mod load_balancer;
pub mod metadata;
pub mod pod;
pub mod running;
