//! What is killed while a host moves, and starts again: agents, the scheduler, and the containers of a load balancer's pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};
use rand::{Rng as _, rngs::StdRng, seq::SliceRandom as _};
use sandbox::region::Agent;

use crate::fixtures::Stage;

/// What is killed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Victim {
    /// The process of an agent.
    Agent(Agent),
    /// The process of the scheduler.
    Scheduler,
    /// In one pod: the container that lets HAProxy follow its configuration.
    Sidecar,
    /// In one pod: HAProxy.
    Proxy,
}

const VICTIMS: [Victim; 5] = [
    Victim::Sidecar,
    Victim::Scheduler,
    Victim::Agent(Agent::LoadBalancer),
    Victim::Proxy,
    Victim::Agent(Agent::Cluster),
];

/// Something that is killed a moment after what began last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kill {
    victim: Victim,
    after: Duration,
    /// Which pod, of those that there are.
    pod: usize,
}

/// Which kills there are, in random order: none comes again before all have come.
#[derive(Debug, Default)]
pub(super) struct Kills(Vec<Victim>);

impl Kills {
    pub(super) fn next(&mut self, random: &mut StdRng) -> Kill {
        if self.0.is_empty() {
            self.0 = VICTIMS.to_vec();
            self.0.shuffle(random);
        }
        Kill {
            victim: self.0.remove(0),
            after: Duration::from_millis(random.random_range(0..3_000)),
            pod: random.random_range(0..64),
        }
    }
}

/// Kills it, and starts it again where nobody else does.
pub(super) async fn kill(stage: &mut Stage, namespace: &str, kill: Option<Kill>) {
    let Some(Kill { victim, after, pod }) = kill else {
        return;
    };
    tokio::time::sleep(after).await;
    match victim {
        Victim::Agent(agent) => stage.agent(agent).restart().await.unwrap(),
        Victim::Scheduler => stage.region.kill_and_restart().await.unwrap(),
        Victim::Sidecar => kill_container(stage, namespace, pod, "follow-config").await,
        Victim::Proxy => kill_container(stage, namespace, pod, "loadbalancer").await,
    }
}

/// Kills a container of one of the pods of load balancers in which it runs.
async fn kill_container(stage: &Stage, namespace: &str, number: usize, name: &str) {
    let pods: Api<Pod> = Api::namespaced(stage.site.client(), namespace);
    let haproxy = ListParams::default().labels("app.kubernetes.io/name=haproxy");
    let pods = pods.list(&haproxy).await.unwrap().items;
    let running: Vec<(String, String)> = pods
        .iter()
        .filter_map(|pod| {
            // A sidecar is an init container that goes on.
            let status = pod.status.as_ref()?;
            let containers = [&status.container_statuses, &status.init_container_statuses];
            let mut containers = containers.into_iter().flatten().flatten();
            let container = containers.find(|container| container.name == name)?;
            container.state.as_ref()?.running.as_ref()?;
            Some((pod.name_any(), container.container_id.clone()?))
        })
        .collect();
    let Some((pod, id)) = running.get(number % running.len().max(1)) else {
        println!("no {name} runs");
        return;
    };
    // It may have ended since the pod's status was written.
    match stage.site.node().unwrap().kill_container(id).await {
        Ok(()) => println!("{name} of {pod} is killed"),
        Err(why) => println!("{name} of {pod} is not killed: {why}"),
    }
}
