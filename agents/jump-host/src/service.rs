//! The jump host as a service of the framework.

use std::{
    io,
    num::NonZeroU16,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use api::{Cluster, JumpHost, PortSet, SIPCluster};
use http::uri::Authority;
use kit::{
    placement::{ClusterId, Member},
    service::{
        Applied, Error, Identity, Objects, Observed, Probe, Rendered, Scope, Service, Stores, Watches,
        is_reported,
    },
};
use kube::Client;
use power::{Flaw, Unanswered};
use render::jump_host::{PowerService, plan::instance};

use crate::{
    api_servers, balancers,
    host_keys::HostKeyStore,
    identity::{IDENTITY, MANAGER},
    pod_files,
    power_control::Serving,
    remarks::remark,
    removed_keys,
    rendering::{self, Inputs, SiteSettings},
    tenant_secrets,
};

/// Pause after which the agent checks again whether pods can call `PowerService`: its files are not watched.
const CERTIFICATE_RESYNC_PERIOD: Duration = Duration::from_secs(30);

/// Where pods reach `PowerService`.
#[derive(Clone, Debug)]
pub(crate) struct PowerSettings {
    pub(crate) address: Authority,
    /// A file with the certificates that its certificate is issued from; it is read again in each pass.
    pub(crate) ca: Option<PathBuf>,
    /// Namespace of its pods.
    pub(crate) namespace: String,
    /// `None` when this process does not serve it.
    pub(crate) serving: Option<Serving>,
}

impl PowerSettings {
    async fn ca(&self) -> io::Result<Option<String>> {
        match &self.ca {
            None => Ok(None),
            Some(file) => tokio::fs::read_to_string(file).await.map(Some),
        }
    }

    /// Why the command `host` works in no pod, or will stop working.
    async fn flaw(&self) -> Option<Flaw> {
        let now = |why: &str| Some(Flaw::Now(why.to_owned()));
        let Some(Serving {
            certificate,
            answers: _,
        }) = &self.serving
        else {
            return now("the jump-host agent has no --power-listen");
        };
        match self.ca().await {
            Ok(Some(ca)) => certificate.flaw(self.address.host().trim_matches(['[', ']']), &ca),
            Ok(None) => now("the jump-host agent has no --power-ca"),
            Err(_) => now("the jump-host agent cannot read the file of --power-ca"),
        }
    }

    /// The members of a cluster whose BMCs failed.
    fn unanswered(&self, scope: Scope<'_>) -> Unanswered {
        let cluster = ClusterId::for_object(scope.observed.object());
        let serving = self.serving.as_ref();
        serving.map_or_else(Unanswered::default, |serving| {
            serving
                .answers
                .unanswered(&cluster, scope.members.iter().map(Member::host))
        })
    }
}

/// The jump hosts of a site's clusters.
pub(crate) struct JumpHosts {
    client: Client,
    stores: Stores,
    site: SiteSettings,
    power: PowerSettings,
    /// The CA of `PowerService` as it was read last.
    power_ca: Mutex<Option<String>>,
    host_keys: HostKeyStore,
}

impl JumpHosts {
    pub(crate) fn new(site: SiteSettings, power: PowerSettings, watches: &Watches) -> Self {
        Self {
            client: watches.client().clone(),
            stores: watches.stores().clone(),
            site,
            power,
            power_ca: Mutex::default(),
            host_keys: HostKeyStore::new(watches.client().clone()),
        }
    }

    async fn power_service(&self) -> PowerService {
        let read = self.power.ca().await;
        if let Err(error) = &read {
            tracing::warn!(file = ?self.power.ca, %error, "the CA of PowerService cannot be read");
        }
        let ca = {
            let mut last = self.power_ca.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(ca) = read {
                *last = ca;
            }
            last.clone()
        };
        PowerService {
            address: self.power.address.clone(),
            ca,
            namespace: self.power.namespace.clone(),
            app: MANAGER.0.to_owned(),
        }
    }
}

impl Service for JumpHosts {
    const IDENTITY: &'static Identity = IDENTITY;
    /// A key that was removed from the spec must no longer log in, even while the scheduler does not answer.
    const APPLIES_WITHOUT_SCHEDULER: bool = true;
    type Entry = JumpHost;
    type Prepared = Inputs;

    fn entries(cluster: &Cluster) -> Vec<JumpHost> {
        cluster.jump_hosts().to_vec()
    }

    fn service(entry: &JumpHost) -> &api::Service {
        entry.service()
    }

    fn node_ports(cluster: &Cluster) -> PortSet {
        let ports = cluster.jump_hosts().iter().filter_map(JumpHost::node_port);
        ports.map(NonZeroU16::get).collect()
    }

    fn protocol(_: i32) -> &'static str {
        "ssh"
    }

    async fn prepare(&self, scope: Scope<'_>, entry: &JumpHost) -> Result<Inputs, Error> {
        let instance = instance(scope.cluster, entry);
        let (host_keys, api_servers, problems, power) = tokio::join!(
            self.host_keys.ensure(&instance),
            api_servers::addresses(&self.client),
            tenant_secrets::problems(&self.client, scope.cluster.namespace(), entry),
            self.power_service(),
        );
        Ok(Inputs {
            host_keys: host_keys?,
            api_servers: api_servers?,
            api_balancers: balancers::of_cluster(scope.observed.object(), &self.stores.services),
            power,
            problems: problems?,
        })
    }

    fn render(&self, scope: Scope<'_>, entry: &JumpHost, inputs: Inputs) -> Rendered {
        rendering::render(scope, entry, &self.site, inputs)
    }

    async fn probe(
        &self,
        scope: Scope<'_>,
        entry: &JumpHost,
        objects: &Objects<Applied>,
        confirmed: bool,
    ) -> Probe {
        let nobody_may_log_in = entry.ssh_authorized_keys().is_empty() && entry.ssh_user_ca().is_empty();
        let probe = if confirmed {
            Probe {
                confirmed,
                ..Probe::default()
            }
        } else {
            let is_reported = is_reported(scope.observed, &objects.name());
            pod_files::probe(&self.stores.pods, objects, is_reported).await
        };
        let flaw = self.power.flaw().await;
        let unanswered = self.power.unanswered(scope);
        let flaw_requeue = flaw.as_ref().map(|_| CERTIFICATE_RESYNC_PERIOD);
        Probe {
            remark: remark(nobody_may_log_in, flaw.as_ref(), &unanswered),
            requeue: [probe.requeue, unanswered.recheck_after, flaw_requeue]
                .into_iter()
                .flatten()
                .min(),
            ..probe
        }
    }

    async fn revoke(&self, (_, cluster): (&Observed<'_>, &Cluster), entry: &JumpHost) -> Result<(), Error> {
        removed_keys::revoke(&self.client, cluster, entry).await
    }

    fn forget(&self, cluster: &SIPCluster, name: &str) {
        self.host_keys.forget(cluster, name);
    }
}
