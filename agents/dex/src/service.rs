//! The identity provider as a service of the framework.

use std::{
    convert::Infallible,
    num::NonZeroU16,
    sync::Arc,
    time::{Duration, SystemTime},
};

use api::{
    Auth, Cluster, Endpoint, HttpsUrl, PortSet, Source,
    conditions::{
        auth::{
            CERTIFICATE_INVALID, CONNECTOR_MISSING, STATIC_PASSWORDS, STORAGE_MISSING, STORAGE_UNREACHABLE,
        },
        ready::PROGRESSING,
    },
};
use k8s_openapi::api::core::v1::Secret;
use kit::service::{
    Applied, Error, Findings, Identity, Kind, Objects, Probe, Problem, Remark, Rendered, Scope, Service,
    Watches,
};
use kube::{Client, ResourceExt as _, runtime::reflector::ObjectRef};
use render::{
    dex::{self, Certificate, Plan, Secrets, Storage},
    metadata::Instance,
};
use uuid::Uuid;

use crate::{
    certificates,
    checks::{Checks, Key, Target},
    directory::Bind,
    identity::IDENTITY,
    inputs::{Inputs, refused},
    issuer::{self, Reached},
    kept,
    storage::{self, Store},
    sweep,
};

/// No watch shows the Secrets that an entry names, so they are read again after this time.
const RESYNC: Duration = Duration::from_secs(30);

/// The identity providers of a site's clusters.
pub(crate) struct Providers {
    client: Client,
    store: Option<Arc<Store>>,
    checks: Checks,
}

/// What a provider is made of besides its entry.
pub(crate) struct Material {
    reached: Reached,
    secrets: Secrets,
    storage: Storage,
    certificate: Certificate,
    /// The Secret in which the agent keeps what it made.
    keys: Secret,
}

impl Providers {
    pub(crate) fn new(store: Option<Store>, watches: &Watches) -> Self {
        Self {
            client: watches.client().clone(),
            store: store.map(Arc::new),
            checks: Checks::default(),
        }
    }

    /// Asks providers and directories without end whether they answer.
    pub(crate) fn check_providers(
        &self,
        watches: &Watches,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + use<> {
        self.checks.clone().run(watches.triggers())
    }

    /// Removes without end what providers that are gone have left in the storage.
    pub(crate) fn sweep(&self) -> impl Future<Output = Result<(), Infallible>> + Send + use<> {
        sweep::run(self.client.clone(), self.store.clone())
    }

    /// The part of the site's storage that is the provider's.
    async fn storage(&self, cluster: &Cluster, entry: &Auth, password: &str) -> Result<Storage, Error> {
        let Some(store) = &self.store else {
            let why = "the site's configuration names no storage for identity providers";
            return Err(refused(entry, STORAGE_MISSING, why));
        };
        let name = entry.service().object_name().as_str();
        store
            .part(cluster.uid(), name, password)
            .await
            .map_err(|error: storage::Error| refused(entry, STORAGE_UNREACHABLE, &error.to_string()))
    }
}

impl Service for Providers {
    const IDENTITY: &'static Identity = IDENTITY;
    type Entry = Auth;
    type Prepared = Material;

    fn entries(cluster: &Cluster) -> Vec<Auth> {
        cluster.auth().to_vec()
    }

    fn common(entry: &Auth) -> &api::Service {
        entry.service()
    }

    fn node_ports(cluster: &Cluster) -> PortSet {
        let ports = cluster.auth().iter().filter_map(Auth::node_port);
        ports.map(NonZeroU16::get).collect()
    }

    fn protocol(_: i32) -> &'static str {
        "https"
    }

    async fn prepare(&self, scope: Scope<'_>, entry: &Auth) -> Result<Material, Error> {
        let (cluster, provider) = (scope.cluster, entry.provider());
        let name = entry.service().object_name().as_str();
        if provider.connectors().is_empty() && provider.static_passwords().is_none() {
            let why = "nobody could log in: set connectors";
            return Err(refused(entry, CONNECTOR_MISSING, why));
        }
        let service = scope
            .observed
            .services()
            .find(|service| service.name_any() == name);
        let reached = issuer::reached(entry, cluster.namespace(), service).map_err(Error::Refused)?;
        let inputs = Inputs::new(&self.client, cluster.namespace());
        let secrets = inputs.secrets(entry).await?;
        let given = inputs.given(entry).await?;
        let mut keys = inputs.keys(name).await?;
        let made = certificates::renewed(
            keys.certificates,
            given.as_ref(),
            &reached.names,
            SystemTime::now(),
        );
        let (certificates, certificate) =
            made.map_err(|error| refused(entry, CERTIFICATE_INVALID, &error.to_string()))?;
        keys.certificates = certificates;
        let password = keys.storage_password.get_or_insert_with(password).clone();
        let storage = self.storage(cluster, entry, &password).await?;
        if let Some(issuer) = &reached.issuer {
            let target = target(entry, issuer, &reached, &secrets, &certificate);
            self.checks.propose(
                key(cluster, name),
                ObjectRef::from_obj(scope.observed.object()),
                target,
            );
        }
        Ok(Material {
            reached,
            secrets,
            storage,
            certificate,
            keys: kept::secret(&Instance::new(cluster, entry.service(), "auth", "dex"), &keys),
        })
    }

    fn render(&self, scope: Scope<'_>, entry: &Auth, material: Material) -> Rendered {
        let Material {
            reached,
            secrets,
            storage,
            certificate,
            keys,
        } = material;
        let plan = Plan {
            cluster: scope.cluster,
            entry,
            issuer: reached.issuer.as_ref(),
            secrets: &secrets,
            storage: &storage,
            certificate: &certificate,
        };
        let outputs = dex::outputs(&plan);
        let dex::Objects {
            service,
            secret,
            account,
            deployment,
            policy,
            budget,
            digest,
        } = dex::objects(&plan);
        // The kept Secret comes first: what pods run with must never be lost.
        let mut objects = Objects::new(service, deployment, digest)
            .configuration(keys)
            .configuration(secret)
            .access(account)
            .guard(policy)
            .guard_or_none(Kind::PodDisruptionBudget, budget);
        if let Some(outputs) = outputs {
            objects = objects.configuration(outputs);
        }
        let mut problems = Vec::new();
        let mut endpoint = Endpoint::default();
        match (&reached.issuer, entry.provider().kubectl_client()) {
            (Some(issuer), Some(client)) => {
                endpoint = Endpoint {
                    issuer: Some(issuer.to_string()),
                    client_id: Some(client.id().clone()),
                    ca_bundle: Some(certificate.bundle.clone()),
                    ..Endpoint::default()
                };
            }
            _ => problems.push(Problem::new(
                PROGRESSING,
                "the API server or the site's load balancer has given the Service no port or address yet",
            )),
        }
        Rendered {
            objects,
            findings: Findings {
                problems,
                requeue: Some(RESYNC),
                endpoint,
                ..Findings::default()
            },
        }
    }

    async fn probe(&self, scope: Scope<'_>, entry: &Auth, objects: &Objects<Applied>, _: bool) -> Probe {
        let key = key(scope.cluster, &objects.name());
        self.checks.confirm(&key);
        let found = self.checks.found(&key);
        let problem = match found {
            None => Some(Problem::new(PROGRESSING, "the provider was not asked yet")),
            Some(Ok(())) => None,
            Some(Err((reason, why))) => Some(Problem::new(reason, why)),
        };
        let remark = entry.provider().static_passwords().as_ref().map(|_| Remark {
            reason: STATIC_PASSWORDS,
            text: "there are users with a password of their own in",
        });
        Probe {
            problem,
            remark,
            confirmed: true,
            requeue: None,
        }
    }

    fn forget(&self, namespace: &str, name: &str) {
        self.checks.forget(namespace, name);
    }
}

fn target(
    entry: &Auth,
    issuer: &HttpsUrl,
    reached: &Reached,
    secrets: &Secrets,
    certificate: &Certificate,
) -> Target {
    let connectors = entry.provider().connectors().iter();
    Target {
        issuer: issuer.clone(),
        at: reached.at,
        bundle: certificate.bundle.clone(),
        binds: connectors
            .filter_map(|connector| match connector.source() {
                Source::Ldap(ldap) => Some(Bind::new(ldap, secrets)),
                Source::Oidc(_) | Source::Github(_) | Source::Raw(_) => None,
            })
            .collect(),
    }
}

fn key(cluster: &Cluster, name: &str) -> Key {
    Key {
        namespace: cluster.namespace().to_owned(),
        uid: cluster.uid().to_owned(),
        name: name.to_owned(),
    }
}

/// 244 random bits.
fn password() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}
