//! What of the API server a provider is made of: the Secrets that its entry names, and the one in which the agent keeps its own.

use std::collections::{BTreeMap, BTreeSet};

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
    tenant,
};
use kube::{Api, Client, ResourceExt as _};
use render::dex::Secrets;

use crate::{
    certificates::{Given, Pair, has_certificate, only_certificates},
    identity::IDENTITY,
};

/// Types of Secrets that an entry can name.
const TYPES: [&str; 3] = ["", "Opaque", "kubernetes.io/basic-auth"];
/// Label of what Cluster API keeps of a cluster.
const CLUSTER_API: &str = "cluster.x-k8s.io/cluster-name";
/// Types of Secrets with a CA.
const AUTHORITY_TYPES: [&str; 3] = ["", "Opaque", "kubernetes.io/tls"];

/// The Secrets of one namespace.
pub(crate) struct Inputs {
    secrets: Api<Secret>,
}

impl Inputs {
    pub(crate) fn new(client: &Client, namespace: &str) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
        }
    }

    /// The kubeconfig that an entry names, or why there is none.
    pub(crate) async fn kubeconfig(
        &self,
        cluster: &Cluster,
        entry: &Auth,
    ) -> Result<Option<Result<Vec<u8>, Problem>>, Error> {
        let Some(name) = entry.provider().kubeconfig_secret() else {
            return Ok(None);
        };
        let missing = |why: &str| {
            let message = format!("kubeconfigSecret: the Secret {name} {why}");
            Some(Err(Problem::new(KUBECONFIG_MISSING, message)))
        };
        let Some(secret) = self.get(name).await? else {
            return Ok(missing("does not exist"));
        };
        if let Some(why) = kubeconfig_refusal(&secret, cluster.cluster_api_name()) {
            let message = format!("kubeconfigSecret: the Secret {name} {why}");
            return Ok(Some(Err(Problem::new(KUBECONFIG_INVALID, message))));
        }
        let value = tenant::secret::kubeconfig(secret);
        Ok(value.map_or_else(|| missing("has no key value"), |bytes| Some(Ok(bytes))))
    }

    /// The values that an entry names, checked.
    pub(crate) async fn secrets(&self, entry: &Auth) -> Result<Secrets, Error> {
        let provider = entry.provider();
        let keys = provider.secret_keys();
        let names: BTreeSet<&str> = keys.iter().map(|key| key.name()).collect();
        let mut data = BTreeMap::new();
        let mut closed = Vec::new();
        for name in names {
            let secret = self.get(name).await?;
            closed.extend(secret.as_ref().and_then(refusal));
            data.insert(name, secret.map(|secret| secret.data.unwrap_or_default()));
        }
        if !closed.is_empty() {
            return Err(refused(entry, SECRET_INVALID, &closed.join("; ")));
        }
        let mut values: BTreeMap<SecretKey, Vec<u8>> = BTreeMap::new();
        let mut missing = Vec::new();
        for key in keys {
            let secret = data.get_mut(key.name()).and_then(Option::as_mut);
            match secret.map(|data| data.get(key.key())) {
                Some(Some(ByteString(bytes))) => {
                    values.insert(key.clone(), bytes.clone());
                }
                Some(None) => missing.push(format!("Secret {} has no key {}", key.name(), key.key())),
                None => missing.push(format!("Secret {} does not exist", key.name())),
            }
        }
        missing.dedup();
        if !missing.is_empty() {
            return Err(refused(entry, SECRET_MISSING, &missing.join("; ")));
        }
        let unusable: Vec<String> = authorities(provider)
            .filter(|key| {
                let text = values.get(*key).map(|bytes| String::from_utf8_lossy(bytes));
                text.is_some_and(|text| !has_certificate(&text))
            })
            .map(|key| format!("{key}: must have a certificate in PEM"))
            .collect();
        if !unusable.is_empty() {
            return Err(refused(entry, SECRET_INVALID, &unusable.join("; ")));
        }
        Secrets::read(provider, &values).map_err(|bad| {
            let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
            refused(entry, SECRET_INVALID, &bad.join("; "))
        })
    }

    /// The CA that an entry names.
    pub(crate) async fn given(&self, entry: &Auth) -> Result<Option<Given>, Error> {
        let Some(name) = entry.ca_secret() else {
            return Ok(None);
        };
        let Some(secret) = self.get(name).await? else {
            let why = format!("Secret {name} does not exist");
            return Err(refused(entry, SECRET_MISSING, &why));
        };
        if let Some(why) = authority_refusal(&secret) {
            let why = format!("Secret {name} {why}");
            return Err(refused(entry, SECRET_INVALID, &why));
        }
        let mut data = secret.data.unwrap_or_default();
        let mut text = |key: &str| {
            let bytes = data.remove(key).map(|ByteString(bytes)| bytes);
            bytes.and_then(|bytes| String::from_utf8(bytes).ok())
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
        Ok(Some(Given {
            pair: Pair { certificate, key },
            root,
        }))
    }

    async fn get(&self, name: &str) -> Result<Option<Secret>, Error> {
        let secret = self.secrets.get_opt(name).await;
        secret.map_err(Error::kubernetes("read a Secret"))
    }
}

/// CA certificates of directories.
fn authorities(provider: &Provider) -> impl Iterator<Item = &SecretKey> {
    let sources = provider.connectors().iter().map(Connector::source);
    sources.filter_map(|source| match source {
        Source::Ldap(ldap) => ldap.root_ca().as_ref(),
        Source::Oidc(_) | Source::Github(_) | Source::Raw(_) => None,
    })
}

/// Why an entry cannot name a Secret. The author of the entry also names the host that a password is sent to, so the entry must not reach
/// what has another use: tokens, and what is kept of clusters.
fn refusal(secret: &Secret) -> Option<String> {
    let name = secret.name_any();
    let kind = secret.type_.as_deref().unwrap_or_default();
    let why = if !TYPES.contains(&kind) {
        "must have the type Opaque or kubernetes.io/basic-auth"
    } else if is_of_a_service(secret) {
        "must not be one of a service of a cluster"
    } else if secret.labels().contains_key(CLUSTER_API) {
        "must not be one of Cluster API"
    } else {
        return None;
    };
    Some(format!("Secret {name} {why}"))
}

/// Why an entry cannot name a Secret as its CA. The author of the entry decides for which names it issues a certificate, so the CA must not
/// be one by which others know a cluster.
fn authority_refusal(secret: &Secret) -> Option<&'static str> {
    let kind = secret.type_.as_deref().unwrap_or_default();
    if !AUTHORITY_TYPES.contains(&kind) {
        Some("must have the type Opaque or kubernetes.io/tls")
    } else if is_of_a_service(secret) {
        Some("must not be one of a service of a cluster")
    } else if secret.labels().contains_key(CLUSTER_API) {
        Some("must not be one of Cluster API")
    } else {
        None
    }
}

/// Why an entry cannot name a Secret as its kubeconfig. `cluster_api`: name of the Cluster API cluster that the `SIPCluster` serves.
fn kubeconfig_refusal(secret: &Secret, cluster_api: &str) -> Option<String> {
    if IDENTITY.owns(&secret.name_any()) {
        return Some("must not be one of a service of a cluster".to_owned());
    }
    tenant::secret::refusal(secret, cluster_api)
}

/// Whether an agent has made a Secret for a service of a cluster.
fn is_of_a_service(secret: &Secret) -> bool {
    let part_of = secret.labels().get(labels::PART_OF).map(String::as_str);
    IDENTITY.owns(&secret.name_any()) || part_of == Some(labels::PART_OF_SIP)
}

/// An entry that cannot be served as it is.
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
            assert_eq!(authority_refusal(&secret("sign-in-ca", kind, none.clone())), None);
        }
        let of_bank = json!({"cluster.x-k8s.io/cluster-name": "bank"});
        for bad in [
            secret("bank-ca", "cluster.x-k8s.io/secret", of_bank.clone()),
            secret("bank-ca", "Opaque", of_bank),
            secret("auth-bank.keys", "Opaque", none.clone()),
            secret("auth-bank.tls", "kubernetes.io/tls", none),
        ] {
            assert!(authority_refusal(&bad).is_some(), "{}", bad.name_any());
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
            assert_eq!(kubeconfig_refusal(&good, "shop"), None);
        }
        for (bad, expected) in [
            (
                secret("bank-kubeconfig", cluster_api, of("bank")),
                "another cluster, bank",
            ),
            (secret("copied", "Opaque", of("sh0p")), "another cluster, sh0p"),
            (
                secret("auth-bank.keys", "Opaque", json!({})),
                "one of a service of a cluster",
            ),
            (
                secret(
                    "jumphost-bank",
                    "Opaque",
                    json!({"app.kubernetes.io/part-of": "sip"}),
                ),
                "one of a service of a cluster",
            ),
            (
                secret("token", "kubernetes.io/service-account-token", json!({})),
                "must have the type",
            ),
        ] {
            let why = kubeconfig_refusal(&bad, "shop").unwrap();
            assert!(why.contains(expected), "{why}");
        }
    }
}
