//! Dex as a cluster's identity provider: a Secret with its configuration and certificate, a Deployment, a Service, what guards its
//! pods, and a `ConfigMap` with what the tenant's API servers need.

mod bindings;
mod config;
mod expansion;
mod oauth2;
mod objects;
mod outputs;
mod secrets;
#[cfg(test)]
mod tests;
mod yaml;

use api::{Auth, Cluster, HttpsUrl, Provider};

use crate::metadata::Instance;

pub use bindings::{GroupBindings, group_bindings};
pub use config::{Config, ConfigError};
pub use expansion::DOLLAR_VARIABLE;
pub use objects::{CONFIG_FILE, Objects, digest, has_certificate, objects};
pub use outputs::{AUTHENTICATION_KEY, FLAGS_KEY, GROUP_BINDINGS_KEY, OUTPUTS_SUFFIX, outputs};
pub use secrets::{InvalidSecret, MAX_VALUE_BYTES, Secrets};

/// Port of the Service.
pub const SERVICE_PORT: u16 = 443;
/// Port on which Dex listens for people and API servers.
pub const HTTPS_PORT: u16 = 5556;
/// Port on which Dex serves metrics.
pub const METRICS_PORT: u16 = 5558;
/// The end of the issuer's URL where the spec names none.
pub const ISSUER_PATH: &str = "/dex";

/// Everything that one provider's objects are made of.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    /// The site, by a name that no other site has.
    pub site: &'a str,
    /// The SIPCluster of the provider.
    pub cluster: &'a Cluster,
    /// Entry of `services.auth`.
    pub entry: &'a Auth,
    /// The URL that tokens name; `None` as long as its port is not known: no pod runs then.
    pub issuer: Option<&'a HttpsUrl>,
    /// The values that its entry takes from Secrets.
    pub secrets: &'a Secrets,
    /// Where it stores keys and tokens.
    pub storage: &'a Storage,
    /// The certificate that Dex presents.
    pub certificate: &'a Certificate,
}

impl<'a> Plan<'a> {
    fn instance(&self) -> Instance<'a> {
        Instance::new(self.cluster, self.entry.service(), "auth", "dex")
    }
}

/// Checks that the configuration of a provider parses to what the agent rendered. If not, [`objects`] makes no configuration.
///
/// # Errors
/// Why it does not.
pub fn check(
    provider: &Provider,
    issuer: &HttpsUrl,
    secrets: &Secrets,
    storage: &Storage,
) -> Result<(), ConfigError> {
    Config::new(provider, issuer, secrets, storage)
        .to_text()
        .map(drop)
}

/// The part of etcd that only this provider may read.
#[derive(Clone, Eq, PartialEq)]
pub struct Storage {
    /// URLs of etcd.
    pub endpoints: Vec<String>,
    /// CA certificates (PEM) of etcd; `None`: etcd is reached without TLS.
    pub authority: Option<String>,
    /// Prefix of every key.
    pub prefix: String,
    /// User that may read and write these keys.
    pub user: String,
    /// Password of that user.
    pub password: String,
}

/// A certificate, its key and its CA; PEM. Empty as long as there is none: no pod may run then.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Certificate {
    /// The certificate, then those between it and the CA.
    pub chain: String,
    /// Private key of the certificate.
    pub key: String,
    /// The CA certificates that people and API servers trust.
    pub bundle: String,
}
