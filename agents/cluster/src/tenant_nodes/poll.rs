//! One poll of a tenant's API server: its Nodes, and a step of every drain.

use std::{collections::BTreeMap, time::Duration};

use api::events::EventReason;
use k8s_openapi::api::core::v1::Secret;
use kit::{
    apply,
    events::Events,
    placement::ObjectKey,
    tenant::{self, Tenant, destinations::Destinations},
};
use kube::{Api, Client};
use tokio::time::{self, Instant};

use super::{
    Action, Drain, Problem, Wanted,
    eviction::{self, Fate},
    matching::nodes_by_host,
    node::{Node, Readiness},
    server::{Error, Evicted, Server},
};

/// Longest time that a poll takes.
const LONGEST: Duration = Duration::from_secs(15);
/// Most evictions of one Node in a poll; the next poll evicts more.
const EVICTIONS: usize = 50;
/// Nodes that are drained in a poll.
const DRAINS: usize = 8;

/// What a poll has shown.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) nodes: Vec<Node>,
    /// By the uid of the host.
    pub(super) drains: BTreeMap<String, Drain>,
}

/// Polls a cluster. `turn`: how many polls there were before. Where there are more Nodes to drain than a poll takes, each begins with another one.
pub(super) async fn poll(
    cluster: &ObjectKey,
    (wanted, turn): (&Wanted, usize),
    (client, destinations, events): (&Client, &Destinations, &Events),
) -> Result<Found, Problem> {
    let kubeconfig = kubeconfig(client, cluster, wanted).await?;
    let end = Instant::now() + LONGEST;
    let listed = time::timeout_at(end, list(&kubeconfig, destinations)).await;
    let (server, nodes) = listed.unwrap_or_else(|_| {
        Err(Problem {
            passes: true,
            message: format!(
                "the tenant's API server does not answer within {} s",
                LONGEST.as_secs()
            ),
        })
    })?;
    let mut drains = BTreeMap::new();
    // What was found before the time was over counts.
    let drained = time::timeout_at(end, drain(&server, wanted, turn, &nodes, events, &mut drains));
    let _ = drained.await;
    Ok(Found { nodes, drains })
}

async fn list(kubeconfig: &[u8], destinations: &Destinations) -> Result<(Server, Vec<Node>), Problem> {
    let tenant = Tenant::connect(kubeconfig, destinations).await;
    let server = Server(tenant.map_err(|error| Problem {
        passes: matches!(error, tenant::Error::Unreachable { .. }),
        message: error.to_string(),
    })?);
    match server.nodes().await {
        Ok(nodes) => Ok((server, nodes)),
        Err(error) => Err(server.problem("list Nodes", &error)),
    }
}

/// The kubeconfig that the spec names: read by its name, when it is used.
async fn kubeconfig(client: &Client, cluster: &ObjectKey, wanted: &Wanted) -> Result<Vec<u8>, Problem> {
    let name = &wanted.secret;
    let problem = |why: &str| Problem {
        passes: false,
        message: format!("kubeconfigSecret: the Secret {name} {why}"),
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &cluster.namespace);
    let secret = match secrets.get_opt(name).await {
        Ok(secret) => secret.ok_or_else(|| problem("does not exist"))?,
        Err(error) if apply::code(&error) == Some(403) => {
            return Err(problem(
                "may not be read by the cluster agent: apply deploy/tenant-namespace in the namespace",
            ));
        }
        Err(error) => {
            return Err(Problem {
                passes: true,
                ..problem(&format!("cannot be read: {}", apply::reason(&error)))
            });
        }
    };
    if let Some(why) = tenant::secret::refusal(&secret, &wanted.cluster_api) {
        return Err(problem(&why));
    }
    tenant::secret::kubeconfig(secret).ok_or_else(|| problem("has no key value"))
}

/// A step of the drain of every Node that is to be drained or deleted. What fails for one does not hold up the others.
async fn drain(
    server: &Server,
    wanted: &Wanted,
    turn: usize,
    nodes: &[Node],
    events: &Events,
    drains: &mut BTreeMap<String, Drain>,
) {
    let nodes = nodes_by_host(wanted, nodes);
    let mut at_once = 0;
    let first = turn.wrapping_mul(DRAINS) % wanted.members.len().max(1);
    let (after, from) = wanted.members.split_at(first);
    for member in from.iter().chain(after) {
        let uid = member.host.uid();
        let node = nodes.get(uid).copied();
        match (member.action, node) {
            (Action::Drain | Action::Delete, None) => {
                drains.insert(uid.to_owned(), Drain::NoNode);
            }
            (Action::Drain | Action::Delete, Some(node)) if node.is_of_cluster_api => {
                drains.insert(uid.to_owned(), Drain::ClusterApi);
            }
            (Action::Drain | Action::Delete, Some(_)) if at_once == DRAINS => {}
            (Action::Drain, Some(node)) => {
                at_once += 1;
                let step = step(server, node, uid).await;
                drains.insert(uid.to_owned(), step.unwrap_or_else(|error| failed(node, error)));
            }
            (Action::Delete, Some(node)) => {
                at_once += 1;
                let step = match server.delete(node).await {
                    Ok(deleted) => {
                        if deleted {
                            let note = format!(
                                "Node {} of {} is deleted: its host leaves",
                                node.name, member.host
                            );
                            events
                                .publish(&wanted.object, None, EventReason::NodeDeleted, &note)
                                .await;
                        }
                        Drain::NoNode
                    }
                    Err(error) => failed(node, error),
                };
                drains.insert(uid.to_owned(), step);
            }
            // Its host stays after all.
            (Action::Keep, Some(node)) if node.is_cordoned_by_us => {
                // The next poll tries again.
                let _ = server.cordon(node, None).await;
            }
            (Action::Keep | Action::Leave, _) => {}
        }
    }
}

fn failed(node: &Node, error: Error) -> Drain {
    let node = node.name.clone();
    match error {
        Error::Refused(why) => Drain::Refused { node, why },
        Error::Failed(left) => Drain::Draining { node, left },
    }
}

/// Cordons a Node, and evicts the pods that may go now.
async fn step(server: &Server, node: &Node, host: &str) -> Result<Drain, Error> {
    if !node.is_cordoned {
        server.cordon(node, Some(host)).await?;
    }
    let is_ready = node.readiness == Readiness::Ready;
    let pods = server.pods(node).await?;
    let mut left = 0;
    let mut blocked = None;
    let mut evictions = 0;
    for pod in pods {
        match eviction::fate(pod, is_ready) {
            Fate::Stays => continue,
            Fate::Evict(pod) if evictions < EVICTIONS => {
                evictions += 1;
                if server.evict(&pod).await? == Evicted::NotNow {
                    blocked.get_or_insert(pod);
                }
            }
            Fate::Ends | Fate::Evict(_) => {}
        }
        left += 1;
    }
    let name = node.name.clone();
    if left == 0 {
        return Ok(Drain::Drained { node: name });
    }
    let blocked = blocked.map(|pod| {
        let words = format!(
            ", of which a PodDisruptionBudget holds {}/{}",
            pod.namespace, pod.name
        );
        tenant::short(&words)
    });
    Ok(Drain::Draining {
        node: name,
        left: format!("{left} pods are left{}", blocked.unwrap_or_default()),
    })
}
