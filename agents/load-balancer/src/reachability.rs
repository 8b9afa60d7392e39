//! Whether any member behind a load balancer answers. Only HAProxy checks that, so the agent queries its pods in rounds, beside the reconciles: a
//! pod that does not answer must not delay a reconcile.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::{SIPCluster, labels};
use futures::{SinkExt as _, StreamExt as _, channel::mpsc, future::join_all, stream};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kit::{
    pod_http,
    service::{TenantStore, pods},
};
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};
use render::load_balancer::{INTERNAL_PORT_NAME, MEMBERS_PATH};
use tokio::{
    sync::Semaphore,
    time::{MissedTickBehavior, interval, sleep},
};

/// Time from the beginning of one round to the beginning of the next.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);
/// Concurrent requests to pods of all namespaces.
const MAX_CONCURRENT_QUERIES: usize = 32;
/// Concurrent requests to pods of one namespace.
const MAX_CONCURRENT_QUERIES_PER_NAMESPACE: usize = 4;
/// Timeout of a round for the pods of one namespace. A pod that has not answered by then counts as unknown.
const ROUND_TIMEOUT: Duration = Duration::from_secs(10);

/// Namespace and name of a load balancer.
type Key = (String, String);
/// Host and port of a pod.
type Address = (String, u16);

/// The load balancers whose pods answer, and all report that no member does.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreachableBalancers(Arc<Mutex<BTreeSet<Key>>>);

impl UnreachableBalancers {
    /// Whether all pods of a load balancer that answer report that no member does.
    pub(crate) fn contains(&self, namespace: &str, name: &str) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&(namespace.to_owned(), name.to_owned()))
    }

    /// Queries all pods in rounds, and triggers passes over the clusters for which the result has changed. Ends when the receiver of `triggers`
    /// is gone.
    pub(crate) async fn watch(
        self,
        pods: TenantStore<Pod>,
        mut triggers: mpsc::Sender<ObjectRef<SIPCluster>>,
    ) -> Result<(), Infallible> {
        let mut rounds = interval(ROUND_INTERVAL);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            let (unserved, clusters) = query_round(&pods.state()).await;
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

/// Queries every pod that serves.
async fn query_round(all: &[Arc<Pod>]) -> (BTreeSet<Key>, BTreeMap<Key, ObjectRef<SIPCluster>>) {
    let mut clusters = BTreeMap::new();
    let mut asked: BTreeMap<String, Vec<(Key, Address)>> = BTreeMap::new();
    for pod in all.iter().filter(|pod| pods::is_ready(pod)) {
        let Some((key, cluster)) = key(pod).zip(pods::cluster(pod)) else {
            continue;
        };
        clusters.insert(key.clone(), cluster);
        if let Some(address) = pod_http::address(pod, INTERNAL_PORT_NAME) {
            asked.entry(key.0.clone()).or_default().push((key, address));
        }
    }
    let permits = Semaphore::new(MAX_CONCURRENT_QUERIES);
    let answers = join_all(asked.into_values().map(|pods| query_pods(pods, &permits))).await;
    let answers = answers.into_iter().flatten();
    let mut served: BTreeMap<Key, bool> = BTreeMap::new();
    for (key, answer) in answers {
        if let Some(answer) = answer {
            *served.entry(key).or_default() |= answer;
        }
    }
    let unserved = served.into_iter().filter(|(_, served)| !served);
    (unserved.map(|(key, _)| key).collect(), clusters)
}

/// Queries the pods of one namespace, a few at a time, so that pods that do not answer delay those of other namespaces by no more.
async fn query_pods(pods: Vec<(Key, Address)>, permits: &Semaphore) -> Vec<(Key, Option<bool>)> {
    let asked = pods.into_iter().map(|(key, address)| async move {
        // The semaphore is never closed.
        let _place = permits.acquire().await.ok();
        (key, query_pod(address).await)
    });
    let answers = stream::iter(asked).buffer_unordered(MAX_CONCURRENT_QUERIES_PER_NAMESPACE);
    answers.take_until(sleep(ROUND_TIMEOUT)).collect().await
}

fn key(pod: &Pod) -> Option<Key> {
    Some((pod.namespace()?, pod.labels().get(labels::INSTANCE)?.clone()))
}

/// Whether a member answers, as one pod reports it; `None` without a report.
async fn query_pod(address: (String, u16)) -> Option<bool> {
    match pod_http::get(address, MEMBERS_PATH).await?.0 {
        StatusCode::OK => Some(true),
        StatusCode::SERVICE_UNAVAILABLE => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        time::timeout,
    };

    use super::*;

    fn pods(namespace: &str, listener: &TcpListener, count: usize) -> Vec<(Key, Address)> {
        let address = listener.local_addr().unwrap();
        let pod = (
            (namespace.to_owned(), "lb".to_owned()),
            (address.ip().to_string(), address.port()),
        );
        vec![pod; count]
    }

    #[tokio::test]
    async fn silent_pods_delay_no_other_namespace() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let many = pods("silent", &silent, 1_000);
        let one = pods("good", &good, 1);
        let permits = Semaphore::new(MAX_CONCURRENT_QUERIES);
        let serve = async {
            let (mut stream, _) = good.accept().await.unwrap();
            stream.read_u8().await.unwrap();
            let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            std::future::pending::<()>().await;
        };
        let answered = timeout(Duration::from_secs(5), async {
            tokio::select! {
                biased;
                answers = query_pods(many, &permits) => panic!("{} silent pods were asked first", answers.len()),
                answers = query_pods(one, &permits) => answers,
                () = serve => unreachable!(),
            }
        });
        let answers = answered.await.unwrap();
        assert_eq!(answers, [(("good".to_owned(), "lb".to_owned()), Some(false))]);
    }
}
