//! What the pods of a load balancer run, for its condition. On what evidence hosts are given back: see `drain`.

use std::{sync::Arc, time::Duration};

use api::{
    annotations,
    conditions::{load_balancer::PODS_FAIL, ready::PROGRESSING},
};
use futures::future::join_all;
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, runtime::reflector::Store};
use render::load_balancer::{
    DRAIN_SECONDS, Objects, REPORT_PORT_NAME,
    running::{CONFIG_PATH, Running},
};

use super::{apply::Lack, ask, pods};

/// When pods that do not run the newest configuration yet are asked again; and when they are slow.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_SLOW_AGAIN: Duration = Duration::from_secs(10);
/// A pod that does not run it after this time is told of: connections of members that left may take a while to end.
pub(super) const SLOW: Duration = Duration::from_secs(DRAIN_SECONDS.unsigned_abs() + 15);

/// When pods are asked again that have not followed for so long.
pub(super) fn pause(elapsed: Duration) -> Duration {
    if elapsed >= SLOW {
        ASK_SLOW_AGAIN
    } else {
        ASK_AGAIN
    }
}

/// How far the pods are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Follows {
    /// Every live pod runs this configuration, and no connection to a host that it does not have is left.
    All,
    /// Some do not, and what is wrong with the first of them, for people.
    Not { pod: String, failed: Option<String> },
}

impl Follows {
    /// When to ask again, `elapsed` after the configuration was applied.
    pub(super) fn ask_again(&self, elapsed: Duration) -> Option<Duration> {
        match self {
            Self::All => None,
            Self::Not { .. } => Some(pause(elapsed)),
        }
    }

    /// What to tell people, `elapsed` after the configuration was applied.
    pub(super) fn lack(&self, elapsed: Duration) -> Option<Lack> {
        match self {
            Self::All => None,
            Self::Not {
                pod,
                failed: Some(words),
            } => {
                let message = format!("pod {pod} goes on with the configuration before: {words}");
                Some(Lack::new(PODS_FAIL, message))
            }
            Self::Not { pod, failed: None } => (elapsed >= SLOW).then(|| {
                let message = format!(
                    "pod {pod} has not said for {} s that it runs the newest configuration",
                    SLOW.as_secs()
                );
                Lack::new(PROGRESSING, message)
            }),
        }
    }
}

/// Looks at every pod of a load balancer, those too that are about to end: they still lead to members.
pub(super) async fn look(pods: &Store<Pod>, objects: &Objects) -> Follows {
    let digest = objects.config_digest();
    let asked = pods::every(pods, objects)
        .into_iter()
        .filter(|pod| is_live(pod))
        .map(|pod| says(pod, &digest));
    let answers = join_all(asked.collect::<Vec<_>>()).await;
    answers
        .into_iter()
        .find(|answer| *answer != Follows::All)
        .unwrap_or(Follows::All)
}

/// Whether HAProxy runs in it. Where it does not, it reads the newest configuration when it is started.
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

/// What one pod runs: its sidecar says so; without one, it runs what it was started with.
pub(super) async fn says(pod: Arc<Pod>, digest: &str) -> Follows {
    let running = if ask::port(&pod, REPORT_PORT_NAME).is_some() {
        reported(&pod).await
    } else {
        Running {
            running: pod.annotations().get(annotations::CONFIG_HASH).cloned(),
            failed: None,
        }
    };
    if running.running.as_deref() == Some(digest) {
        return Follows::All;
    }
    Follows::Not {
        pod: pod.name_any(),
        failed: running.failed,
    }
}

async fn reported(pod: &Pod) -> Running {
    let unknown = Running {
        running: None,
        failed: None,
    };
    let Some(address) = ask::address(pod, REPORT_PORT_NAME) else {
        return unknown;
    };
    match ask::get(address, CONFIG_PATH).await {
        Some((StatusCode::OK, body)) => serde_json::from_slice(&body).unwrap_or(unknown),
        Some(_) | None => unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
    fn a_pod_in_which_haproxy_does_not_run_leads_nowhere() {
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
        assert_eq!(says(new, "new").await, Follows::All);
        let follows = says(old, "new").await;
        assert_eq!(
            follows,
            Follows::Not {
                pod: "lb-1".to_owned(),
                failed: None
            }
        );
        assert_eq!(follows.lack(Duration::from_secs(1)), None, "it takes a while");
        assert_eq!(follows.lack(SLOW).unwrap().reason, PROGRESSING);
        assert!(follows.ask_again(SLOW) > follows.ask_again(Duration::ZERO));
        assert_eq!(Follows::All.ask_again(SLOW), None);
    }

    #[test]
    fn that_haproxy_does_not_take_a_configuration_is_told_at_once() {
        let refused = Follows::Not {
            pod: "lb-1".to_owned(),
            failed: Some("[ALERT] no".to_owned()),
        };
        let lack = refused.lack(Duration::ZERO).unwrap();
        assert_eq!(lack.reason, PODS_FAIL);
        assert_eq!(
            lack.message,
            "pod lb-1 goes on with the configuration before: [ALERT] no"
        );
    }
}
