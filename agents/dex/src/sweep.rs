//! Deletes from the storage what deleted providers stored there. The agent may not have run when they were deleted, so only the storage shows
//! which providers there were.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use api::{Auth, Cluster, SIPCluster};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Secret, Service as CoreService};
use kit::{
    pages,
    service::{made_ports, trimmed_service},
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use crate::{
    identity::IDENTITY,
    key_secret,
    storage::{self, StoragePart, Store},
};

/// Pause between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);

/// Why a sweep did not complete. The next one begins anew.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Storage(#[from] storage::Error),
    #[error("cannot list SIPClusters, Services or Secrets")]
    Kubernetes(#[from] kube::Error),
}

/// Deletes what deleted providers stored, in intervals of [`SWEEP_INTERVAL`], without end.
///
/// # Errors
/// None.
pub(crate) async fn run(client: Client, store: Option<Arc<Store>>) -> Result<(), Infallible> {
    let Some(store) = store else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        if let Err(error) = Box::pin(sweep(&client, &store)).await {
            let error = runtime::error_chain::chain(&error);
            tracing::warn!(
                error,
                "cannot remove from the storage what deleted identity providers have stored; requeued"
            );
        }
    }
}

async fn sweep(client: &Client, store: &Store) -> Result<(), Error> {
    // In this order: the part of a provider is never made before its cluster exists.
    let parts = store.parts().await?;
    let clusters = kit::clusters::list(client).await?;
    let services = Api::<CoreService>::all(client.clone());
    let services = pages::objects(services, ListParams::default());
    let services: Vec<_> = services.map_ok(trimmed_service).try_collect().await?;
    let in_use = used_parts(&clusters, &services);
    let unused = parts
        .into_iter()
        .filter(|part| !in_use.contains(part) && !is_undecided(&clusters, &part.uid));
    let clusters = &clusters;
    // Removals take long if the storage is slow. Somebody may ask for that provider again meanwhile.
    remove_all(unused, |part| async move {
        if has_keys(client, clusters, &part).await {
            return Ok(false);
        }
        store.remove(part).await.map(|()| true)
    })
    .await;
    Ok(())
}

/// Whether the agent still keeps the Secret of a provider, which is deleted with the provider and before its part of the storage. A pass may know
/// a provider by its Deployment alone, or have made it since the lists were read. A Secret that cannot be read counts as kept.
async fn has_keys(client: &Client, clusters: &[SIPCluster], StoragePart { uid, name }: &StoragePart) -> bool {
    let mut clusters = clusters.iter();
    let Some(cluster) = clusters.find(|object| object.uid().as_deref() == Some(uid)) else {
        return false;
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &cluster.namespace().unwrap_or_default());
    let kept = secrets
        .get_metadata_opt(&format!("{name}{}", key_secret::SUFFIX))
        .await;
    kept.map_or(true, |kept| {
        let owners = kept.iter().flat_map(ResourceExt::owner_references);
        owners.into_iter().any(|owner| owner.uid == *uid)
    })
}

/// Removes parts one after the other; an error of one does not prevent the others. `by` returns whether it has removed one.
async fn remove_all<Removing>(parts: impl Iterator<Item = StoragePart>, by: impl Fn(StoragePart) -> Removing)
where
    Removing: Future<Output = Result<bool, storage::Error>>,
{
    for part in parts {
        let StoragePart { uid, name } = part.clone();
        match by(part).await {
            Ok(false) => {}
            Ok(true) => tracing::info!(uid, name, "removed what a deleted identity provider had stored"),
            Err(error) => {
                let error = runtime::error_chain::chain(&error);
                tracing::warn!(
                    uid,
                    name,
                    error,
                    "cannot remove what a deleted identity provider has stored; requeued"
                );
            }
        }
    }
}

/// The parts of providers that exist or that a spec requests.
fn used_parts(clusters: &[SIPCluster], services: &[CoreService]) -> BTreeSet<StoragePart> {
    let asked = clusters.iter().filter_map(|object| {
        // By the rule that passes use for names of entries: another name would mean other keys.
        let made = made_ports(object, |name| IDENTITY.owns(name), services);
        let cluster = Cluster::parse(object).ok()?.keep_names(&made);
        let entries = cluster.auth().iter().map(Auth::service);
        let uid = cluster.uid();
        let named = entries.map(|entry| StoragePart {
            uid: uid.to_owned(),
            name: entry.object_name().to_string(),
        });
        Some(named.collect::<Vec<_>>())
    });
    let existing = services
        .iter()
        .filter(|service| IDENTITY.owns(&service.name_any()));
    let existing = existing.flat_map(|service| {
        let owners = service.owner_references().iter();
        owners.map(|owner| StoragePart {
            uid: owner.uid.clone(),
            name: service.name_any(),
        })
    });
    asked.flatten().chain(existing).collect()
}

/// Whether the spec of the cluster with this uid cannot be read: then nothing of it is removed.
fn is_undecided(clusters: &[SIPCluster], uid: &str) -> bool {
    let mut clusters = clusters.iter();
    clusters.any(|object| object.uid().as_deref() == Some(uid) && Cluster::parse(object).is_err())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requested_and_existing_parts_are_kept() {
        let cluster = |uid: &str, image: &str| -> SIPCluster {
            serde_json::from_value(json!({
                "metadata": {"namespace": "tenants", "name": "shop", "uid": uid},
                "spec": {"services": {"auth": [{"image": image, "nodeInterfaceId": "oam"}]}},
            }))
            .unwrap()
        };
        let service = |name: &str| -> CoreService {
            let owner = json!({"apiVersion": "v1", "kind": "SIPCluster", "name": "shop", "uid": "gone"});
            serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": [owner]}})).unwrap()
        };
        let clusters = [cluster("now", "dex:2"), cluster("unreadable", "")];
        let services = [service("auth-shop"), service("loadbalancer-worker-shop")];
        let part = |uid: &str| StoragePart {
            uid: uid.to_owned(),
            name: "auth-shop".to_owned(),
        };
        assert_eq!(
            used_parts(&clusters, &services),
            [part("gone"), part("now")].into()
        );
        // An entry keeps the part of its port when the one before it is removed, and nobody has that one's.
        let mut moved = clusters[0].clone();
        moved.spec = serde_json::from_value(json!({"services": {"auth": [
            {"image": "dex:2", "nodeInterfaceId": "oam", "nodePort": 30_002},
        ]}}))
        .unwrap();
        moved.status =
            serde_json::from_value(json!({"endpoints": [{"name": "auth-shop-1", "port": 30_002}]})).unwrap();
        let second = StoragePart {
            uid: "now".to_owned(),
            name: "auth-shop-1".to_owned(),
        };
        assert_eq!(used_parts(&[moved], &[]), [second].into());
        assert!(is_undecided(&clusters, "unreadable") && !is_undecided(&clusters, "now"));
        assert!(!is_undecided(&clusters, "deleted"));
    }

    #[tokio::test]
    async fn a_part_that_cannot_be_removed_delays_no_other() {
        let parts = ["a", "b", "c"].map(|uid| StoragePart {
            uid: uid.to_owned(),
            name: "auth-shop".to_owned(),
        });
        let done = std::sync::Mutex::new(Vec::new());
        remove_all(parts.into_iter(), |part| {
            // Whether it is still unused is checked right before it is removed.
            let before = done.lock().unwrap().len();
            let done = &done;
            async move {
                done.lock().unwrap().push((part.uid.clone(), before));
                if part.uid == "a" {
                    return Err(storage::Error::Timeout {
                        within: Duration::from_secs(5),
                    });
                }
                Ok(true)
            }
        })
        .await;
        let expected = [("a", 0), ("b", 1), ("c", 2)].map(|(uid, before)| (uid.to_owned(), before));
        assert_eq!(done.into_inner().unwrap(), expected);
    }
}
