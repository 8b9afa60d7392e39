//! Whether any member behind a load balancer answers. Only HAProxy knows, so its pods are asked in rounds, beside the reconciles: a
//! pod that does not answer must not delay one.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::{SIPCluster, labels};
use futures::{SinkExt as _, StreamExt as _, channel::mpsc, stream};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kit::{
    pod_http,
    service::{TenantStore, pods},
};
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};
use render::load_balancer::{INTERNAL_PORT_NAME, MEMBERS_PATH};
use tokio::time::{MissedTickBehavior, interval};

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_secs(10);
/// Pods that are asked concurrently.
const AT_ONCE: usize = 32;

/// Namespace and name of a load balancer.
type Key = (String, String);

/// The load balancers whose pods answer, and all report that no member does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unserved(Arc<Mutex<BTreeSet<Key>>>);

impl Unserved {
    /// Whether it is known of a load balancer that no member behind it answers.
    pub(crate) fn contains(&self, namespace: &str, name: &str) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&(namespace.to_owned(), name.to_owned()))
    }

    /// Asks all pods in rounds, and triggers passes over the clusters for which the answer has changed. Ends with the receiver.
    pub(crate) async fn watch(
        self,
        pods: TenantStore<Pod>,
        mut triggers: mpsc::Sender<ObjectRef<SIPCluster>>,
    ) -> Result<(), Infallible> {
        let mut rounds = interval(PAUSE);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            let (unserved, clusters) = round(&pods.state()).await;
            let before = {
                let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::replace(&mut *known, unserved.clone())
            };
            for key in before.symmetric_difference(&unserved) {
                let Some(cluster) = clusters.get(key) else {
                    continue;
                };
                // A full queue is emptied by the controller; a closed one ends with the process.
                if triggers.send(cluster.clone()).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Asks every pod that serves.
async fn round(all: &[Arc<Pod>]) -> (BTreeSet<Key>, BTreeMap<Key, ObjectRef<SIPCluster>>) {
    let mut clusters = BTreeMap::new();
    let mut asked = Vec::new();
    for pod in all.iter().filter(|pod| pods::is_ready(pod)) {
        let Some((key, cluster)) = key(pod).zip(pods::cluster(pod)) else {
            continue;
        };
        clusters.insert(key.clone(), cluster);
        asked.extend(
            pod_http::address(pod, INTERNAL_PORT_NAME)
                .map(|address| async move { (key, ask_pod(address).await) }),
        );
    }
    let answers: Vec<(Key, Option<bool>)> = stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    let mut served: BTreeMap<Key, bool> = BTreeMap::new();
    for (key, answer) in answers {
        if let Some(answer) = answer {
            *served.entry(key).or_default() |= answer;
        }
    }
    let unserved = served.into_iter().filter(|(_, served)| !served);
    (unserved.map(|(key, _)| key).collect(), clusters)
}

fn key(pod: &Pod) -> Option<Key> {
    Some((pod.namespace()?, pod.labels().get(labels::INSTANCE)?.clone()))
}

/// Whether a member answers, as one pod sees it; `None` when the pod does not answer that.
async fn ask_pod(address: (String, u16)) -> Option<bool> {
    match pod_http::get(address, MEMBERS_PATH).await?.0 {
        StatusCode::OK => Some(true),
        StatusCode::SERVICE_UNAVAILABLE => Some(false),
        _ => None,
    }
}
