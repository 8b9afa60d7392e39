//! What a provider is rendered from besides its entry.

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
    ca_rotation,
    cert_manager::{Certificates, Issued, Issuer},
    certificates::{self, TenantCa},
    checks::{Provider, Target},
    directory::Bind,
    inputs::{Inputs, kubeconfig_problem, refused},
    issuer::{self, ProviderAddress},
    kept_secrets::KeptSecret,
    key_secret::Keys,
    kubeconfigs::{Kubeconfigs, RecordedKubeconfig},
    storage::{self, StoragePart, Store},
    tenant::{InUse, Tenant, stored::StoredKubeconfig},
    tenants::{FormerTenant, Tenants},
};

/// What a provider is rendered from besides its entry.
pub(crate) struct Material {
    pub(crate) provider_address: ProviderAddress,
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

/// The outcome of a pass for the bindings of an entry.
pub(crate) struct BindingOutcome {
    /// Where they are applied, or why they are not; `None`: the entry names no kubeconfig.
    pub(crate) tenant: Option<Result<Tenant, Problem>>,
    /// Clusters in which bindings may remain that should not be there any more, and why.
    pub(crate) remain: Vec<String>,
}

/// What the agent reads and makes the material from.
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
    /// What the agent checks of the provider once it is applied.
    pub(crate) fn target(&self, cluster: &Cluster, entry: &Auth) -> Option<Target> {
        let issuer = self.provider_address.issuer.clone()?;
        let connectors = entry.provider().connectors().iter();
        let binds = connectors.filter_map(|connector| match connector.source() {
            Source::Ldap(ldap) => Some(Bind::new(ldap, &self.secrets)),
            Source::Oidc(_) | Source::Github(_) | Source::Raw(_) => None,
        });
        Some(Target {
            provider: Some(Provider {
                part: StoragePart {
                    uid: cluster.uid().to_owned(),
                    name: entry.service().object_name().to_string(),
                },
                issuer,
                at: self.provider_address.at,
                bundle: self.certificate.bundle.clone(),
                binds: binds.collect(),
            }),
            tenant: self.tenant.clone(),
        })
    }
}

impl<'a> Sources<'a> {
    /// Reads and makes what the entry needs. `kept`: the data that the agent keeps for it.
    ///
    /// # Errors
    /// [`Error::Refused`] when the entry cannot be served as it is.
    pub(crate) async fn prepare(
        self,
        scope: Scope<'_>,
        entry: &Auth,
        mut kept: KeptSecret<'_>,
        bound: BindingOutcome,
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
            kept.store(&keys).await
        } else {
            Ok(())
        };
        if provider.connectors().is_empty() && provider.static_passwords().is_none() {
            let why =
                "connectors is empty and staticPasswords is not set, so no user could log in: set connectors";
            return Err(refused(entry, CONNECTOR_MISSING, why));
        }
        kept_addresses?;
        let provider_address = issuer::provider_address(entry, cluster.namespace(), service, &keys.addresses);
        let mut provider_address = provider_address.map_err(Error::Refused)?;
        let inputs = self.inputs(cluster);
        let (secrets, mut problems) = inputs.secrets(entry).await?;
        let given = inputs.tenant_ca(entry).await?;
        let tenant = match bound.tenant {
            None => None,
            Some(Ok(tenant)) => Some(tenant),
            Some(Err(problem)) => {
                problems.push(problem);
                None
            }
        };
        let password = keys.storage_password.get_or_insert_with(random_password).clone();
        let certificate = if let Some(issuer) = self.issuer(entry) {
            keys.cert_manager = true;
            kept.store(&keys).await?;
            let issued = self.certificate_from_cert_manager(
                cluster,
                entry,
                (issuer, service),
                &mut provider_address,
                &mut problems,
            );
            let issued = issued.await?;
            let certificate = ca_rotation::publish(self.client, (cluster, entry), &mut keys, issued).await?;
            kept.store(&keys).await?;
            certificate
        } else {
            let certificate = issue_certificate(entry, &mut keys, given.as_ref(), &provider_address)?;
            if std::mem::take(&mut keys.cert_manager) {
                let certificates = Certificates::new(self.client, cluster, entry);
                certificates.delete(service).await?;
            }
            let certificate =
                ca_rotation::publish(self.client, (cluster, entry), &mut keys, certificate).await?;
            kept.store(&keys).await?;
            certificate
        };
        let storage = self.storage(cluster, entry, &password).await?;
        if let Some(issuer) = &provider_address.issuer {
            let checked = render::dex::check(provider, issuer, &secrets, &storage);
            checked.map_err(|error| refused(entry, CONFIGURATION_INVALID, &error.to_string()))?;
        }
        Ok(Material {
            provider_address,
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
        for RecordedKubeconfig { secret, server } in recorded.former(secret) {
            let tenant = match inputs.kubeconfig(cluster, (&secret, true)).await? {
                None if tenants
                    .server
                    .as_ref()
                    .is_some_and(|named| named.is_same(&server)) =>
                {
                    tenants.replaced.push(secret);
                    continue;
                }
                None => {
                    let why = format!("does not exist any more; its API server was {}", server.address);
                    Err(kubeconfig_problem(KUBECONFIG_MISSING, &secret, &why))
                }
                Some(kubeconfig) => kubeconfig.map(|(kubeconfig, _)| {
                    let stored = StoredKubeconfig::new(cluster.namespace(), &secret, &kubeconfig);
                    Tenant::former(stored, Arc::clone(&bindings), in_use.clone())
                }),
            };
            tenants.former.push(FormerTenant { secret, tenant });
        }
        Ok(tenants)
    }

    /// The Secret in which the agent keeps its data for the entry.
    ///
    /// # Errors
    /// [`Error::Refused`] when the objects of the entry's name have another owner.
    pub(crate) async fn read_kept_secret<'k>(
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
    pub(crate) async fn recorded_kubeconfigs(
        self,
        cluster: &Cluster,
        entry: &Auth,
    ) -> Result<Kubeconfigs, Error> {
        KeptSecret::recorded_kubeconfigs(self.client, self.places, (cluster, entry)).await
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
    async fn certificate_from_cert_manager(
        &self,
        cluster: &Cluster,
        entry: &Auth,
        (issuer, service): (Issuer<'_>, Option<&CoreService>),
        provider_address: &mut ProviderAddress,
        problems: &mut Vec<Problem>,
    ) -> Result<Certificate, Error> {
        let Some(service) = service else {
            provider_address.issuer = None;
            let why = "the agent requests the certificate once the Service exists";
            problems.push(Problem::new(PROGRESSING, why));
            return Ok(Certificate::default());
        };
        let certificates = Certificates::new(self.client, cluster, entry);
        let Issued {
            certificate,
            missing_names,
        } = certificates.reconcile(issuer, service, provider_address).await?;
        problems.extend(missing_names);
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
            .ensure_part(cluster.uid(), name, password)
            .await
            .map_err(|error: storage::Error| refused(entry, STORAGE_UNREACHABLE, &error.to_string()))
    }
}

/// The certificate that the agent issues.
fn issue_certificate(
    entry: &Auth,
    keys: &mut Keys,
    given: Option<&TenantCa>,
    provider_address: &ProviderAddress,
) -> Result<Certificate, Error> {
    let kept = std::mem::take(&mut keys.certificates);
    let made = certificates::renew_for_any(
        &kept,
        given,
        &provider_address.names,
        &provider_address.fallbacks,
        SystemTime::now(),
    );
    let (certificates, certificate) =
        made.map_err(|error| refused(entry, CERTIFICATE_INVALID, &error.to_string()))?;
    keys.certificates = certificates;
    Ok(certificate)
}

/// A password of 244 random bits.
fn random_password() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}
