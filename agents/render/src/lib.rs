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
//! | [`load_balancer`] | HAProxy: templates, configuration, pods and sidecar |

pub mod exposure;
pub mod guards;
pub mod load_balancer;
pub mod metadata;
pub mod pod;
