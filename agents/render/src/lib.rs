//! Desired objects and configuration text, from checked input.
//!
//! Pure and infallible: no clock, no I/O, no map whose order is not fixed. The same input gives the same bytes, so that
//! an agent can apply the result as often as it likes, and what cannot be rendered never gets here
//! ([`api::Cluster::parse`] refuses it).

pub mod load_balancer;

mod metadata;
