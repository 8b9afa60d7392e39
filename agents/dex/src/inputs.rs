//! What the agent reads from the API server for a provider: the Secrets that its entry names, and the Secret in which the agent keeps its own
//! data.

use std::collections::BTreeMap;

use api::{
    Auth, Cluster, Connector, Provider, SecretKey, Source,
    conditions::auth::{
        CERTIFICATE_INVALID, KUBECONFIG_INVALID, KUBECONFIG_MISSING, SECRET_INVALID, SECRET_MISSING,
    },
    labels,
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kit::{
    service::{Error, Problem},
    shares::OfNamespaces,
    tenant::{self, MAX_KUBECONFIG_BYTES, secret::User},
};
use kube::{Api, Client, ResourceExt as _};
use render::dex::{MAX_VALUE_BYTES, Secrets};

use crate::{
    certificates::{CertificateAndKey, TenantCa, has_certificate, only_certificates},
    identity::IDENTITY,
    kubeconfigs::Server,
};

/// Types of Secrets from which an entry can take values.
const VALUE_SECRET_TYPES: [&str; 3] = ["", "Opaque", "kubernetes.io/basic-auth"];
/// Label of the Secrets that Cluster API keeps for a cluster.
const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Types of Secrets that an entry can name as its CA.
const CA_SECRET_TYPES: [&str; 3] = ["", "Opaque", "kubernetes.io/tls"];

/// Maximum size, in bytes, of all values that an entry takes from Secrets.
const MAX_TOTAL_BYTES: usize = 256 * 1024;
/// Maximum number of concurrent reads of Secrets of one namespace. Each Secret may have a MiB, and an entry names dozens.
pub(crate) const MAX_CONCURRENT_READS: usize = 1;

/// A kubeconfig, and its API server.
pub(crate) type Kubeconfig = (Vec<u8>, Server);

/// The Secrets of one namespace.
pub(crate) struct Inputs<'a> {
    secrets: Api<Secret>,
    namespace: &'a str,
    places: &'a OfNamespaces,
}

/// The values that an entry takes from one Secret.
struct SecretValues {
    /// Why the entry may not name the Secret.
    closed: Option<String>,
    /// The values that the entry names, each truncated after one byte more than a value may have.
    values: Vec<(SecretKey, Vec<u8>)>,
    /// The keys that the entry names and the Secret does not have.
    missing: Vec<SecretKey>,
}

impl SecretValues {
    fn from_secret(secret: Secret, keys: &[&SecretKey]) -> Self {
        let closed = refusal(&secret);
        let data = secret.data.unwrap_or_default();
        let (mut values, mut missing) = (Vec::new(), Vec::new());
        for key in keys {
            match data.get(key.key()) {
                Some(ByteString(bytes)) => {
                    let kept = bytes.get(..=MAX_VALUE_BYTES).unwrap_or(bytes);
                    values.push(((*key).clone(), kept.to_vec()));
                }
                None => missing.push((*key).clone()),
            }
        }
        Self {
            closed,
            values,
            missing,
        }
    }
}

impl<'a> Inputs<'a> {
    /// `places`: limits how many Secrets of each namespace are read at once.
    pub(crate) fn new(client: &Client, namespace: &'a str, places: &'a OfNamespaces) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            namespace,
            places,
        }
    }

    /// The kubeconfig in a Secret that an entry of the cluster names, or has named before, or why it cannot be used; `None` without such a
    /// Secret.
    pub(crate) async fn kubeconfig(
        &self,
        cluster: &Cluster,
        (name, is_former): (&str, bool),
    ) -> Result<Option<Result<Kubeconfig, Problem>>, Error> {
        let problem = |reason, why: &str| Err(kubeconfig_problem(reason, name, why));
        let user = |secret: &Secret| {
            if is_former {
                User::former(cluster, secret)
            } else {
                User::from_spec(cluster)
            }
        };
        let keep = |secret: Secret| match kubeconfig_refusal(&secret, &user(&secret)) {
            Some(why) => problem(KUBECONFIG_INVALID, &why),
            None => match tenant::secret::kubeconfig(secret) {
                None => problem(KUBECONFIG_MISSING, "has no key value"),
                Some(bytes) if bytes.len() > MAX_KUBECONFIG_BYTES => {
                    let why = format!("must have a kubeconfig of at most {MAX_KUBECONFIG_BYTES} bytes");
                    problem(KUBECONFIG_INVALID, &why)
                }
                Some(bytes) => match api_server(&bytes) {
                    Ok(server) => Ok((bytes, server)),
                    Err(error) => problem(KUBECONFIG_INVALID, &format!("cannot be used: {error}")),
                },
            },
        };
        self.read(name, keep).await
    }

    /// The values that an entry names, checked, and problems with which the agent still serves the rest: when a tenant deletes the file of users,
    /// these users lose their access.
    pub(crate) async fn secrets(&self, entry: &Auth) -> Result<(Secrets, Vec<Problem>), Error> {
        let provider = entry.provider();
        let mut by_name: BTreeMap<&str, Vec<&SecretKey>> = BTreeMap::new();
        for key in provider.secret_keys() {
            by_name.entry(key.name()).or_default().push(key);
        }
        let mut values: BTreeMap<SecretKey, Vec<u8>> = BTreeMap::new();
        let (mut closed, mut missing) = (Vec::new(), Vec::new());
        let mut problems = Vec::new();
        let mut lacks = |keys: &[&SecretKey], why: &dyn Fn(&SecretKey) -> String| {
            for key in keys {
                if provider.static_passwords().as_ref() == Some(*key) {
                    let why = format!("{}, so its users cannot log in", why(key));
                    problems.push(Problem::new(SECRET_MISSING, format!("staticPasswords: {why}")));
                } else {
                    missing.push(why(key));
                }
            }
        };
        for (name, keys) in by_name {
            let Some(named) = self
                .read(name, |secret| SecretValues::from_secret(secret, &keys))
                .await?
            else {
                lacks(&keys, &|key| format!("Secret {} does not exist", key.name()));
                continue;
            };
            closed.extend(named.closed);
            values.extend(named.values);
            let missing: Vec<&SecretKey> = named.missing.iter().collect();
            lacks(&missing, &|key| {
                format!("Secret {} has no key {}", key.name(), key.key())
            });
            if values.values().map(Vec::len).sum::<usize>() > MAX_TOTAL_BYTES {
                let why =
                    format!("the values of its Secrets must have at most {MAX_TOTAL_BYTES} bytes together");
                return Err(refused(entry, SECRET_INVALID, &why));
            }
        }
        if !closed.is_empty() {
            return Err(refused(entry, SECRET_INVALID, &closed.join("; ")));
        }
        missing.dedup();
        if !missing.is_empty() {
            return Err(refused(entry, SECRET_MISSING, &missing.join("; ")));
        }
        let unusable: Vec<String> = directory_ca_keys(provider)
            .filter(|key| {
                let text = values.get(*key).map(|bytes| String::from_utf8_lossy(bytes));
                text.is_some_and(|text| !has_certificate(&text))
            })
            .map(|key| format!("{key}: must have a certificate in PEM"))
            .collect();
        if !unusable.is_empty() {
            return Err(refused(entry, SECRET_INVALID, &unusable.join("; ")));
        }
        match Secrets::read(provider, &values) {
            Ok(secrets) => Ok((secrets, problems)),
            Err(bad) => {
                let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
                Err(refused(entry, SECRET_INVALID, &bad.join("; ")))
            }
        }
    }

    /// The CA that an entry names.
    pub(crate) async fn tenant_ca(&self, entry: &Auth) -> Result<Option<TenantCa>, Error> {
        let Some(name) = entry.ca_secret() else {
            return Ok(None);
        };
        let keep = |secret| parse_tenant_ca(entry, secret);
        let Some(given) = self.read(name, keep).await? else {
            let why = format!("Secret {name} does not exist");
            return Err(refused(entry, SECRET_MISSING, &why));
        };
        given.map(Some)
    }

    /// Reads what `keep` selects of a Secret; the agent drops the rest before it reads the next Secret of the namespace.
    async fn read<T>(&self, name: &str, keep: impl FnOnce(Secret) -> T) -> Result<Option<T>, Error> {
        let _place = self.places.place(self.namespace).await;
        let secret = self.secrets.get_opt(name).await;
        let secret = secret.map_err(Error::kubernetes("read a Secret"))?;
        Ok(secret.map(keep))
    }
}

/// The address of the API server of a kubeconfig, and its digest.
fn api_server(kubeconfig: &[u8]) -> Result<Server, tenant::Error> {
    Ok(Server {
        address: tenant::server(kubeconfig)?,
        digest: Some(tenant::digest(kubeconfig)?),
    })
}

/// Parses the CA in a Secret.
fn parse_tenant_ca(entry: &Auth, secret: Secret) -> Result<TenantCa, Error> {
    let name = secret.name_any();
    if let Some(why) = ca_refusal(&secret) {
        let why = format!("Secret {name} {why}");
        return Err(refused(entry, SECRET_INVALID, &why));
    }
    let mut data = secret.data.unwrap_or_default();
    let mut text = |key: &str| {
        let bytes = data.remove(key).map(|ByteString(bytes)| bytes);
        bytes
            .filter(|bytes| bytes.len() <= MAX_VALUE_BYTES)
            .and_then(|bytes| String::from_utf8(bytes).ok())
    };
    let bad = |why: &str| {
        let why = format!("Secret {name} must have the keys {why}");
        refused(entry, CERTIFICATE_INVALID, &why)
    };
    let pair = text("tls.crt").zip(text("tls.key"));
    let (certificate, key) = pair.ok_or_else(|| bad("tls.crt and tls.key, in PEM"))?;
    let rule = "tls.crt, and ca.crt if it has that, with at most 8 certificates in PEM";
    let certificate = only_certificates(&certificate).ok_or_else(|| bad(rule))?;
    let root = match text("ca.crt") {
        Some(root) => Some(only_certificates(&root).ok_or_else(|| bad(rule))?),
        None => None,
    };
    Ok(TenantCa {
        pair: CertificateAndKey { certificate, key },
        root,
    })
}

/// The keys of Secrets with CA certificates of directories.
fn directory_ca_keys(provider: &Provider) -> impl Iterator<Item = &SecretKey> {
    let sources = provider.connectors().iter().map(Connector::source);
    sources.filter_map(|source| match source {
        Source::Ldap(ldap) => ldap.root_ca().as_ref(),
        Source::Oidc(_) | Source::Github(_) | Source::Raw(_) => None,
    })
}

/// Why an entry may not name a Secret. The author of the entry also chooses the host to which Dex sends a password, so the entry may not name
/// Secrets for other purposes: tokens, and what Cluster API stores of clusters.
fn refusal(secret: &Secret) -> Option<String> {
    let name = secret.name_any();
    let kind = secret.type_.as_deref().unwrap_or_default();
    let why = if !VALUE_SECRET_TYPES.contains(&kind) {
        "must have the type Opaque or kubernetes.io/basic-auth"
    } else if is_of_a_service(secret) {
        "must not be a Secret of a service of a SIPCluster (label app.kubernetes.io/part-of: sip)"
    } else if secret.labels().contains_key(CLUSTER_NAME_LABEL) {
        "must not be a Secret of Cluster API (label cluster.x-k8s.io/cluster-name)"
    } else {
        return None;
    };
    Some(format!("Secret {name} {why}"))
}

/// Why an entry may not name a Secret as its CA. The author of the entry decides for which names the CA issues a certificate, so it may not be a
/// CA by which clients identify a cluster.
fn ca_refusal(secret: &Secret) -> Option<&'static str> {
    let kind = secret.type_.as_deref().unwrap_or_default();
    if !CA_SECRET_TYPES.contains(&kind) {
        Some("must have the type Opaque or kubernetes.io/tls")
    } else if is_of_a_service(secret) {
        Some("must not be a Secret of a service of a SIPCluster (label app.kubernetes.io/part-of: sip)")
    } else if secret.labels().contains_key(CLUSTER_NAME_LABEL) {
        Some("must not be a Secret of Cluster API (label cluster.x-k8s.io/cluster-name)")
    } else {
        None
    }
}

/// The problem of a kubeconfig that the agent cannot use.
pub(crate) fn kubeconfig_problem(reason: api::conditions::Reason, secret: &str, why: &str) -> Problem {
    Problem::new(reason, format!("kubeconfigSecret: the Secret {secret} {why}"))
}

/// Why an entry cannot name a Secret as its kubeconfig.
fn kubeconfig_refusal(secret: &Secret, user: &User) -> Option<String> {
    if IDENTITY.owns(&secret.name_any()) {
        return Some(
            "must not be a Secret of a service of a SIPCluster (label app.kubernetes.io/part-of: sip)"
                .to_owned(),
        );
    }
    tenant::secret::refusal(secret, user)
}

/// Whether an agent has made a Secret for a service of a cluster.
fn is_of_a_service(secret: &Secret) -> bool {
    let part_of = secret.labels().get(labels::PART_OF).map(String::as_str);
    IDENTITY.owns(&secret.name_any()) || part_of == Some(labels::PART_OF_SIP)
}

/// The error of an entry that the agent cannot serve as it is.
pub(crate) fn refused(entry: &Auth, reason: api::conditions::Reason, why: &str) -> Error {
    let name = entry.service().object_name();
    Error::Refused(Problem::new(reason, format!("{name}: {why}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_reaches_no_secret_of_another_use() {
        let secret = |name: &str, kind: Option<&str>, label: (&str, &str)| -> Secret {
            let labels = json!({label.0: label.1});
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "type": kind}))
                .unwrap()
        };
        let none = ("app", "any");
        for kind in [None, Some("Opaque"), Some("kubernetes.io/basic-auth")] {
            assert_eq!(refusal(&secret("directory", kind, none)), None);
        }
        for bad in [
            secret("directory", Some("kubernetes.io/service-account-token"), none),
            secret("directory", Some("bootstrap.kubernetes.io/token"), none),
            secret("directory", Some("helm.sh/release.v1"), none),
            secret("directory", Some("cluster.x-k8s.io/secret"), none),
            secret("auth-shop.keys", Some("Opaque"), none),
            secret("directory", Some("Opaque"), ("app.kubernetes.io/part-of", "sip")),
            secret(
                "shop-kubeconfig",
                Some("Opaque"),
                ("cluster.x-k8s.io/cluster-name", "shop"),
            ),
        ] {
            let why = refusal(&bad).unwrap();
            assert!(
                why.starts_with(&format!("Secret {} must", bad.name_any())),
                "{why}"
            );
        }
    }

    #[test]
    fn no_certificate_is_issued_from_the_authority_of_a_cluster() {
        let secret = |name: &str, kind: &str, labels: serde_json::Value| -> Secret {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "type": kind}))
                .unwrap()
        };
        let none = json!({});
        for kind in ["Opaque", "kubernetes.io/tls"] {
            assert_eq!(ca_refusal(&secret("sign-in-ca", kind, none.clone())), None);
        }
        let of_bank = json!({"cluster.x-k8s.io/cluster-name": "bank"});
        for bad in [
            secret("bank-ca", "cluster.x-k8s.io/secret", of_bank.clone()),
            secret("bank-ca", "Opaque", of_bank),
            secret("auth-bank.keys", "Opaque", none.clone()),
            secret("auth-bank.tls", "kubernetes.io/tls", none),
        ] {
            assert!(ca_refusal(&bad).is_some(), "{}", bad.name_any());
        }
    }

    #[test]
    fn an_entry_reaches_no_kubeconfig_of_another_cluster() {
        let secret = |name: &str, kind: &str, labels: serde_json::Value| -> Secret {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "type": kind}))
                .unwrap()
        };
        let of = |cluster: &str| json!({"cluster.x-k8s.io/cluster-name": cluster});
        let cluster_api = "cluster.x-k8s.io/secret";
        for good in [
            secret("shop-kubeconfig", cluster_api, of("shop")),
            secret("by-hand", "Opaque", json!({})),
        ] {
            assert_eq!(kubeconfig_refusal(&good, &User::new("shop", "shop")), None);
        }
        for (bad, expected) in [
            (
                secret("bank-kubeconfig", cluster_api, of("bank")),
                "another Cluster, bank",
            ),
            (secret("copied", "Opaque", of("sh0p")), "another Cluster, sh0p"),
            (
                secret("auth-bank.keys", "Opaque", json!({})),
                "a Secret of a service of a SIPCluster",
            ),
            (
                secret(
                    "jumphost-bank",
                    "Opaque",
                    json!({"app.kubernetes.io/part-of": "sip"}),
                ),
                "a Secret of a service of a SIPCluster",
            ),
            (
                secret("token", "kubernetes.io/service-account-token", json!({})),
                "must have the type",
            ),
        ] {
            let why = kubeconfig_refusal(&bad, &User::new("shop", "shop")).unwrap();
            assert!(why.contains(expected), "{why}");
        }
    }
}
