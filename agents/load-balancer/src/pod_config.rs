//! Which configuration the pods of a load balancer run, for its condition. The evidence for releasing hosts is in `routing_evidence`.

use std::{sync::Arc, time::Duration};

use api::{
    annotations,
    conditions::{load_balancer::PODS_FAIL, ready::PROGRESSING},
};
use futures::{StreamExt as _, stream};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kit::{
    pod_http,
    service::{Applied, Objects, Problem, TenantStore, pods},
};
use kube::ResourceExt as _;
use render::load_balancer::{
    DRAIN_SECONDS, REPORT_PORT_NAME,
    running::{CONFIG_PATH, Running, STARTS_WITH_PATH},
};

use crate::texts;

/// Concurrent requests to the pods of one cluster.
pub(crate) const MAX_CONCURRENT_QUERIES: usize = 16;
/// Pause after which the agent queries again the pods that do not run the newest configuration yet.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The same once a pod is slow: see [`SLOW_AFTER`].
const SLOW_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Time after which a pod that does not run the newest configuration is reported: connections to members that left may take a while to end.
pub(crate) const SLOW_AFTER: Duration = Duration::from_secs(DRAIN_SECONDS.unsigned_abs() + 15);

/// Pause after which the agent queries again pods that do not run the configuration `elapsed` after it was applied.
pub(crate) fn pause(elapsed: Duration) -> Duration {
    if elapsed >= SLOW_AFTER {
        SLOW_POLL_INTERVAL
    } else {
        POLL_INTERVAL
    }
}

/// Whether the pods follow the configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Confirmation {
    /// Every live pod runs this configuration, and no connection to a host that it does not have is left.
    Complete,
    /// Some pods do not: the first of them, and what is wrong with it, for messages.
    Missing { pod: String, failed: Option<String> },
}

impl Confirmation {
    /// When to ask again, `elapsed` after the configuration was applied.
    pub(crate) fn requeue(&self, elapsed: Duration) -> Option<Duration> {
        match self {
            Self::Complete => None,
            Self::Missing { .. } => Some(pause(elapsed)),
        }
    }

    /// What to report, `elapsed` after the configuration was applied.
    pub(crate) fn problem(&self, elapsed: Duration) -> Option<Problem> {
        match self {
            Self::Complete => None,
            Self::Missing {
                pod,
                failed: Some(reason),
            } => {
                let message = format!("pod {pod} does not run the newest configuration: {reason}");
                Some(Problem::new(PODS_FAIL, message))
            }
            Self::Missing { pod, failed: None } => (elapsed >= SLOW_AFTER).then(|| {
                let message = format!(
                    "pod {pod} has not confirmed within {} s that it runs the newest configuration",
                    SLOW_AFTER.as_secs()
                );
                Problem::new(PROGRESSING, message)
            }),
        }
    }
}

/// Queries every pod of a load balancer, also those that are about to end: they still route to members.
pub(crate) async fn query_pods(pods: &TenantStore<Pod>, objects: &Objects<Applied>) -> Confirmation {
    let asked = pods::selected(pods, objects)
        .into_iter()
        .filter(|pod| is_live(pod))
        .map(|pod| query_pod(pod, objects.config_digest()));
    let asked: Vec<_> = asked.collect();
    let mut answers = stream::iter(asked).buffered(MAX_CONCURRENT_QUERIES);
    while let Some(answer) = answers.next().await {
        if answer != Confirmation::Complete {
            return answer;
        }
    }
    Confirmation::Complete
}

/// Whether HAProxy runs in a pod. If not, it reads the newest configuration when it starts.
fn is_live(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut containers = status
        .into_iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    containers.any(|container| {
        container
            .state
            .as_ref()
            .is_some_and(|state| state.running.is_some())
    })
}

/// Whether one pod runs the configuration: its sidecar reports that; without a sidecar, a pod runs the configuration with which it was started.
pub(crate) async fn query_pod(pod: Arc<Pod>, configuration: &str) -> Confirmation {
    let (running, wanted) = if pod_http::port(&pod, REPORT_PORT_NAME).is_some() {
        (reported(&pod).await, texts::digest(configuration))
    } else {
        let running = Running {
            running: pod.annotations().get(annotations::CONFIG_HASH).cloned(),
            failed: None,
        };
        (running, configuration)
    };
    if running.running.as_deref() == Some(wanted) {
        return Confirmation::Complete;
    }
    Confirmation::Missing {
        pod: pod.name_any(),
        failed: running.failed,
    }
}

/// Whether HAProxy, which does not run in this pod, will start with a configuration: its sidecar reports it.
pub(crate) async fn query_start(pod: Arc<Pod>, digest: &str) -> Confirmation {
    let answer = match pod_http::address(&pod, REPORT_PORT_NAME) {
        Some(address) => pod_http::get(address, STARTS_WITH_PATH).await,
        None => None,
    };
    match answer {
        Some((StatusCode::OK, body)) if body == digest.as_bytes() => Confirmation::Complete,
        Some(_) | None => Confirmation::Missing {
            pod: pod.name_any(),
            failed: None,
        },
    }
}

async fn reported(pod: &Pod) -> Running {
    let unknown = Running {
        running: None,
        failed: None,
    };
    let Some(address) = pod_http::address(pod, REPORT_PORT_NAME) else {
        return unknown;
    };
    match pod_http::get(address, CONFIG_PATH).await {
        Some((StatusCode::OK, body)) => serde_json::from_slice(&body).unwrap_or(unknown),
        Some(_) | None => unknown,
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use serde_json::{Value, json};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        time::{sleep, timeout},
    };

    use super::*;

    fn pod(annotations: &Value, state: &Value) -> Pod {
        let container = json!({
            "name": "loadbalancer", "image": "haproxy:0", "imageID": "", "ready": true, "restartCount": 0, "state": state,
        });
        let pod = json!({
            "metadata": {"name": "lb-1", "annotations": annotations},
            "status": {"phase": "Running", "containerStatuses": [container]},
        });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_without_haproxy_routes_nowhere() {
        let none = json!({});
        assert!(is_live(&pod(&none, &json!({"running": {}}))));
        assert!(!is_live(&pod(
            &none,
            &json!({"waiting": {"reason": "CrashLoopBackOff"}})
        )));
        assert!(!is_live(&Pod::default()));
    }

    #[tokio::test]
    async fn without_a_sidecar_a_pod_runs_what_it_was_started_with() {
        let annotation = annotations::CONFIG_HASH;
        let running = json!({"running": {}});
        let new = Arc::new(pod(&json!({annotation: "new"}), &running));
        let old = Arc::new(pod(&json!({annotation: "old"}), &running));
        assert_eq!(query_pod(new, "new").await, Confirmation::Complete);
        let follows = query_pod(old, "new").await;
        assert_eq!(
            follows,
            Confirmation::Missing {
                pod: "lb-1".to_owned(),
                failed: None
            }
        );
        assert_eq!(follows.problem(Duration::from_secs(1)), None, "it takes a while");
        assert_eq!(follows.problem(SLOW_AFTER).unwrap().reason, PROGRESSING);
        assert!(follows.requeue(SLOW_AFTER) > follows.requeue(Duration::ZERO));
        assert_eq!(Confirmation::Complete.requeue(SLOW_AFTER), None);
    }

    #[test]
    fn a_configuration_that_haproxy_refuses_is_reported() {
        let refused = Confirmation::Missing {
            pod: "lb-1".to_owned(),
            failed: Some("[ALERT] no".to_owned()),
        };
        let problem = refused.problem(Duration::ZERO).unwrap();
        assert_eq!(problem.reason, PODS_FAIL);
        assert_eq!(
            problem.message,
            "pod lb-1 does not run the newest configuration: [ALERT] no"
        );
    }

    /// A pod whose sidecar is reported to listen there.
    fn at(listener: &TcpListener) -> Arc<Pod> {
        let port = listener.local_addr().unwrap().port();
        let mut pod = json!(pod(&json!({}), &json!({"running": {}})));
        pod["status"]["podIP"] = json!("127.0.0.1");
        pod["spec"] = json!({"containers": [
            {"name": "loadbalancer", "ports": [{"name": REPORT_PORT_NAME, "containerPort": port}]},
        ]});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    /// What a container answers to a request: once `head`, and then so many times `part`, with pauses.
    struct Answer {
        head: String,
        part: Vec<u8>,
        times: usize,
        pause: Duration,
    }

    impl Answer {
        fn whole(body: &str) -> Self {
            Self {
                head: format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
                part: Vec::new(),
                times: 0,
                pause: Duration::ZERO,
            }
        }

        /// Answers one request until the client hangs up. Returns how many bytes the client took.
        async fn serve(&self, listener: &TcpListener) -> usize {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_u8().await.unwrap();
            stream.write_all(self.head.as_bytes()).await.unwrap();
            let mut taken = 0;
            for _ in 0..self.times {
                if stream.write_all(&self.part).await.is_err() {
                    return taken;
                }
                taken += self.part.len();
                sleep(self.pause).await;
            }
            let _ = stream.read_to_end(&mut Vec::new()).await;
            taken
        }
    }

    /// A user who may change the pods of a load balancer decides what answers there. [`query_pod`] and [`query_start`] are all that a pass
    /// asks of a pod, so they bound how long pods keep a pass of their own cluster, and what they make the agent keep in memory.
    #[tokio::test]
    async fn a_pod_that_answers_nonsense_is_asked_for_seconds_only() {
        const MIB: usize = 1 << 20;
        let large = |part: Vec<u8>, times: usize, pause: Duration| Answer {
            head: format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 64 * MIB),
            part,
            times,
            pause,
        };
        let answers = || {
            [
                Answer::whole("not a digest"),
                Answer::whole(r#"{"running": "another digest"}"#),
                Answer::whole(r#"{"running": ["00ff"]}"#),
                large(vec![b'x'; MIB], 64, Duration::ZERO),
                // It would take months.
                large(vec![b'x'], 64 * MIB, Duration::from_millis(100)),
                // It says nothing at all.
                Answer {
                    head: String::new(),
                    ..Answer::whole("")
                },
            ]
        };
        let expected = Confirmation::Missing {
            pod: "lb-1".to_owned(),
            failed: None,
        };
        let running = answers().map(|answer| (answer, true));
        let down = answers().map(|answer| (answer, false));
        let asked = running.into_iter().chain(down).map(|(answer, runs)| async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let pod = at(&listener);
            let follows = async {
                if runs {
                    query_pod(pod, "00ff").await
                } else {
                    query_start(pod, "00ff").await
                }
            };
            tokio::join!(follows, answer.serve(&listener))
        });
        let asked = timeout(Duration::from_secs(10), join_all(asked));
        for (number, (follows, taken)) in asked.await.unwrap().into_iter().enumerate() {
            assert_eq!(follows, expected, "{number}");
            // What is beyond the agent's limit is in buffers of the kernel.
            assert!(taken < 32 * MIB, "{number}: {taken}");
        }
    }
}
