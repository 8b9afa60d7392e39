//! The Dex agent: an identity provider for every tenant cluster that asks for one. The framework of service agents ([`kit::service`])
//! does what every agent needs; what only identity providers have is here.
//!
//! | module | holds |
//! |---|---|
//! | [`run`] | the process |
//! | `service` | the identity provider as a service of the framework |
//! | `identity` | what the agent owns |
//! | `material` | what a provider is rendered from besides its entry |
//! | `issuer` | how users and the agent reach a provider |
//! | [`addresses`] | the addresses of its Service, which may be missing for a while |
//! | `inputs` | the Secrets that an entry names |
//! | [`key_secret`], [`kept_secrets`] | the Secret in which the agent keeps what it made |
//! | [`certificates`] | the provider's certificate and its CA, where the agent makes them |
//! | `cert_manager` | the provider's certificate from cert-manager |
//! | `ca_rotation` | the CA certificates that are published while another CA replaces the provider's |
//! | [`storage`] | the part of etcd that each provider has for itself, and room for all of them |
//! | [`metrics`] | metrics of the storage |
//! | [`own_keys`] | whether what answers at an issuer is the provider itself |
//! | `sweep` | deletes what deleted providers stored |
//! | [`checks`] | whether providers, directories and tenants' API servers answer, beside the reconciles |
//! | [`directory`], [`discovery`], [`https`], `ldap` | how directories and providers are queried |
//! | [`tenants`], [`kubeconfigs`] | the clusters in which the bindings of groups are, and may be |
//! | [`tenant`] | the bindings of groups at the tenant's API server |

pub mod addresses;
mod ca_rotation;
mod cert_manager;
pub mod certificates;
pub mod checks;
pub mod directory;
pub mod discovery;
pub mod https;
mod identity;
mod inputs;
mod issuer;
pub mod kept_secrets;
pub mod key_secret;
pub mod kubeconfigs;
mod ldap;
mod material;
pub mod metrics;
pub mod own_keys;
mod published_endpoint;
pub mod run;
mod service;
pub mod storage;
mod sweep;
pub mod tenant;
pub mod tenants;
