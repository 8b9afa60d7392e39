//! The identity provider as a service of the framework.

use std::{convert::Infallible, num::NonZeroU16, sync::Arc, time::Duration};

use api::{
    Auth, Cluster, Endpoint, PortSet, SIPCluster,
    conditions::{
        auth::{BINDINGS_REMAIN, STATIC_PASSWORDS},
        load_balancer::NAME_CONFLICT,
        ready::PROGRESSING,
    },
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
    checks::{Checks, FormerBindings, Key, Requester},
    identity::IDENTITY,
    inputs::MAX_CONCURRENT_READS,
    kept_secrets::KeptSecret,
    kubeconfigs::{Kubeconfigs, RecordedKubeconfig},
    material::{BindingOutcome, Material, Sources},
    own_keys::OwnKeys,
    published_endpoint,
    storage::Store,
    sweep,
    tenant::{Tenant, stored::SecretReader},
    tenants::Tenants,
};

/// Interval between two reads of the Secrets that an entry names: the agent does not watch them.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);

/// The identity providers of a site's clusters.
pub(crate) struct Providers {
    site: String,
    client: Client,
    store: Option<Arc<Store>>,
    cluster_issuer: Option<String>,
    checks: Checks,
    places: Arc<OfNamespaces>,
}

impl Providers {
    /// `site`: the site's name, unique among sites. `cluster_issuer`: issuer of cert-manager for entries that name neither CA nor issuer.
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
            places: Arc::new(OfNamespaces::new(MAX_CONCURRENT_READS)),
        }
    }

    /// Has the checks reconcile the bindings of an entry by its kubeconfig from now on, and delete those of entries that the cluster does not
    /// have any more, and those in clusters that the entry named before.
    ///
    /// # Errors
    /// When the API server fails. If only writing the record fails, the checks still take rights away that the spec no longer gives.
    async fn reconcile_bindings(
        &self,
        (cluster, entry): (&Cluster, &Auth),
        requester: &Requester,
        kept: OwnSecret<'_, '_>,
    ) -> Result<BindingOutcome, Error> {
        let key = key(cluster, entry.service().object_name().as_str());
        let entries = cluster.auth().iter();
        let names = entries.map(|entry| entry.service().object_name().as_str());
        self.checks
            .retain_entries(&key.namespace, &key.uid, &names.collect());
        let recorded = match &kept {
            OwnSecret::Usable(kept) => kept.keys().kubeconfigs,
            OwnSecret::Unusable(recorded) => recorded.clone(),
        };
        let mut tenants = self.sources().tenants((cluster, entry), &recorded).await?;
        let (mut remain, mut gone) = (Vec::new(), tenants.replaced.clone());
        for former in &tenants.former {
            match self.checks.former_bindings(&key, former) {
                FormerBindings::Deleted => gone.push(former.secret.clone()),
                FormerBindings::Remain(why) => remain.push(format!(
                    "kubeconfigSecret was {} before, and bindings of groups may remain in that cluster: {why}",
                    former.secret
                )),
            }
        }
        let (written, is_kept) = match kept {
            OwnSecret::Usable(kept) => {
                let written = record_kubeconfigs((cluster, entry), &tenants, &gone, kept).await;
                let is_kept = written.is_ok();
                (written, is_kept)
            }
            OwnSecret::Unusable(_) => (Ok(()), false),
        };
        let named = entry.provider().kubeconfig_secret().as_deref();
        let is_recorded = is_kept || named.is_none_or(|secret| recorded.has(secret));
        if !is_recorded {
            // Nothing is applied by a kubeconfig that is not recorded: it would stay for ever.
            tenants.named = tenants.named.map(|named| named.map(Tenant::without_applying));
        }
        if is_kept {
            tenants.former.retain(|former| !gone.contains(&former.secret));
        }
        self.checks.reconcile_bindings(&key, requester, &tenants);
        written?;
        Ok(BindingOutcome {
            remain,
            tenant: tenants.named,
        })
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
        // Limits of its own: passes read many Secrets each, and reading a former kubeconfig does not wait for them.
        let places = Arc::new(OfNamespaces::new(1));
        let secrets = SecretReader::new(self.client.clone(), places);
        let checks = self.checks.clone();
        checks.run(
            watches.triggers(),
            Arc::new(own_keys),
            secrets,
            Arc::new(destinations),
        )
    }

    /// Deletes from the storage, without end, what deleted providers stored there.
    pub(crate) fn sweep(&self) -> impl Future<Output = Result<(), Infallible>> + Send + use<> {
        sweep::run(self.client.clone(), self.store.clone())
    }

    /// Compares without end the users that were added to the storage with those that it has. Calls `ready` once the storage can be used.
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

    fn service(entry: &Auth) -> &api::Service {
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
        let requester = requester(scope.observed);
        let mut kept = sources.read_kept_secret(scope.cluster, entry).await?;
        let bound = self
            .reconcile_bindings((scope.cluster, entry), &requester, OwnSecret::Usable(&mut kept))
            .await?;
        let material = sources.prepare(scope, entry, kept, bound).await?;
        let key = key(scope.cluster, entry.service().object_name().as_str());
        if let Some(target) = material.target(scope.cluster, entry) {
            self.checks.propose(key, requester, target);
        }
        Ok(material)
    }

    /// Reconciles the bindings of groups even if the entry was refused before it was prepared; but not of an instance whose name belongs to
    /// another cluster.
    async fn revoke(
        &self,
        (observed, cluster): (&Observed<'_>, &Cluster),
        entry: &Auth,
    ) -> Result<(), Error> {
        let sources = self.sources();
        let mut read;
        let kept = match sources.read_kept_secret(cluster, entry).await {
            Err(Error::Refused(problem)) if problem.reason == NAME_CONFLICT => return Ok(()),
            Err(Error::Refused(_)) => {
                OwnSecret::Unusable(sources.recorded_kubeconfigs(cluster, entry).await?)
            }
            Ok(usable) => {
                read = usable;
                OwnSecret::Usable(&mut read)
            }
            Err(error) => return Err(error),
        };
        self.reconcile_bindings((cluster, entry), &requester(observed), kept)
            .await?;
        Ok(())
    }

    fn render(&self, scope: Scope<'_>, entry: &Auth, material: Material) -> Rendered {
        let Material {
            provider_address,
            secrets,
            storage,
            certificate,
            tenant: _,
            bindings_remain,
            mut problems,
        } = material;
        let plan = Plan {
            site: &self.site,
            cluster: scope.cluster,
            entry,
            issuer: provider_address.issuer.as_ref(),
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
            // Somebody may have deleted the Service, or the load balancer has taken its address back for a moment: the pods continue to run.
            None if provider_address.issuer.is_none() => objects = objects.service_only(),
            None => {}
        }
        let mut endpoint = Endpoint::default();
        match (&provider_address.issuer, entry.provider().kubectl_client()) {
            (Some(issuer), Some(client)) => {
                // A client with a secret is of no use to people's kubectl.
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
                "the Service has no port or no address yet",
            )),
        }
        Rendered {
            objects,
            findings: Findings {
                problems,
                requeue: Some(RESYNC_INTERVAL),
                endpoint,
                warnings: warnings(entry, bindings_remain),
                ..Findings::default()
            },
        }
    }

    async fn probe(&self, scope: Scope<'_>, _: &Auth, objects: &Objects<Applied>, _: bool) -> Probe {
        let key = key(scope.cluster, &objects.name());
        self.checks.confirm(&key);
        let found = self.checks.last_result(&key);
        let problem = match found {
            None => Some(Problem::new(
                PROGRESSING,
                "the agent has not checked the provider yet",
            )),
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
            former: None,
        });
    }
}

/// The Secret in which the agent keeps what it made for a provider.
enum OwnSecret<'k, 's> {
    Usable(&'k mut KeptSecret<'s>),
    /// The Secret is refused, so nothing can be recorded in it. Bindings are deleted by the kubeconfigs that it has recorded.
    Unusable(Kubeconfigs),
}

/// Whether the entry asks for bindings of groups.
fn binds_groups(entry: &Auth) -> bool {
    !entry.provider().groups().is_empty()
}

/// Records the kubeconfigs by which bindings may have been applied. `gone`: former Secrets in whose clusters no binding is left, or that another
/// one replaces.
async fn record_kubeconfigs(
    (cluster, entry): (&Cluster, &Auth),
    tenants: &Tenants,
    gone: &[String],
    kept: &mut KeptSecret<'_>,
) -> Result<(), Error> {
    let mut keys = kept.keys();
    let before = keys.kubeconfigs.clone();
    for secret in gone {
        keys.kubeconfigs.remove(secret);
    }
    let named = entry.provider().kubeconfig_secret().as_deref();
    let forgotten = match (named, &tenants.server) {
        // Without bindings, now or before, there is nothing to record.
        (Some(secret), Some(server)) if binds_groups(entry) || before.has(secret) => {
            keys.kubeconfigs.add(secret, server)
        }
        _ => Vec::new(),
    };
    if keys.kubeconfigs == before {
        return Ok(());
    }
    kept.store(&keys).await?;
    let (namespace, provider) = (cluster.namespace(), entry.service().object_name());
    for RecordedKubeconfig { secret, server } in forgotten {
        let server = server.address;
        tracing::warn!(namespace, %provider, secret, server, "leaving the bindings of groups in the cluster of a former kubeconfig: too many others were named since");
    }
    Ok(())
}

/// The warnings about an entry.
fn warnings(entry: &Auth, bindings_remain: Vec<String>) -> Vec<Remark> {
    let remain = bindings_remain.into_iter().map(|text| Remark {
        reason: BINDINGS_REMAIN,
        text: text.into(),
    });
    let passwords = entry.provider().static_passwords().as_ref().map(|_| Remark {
        reason: STATIC_PASSWORDS,
        text: "staticPasswords is set, so users outside the directories can log in".into(),
    });
    remain.chain(passwords).collect()
}

fn requester(observed: &Observed<'_>) -> Requester {
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
        former: None,
    }
}
