//! Does what cert-manager does for a Certificate, when a test wants it to: issues it, and writes the Secret and the status.

use std::{fs, io, path::Path};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use rcgen::SanType;
use serde_json::{Value, json};

use crate::pki::{self, CertificateAuthority, Subject, Validity};

const MANAGER: &str = "cert-manager-certificates-issuing";

/// Why a certificate is not issued.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificate could not be made.
    #[error(transparent)]
    Certificate(#[from] pki::Error),
    /// A file could not be read.
    #[error("read a certificate")]
    Io(#[from] io::Error),
    /// The API server refused something.
    #[error("the API server")]
    Kubernetes(#[from] Box<kube::Error>),
    /// The Certificate names something that no certificate can have.
    #[error("{0} is not a name for a certificate")]
    Name(String),
}

/// An issuer of certificates for one namespace.
#[derive(Debug)]
pub struct CertManager {
    authority: CertificateAuthority,
    certificates: Api<DynamicObject>,
    secrets: Api<Secret>,
}

impl CertManager {
    /// An issuer with a CA of its own, whose files are in this directory.
    ///
    /// # Errors
    /// When the CA could not be made.
    pub fn new(client: &Client, namespace: &str, directory: &Path) -> Result<Self, Error> {
        let kind = GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate");
        let resource = ApiResource::from_gvk_with_plural(&kind, "certificates");
        Ok(Self {
            authority: CertificateAuthority::new(&directory.join("cert-manager"), "tenants")?,
            certificates: Api::namespaced_with(client.clone(), namespace, &resource),
            secrets: Api::namespaced(client.clone(), namespace),
        })
    }

    /// From now on it issues by another CA, whose files are in this directory.
    ///
    /// # Errors
    /// When the CA could not be made.
    pub fn replace_authority(&mut self, directory: &Path) -> Result<(), Error> {
        self.authority = CertificateAuthority::new(&directory.join("next-cert-manager"), "tenants")?;
        Ok(())
    }

    /// The Certificates.
    #[must_use]
    pub fn certificates(&self) -> &Api<DynamicObject> {
        &self.certificates
    }

    /// The CA certificate (PEM).
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn authority(&self) -> Result<String, Error> {
        Ok(fs::read_to_string(self.authority.certificate())?)
    }

    /// Issues a Certificate as it is now.
    ///
    /// # Errors
    /// When it does not exist, or cannot be issued.
    pub async fn issue(&self, name: &str) -> Result<(), Error> {
        let certificate = self.certificates.get(name).await.map_err(Box::new)?;
        let spec = &certificate.data["spec"];
        let texts = |field: &str| {
            let values = spec[field].as_array().into_iter().flatten();
            values
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut names = Vec::new();
        for name in texts("dnsNames") {
            let dns = name.as_str().try_into().map_err(|_| Error::Name(name.clone()))?;
            names.push(SanType::DnsName(dns));
        }
        for address in texts("ipAddresses") {
            let parsed = address.parse().map_err(|_| Error::Name(address.clone()))?;
            names.push(SanType::IpAddress(parsed));
        }
        let subject = Subject {
            common_name: "",
            organization: None,
            names,
        };
        let files = self.authority.issue(name, subject, Validity::DAY)?;
        let secret_name = spec["secretName"].as_str().unwrap_or_default();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": secret_name, "labels": spec["secretTemplate"]["labels"]},
            "stringData": {
                "tls.crt": fs::read_to_string(&files.certificate)?,
                "tls.key": fs::read_to_string(&files.key)?,
                "ca.crt": self.authority()?,
            },
        });
        let params = PatchParams::apply(MANAGER).force();
        let written = self
            .secrets
            .patch(secret_name, &params, &Patch::Apply(secret))
            .await;
        written.map_err(Box::new)?;
        let condition = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "Certificate is up to date"});
        let status = json!({"status": {"conditions": [condition]}});
        let reported = self
            .certificates
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await;
        reported.map_err(Box::new)?;
        Ok(())
    }
}
