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
    Action, Drain, Problem, TenantNodes, Wanted, WantedMember,
    eviction::{Fate, Pod},
    matching::nodes_by_host,
    node::Node,
    rotation,
    server::{Deleted, Error, Evicted, Server},
};

#[cfg(test)]
mod tests;

/// Timeout of a poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(15);
/// Evictions of one Node in a poll, at most; the next poll evicts more.
const MAX_EVICTIONS: usize = 50;
/// Nodes that are drained in a poll, and Nodes that are uncordoned, each at most.
const MAX_DRAINS: usize = 8;

/// What a poll has found.
#[derive(Debug)]
pub(super) struct Observation {
    pub(super) nodes: Vec<Node>,
    /// By the uid of the host.
    pub(super) drains: BTreeMap<String, Drain>,
}

/// Polls a cluster. `turn`: how many polls there were before. Where there are more Nodes to drain than a poll takes, each takes the next ones.
pub(super) async fn poll(
    cluster: &ObjectKey,
    (wanted, turn): (&Wanted, usize),
    tenant_nodes: &TenantNodes,
    (client, destinations, events): (&Client, &Destinations, &Events),
) -> Result<Observation, Problem> {
    let kubeconfig = kubeconfig(client, cluster, wanted).await?;
    let connection = Tenant::connect(&kubeconfig, destinations);
    let drains = Drains {
        cluster,
        wanted,
        turn,
        tenant_nodes,
        events,
    };
    list_and_drain(connection, &drains).await
}

/// Lists the Nodes and takes the steps that there is time for.
async fn list_and_drain(
    connection: impl Future<Output = Result<Tenant, tenant::Error>>,
    drains: &Drains<'_>,
) -> Result<Observation, Problem> {
    let end = Instant::now() + POLL_TIMEOUT;
    let listed = time::timeout_at(end, list(connection)).await;
    let (server, nodes) = listed.unwrap_or_else(|_| {
        Err(Problem {
            passes: true,
            message: format!(
                "the tenant's API server does not answer within {} s",
                POLL_TIMEOUT.as_secs()
            ),
        })
    })?;
    let mut found = BTreeMap::new();
    // When the time is over, what was found until then counts.
    let _ = time::timeout_at(end, drains.step(&server, &nodes, &mut found)).await;
    Ok(Observation { nodes, drains: found })
}

async fn list(
    connection: impl Future<Output = Result<Tenant, tenant::Error>>,
) -> Result<(Server, Vec<Node>), Problem> {
    let server = Server(connection.await.map_err(|error| Problem {
        passes: matches!(error, tenant::Error::Unreachable { .. }),
        message: error.to_string(),
    })?);
    match server.nodes().await {
        Ok(nodes) => Ok((server, nodes)),
        Err(error) => Err(server.problem("list Nodes", &error)),
    }
}

/// Reads the kubeconfig that the spec names, anew for each poll.
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
    if let Some(why) = tenant::secret::refusal(&secret, &wanted.user) {
        return Err(problem(&why));
    }
    tenant::secret::kubeconfig(secret).ok_or_else(|| problem("has no key value"))
}

/// The drains of a poll.
struct Drains<'a> {
    cluster: &'a ObjectKey,
    wanted: &'a Wanted,
    turn: usize,
    /// What passes want now, which may have changed since the poll began.
    tenant_nodes: &'a TenantNodes,
    events: &'a Events,
}

impl Drains<'_> {
    /// A step of the drain of every Node that is due in this poll. A failure at one does not delay the others.
    async fn step(&self, server: &Server, nodes: &[Node], drains: &mut BTreeMap<String, Drain>) {
        let nodes = nodes_by_host(self.wanted, nodes);
        let (mut cordoned, mut leaving) = (Vec::new(), Vec::new());
        for member in &self.wanted.members {
            let uid = member.host.uid();
            match (member.action, nodes.get(uid).copied()) {
                (Action::Drain | Action::Delete, None) => {
                    drains.insert(uid.to_owned(), Drain::NoNode);
                }
                (Action::Drain | Action::Delete, Some(node)) if node.is_of_cluster_api => {
                    drains.insert(uid.to_owned(), Drain::ClusterApi);
                }
                (Action::Drain | Action::Delete, Some(node)) => leaving.push((member, node)),
                // The host no longer leaves.
                (Action::Keep, Some(node)) if node.is_cordoned_by_us => cordoned.push((member, node)),
                (Action::Keep | Action::Leave, _) => {}
            }
        }
        for ((member, node), _) in rotation::batch(&cordoned, MAX_DRAINS, self.turn) {
            if self.is_wanted(member) {
                // A later poll tries again.
                let _ = server.cordon(node, None).await;
            }
        }
        for ((member, node), before) in rotation::batch(&leaving, MAX_DRAINS, self.turn) {
            // Nothing is done to the Node of a host that no longer leaves; the next poll begins with what is wanted then.
            if !self.is_wanted(member) {
                continue;
            }
            let uid = member.host.uid();
            let result = match member.action {
                Action::Delete => self.delete(server, member, node).await,
                Action::Drain | Action::Keep | Action::Leave => evict(server, node, uid, before).await,
            };
            let drain = result.unwrap_or_else(|error| failed(node, error));
            drains.insert(uid.to_owned(), drain);
        }
    }

    /// Whether a pass still wants for a member what it wanted when the poll began, by the same kubeconfig.
    fn is_wanted(&self, member: &WantedMember) -> bool {
        let now = self
            .tenant_nodes
            .action(self.cluster, self.wanted, member.host.uid());
        now == Some(member.action)
    }

    async fn delete(&self, server: &Server, member: &WantedMember, node: &Node) -> Result<Drain, Error> {
        match server.delete(node).await? {
            Deleted::Now => {
                let note = format!(
                    "Node {} of {} is deleted: its host leaves",
                    node.name, member.host
                );
                let published =
                    self.events
                        .publish(&self.wanted.object, None, EventReason::NodeDeleted, &note);
                published.await;
                Ok(Drain::NoNode)
            }
            Deleted::Before => Ok(Drain::NoNode),
            Deleted::Unknown => Ok(Drain::Deleting {
                node: node.name.clone(),
            }),
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

/// Cordons a Node, and evicts pods that may be evicted now; where there are more than one poll evicts, each poll takes the next ones. An eviction that
/// fails does not delay the others.
async fn evict(server: &Server, node: &Node, host: &str, before: usize) -> Result<Drain, Error> {
    if !node.is_cordoned {
        server.cordon(node, Some(host)).await?;
    }
    let fates = server.fates(node).await?;
    let left = fates.len();
    let name = node.name.clone();
    if left == 0 {
        return Ok(Drain::Drained { node: name });
    }
    let pods = fates.into_iter().filter_map(|fate| match fate {
        Fate::Evict(pod) => Some(pod),
        Fate::Ends | Fate::Stays => None,
    });
    let pods: Vec<Pod> = pods.collect();
    let (mut held, mut failed) = (None, None);
    for (pod, _) in rotation::batch(&pods, MAX_EVICTIONS, before) {
        match server.evict(pod).await {
            Evicted::Done => {}
            Evicted::NotNow => {
                held.get_or_insert_with(|| {
                    format!(
                        ", of which a PodDisruptionBudget protects {}/{}",
                        pod.namespace, pod.name
                    )
                });
            }
            Evicted::Failed(message) => {
                failed.get_or_insert_with(|| format!(", of which {}/{}: {message}", pod.namespace, pod.name));
            }
        }
    }
    let [held, failed] = [held, failed].map(|part| tenant::short(&part.unwrap_or_default()));
    Ok(Drain::Draining {
        node: name,
        left: format!("pods left: {left}{held}{failed}"),
    })
}
