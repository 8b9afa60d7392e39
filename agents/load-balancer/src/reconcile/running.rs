//! What the pods run: a member is gone when none of them leads to it any more.

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

/// When pods that do not run the newest configuration yet are asked again.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(1);
/// A pod that does not run it after this time is told of: connections of members that left may take a while to end.
const SLOW: Duration = Duration::from_secs(DRAIN_SECONDS.unsigned_abs() + 15);

/// How far the pods are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Follows {
    /// Every live pod runs this configuration, and no connection to a host that it does not have is left.
    All,
    /// Some do not, and what is wrong with the first of them, for people.
    Not { pod: String, failed: Option<String> },
}

impl Follows {
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

/// Whether HAProxy may run in it. One that is not started yet reads the newest configuration when it is.
fn is_live(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running")
}

/// What one pod runs: its sidecar says so; without one, it runs what it was started with.
async fn says(pod: Arc<Pod>, digest: &str) -> Follows {
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
