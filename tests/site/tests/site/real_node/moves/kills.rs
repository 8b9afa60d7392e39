//! What is killed while a host moves, and starts again: agents, the scheduler, and the containers of a load balancer's pod.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};
use rand::{
    Rng as _,
    rngs::StdRng,
    seq::{IndexedRandom as _, SliceRandom as _},
};
use sandbox::region::{Agent, AgentProcess};

use crate::{
    faults::{ApiProxy, Call, Fault},
    fixtures::{AGENTS, Stage},
};

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

/// The sidecar first, which not all pods have.
const VICTIMS: [Victim; 5] = [
    Victim::Sidecar,
    Victim::Scheduler,
    Victim::Agent(Agent::LoadBalancer),
    Victim::Proxy,
    Victim::Agent(Agent::Cluster),
];

/// Where the write is when something is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// It has not reached the API server, and never will if its agent is killed.
    No,
    /// The API server has carried it out, and the agent has no answer.
    Yes,
}

/// A write of an agent in the course of a move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) by: Agent,
    /// Which of those of the move, from 0.
    pub(super) nth: usize,
    pub(super) reached: Reached,
}

/// When something is killed.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    At(Write),
    /// So long after the move began.
    After(Duration),
}

/// Something that is killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kill {
    pub(super) victim: Victim,
    pub(super) when: When,
    /// Which pod, of those that there are.
    pub(super) pod: usize,
}

/// Writes of an agent in one move, at one of which something is killed by chance; there are about so many.
const WRITES: usize = 6;

/// Which kills there are, in random order: none comes again before all have come.
#[derive(Debug)]
pub(super) struct Kills {
    all: &'static [Victim],
    left: Vec<Victim>,
}

impl Kills {
    pub(super) fn new() -> Self {
        Self {
            all: &VICTIMS,
            left: Vec::new(),
        }
    }

    /// Where pods have no sidecar.
    pub(super) fn of_plain_pods() -> Self {
        Self {
            all: &VICTIMS[1..],
            left: Vec::new(),
        }
    }

    pub(super) fn next(&mut self, random: &mut StdRng) -> Kill {
        if self.left.is_empty() {
            self.left = self.all.to_vec();
            self.left.shuffle(random);
        }
        let victim = self.left.remove(0);
        let by = match victim {
            Victim::Agent(agent) => Some(agent),
            Victim::Scheduler => AGENTS.choose(random).copied(),
            Victim::Sidecar | Victim::Proxy => None,
        };
        let when = match by {
            Some(by) => When::At(Write {
                by,
                nth: random.random_range(0..WRITES),
                reached: if random.random() {
                    Reached::Yes
                } else {
                    Reached::No
                },
            }),
            None => When::After(Duration::from_millis(random.random_range(0..3_000))),
        };
        Kill {
            victim,
            when,
            pod: random.random_range(0..64),
        }
    }
}

/// The processes of agents, and the proxies by which they reach the API server.
pub(super) struct Killer {
    pub(super) agents: BTreeMap<Agent, AgentProcess>,
    pub(super) proxies: BTreeMap<Agent, ApiProxy>,
    pub(super) namespace: &'static str,
}

impl Killer {
    /// Kills something while a host moves, and starts it again where nobody else does. Returns whether its time came before the end.
    pub(super) async fn kill_during(
        &mut self,
        stage: &Stage,
        kill: Option<Kill>,
        moving: impl Future<Output = ()>,
    ) -> bool {
        let Some(kill) = kill else {
            moving.await;
            return false;
        };
        let mut moving = pin!(moving);
        match kill.when {
            When::After(after) => {
                let killing = async {
                    tokio::time::sleep(after).await;
                    self.kill(stage, &kill).await;
                };
                tokio::join!(killing, moving);
                true
            }
            When::At(Write { by, nth, reached }) => {
                let fault = match reached {
                    Reached::No => Fault::HeldBefore,
                    Reached::Yes => Fault::HeldAfter,
                };
                let held = self.proxies[&by].inject(Call::is_write, nth, fault);
                let comes = tokio::select! {
                    biased;
                    () = held.comes() => true,
                    () = &mut moving => false,
                };
                if comes {
                    let killing = async {
                        self.kill(stage, &kill).await;
                        // What its agent has not sent before it was killed never arrives.
                        if reached == Reached::Yes || matches!(kill.victim, Victim::Scheduler) {
                            held.open();
                        }
                    };
                    tokio::join!(killing, moving);
                } else {
                    held.open();
                }
                comes
            }
        }
    }

    async fn kill(&mut self, stage: &Stage, Kill { victim, when: _, pod }: &Kill) {
        match victim {
            Victim::Agent(agent) => {
                let agent = self.agents.get_mut(agent).unwrap().process();
                agent.restart().await.unwrap();
            }
            Victim::Scheduler => stage.region.kill_and_restart().await.unwrap(),
            Victim::Sidecar => kill_container(stage, self.namespace, *pod, "follow-config").await,
            Victim::Proxy => kill_container(stage, self.namespace, *pod, "loadbalancer").await,
        }
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
