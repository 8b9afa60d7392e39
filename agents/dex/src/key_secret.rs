//! The Secret in which the agent keeps what it has made for a provider: certificates, the password of its storage, the addresses that its Service
//! had, and the names of the Secrets whose kubeconfigs were used to apply bindings. The agent reads it from the API server before it makes
//! anything anew; no pod reads it.
//!
//! The agent does not apply it, but writes it on the condition that it is unchanged since it was read: a replica that has lost its Lease must not
//! replace a CA that it has not read.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use render::metadata::Instance;

use crate::{
    addresses::Addresses,
    ca_rotation::PublishedBundle,
    certificates::{CertificateAndKey, CertificateSet, ServingCertificate},
    kubeconfigs::Kubeconfigs,
};

/// Suffix of the Secret's name, after the name of the instance. No instance has a dot in its name, so no other instance's Secret is called so.
pub const SUFFIX: &str = ".keys";

/// Key that exists once the agent has requested the certificate from cert-manager.
const CERT_MANAGER_KEY: &str = "cert-manager";
/// Key of the cluster IP that the provider's Service has, or had last.
const CLUSTER_IP_KEY: &str = "cluster-ip";
/// Key of the address of a load balancer that the provider's Service has, or had last.
const LOAD_BALANCER_KEY: &str = "load-balancer-address";
/// Key of the time since which the Service lacks an address of a load balancer, in seconds since 1970.
const WITHOUT_BALANCER_SINCE_KEY: &str = "without-load-balancer-address-since";
/// Key of the names of Secrets with kubeconfigs.
const KUBECONFIGS_KEY: &str = "kubeconfig-secrets";

/// The data that the agent keeps for a provider.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Keys {
    /// The CAs of the agent, and the certificate that it issued.
    pub certificates: CertificateSet,
    /// The CA certificates that are published.
    pub published: PublishedBundle,
    /// Password of the provider's user in the storage.
    pub storage_password: Option<String>,
    /// Whether the agent has requested the certificate from cert-manager.
    pub cert_manager: bool,
    /// The addresses that the provider's Service has, or had last.
    pub addresses: Addresses,
    /// The kubeconfigs by which bindings were applied.
    pub kubeconfigs: Kubeconfigs,
}

/// Parses the data of the Secret. A value that cannot be parsed counts as missing, and the agent makes it anew.
#[must_use]
pub fn read(secret: Option<&Secret>) -> Keys {
    let data = secret.and_then(|secret| secret.data.clone());
    let mut data = data.unwrap_or_default();
    let mut text = |key: &str| {
        let ByteString(bytes) = data.remove(key)?;
        String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    };
    let mut pair = |prefix: &str| {
        let pair = text(&format!("{prefix}.crt")).zip(text(&format!("{prefix}.key")));
        pair.map(|(certificate, key)| CertificateAndKey { certificate, key })
    };
    let authority = pair("ca");
    let next = pair("next-ca");
    let serving = pair("tls");
    Keys {
        certificates: CertificateSet {
            authority,
            next,
            previous: text("previous-ca.crt"),
            serving: serving.zip(text("tls.made-for")).map(
                |(CertificateAndKey { certificate, key }, inputs_digest)| ServingCertificate {
                    chain: certificate,
                    key,
                    inputs_digest,
                },
            ),
        },
        published: PublishedBundle {
            current: text("published-ca.crt"),
            outgoing: text("outgoing-ca.crt"),
        },
        cert_manager: text(CERT_MANAGER_KEY).is_some(),
        addresses: Addresses {
            missing_since: text(WITHOUT_BALANCER_SINCE_KEY).and_then(|seconds| time(&seconds)),
            ..Addresses::read(
                text(CLUSTER_IP_KEY).as_deref(),
                text(LOAD_BALANCER_KEY).as_deref(),
            )
        },
        kubeconfigs: Kubeconfigs::read(&text(KUBECONFIGS_KEY).unwrap_or_default()),
        storage_password: text("storage-password"),
    }
}

/// The Secret with this data.
#[must_use]
pub fn secret(instance: &Instance<'_>, keys: &Keys) -> Secret {
    let Keys {
        certificates:
            CertificateSet {
                authority,
                next,
                previous,
                serving,
            },
        published: PublishedBundle { current, outgoing },
        storage_password,
        cert_manager,
        addresses,
        kubeconfigs,
    } = keys;
    let mut data = BTreeMap::new();
    let mut put = |key: &str, text: Option<&String>| {
        if let Some(text) = text {
            data.insert(key.to_owned(), ByteString(text.clone().into_bytes()));
        }
    };
    for (prefix, pair) in [("ca", authority), ("next-ca", next)] {
        put(
            &format!("{prefix}.crt"),
            pair.as_ref().map(|pair| &pair.certificate),
        );
        put(&format!("{prefix}.key"), pair.as_ref().map(|pair| &pair.key));
    }
    put("previous-ca.crt", previous.as_ref());
    put("tls.crt", serving.as_ref().map(|serving| &serving.chain));
    put("tls.key", serving.as_ref().map(|serving| &serving.key));
    put(
        "tls.made-for",
        serving.as_ref().map(|serving| &serving.inputs_digest),
    );
    put("published-ca.crt", current.as_ref());
    put("outgoing-ca.crt", outgoing.as_ref());
    put("storage-password", storage_password.as_ref());
    put(CERT_MANAGER_KEY, cert_manager.then(|| "true".to_owned()).as_ref());
    let cluster_ip = addresses.cluster_ip.map(|address| address.to_string());
    put(CLUSTER_IP_KEY, cluster_ip.as_ref());
    put(LOAD_BALANCER_KEY, addresses.load_balancer.as_ref());
    let missing_since = addresses.missing_since.and_then(seconds);
    put(WITHOUT_BALANCER_SINCE_KEY, missing_since.as_ref());
    put(KUBECONFIGS_KEY, kubeconfigs.text().as_ref());
    let mut metadata = instance.metadata();
    metadata.name = metadata.name.map(|name| format!("{name}{SUFFIX}"));
    Secret {
        metadata,
        type_: Some("Opaque".to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

fn time(seconds: &str) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))
}

fn seconds(time: SystemTime) -> Option<String> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(since.as_secs().to_string())
}

#[cfg(test)]
mod tests {
    use api::{Cluster, SIPCluster};
    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_cannot_be_parsed_count_as_missing() {
        let data = [
            ("ca.crt".to_owned(), ByteString(b"certificate".to_vec())),
            ("storage-password".to_owned(), ByteString(vec![0xff])),
            ("tls.crt".to_owned(), ByteString(Vec::new())),
        ];
        let secret = Secret {
            data: Some(data.into()),
            ..Secret::default()
        };
        assert!(read(Some(&secret)) == Keys::default());
        assert!(read(None) == Keys::default());
    }

    #[test]
    fn the_secret_is_read_back_as_it_was_written() {
        let object: SIPCluster = serde_json::from_value(json!({
            "metadata": {"namespace": "tenants", "name": "shop", "uid": "u"},
            "spec": {"services": {"auth": [{"image": "dex:2", "nodeInterfaceId": "oam", "hostname": "sso"}]}},
        }))
        .unwrap();
        let cluster = Cluster::parse(&object).unwrap();
        let instance = Instance::new(&cluster, cluster.auth()[0].service(), "auth", "dex");
        let pair = |name: &str| CertificateAndKey {
            certificate: format!("{name}'s certificate"),
            key: format!("{name}'s key"),
        };
        let keys = Keys {
            certificates: CertificateSet {
                authority: Some(pair("CA")),
                next: Some(pair("next CA")),
                previous: Some("the CA before".to_owned()),
                serving: Some(ServingCertificate {
                    chain: "chain".to_owned(),
                    key: "key".to_owned(),
                    inputs_digest: "names".to_owned(),
                }),
            },
            published: PublishedBundle {
                current: Some("published".to_owned()),
                outgoing: Some("outgoing".to_owned()),
            },
            storage_password: Some("password".to_owned()),
            cert_manager: true,
            addresses: Addresses {
                missing_since: time("1800000000"),
                ..Addresses::read(Some("fd00::7"), Some("lb.example.org"))
            },
            kubeconfigs: Kubeconfigs::read("shop-kubeconfig api:6443\nshop-former api:6444"),
        };
        for keys in [keys, Keys::default()] {
            assert!(read(Some(&secret(&instance, &keys))) == keys);
        }
    }
}
