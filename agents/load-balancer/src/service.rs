//! The load balancer as a service of the framework.

use std::{collections::BTreeSet, convert::Infallible};

use api::{
    Cluster, ControlPlaneBalancer, Endpoint, Invalid, PortSet, SIPCluster,
    conditions::load_balancer::NO_REACHABLE_BACKEND,
};
use k8s_openapi::api::core::v1::Service as CoreService;
use kit::service::{
    Applied, Drain, Error, Identity, Objects, Observed, Probe, Remark, Rendered, Scope, Service, Stores,
    Watches,
};
use kube::{Client, runtime::reflector::ObjectRef};
use render::load_balancer::{API_SERVER_PORT, Sidecar};

use crate::{
    balancers::Balancer,
    handover::Handover,
    identity::IDENTITY,
    pod_config::{self, Confirmation},
    preference::Preference,
    reachability::UnreachableBalancers,
    release_wait_times::ReleaseWaitTimes,
    rendering::{self, Inputs},
    routing_evidence::{self, Evidence},
    templates::Templates,
    texts::CurrentText,
};

/// The load balancers of a site's clusters.
pub(crate) struct LoadBalancers {
    client: Client,
    stores: Stores,
    /// Makes a running HAProxy follow its configuration; without it, new pods start for every change.
    sidecar: Option<Sidecar>,
    templates: Templates,
    unreachable: UnreachableBalancers,
    waits: ReleaseWaitTimes,
}

impl LoadBalancers {
    /// With the watches that it needs besides those of every service.
    pub(crate) fn new(sidecar: Option<Sidecar>, watches: &mut Watches) -> Self {
        Self {
            client: watches.client().clone(),
            stores: watches.stores().clone(),
            sidecar,
            templates: Templates::new(watches),
            unreachable: UnreachableBalancers::default(),
            waits: ReleaseWaitTimes::default(),
        }
    }

    /// Queries pods without end to learn whether any member answers.
    pub(crate) fn probe_members(
        &self,
        watches: &Watches,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + use<> {
        let (pods, triggers) = (self.stores.pods.clone(), watches.triggers());
        self.unreachable.clone().watch(pods, triggers)
    }

    /// Which pods of a load balancer serve, as the watches show it.
    fn handover(&self, namespace: &str, name: &str) -> Handover {
        let deployment = ObjectRef::new(name).within(namespace);
        let deployment = self.stores.deployments.get(&deployment);
        let status = deployment
            .as_ref()
            .and_then(|deployment| deployment.status.as_ref());
        let ready = status.and_then(|status| status.ready_replicas);
        let pods = self.stores.pods.within(namespace);
        Handover::new(&pods, name, ready.unwrap_or(0))
    }
}

impl Service for LoadBalancers {
    const IDENTITY: &'static Identity = IDENTITY;
    type Entry = Balancer;
    type Prepared = Inputs;

    fn parse(observed: &Observed<'_>) -> Result<Cluster, Invalid> {
        let made = observed.made_ports_by(ports, recorded_ports);
        Ok(Cluster::parse(observed.object())?.keep_names(&made))
    }

    fn entries(cluster: &Cluster) -> Vec<Balancer> {
        Balancer::all(cluster)
    }

    fn service(entry: &Balancer) -> &api::Service {
        entry.entry()
    }

    /// Entries of other sections count if they use a Service: the site may have no agent that makes it.
    fn node_ports(cluster: &Cluster) -> PortSet {
        let single = cluster
            .load_balancers_control_plane()
            .iter()
            .filter_map(ControlPlaneBalancer::node_port);
        let ranges = cluster
            .load_balancers_worker()
            .iter()
            .filter(|balancer| balancer.service().changes().exposure().has_node_ports())
            .flat_map(|balancer| balancer.ports().ports());
        single.chain(ranges).map(std::num::NonZeroU16::get).collect()
    }

    fn protocol(port: i32) -> &'static str {
        if port == i32::from(API_SERVER_PORT) {
            "https"
        } else {
            "tcp"
        }
    }

    async fn prepare(&self, scope: Scope<'_>, entry: &Balancer) -> Result<Inputs, Error> {
        let current_text = if self.sidecar.is_some() {
            None
        } else {
            Some(CurrentText::find(&self.client, scope.observed, entry.name()).await?)
        };
        let chosen = self.templates.choose(scope, entry, self.sidecar.as_ref()).await?;
        Ok(Inputs {
            chosen,
            current_text,
            handover: self.handover(&scope.observed.namespace(), entry.name()),
        })
    }

    fn render(&self, scope: Scope<'_>, entry: &Balancer, inputs: Inputs) -> Rendered {
        rendering::render(scope, entry, self.sidecar.as_ref(), inputs)
    }

    async fn probe(
        &self,
        scope: Scope<'_>,
        entry: &Balancer,
        objects: &Objects<Applied>,
        confirmed: bool,
    ) -> Probe {
        let preference = Preference::new(scope.observed.object(), self.sidecar.as_ref());
        let (members, _) = entry.members(scope.members, &preference);
        let unreachable =
            !members.is_empty() && self.unreachable.contains(&objects.namespace(), &objects.name());
        let confirmation = if confirmed {
            Confirmation::Complete
        } else {
            pod_config::query_pods(&self.stores.pods, objects).await
        };
        let age = objects.age();
        Probe {
            problem: confirmation.problem(age),
            fault: None,
            remark: unreachable
                .then_some(Remark {
                    reason: NO_REACHABLE_BACKEND,
                    text: "no member answers".into(),
                })
                .or_else(|| preference.remark(&members)),
            confirmed: confirmation == Confirmation::Complete,
            requeue: confirmation.requeue(age),
        }
    }

    async fn drain(&self, observed: &Observed<'_>, desired: &[(String, String)]) -> Drain {
        let evidence = Evidence {
            client: &self.client,
            stores: &self.stores,
            waits: &self.waits,
            have_sidecars: self.sidecar.is_some(),
        };
        routing_evidence::drain(evidence, observed, desired).await
    }

    fn retain(&self, cluster: &SIPCluster, names: &[&str]) {
        self.templates.retain(cluster, names);
    }
}

/// The ports that distinguish one load balancer from another of its kind.
fn ports(service: &CoreService) -> BTreeSet<u16> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    distinguishing(ports.flat_map(|port| [Some(port.port), port.node_port]))
}

/// The same of an endpoint in the status.
fn recorded_ports(endpoint: &Endpoint) -> BTreeSet<u16> {
    distinguishing([endpoint.port, endpoint.node_port])
}

/// Service ports that distinguish load balancers. That of API servers does not: all their load balancers have it.
fn distinguishing(numbers: impl IntoIterator<Item = Option<i32>>) -> BTreeSet<u16> {
    let numbers = numbers.into_iter().flatten();
    numbers
        .filter_map(|number| u16::try_from(number).ok())
        .filter(|number| *number != API_SERVER_PORT)
        .collect()
}
