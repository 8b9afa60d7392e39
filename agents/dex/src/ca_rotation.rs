//! The CA certificates that are published for a provider while others replace them: because cert-manager has another issuer, or another source
//! issues the certificate. Pods serve the former certificate until they are replaced, so both are published until then.

use std::{collections::BTreeSet, time::SystemTime};

use api::{Auth, Cluster, PROVIDER_BYTES, annotations::CONFIG_HASH, stored_bytes};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kit::service::{Error, readiness};
use kube::{Api, Client};
use render::dex::{self, Certificate};

use crate::{
    certificates::{MAX_CERTIFICATES, not_after, split_certificates},
    key_secret::Keys,
};

/// The published CA certificates, as the agent keeps them.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct PublishedBundle {
    /// The CA certificates (PEM) of the certificate that was published last.
    pub current: Option<String>,
    /// Earlier CA certificates (PEM), as long as a pod may serve a certificate that one of them has issued.
    pub outgoing: Option<String>,
}

/// Maximum size, in bytes, of the CA certificates in the status: the issuer and the client need the rest.
const MAX_BUNDLE_BYTES: usize = PROVIDER_BYTES - (2 << 10);

impl PublishedBundle {
    /// Replaces the current CA certificates. Earlier ones that are still valid stay, as far as there is room for them.
    pub fn replace(&mut self, bundle: &str, now: SystemTime) {
        let own = split_certificates(bundle);
        let before = self.current.replace(bundle.to_owned());
        let before = before.into_iter().chain(self.outgoing.take());
        let mut seen: BTreeSet<String> = own.iter().cloned().collect();
        let mut bytes = stored_bytes(&bundle);
        let outgoing: Vec<String> = before
            .flat_map(|before| split_certificates(&before))
            .filter(|certificate| not_after(certificate).is_some_and(|end| end > now))
            .filter(|certificate| seen.insert(certificate.clone()))
            .take(MAX_CERTIFICATES.saturating_sub(own.len()))
            .take_while(|certificate| {
                bytes = bytes.saturating_add(stored_bytes(certificate));
                bytes <= MAX_BUNDLE_BYTES
            })
            .collect();
        self.outgoing = (!outgoing.is_empty()).then(|| outgoing.concat());
    }

    /// Removes the earlier CA certificates: every pod serves the current certificate.
    pub fn drop_outgoing(&mut self) {
        self.outgoing = None;
    }

    /// All published CA certificates.
    #[must_use]
    pub fn bundle(&self) -> String {
        let parts = [&self.current, &self.outgoing].into_iter().flatten();
        parts.cloned().collect()
    }
}

/// Adds the published CA certificates to the certificate, and records them in `keys`, which the caller stores before it uses the certificate.
///
/// # Errors
/// When the API server fails.
pub(crate) async fn publish(
    client: &Client,
    (cluster, entry): (&Cluster, &Auth),
    keys: &mut Keys,
    certificate: Certificate,
) -> Result<Certificate, Error> {
    if certificate.bundle.is_empty() {
        // There is no certificate yet.
        return Ok(certificate);
    }
    let published = &mut keys.published;
    published.replace(&certificate.bundle, SystemTime::now());
    if published.outgoing.is_some() && is_served(client, cluster, entry, &certificate).await? {
        published.drop_outgoing();
    }
    Ok(Certificate {
        bundle: published.bundle(),
        ..certificate
    })
}

/// Whether every pod has started with the certificate: the Secret has it, and the Deployment has replaced all pods that started with
/// another Secret.
async fn is_served(
    client: &Client,
    cluster: &Cluster,
    entry: &Auth,
    certificate: &Certificate,
) -> Result<bool, Error> {
    let (namespace, name) = (cluster.namespace(), entry.service().object_name().as_str());
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = secrets.get_opt(name).await;
    let secret = secret.map_err(Error::kubernetes("read the Secret of a provider"))?;
    let Some(data) = secret.and_then(|secret| secret.data) else {
        return Ok(false);
    };
    if !dex::has_certificate(&data, certificate) {
        return Ok(false);
    }
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let deployment = deployments.get_opt(name).await;
    let deployment = deployment.map_err(Error::kubernetes("read the Deployment of a provider"))?;
    Ok(deployment.is_some_and(|deployment| {
        let template = deployment.spec.template.metadata.as_ref();
        let hash = template.and_then(|metadata| metadata.annotations.as_ref()?.get(CONFIG_HASH));
        hash == Some(&dex::digest(&data)) && readiness::rollout(&deployment).is_none()
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certificates::{CertificateSet, Names, renew};

    const YEAR: Duration = Duration::from_hours(24 * 365);

    fn authority(now: SystemTime) -> String {
        let made = renew(CertificateSet::default(), None, &Names::default(), now);
        made.unwrap().1.bundle
    }

    #[test]
    fn authorities_before_are_published_until_pods_serve_the_next() {
        let now = SystemTime::now();
        let [first, second, third] = [authority(now), authority(now), authority(now)];
        let mut published = PublishedBundle::default();
        published.replace(&first, now);
        assert_eq!(published.bundle(), first);
        published.replace(&first, now);
        assert_eq!(published.outgoing, None);

        published.replace(&second, now);
        assert_eq!(published.bundle(), format!("{second}{first}"));
        // Another follows before the pods are replaced.
        published.replace(&third, now);
        assert_eq!(published.bundle(), format!("{third}{second}{first}"));
        // One comes back: each is there once.
        published.replace(&first, now);
        assert_eq!(published.bundle(), format!("{first}{third}{second}"));
        published.drop_outgoing();
        assert_eq!(published.bundle(), first);
        published.replace(&format!("{second}{first}"), now);
        assert_eq!(published.outgoing, None);
    }

    /// A CA certificate with this number of names.
    fn wide_authority(names: usize) -> String {
        let names: Vec<String> = (0..names)
            .map(|number| format!("{}-{number:03}", "x".repeat(50)))
            .collect();
        let params = rcgen::CertificateParams::new(names).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        split_certificates(&params.self_signed(&key).unwrap().pem()).concat()
    }

    #[test]
    fn authorities_before_are_published_as_far_as_there_is_room() {
        let now = SystemTime::now();
        let [first, second, third] = [wide_authority(1), wide_authority(100), wide_authority(100)];
        let mut published = PublishedBundle::default();
        published.replace(&first, now);
        published.replace(&second, now);
        assert_eq!(published.bundle(), format!("{second}{first}"));
        published.replace(&third, now);
        assert!(stored_bytes(&format!("{third}{second}")) > MAX_BUNDLE_BYTES);
        assert_eq!(published.bundle(), third);
    }

    #[test]
    fn few_authorities_that_last_are_published() {
        let now = SystemTime::now();
        let mut published = PublishedBundle::default();
        let old = authority(now - 11 * YEAR);
        published.replace(&old, now);
        let mut newest = String::new();
        for _ in 0..12 {
            newest = authority(now);
            published.replace(&newest, now);
        }
        let bundle = published.bundle();
        assert!(bundle.starts_with(&newest) && !bundle.contains(&old));
        assert_eq!(split_certificates(&bundle).len(), MAX_CERTIFICATES);
        published.replace(&newest, now + 11 * YEAR);
        assert_eq!(published.bundle(), newest);
    }
}
