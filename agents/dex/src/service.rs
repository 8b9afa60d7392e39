//! The identity provider as a service of the framework.

use std::{convert::Infallible, num::NonZeroU16, sync::Arc, time::Duration};

use api::{
    Auth, Cluster, Endpoint, PortSet, SIPCluster,
    conditions::{auth::STATIC_PASSWORDS, load_balancer::NAME_CONFLICT, ready::PROGRESSING},
};
use kit::{
    service::{
        Applied, Error, Findings, Identity, Kind, Objects, Observed, Probe, Problem, Remark, Rendered, Scope,
        Service, Watches,
    },
    shares::OfNamespaces,
    tenant::destinations::Destinations,
};
use kube::{Client, ResourceExt as _, runtime::reflector::ObjectRef};
use render::dex::{self, Plan};

use crate::{
    checks::{Asker, Checks, Key},
    identity::IDENTITY,
    inputs::READ_AT_ONCE,
    material::{Material, Sources},
    own_keys::OwnKeys,
    published_endpoint,
    storage::Store,
    sweep,
    tenant::Tenant,
};

/// No watch shows the Secrets that an entry names, so they are read again after this time.
const RESYNC: Duration = Duration::from_secs(30);

/// The identity providers of a site's clusters.
pub(crate) struct Providers {
    site: String,
    client: Client,
    store: Option<Arc<Store>>,
    cluster_issuer: Option<String>,
    checks: Checks,
    places: OfNamespaces,
}

impl Providers {
    /// `site`: its name, which no other site has. `cluster_issuer`: who issues certificates where an entry names nobody.
    pub(crate) fn new(
        site: String,
        store: Option<Store>,
        cluster_issuer: Option<&str>,
        watches: &Watches,
    ) -> Self {
        Self {
            site,
            client: watches.client().clone(),
            store: store.map(Arc::new),
            cluster_issuer: cluster_issuer.map(str::to_owned),
            checks: Checks::default(),
            places: OfNamespaces::new(READ_AT_ONCE),
        }
    }

    /// From now on the bindings of an entry are reconciled by this kubeconfig, and those of no entry that the cluster had before.
    fn bind(&self, cluster: &Cluster, key: Key, asker: Asker, tenant: Option<&Result<Tenant, Problem>>) {
        let entries = cluster.auth().iter();
        let names = entries.map(|entry| entry.service().object_name().as_str());
        self.checks.keep(&key.namespace, &key.uid, &names.collect());
        let tenant = tenant.and_then(|tenant| tenant.as_ref().ok());
        self.checks.bind(key, asker, tenant.cloned());
    }

    fn sources(&self) -> Sources<'_> {
        Sources {
            site: &self.site,
            client: &self.client,
            store: self.store.as_deref(),
            cluster_issuer: self.cluster_issuer.as_deref(),
            places: &self.places,
        }
    }

    /// Checks without end whether providers, directories and tenants' API servers answer.
    pub(crate) fn check_providers(
        &self,
        destinations: Destinations,
        watches: &Watches,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + use<> {
        let own_keys = OwnKeys::new(self.store.clone());
        let checks = self.checks.clone();
        checks.run(watches.triggers(), Arc::new(own_keys), Arc::new(destinations))
    }

    /// Removes without end what providers that are gone have left in the storage.
    pub(crate) fn sweep(&self) -> impl Future<Output = Result<(), Infallible>> + Send + use<> {
        sweep::run(self.client.clone(), self.store.clone())
    }

    /// Compares without end what was added to the storage with what it has. `ready` is called once the storage can be used.
    pub(crate) fn compare_storage<R: Fn() + Send>(
        &self,
        ready: R,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + use<R> {
        let store = self.store.clone();
        async move {
            if let Some(store) = store {
                return store.compare_users(ready).await;
            }
            ready();
            std::future::pending().await
        }
    }
}

impl Service for Providers {
    const IDENTITY: &'static Identity = IDENTITY;
    const NEEDS_MEMBERS: bool = false;
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
        let sources = self.sources();
        let key = key(scope.cluster, entry.service().object_name().as_str());
        let asker = asker(scope.observed);
        let kept = sources.read_kept(scope.cluster, entry).await?;
        let tenant = sources.tenant(scope.cluster, entry).await?;
        self.bind(scope.cluster, key.clone(), asker.clone(), tenant.as_ref());
        let material = sources.prepare(scope, entry, kept, tenant).await?;
        if let Some(target) = material.target(scope.cluster, entry) {
            self.checks.propose(key, asker, target);
        }
        Ok(material)
    }

    /// The bindings of groups are reconciled nonetheless, also where the entry was refused before it was prepared. Those of an instance whose
    /// name is another cluster's are that one's.
    async fn revoke(
        &self,
        (observed, cluster): (&Observed<'_>, &Cluster),
        entry: &Auth,
    ) -> Result<(), Error> {
        let sources = self.sources();
        match sources.read_kept(cluster, entry).await {
            Err(Error::Refused(problem)) if problem.reason == NAME_CONFLICT => return Ok(()),
            Err(Error::Refused(_)) | Ok(_) => {}
            Err(error) => return Err(error),
        }
        let tenant = sources.tenant(cluster, entry).await?;
        let key = key(cluster, entry.service().object_name().as_str());
        self.bind(cluster, key, asker(observed), tenant.as_ref());
        Ok(())
    }

    fn render(&self, scope: Scope<'_>, entry: &Auth, material: Material) -> Rendered {
        let Material {
            reached,
            secrets,
            storage,
            certificate,
            tenant: _,
            mut problems,
        } = material;
        let plan = Plan {
            site: &self.site,
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
        let mut objects = Objects::new(service, deployment, digest)
            .configuration(secret)
            .access(account)
            .guard(policy)
            .guard_or_none(Kind::PodDisruptionBudget, budget);
        match outputs {
            Some(outputs) => objects = objects.configuration(outputs),
            // Somebody may have deleted the Service, or the load balancer takes its address back for a moment: the pods run on.
            None if reached.issuer.is_none() => objects = objects.service_only(),
            None => {}
        }
        let mut endpoint = Endpoint::default();
        match (&reached.issuer, entry.provider().kubectl_client()) {
            (Some(issuer), Some(client)) => {
                // One with a secret is of no use to people's kubectl.
                let client = client.is_public().then(|| client.id().clone());
                let name = entry.service().object_name().as_str();
                let outputs = format!("{name}{}", dex::OUTPUTS_SUFFIX);
                let (published, problem) =
                    published_endpoint::endpoint(issuer.to_string(), client, &certificate.bundle, &outputs);
                endpoint = published;
                problems.extend(problem);
            }
            _ => problems.push(Problem::new(
                PROGRESSING,
                "the Service, or its port or address, is not there yet",
            )),
        }
        Rendered {
            objects,
            findings: Findings {
                problems,
                requeue: Some(RESYNC),
                endpoint,
                warning: entry.provider().static_passwords().as_ref().map(|_| Remark {
                    reason: STATIC_PASSWORDS,
                    text: "staticPasswords is set, so users outside the directories can log in".into(),
                }),
                ..Findings::default()
            },
        }
    }

    async fn probe(&self, scope: Scope<'_>, _: &Auth, objects: &Objects<Applied>, _: bool) -> Probe {
        let key = key(scope.cluster, &objects.name());
        self.checks.confirm(&key);
        let found = self.checks.found(&key);
        let problem = match found {
            None => Some(Problem::new(PROGRESSING, "the provider was not checked yet")),
            Some(Ok(())) => None,
            Some(Err((reason, why))) => Some(Problem::new(reason, why)),
        };
        Probe {
            problem,
            confirmed: true,
            ..Probe::default()
        }
    }

    fn forget(&self, cluster: &SIPCluster, name: &str) {
        self.checks.forget(&Key {
            namespace: cluster.namespace().unwrap_or_default(),
            uid: cluster.uid().unwrap_or_default(),
            name: name.to_owned(),
        });
    }
}

fn asker(observed: &Observed<'_>) -> Asker {
    let object = observed.object();
    (
        ObjectRef::from_obj(object),
        object.metadata.generation.unwrap_or_default(),
    )
}

fn key(cluster: &Cluster, name: &str) -> Key {
    Key {
        namespace: cluster.namespace().to_owned(),
        uid: cluster.uid().to_owned(),
        name: name.to_owned(),
    }
}
