//! Desired objects and configuration text, from checked input.
//!
//! Pure: no clock, no I/O, no map whose order is not fixed. The same input gives the same bytes, so that an agent can apply the
//! result as often as it likes. What cannot be rendered never gets here ([`api::Cluster::parse`] refuses it), but for
//! templates of a site's people ([`load_balancer::template`]): they alone can fail.

pub mod load_balancer;

mod metadata;
