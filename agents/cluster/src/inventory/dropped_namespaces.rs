//! Namespaces with hosts that left the site's configuration.
//!
//! Their hosts are missing from what is reported, and a member whose host is missing counts as gone: it would be replaced at
//! once, while its tenant runs on it. So the agent asks the API server before anything is reported.

use std::collections::{BTreeMap, BTreeSet};

use api::{BareMetalHost, SIPCluster};
use k8s_openapi::api::core::v1::ObjectReference;
use kit::{apply, clusters as site_clusters, placement::ObjectKey, scheduler::pauses};
use kube::{Api, Client, Resource as _, api::ListParams};

/// Hosts that an error names.
const NAMED: usize = 5;

/// A namespace that must stay in the configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "hostNamespaces: {namespace} is not listed, and SIPClusters hold hosts there: {held}{why}; list it again, or release \
    these hosts first (delete the SIPClusters, or request that the hosts be replaced)"
)]
pub struct DroppedNamespace {
    namespace: String,
    /// Hosts and their holders, the first few.
    held: String,
    /// Why it is not known whether they exist, where it is not.
    why: String,
    holders: Vec<ObjectReference>,
}

impl DroppedNamespace {
    /// The `SIPCluster`s that hold hosts there.
    #[must_use]
    pub fn holders(&self) -> &[ObjectReference] {
        &self.holders
    }
}

/// A host that a status gives to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    host: String,
    uid: String,
    by: ObjectKey,
}

/// Checks that every namespace with hosts that exist and that a `SIPCluster` holds is among `configured`. An API server that does
/// not answer is asked again.
///
/// # Errors
/// The first namespace that is missing; a namespace whose hosts cannot be listed counts as one with hosts.
pub async fn no_held_hosts_outside(
    client: &Client,
    configured: &BTreeSet<String>,
) -> Result<(), DroppedNamespace> {
    let clusters = clusters(client).await;
    for (namespace, held) in outside(&clusters, configured) {
        let hosts = Api::<BareMetalHost>::namespaced(client.clone(), &namespace);
        let (existing, why) = match hosts.list_metadata(&ListParams::default()).await {
            Ok(found) => {
                let uids: BTreeSet<String> = found.iter().filter_map(kube::ResourceExt::uid).collect();
                let existing = held.into_iter().filter(|held| uids.contains(&held.uid));
                (existing.collect(), String::new())
            }
            Err(error) => {
                let why = format!("; whether they exist is not known: {}", apply::reason(&error));
                (held, why)
            }
        };
        if !existing.is_empty() {
            return Err(DroppedNamespace {
                held: in_words(&namespace, &existing),
                holders: clusters
                    .iter()
                    .filter(|cluster| {
                        let key = ObjectKey::for_object(*cluster);
                        existing.iter().any(|held| held.by == key)
                    })
                    .map(|cluster| cluster.object_ref(&()))
                    .collect(),
                namespace,
                why,
            });
        }
    }
    Ok(())
}

/// Every `SIPCluster` of the site.
async fn clusters(client: &Client) -> Vec<SIPCluster> {
    let mut pauses = pauses();
    loop {
        match site_clusters::list(client).await {
            Ok(found) => return found,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "SIPClusters cannot be listed; retrying");
                tokio::time::sleep(pauses.next().unwrap_or_default()).await;
            }
        }
    }
}

/// Hosts that statuses give to clusters and that are in no configured namespace, by their namespaces.
fn outside(clusters: &[SIPCluster], configured: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<Held>> {
    let mut outside: BTreeMap<String, BTreeSet<Held>> = BTreeMap::new();
    for cluster in clusters {
        let placement = cluster
            .status
            .as_ref()
            .and_then(|status| status.placement.as_ref());
        let members = placement.map(|placement| &*placement.members).unwrap_or_default();
        for member in members {
            if !configured.contains(&member.namespace) {
                outside.entry(member.namespace.clone()).or_default().insert(Held {
                    host: member.name.clone(),
                    uid: member.uid.clone(),
                    by: ObjectKey::for_object(cluster),
                });
            }
        }
    }
    outside
}

fn in_words(namespace: &str, held: &BTreeSet<Held>) -> String {
    let named = held
        .iter()
        .take(NAMED)
        .map(|Held { host, uid: _, by }| format!("{namespace}/{host} by {by}"));
    let named = named.collect::<Vec<_>>().join(", ");
    match held.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}
