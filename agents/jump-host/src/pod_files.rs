//! Whether the pods have the newest files. They follow in a second or two; sessions are not asked about.

use std::{sync::Arc, time::Duration};

use api::conditions::{load_balancer::PODS_FAIL, ready::PROGRESSING};
use futures::future::join_all;
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kit::{
    pod_http,
    service::{Applied, Objects, Probe, Problem, TenantStore, pods},
};
use kube::ResourceExt as _;
use render::{
    jump_host::interface::REPORT_PORT_NAME,
    running::{CONFIG_PATH, Running},
};

/// Pause after which pods that do not have the newest files are asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The same once they are late.
const ASK_LATE_AGAIN: Duration = Duration::from_secs(10);
/// The same of pods that do not answer: a network may not let the agent reach them, and the kubelet knows whether they work.
const ASK_SILENT_AGAIN: Duration = Duration::from_secs(30);
/// A pod that answers and does not have them after this time is reported.
const LATE: Duration = Duration::from_secs(10);
/// Characters of what a pod reports that the condition repeats.
const WORDS: usize = 500;

/// Asks every pod that serves.
pub(crate) async fn probe(pods: &TenantStore<Pod>, objects: &Objects<Applied>) -> Probe {
    let serving = pods::created(pods, objects)
        .into_iter()
        .filter(|pod| pods::is_ready(pod));
    let asked = serving.map(|pod| async move {
        let running = reported(&pod).await;
        (pod, running)
    });
    let answers = join_all(asked.collect::<Vec<_>>()).await;
    judge(&answers, objects.config_digest(), objects.age())
}

/// By what each pod answers, `age` after the files were applied.
fn judge(answers: &[(Arc<Pod>, Option<Running>)], digest: &str, age: Duration) -> Probe {
    let is_current =
        |running: &Running| running.running.as_deref() == Some(digest) && running.failed.is_none();
    let answered = answers.iter();
    let mut answered = answered.filter_map(|(pod, running)| Some((pod, running.as_ref()?)));
    if let Some((pod, running)) = answered.find(|(_, running)| !is_current(running)) {
        return behind(&pod.name_any(), running.failed.as_deref(), age);
    }
    let all = answers.iter().all(|(_, running)| running.is_some());
    Probe {
        confirmed: all,
        requeue: (!all).then_some(ASK_SILENT_AGAIN),
        ..Probe::default()
    }
}

fn behind(pod: &str, failed: Option<&str>, age: Duration) -> Probe {
    let late = age >= LATE;
    let problem = match failed {
        Some(words) => Some(Problem::new(
            PODS_FAIL,
            format!("pod {pod} cannot write its files: {}", printable(words)),
        )),
        None => late.then(|| {
            let message = format!("pod {pod} has not had the newest files for {} s", LATE.as_secs());
            Problem::new(PROGRESSING, message)
        }),
    };
    Probe {
        problem,
        requeue: Some(if late { ASK_LATE_AGAIN } else { ASK_AGAIN }),
        ..Probe::default()
    }
}

/// What a pod reports: cut off, and without line breaks and other control characters.
fn printable(words: &str) -> String {
    let visible = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    visible.take(WORDS).collect()
}

async fn reported(pod: &Pod) -> Option<Running> {
    let address = pod_http::address(pod, REPORT_PORT_NAME)?;
    match pod_http::get(address, CONFIG_PATH).await? {
        (StatusCode::OK, body) => serde_json::from_slice(&body).ok(),
        (_, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(running: Option<(&str, Option<&str>)>) -> (Arc<Pod>, Option<Running>) {
        let pod = serde_json::json!({"metadata": {"name": "jh-1"}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let running = running.map(|(running, failed)| Running {
            running: Some(running.to_owned()),
            failed: failed.map(str::to_owned),
        });
        (Arc::new(pod), running)
    }

    #[test]
    fn words_of_a_pod_are_cut_and_have_no_control_characters() {
        let words = format!("disk\n\u{1b}[31mfull {}", "é".repeat(32 * 1024));
        let probe = judge(&[answer(Some(("old", Some(&words))))], "new", LATE);
        let message = probe.problem.unwrap().message;
        assert!(message.contains(": disk  [31mfull éé"), "{message}");
        assert!(!message.contains(char::is_control), "{message}");
        assert!(message.chars().count() < 600, "{message}");
    }

    #[test]
    fn pods_that_are_late_are_reported_and_silent_ones_are_not() {
        let (current, old) = (|| answer(Some(("new", None))), || answer(Some(("old", None))));
        let soon = Duration::from_secs(1);
        for (answers, age, confirmed, problem) in [
            (vec![], soon, true, None),
            (vec![current(), current()], soon, true, None),
            (vec![current(), old()], soon, false, None),
            (
                vec![current(), old()],
                LATE,
                false,
                Some("pod jh-1 has not had the newest files for 10 s"),
            ),
            (
                vec![answer(Some(("old", Some("disk full"))))],
                soon,
                false,
                Some("pod jh-1 cannot write its files: disk full"),
            ),
            (vec![current(), answer(None)], LATE, false, None),
        ] {
            let probe = judge(&answers, "new", age);
            assert_eq!(probe.confirmed, confirmed);
            assert_eq!(probe.requeue.is_none(), confirmed);
            assert_eq!(probe.problem.map(|problem| problem.message).as_deref(), problem);
        }
    }
}
