//! The Dex agent: an identity provider for every tenant cluster that asks for one. The framework of service agents ([`kit::service`])
//! does what every agent needs; what only identity providers have is here.
//!
//! | module | holds |
//! |---|---|
//! | [`run`] | the process |
//! | `service` | the identity provider as a service of the framework |
//! | `identity` | what the agent owns |
//! | `issuer` | where a provider is reached |
//! | `inputs` | what of the API server a provider is made of |
//! | [`kept`] | the Secret in which the agent keeps what it made |
//! | [`certificates`] | the provider's certificate and its CA |
//! | [`storage`] | the part of etcd that each provider has for itself |
//! | `sweep` | what providers that are gone have left there |
//! | [`checks`] | whether providers and directories answer, beside the reconciles |
//! | [`directory`], [`discovery`], [`https`], `ldap` | how each is asked |

pub mod certificates;
pub mod checks;
pub mod directory;
pub mod discovery;
pub mod https;
mod identity;
mod inputs;
mod issuer;
pub mod kept;
mod ldap;
pub mod run;
mod service;
pub mod storage;
mod sweep;
