//! What a provider is made of besides its entry.

use std::{sync::Arc, time::SystemTime};

use api::{
    Auth, Cluster, Source,
    conditions::{
        auth::{
            CERTIFICATE_INVALID, CONFIGURATION_INVALID, CONNECTOR_MISSING, KUBECONFIG_MISSING,
            STORAGE_MISSING, STORAGE_UNREACHABLE,
        },
        ready::PROGRESSING,
    },
};
use k8s_openapi::api::core::v1::Service as CoreService;
use kit::{
    service::{Error, Problem, Scope},
    shares::OfNamespaces,
};
use kube::{Client, ResourceExt as _};
use render::dex::{Certificate, Secrets, Storage, group_bindings};
use uuid::Uuid;

use crate::{
    cert_manager::{Certificates, Issued, Issuer},
    certificates::{self, Given},
    checks::{Provider, Target},
    directory::Bind,
    inputs::{Inputs, kubeconfig_problem, refused},
    issuer::{self, Reached},
    kept_secrets::KeptSecret,
    key_secret::Keys,
    kubeconfigs::{Kubeconfigs, Recorded},
    storage::{self, Part, Store},
    succession,
    tenant::{InUse, Tenant, stored::Stored},
    tenants::{Former, Tenants},
};

/// What a provider is made of besides its entry.
pub(crate) struct Material {
    pub(crate) reached: Reached,
    pub(crate) secrets: Secrets,
    pub(crate) storage: Storage,
    pub(crate) certificate: Certificate,
    /// The API server to which bindings of groups are applied.
    pub(crate) tenant: Option<Tenant>,
    /// Clusters in which bindings may remain that should not be there any more, and why.
    pub(crate) bindings_remain: Vec<String>,
    /// What of the entry is not served as the spec asks.
    pub(crate) problems: Vec<Problem>,
}

/// What a pass has done about the bindings of an entry.
pub(crate) struct Bound {
    /// Where they are applied, or why they are not; `None`: the entry names no kubeconfig.
    pub(crate) tenant: Option<Result<Tenant, Problem>>,
    /// Clusters in which bindings may remain that should not be there any more, and why.
    pub(crate) remain: Vec<String>,
}

/// What the material is read and made from.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) site: &'a str,
    pub(crate) client: &'a Client,
    pub(crate) store: Option<&'a Store>,
    /// Issuer of cert-manager for entries that name neither CA nor issuer.
    pub(crate) cluster_issuer: Option<&'a str>,
    /// Limits how many Secrets of each namespace are read at once.
    pub(crate) places: &'a OfNamespaces,
}

impl Material {
    /// What is checked of the provider once it is applied.
    pub(crate) fn target(&self, cluster: &Cluster, entry: &Auth) -> Option<Target> {
        let issuer = self.reached.issuer.clone()?;
        let connectors = entry.provider().connectors().iter();
        let binds = connectors.filter_map(|connector| match connector.source() {
            Source::Ldap(ldap) => Some(Bind::new(ldap, &self.secrets)),
            Source::Oidc(_) | Source::Github(_) | Source::Raw(_) => None,
        });
        Some(Target {
            provider: Some(Provider {
                part: Part {
                    uid: cluster.uid().to_owned(),
                    name: entry.service().object_name().to_string(),
                },
                issuer,
                at: self.reached.at,
                bundle: self.certificate.bundle.clone(),
                binds: binds.collect(),
            }),
            tenant: self.tenant.clone(),
        })
    }
}

impl<'a> Sources<'a> {
    /// Reads and makes what the entry needs. `kept`: what was made for it before.
    ///
    /// # Errors
    /// [`Error::Refused`] when the entry cannot be served as it is.
    pub(crate) async fn prepare(
        self,
        scope: Scope<'_>,
        entry: &Auth,
        mut kept: KeptSecret<'_>,
        bound: Bound,
    ) -> Result<Material, Error> {
        let (cluster, provider) = (scope.cluster, entry.provider());
        let name = entry.service().object_name().as_str();
        let service = scope
            .observed
            .services()
            .find(|service| service.name_any() == name);
        let mut keys = kept.keys();
        keys.addresses = issuer::addresses(entry, service, &keys.addresses, SystemTime::now());
        // The addresses are recorded even if the entry is refused in this pass.
        let kept_addresses = if kept.exists() {
            kept.keep(&keys).await
        } else {
            Ok(())
        };
        if provider.connectors().is_empty() && provider.static_passwords().is_none() {
            let why = "nobody could log in: set connectors";
            return Err(refused(entry, CONNECTOR_MISSING, why));
        }
        kept_addresses?;
        let reached = issuer::reached(entry, cluster.namespace(), service, &keys.addresses);
        let mut reached = reached.map_err(Error::Refused)?;
        let inputs = self.inputs(cluster);
        let (secrets, mut problems) = inputs.secrets(entry).await?;
        let given = inputs.given(entry).await?;
        let tenant = match bound.tenant {
            None => None,
            Some(Ok(tenant)) => Some(tenant),
            Some(Err(problem)) => {
                problems.push(problem);
                None
            }
        };
        let password = keys.storage_password.get_or_insert_with(password).clone();
        let certificate = if let Some(issuer) = self.issuer(entry) {
            keys.cert_manager = true;
            kept.keep(&keys).await?;
            let issued = self.issued(cluster, entry, (issuer, service), &mut reached, &mut problems);
            let issued = issued.await?;
            let certificate = succession::published(self.client, (cluster, entry), &mut keys, issued).await?;
            kept.keep(&keys).await?;
            certificate
        } else {
            let certificate = made(entry, &mut keys, given.as_ref(), &reached)?;
            if std::mem::take(&mut keys.cert_manager) {
                let certificates = Certificates::new(self.client, cluster, entry);
                certificates.withdraw(service).await?;
            }
            let certificate =
                succession::published(self.client, (cluster, entry), &mut keys, certificate).await?;
            kept.keep(&keys).await?;
            certificate
        };
        let storage = self.storage(cluster, entry, &password).await?;
        if let Some(issuer) = &reached.issuer {
            let checked = render::dex::check(provider, issuer, &secrets, &storage);
            checked.map_err(|error| refused(entry, CONFIGURATION_INVALID, &error.to_string()))?;
        }
        Ok(Material {
            reached,
            secrets,
            storage,
            certificate,
            tenant,
            bindings_remain: bound.remain,
            problems,
        })
    }

    /// The clusters of an entry. `recorded`: the Secrets that it named.
    ///
    /// # Errors
    /// When the API server fails.
    pub(crate) async fn tenants(
        self,
        (cluster, entry): (&Cluster, &Auth),
        recorded: &Kubeconfigs,
    ) -> Result<Tenants, Error> {
        let inputs = self.inputs(cluster);
        let bindings = Arc::new(group_bindings(self.site, cluster, entry));
        let secret = entry.provider().kubeconfig_secret().as_deref();
        let mut tenants = Tenants::none(bindings.stale.clone());
        let mut in_use = InUse::None;
        if let Some(secret) = secret {
            let kubeconfig = inputs.kubeconfig(cluster, (secret, false)).await?;
            let missing = || Err(kubeconfig_problem(KUBECONFIG_MISSING, secret, "does not exist"));
            let named = match kubeconfig.unwrap_or_else(missing) {
                Ok((kubeconfig, server)) => {
                    let kubeconfig: Arc<[u8]> = kubeconfig.into();
                    in_use = InUse::Kubeconfig(Arc::clone(&kubeconfig));
                    tenants.server = Some(server);
                    Ok(Tenant::new(kubeconfig, Arc::clone(&bindings)))
                }
                Err(problem) => {
                    in_use = InUse::Unknown;
                    Err(problem)
                }
            };
            tenants.named = Some(named);
        }
        for Recorded { secret, server } in recorded.former(secret) {
            let tenant = match inputs.kubeconfig(cluster, (&secret, true)).await? {
                None if tenants.server.as_ref().is_some_and(|named| named.is(&server)) => {
                    tenants.replaced.push(secret);
                    continue;
                }
                None => {
                    let why = format!("does not exist any more, and led to {}", server.place);
                    Err(kubeconfig_problem(KUBECONFIG_MISSING, &secret, &why))
                }
                Some(kubeconfig) => kubeconfig.map(|(kubeconfig, _)| {
                    let stored = Stored::new(cluster.namespace(), &secret, &kubeconfig);
                    Tenant::former(stored, Arc::clone(&bindings), in_use.clone())
                }),
            };
            tenants.former.push(Former { secret, tenant });
        }
        Ok(tenants)
    }

    /// What was made for the entry before.
    ///
    /// # Errors
    /// [`Error::Refused`] when the objects of the entry's name are another's.
    pub(crate) async fn read_kept<'k>(
        self,
        cluster: &'k Cluster,
        entry: &'k Auth,
    ) -> Result<KeptSecret<'k>, Error> {
        KeptSecret::read(self.client, self.places, (cluster, entry)).await
    }

    /// The kubeconfigs that are recorded in a Secret which is refused.
    ///
    /// # Errors
    /// When the API server fails.
    pub(crate) async fn recorded(self, cluster: &Cluster, entry: &Auth) -> Result<Kubeconfigs, Error> {
        KeptSecret::recorded(self.client, self.places, (cluster, entry)).await
    }

    pub(crate) fn inputs<'i>(self, cluster: &'i Cluster) -> Inputs<'i>
    where
        'a: 'i,
    {
        Inputs::new(self.client, cluster.namespace(), self.places)
    }

    /// The issuer of cert-manager; `None`: the agent issues the certificate.
    fn issuer<'e>(&'e self, entry: &'e Auth) -> Option<Issuer<'e>> {
        if entry.ca_secret().is_some() {
            return None;
        }
        let named = entry
            .provider()
            .certificate_issuer()
            .as_deref()
            .map(Issuer::Namespaced);
        named.or(self.cluster_issuer.map(Issuer::Cluster))
    }

    /// The certificate from cert-manager. It belongs to the Service, which therefore comes first: without it no pod runs.
    async fn issued(
        &self,
        cluster: &Cluster,
        entry: &Auth,
        (issuer, service): (Issuer<'_>, Option<&CoreService>),
        reached: &mut Reached,
        problems: &mut Vec<Problem>,
    ) -> Result<Certificate, Error> {
        let Some(service) = service else {
            reached.issuer = None;
            let why = "the certificate is asked for as soon as the Service is there";
            problems.push(Problem::new(PROGRESSING, why));
            return Ok(Certificate::default());
        };
        let certificates = Certificates::new(self.client, cluster, entry);
        let Issued { certificate, lacks } = certificates.issued(issuer, service, reached).await?;
        problems.extend(lacks);
        Ok(certificate)
    }

    /// The part of the site's storage that is the provider's.
    async fn storage(&self, cluster: &Cluster, entry: &Auth, password: &str) -> Result<Storage, Error> {
        let Some(store) = self.store else {
            let why = "the agent runs without --storage-endpoint";
            return Err(refused(entry, STORAGE_MISSING, why));
        };
        let name = entry.service().object_name().as_str();
        store
            .part(cluster.uid(), name, password)
            .await
            .map_err(|error: storage::Error| refused(entry, STORAGE_UNREACHABLE, &error.to_string()))
    }
}

/// The certificate that the agent issues.
fn made(
    entry: &Auth,
    keys: &mut Keys,
    given: Option<&Given>,
    reached: &Reached,
) -> Result<Certificate, Error> {
    let kept = std::mem::take(&mut keys.certificates);
    let made = certificates::renewed_for_any(
        &kept,
        given,
        &reached.names,
        &reached.fallbacks,
        SystemTime::now(),
    );
    let (certificates, certificate) =
        made.map_err(|error| refused(entry, CERTIFICATE_INVALID, &error.to_string()))?;
    keys.certificates = certificates;
    Ok(certificate)
}

/// 244 random bits.
fn password() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}
