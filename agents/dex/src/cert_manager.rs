//! A provider's certificate from cert-manager: a Certificate whose names are the provider's, and the Secret that cert-manager writes.
//!
//! Both belong to the provider's Service, so they are deleted with it by the garbage collector: the framework knows no kind that a site
//! may lack.

use std::{fmt::Debug, time::SystemTime};

use api::{
    Auth, Cluster,
    conditions::{auth::CERTIFICATE_NOT_READY, load_balancer::NAME_CONFLICT},
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, Service as CoreService},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kit::{
    apply,
    service::{Error, Problem},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams,
        PostParams, Preconditions,
    },
};
use render::{dex::Certificate, metadata::Instance};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    certificates::{self, CERTIFICATE_LIFETIME, CERTIFICATE_RENEW_BEFORE, Names, only_certificates},
    identity::MANAGER,
    inputs::refused,
    issuer::ProviderAddress,
};

/// What the name of the Certificate, and of the Secret that cert-manager writes, ends with. No instance has a dot in its name.
const NAME_SUFFIX: &str = ".tls";
/// Maximum number of characters that a condition quotes of cert-manager's message.
const MAX_MESSAGE_CHARACTERS: usize = 200;

/// Who issues a provider's certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Issuer<'a> {
    /// An `Issuer` of the namespace, which the entry names.
    Namespaced(&'a str),
    /// A `ClusterIssuer`, which the site's operators name.
    Cluster(&'a str),
}

impl Issuer<'_> {
    /// The issuer as the field `issuerRef` of a Certificate.
    fn reference(self) -> Value {
        let (kind, name) = match self {
            Issuer::Namespaced(name) => ("Issuer", name),
            Issuer::Cluster(name) => ("ClusterIssuer", name),
        };
        json!({"group": "cert-manager.io", "kind": kind, "name": name})
    }
}

/// A certificate that cert-manager has issued.
pub(crate) struct Issued {
    /// The certificate, its key and its CA.
    pub(crate) certificate: Certificate,
    /// Which problem to report as long as the certificate does not have all names that the Certificate requests.
    pub(crate) missing_names: Option<Problem>,
}

/// The Certificates of one namespace.
pub(crate) struct Certificates<'a> {
    objects: Api<DynamicObject>,
    secrets: Api<Secret>,
    cluster: &'a Cluster,
    entry: &'a Auth,
}

impl<'a> Certificates<'a> {
    pub(crate) fn new(client: &Client, cluster: &'a Cluster, entry: &'a Auth) -> Self {
        let kind = GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate");
        let resource = ApiResource::from_gvk_with_plural(&kind, "certificates");
        let namespace = cluster.namespace();
        Self {
            objects: Api::namespaced_with(client.clone(), namespace, &resource),
            secrets: Api::namespaced(client.clone(), namespace),
            cluster,
            entry,
        }
    }

    fn name(&self) -> String {
        format!("{}{NAME_SUFFIX}", self.entry.service().object_name())
    }

    /// Requests a certificate with the provider's names, and reads what cert-manager has issued.
    ///
    /// # Errors
    /// [`Error::Refused`] as long as there is none that can be used: what runs is left as it is.
    pub(crate) async fn reconcile(
        &self,
        issuer: Issuer<'_>,
        service: &CoreService,
        provider_address: &ProviderAddress,
    ) -> Result<Issued, Error> {
        let owner = owner(service);
        let (status, names) = self.apply(issuer, &owner, provider_address).await?;
        let secret = self.secrets.get_opt(&self.name()).await;
        let secret = secret.map_err(Error::kubernetes("read the Secret of cert-manager"))?;
        let not_ready = |why: &str| refused(self.entry, CERTIFICATE_NOT_READY, why);
        let Some(secret) = secret.filter(is_issued) else {
            return Err(not_ready(&format!(
                "cert-manager has not issued the certificate yet: {status}"
            )));
        };
        self.set_owner(&secret, &owner).await?;
        let certificate = parse_certificate(&secret).ok_or_else(|| {
            let why = "must have the keys tls.crt, tls.key and ca.crt in PEM: the issuer must be one that gives its CA";
            not_ready(&format!("Secret {} {why}", secret.name_any()))
        })?;
        let usable = certificates::check_usable(&certificate, SystemTime::now());
        usable.map_err(|why| not_ready(&format!("Secret {}: {why}: {status}", secret.name_any())))?;
        let missing_names = (!certificates::has_names(&certificate, &names)).then(|| {
            let message = format!("cert-manager has not issued the certificate for all names yet: {status}");
            Problem::new(CERTIFICATE_NOT_READY, message)
        });
        Ok(Issued {
            certificate,
            missing_names,
        })
    }

    /// Deletes the Certificate and its Secret, as far as they belong to the provider's Service: without it the garbage collector deletes
    /// them.
    ///
    /// # Errors
    /// When the API server does not delete them.
    pub(crate) async fn delete(&self, service: Option<&CoreService>) -> Result<(), Error> {
        let Some(owner) = service.map(owner) else {
            return Ok(());
        };
        // In this order: cert-manager would write the Secret again.
        self.delete_own(&self.objects, &owner).await?;
        self.delete_own(&self.secrets, &owner).await
    }

    async fn delete_own<K>(&self, api: &Api<K>, owner: &OwnerReference) -> Result<(), Error>
    where
        K: Clone + DeserializeOwned + Debug + Resource,
    {
        let failed = || Error::kubernetes("delete the Certificate and its Secret");
        let found = api.get_opt(&self.name()).await.map_err(failed())?;
        let Some(found) = found.filter(|found| is_owned(found, owner)) else {
            return Ok(());
        };
        let this = DeleteParams::default().preconditions(Preconditions {
            uid: found.uid(),
            resource_version: None,
        });
        match api.delete(&self.name(), &this).await {
            Err(error) if apply::code(&error) != Some(404) => Err(failed()(error)),
            _ => Ok(()),
        }
    }

    /// Applies the Certificate unless its spec is as desired; returns what cert-manager reports of it, and the names that it requests.
    async fn apply(
        &self,
        issuer: Issuer<'_>,
        owner: &OwnerReference,
        provider_address: &ProviderAddress,
    ) -> Result<(String, Names), Error> {
        let name = self.name();
        let found = self.objects.get_opt(&name).await;
        let found = found.map_err(Error::kubernetes("read the Certificate"))?;
        if found.as_ref().is_some_and(|found| !is_owned(found, owner)) {
            let why = format!("Certificate {name} was not made for this provider");
            return Err(refused(self.entry, NAME_CONFLICT, &why));
        }
        // A last address stays among the names only where the Certificate asks this issuer for it already: the issuer may refuse a new name.
        let before = found.as_ref().map(|found| requested_names(&found.data, issuer));
        let [_, present] = &provider_address.fallbacks;
        let names = provider_address
            .names
            .contained_in_either(present, &before.unwrap_or_default());
        let desired = self.desired(issuer, owner, &names);
        if found.is_none() {
            self.ensure_secret(owner, &desired).await?;
        }
        if let Some(found) = found.filter(|found| found.data.get("spec") == desired.get("spec")) {
            return Ok((ready_message(&found.data), names));
        }
        let params = PatchParams::apply(MANAGER.0).force();
        let applied = self.objects.patch(&name, &params, &Patch::Apply(&desired)).await;
        match applied {
            Ok(applied) => Ok((ready_message(&applied.data), names)),
            Err(error) if apply::code(&error) == Some(404) => {
                let why =
                    "cert-manager is not installed in this site: the API server has no kind Certificate";
                Err(refused(self.entry, CERTIFICATE_NOT_READY, why))
            }
            Err(error) if apply::is_refusal(&error) => {
                let why = format!(
                    "the API server refuses the Certificate: {}",
                    apply::reason(&error)
                );
                Err(refused(self.entry, CERTIFICATE_NOT_READY, &why))
            }
            Err(error) => Err(Error::kubernetes("apply the Certificate")(error)),
        }
    }

    /// Creates the Secret before cert-manager does, whose Secrets have no owner: without one it would stay if the provider is deleted before the
    /// next pass.
    ///
    /// Refuses a Secret of that name that was not made for the provider: cert-manager would overwrite it.
    async fn ensure_secret(&self, owner: &OwnerReference, desired: &Value) -> Result<(), Error> {
        let secret = self.secrets.get_opt(&self.name()).await;
        let secret = secret.map_err(Error::kubernetes("read the Secret of cert-manager"))?;
        let Some(secret) = secret else {
            return self.create_secret(owner).await;
        };
        let template = desired
            .pointer("/spec/secretTemplate/labels")
            .and_then(Value::as_object);
        // An earlier release of the agent let cert-manager make the Secret, which labels it.
        let labelled = |secret: &Secret| {
            let has = |(key, value): (&String, &Value)| {
                secret.labels().get(key).map(String::as_str) == value.as_str()
            };
            template.is_some_and(|template| !template.is_empty() && template.iter().all(has))
        };
        if is_owned(&secret, owner) || labelled(&secret) {
            return Ok(());
        }
        let why = format!("Secret {} was not made for this provider", self.name());
        Err(refused(self.entry, NAME_CONFLICT, &why))
    }

    async fn create_secret(&self, owner: &OwnerReference) -> Result<(), Error> {
        let empty = || ByteString(Vec::new());
        let secret = Secret {
            metadata: self.metadata(owner),
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(["tls.crt", "tls.key"].map(|key| (key.to_owned(), empty())).into()),
            ..Secret::default()
        };
        let params = PostParams {
            field_manager: Some(MANAGER.0.to_owned()),
            ..PostParams::default()
        };
        match self.secrets.create(&params, &secret).await {
            Ok(_) => Ok(()),
            Err(error) if apply::is_refusal(&error) => {
                let why = format!(
                    "the API server refuses the Secret {}: {}",
                    self.name(),
                    apply::reason(&error)
                );
                Err(refused(self.entry, CERTIFICATE_NOT_READY, &why))
            }
            Err(error) => Err(Error::kubernetes("create the Secret of cert-manager")(error)),
        }
    }

    fn metadata(&self, owner: &OwnerReference) -> ObjectMeta {
        let mut metadata = Instance::new(self.cluster, self.entry.service(), "auth", "dex").metadata();
        metadata.name = Some(self.name());
        metadata.owner_references = Some(vec![owner.clone()]);
        metadata
    }

    fn desired(&self, issuer: Issuer<'_>, owner: &OwnerReference, names: &Names) -> Value {
        let name = self.name();
        let metadata = self.metadata(owner);
        let hours = |duration: std::time::Duration| format!("{}h0m0s", duration.as_secs() / 3600);
        let mut spec = json!({
            "secretName": name,
            "secretTemplate": {"labels": metadata.labels},
            "issuerRef": issuer.reference(),
            "duration": hours(CERTIFICATE_LIFETIME),
            "renewBefore": hours(CERTIFICATE_RENEW_BEFORE),
            "privateKey": {"algorithm": "ECDSA", "size": 256, "encoding": "PKCS8", "rotationPolicy": "Always"},
            "usages": ["digital signature", "server auth"],
            "revisionHistoryLimit": 1,
        });
        let Names { dns, addresses } = names;
        if !dns.is_empty() {
            spec["dnsNames"] = json!(dns);
        }
        if !addresses.is_empty() {
            spec["ipAddresses"] = json!(addresses);
        }
        json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": metadata, "spec": spec})
    }

    /// Makes the Service the owner of the Secret, as it is of the Certificate. With the version this changes only that Secret: without it an
    /// apply would create another one.
    async fn set_owner(&self, secret: &Secret, owner: &OwnerReference) -> Result<(), Error> {
        if is_owned(secret, owner) {
            return Ok(());
        }
        let change = json!({
            "metadata": {"resourceVersion": secret.resource_version(), "ownerReferences": [owner]},
        });
        let params = PatchParams {
            field_manager: Some(MANAGER.0.to_owned()),
            ..PatchParams::default()
        };
        let owned = self
            .secrets
            .patch(&secret.name_any(), &params, &Patch::Merge(change))
            .await;
        owned
            .map(drop)
            .map_err(Error::kubernetes("set the owner of the Secret of cert-manager"))
    }
}

/// Whether cert-manager has written the Secret.
fn is_issued(secret: &Secret) -> bool {
    let chain = secret.data.as_ref().and_then(|data| data.get("tls.crt"));
    chain.is_some_and(|ByteString(bytes)| !bytes.is_empty())
}

fn is_owned(object: &impl Resource, owner: &OwnerReference) -> bool {
    let mut owners = object.owner_references().iter();
    owners.any(|other| other.uid == owner.uid)
}

fn owner(service: &CoreService) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: service.name_any(),
        uid: service.uid().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

/// The names that a Certificate requests from this issuer.
fn requested_names(certificate: &Value, issuer: Issuer<'_>) -> Names {
    let spec = &certificate["spec"];
    if spec["issuerRef"] != issuer.reference() {
        return Names::default();
    }
    let lists = ["dnsNames", "ipAddresses"].map(|list| spec[list].as_array());
    let each = lists.into_iter().flatten().flatten();
    Names::from_hosts(each.filter_map(Value::as_str))
}

/// The message of the condition `Ready`.
fn ready_message(certificate: &Value) -> String {
    let conditions = certificate
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready");
    let message = ready.and_then(|ready| ready["message"].as_str());
    let message = message.unwrap_or("cert-manager has not reported the condition Ready yet");
    message
        .chars()
        .filter(|character| !character.is_control())
        .take(MAX_MESSAGE_CHARACTERS)
        .collect()
}

fn parse_certificate(secret: &Secret) -> Option<Certificate> {
    let text = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
    Some(Certificate {
        chain: only_certificates(&text("tls.crt")?)?,
        key: text("tls.key")?,
        bundle: only_certificates(&text("ca.crt")?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_were_requested_only_from_the_same_issuer() {
        let issuer = Issuer::Cluster("site");
        let certificate = json!({"spec": {
            "issuerRef": issuer.reference(), "dnsNames": ["sso", "lb.example.org"], "ipAddresses": ["198.51.100.7"],
        }});
        let before = requested_names(&certificate, issuer);
        assert_eq!(
            before,
            Names::from_hosts(["sso", "lb.example.org", "198.51.100.7"])
        );
        let other = requested_names(&certificate, Issuer::Namespaced("site"));
        assert_eq!(other, Names::default());
        assert_eq!(requested_names(&json!({}), issuer), Names::default());

        let (names, present) = (["two", "lb.example.org"], ["two"]);
        let (names, present) = (Names::from_hosts(names), Names::from_hosts(present));
        assert_eq!(names.contained_in_either(&present, &before), names);
        assert_eq!(
            names.contained_in_either(&present, &other),
            present,
            "it was never asked"
        );
    }
}
