//! A stand-in of Cluster API, its provider for metal3 (CAPM3) and the baremetal-operator's `HostClaim`s, as far as they act on hosts.
//!
//! `docs/assumptions.md` says which of their habits it has, and from where each is known. What they decide is pure and apart from what they
//! do:
//!
//! | module | what it holds | needs a client |
//! |---|---|---|
//! | [`choice`] | which host a `Metal3Machine` gets | no |
//! | [`host_claim`] | which host a `HostClaim` gets, and what is written to it | no |
//! | [`deletion_order`] | which Machines go when their owner is scaled down | no |
//! | [`patches`] | what is written to a host | no |
//! | [`remediation`] | the phases of a `Metal3Remediation` | no |
//! | [`provisioning`] | the states of a host, as the baremetal-operator's | no |
//! | [`health`] | the condition of a host by what its BMC reports, and its write | yes |
//! | [`nodes`] | the providerID and the annotations of a Node, and their write | yes |
//! | [`mover`] | a host that moves to another management cluster | yes |
//! | [`provider`] | searches and claims a host for a `Metal3Machine`, and lets it go | yes |
//! | [`host_claims`] | the same for a `HostClaim` | yes |
//! | [`controller`] | does that for the objects of a namespace, in passes | yes |
//!
//! A program of its own, `sip-metal3`, runs the passes; tests also claim single hosts by [`provider::Capm3`], and call [`health`], [`nodes`] and
//! [`mover`], which no pass does: what they need is not on hosts, or in another cluster.

pub mod choice;
pub mod controller;
pub mod deletion_order;
pub mod health;
pub mod host_claim;
pub mod host_claims;
pub mod metal3_machine;
pub mod mover;
pub mod names;
pub mod nodes;
pub mod patches;
pub mod provider;
pub mod provisioning;
pub mod remediation;

/// Definitions of the kinds that it uses.
pub const CRDS: &str = include_str!("../crds.yaml");
/// The definition of a `KubeadmControlPlane` of v1beta2, instead of the one among these.
pub const CONTROL_PLANES_V1BETA2: &str = include_str!("../control-planes-v1beta2.yaml");
/// What Cluster API's webhooks refuse, as `ValidatingAdmissionPolicies`.
pub const WEBHOOKS: &str = include_str!("../webhooks.yaml");
/// The right that its account needs.
pub const RIGHTS: &str = include_str!("../rights.yaml");
