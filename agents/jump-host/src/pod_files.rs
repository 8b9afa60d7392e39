//! Whether the pods have the newest files, and sshd has read its own. Pods follow changes in a second or two; their sessions are not part of
//! this.

use std::time::Duration;

use api::conditions::{jump_host::HOST_KEY_INVALID, load_balancer::PODS_FAIL, ready::PROGRESSING};
use futures::future::join_all;
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kit::{
    pod_http,
    service::{Applied, Objects, Probe, Problem, TenantStore, pods},
};
use kube::ResourceExt as _;
use render::{
    jump_host::{
        files::{SSHD_CONFIG, file_digest},
        interface::{REPORT_PORT_NAME, SESSIONS_PORT_NAME},
    },
    running::{CONFIG_PATH, Running},
};

/// Pause after which the agent queries again the pods that do not have the newest files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The same once they are late: see [`LATE_AFTER`].
const LATE_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The same for pods that do not answer: the network may keep the agent from reaching them, and the kubelet knows whether they work.
const UNANSWERED_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Time after which a pod that answers without having the newest files is reported, whatever keeps it.
const LATE_AFTER: Duration = Duration::from_secs(10);
/// Characters of a pod's report that the condition repeats at most.
const MAX_REPORT_CHARACTERS: usize = 500;

/// What a program of a pod answers.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    /// No answer: the network may keep the agent from reaching it.
    None,
    /// The program has no report, as in an older release.
    Absent,
    /// What it runs.
    Running(Running),
}

/// What a pod reports.
struct PodReport {
    pod: String,
    /// The program that writes the files.
    files: Answer,
    /// The one that runs sshd.
    sshd: Answer,
}

/// The digests that pods should report.
struct Expected<'a> {
    /// Of all files.
    files: &'a str,
    /// Of sshd's configuration.
    sshd: String,
    /// How long ago the files were applied.
    age: Duration,
    /// Whether the status reports that the jump host works with the present spec and members: pods that lack the newest files lack something else.
    is_reported: bool,
}

/// Queries every pod that serves. `is_reported`: see [`kit::service::is_reported`].
pub(crate) async fn probe(pods: &TenantStore<Pod>, objects: &Objects<Applied>, is_reported: bool) -> Probe {
    let serving = pods::created(pods, objects)
        .into_iter()
        .filter(|pod| pods::is_ready(pod));
    let asked = serving.map(|pod| async move {
        // In this order: of files that are written later sshd has not read any.
        let files = reported(&pod, REPORT_PORT_NAME).await;
        let sshd = reported(&pod, SESSIONS_PORT_NAME).await;
        PodReport {
            pod: pod.name_any(),
            files,
            sshd,
        }
    });
    let reports = join_all(asked.collect::<Vec<_>>()).await;
    let expected = Expected {
        files: objects.config_digest(),
        sshd: file_digest(objects.config_text(SSHD_CONFIG).unwrap_or_default().as_bytes()),
        age: objects.age(),
        is_reported,
    };
    assess(&reports, &expected)
}

/// By what each pod answers.
fn assess(reports: &[PodReport], expected: &Expected<'_>) -> Probe {
    let mut behind_files = reports.iter().filter_map(|report| match &report.files {
        Answer::Running(running) if !runs(running, expected.files) => {
            Some(outdated(&report.pod, running.failed.as_deref(), expected))
        }
        _ => None,
    });
    if let Some(behind) = behind_files.next() {
        return behind;
    }
    let sshds = reports.iter().filter_map(|report| match &report.sshd {
        Answer::Running(running) => Some((&*report.pod, running)),
        _ => None,
    });
    if let Some((pod, why)) = sshds
        .clone()
        .find_map(|(pod, running)| Some((pod, running.failed.as_deref()?)))
    {
        return refused(pod, why);
    }
    if let Some((pod, _)) = sshds.clone().find(|(_, running)| !runs(running, &expected.sshd)) {
        return outdated(pod, None, expected);
    }
    let is_silent = |report: &PodReport| {
        let answers = [&report.files, &report.sshd];
        report.files == Answer::Absent || answers.contains(&&Answer::None)
    };
    let all = !reports.iter().any(is_silent);
    Probe {
        confirmed: all,
        requeue: (!all).then_some(UNANSWERED_POLL_INTERVAL),
        ..Probe::default()
    }
}

fn runs(running: &Running, digest: &str) -> bool {
    running.running.as_deref() == Some(digest) && running.failed.is_none()
}

/// The fault of a pod whose sshd refuses its configuration. If a broken host key is the cause, the fault has the reason of host keys.
fn refused(pod: &str, why: &str) -> Probe {
    let reason = if ["host key", "hostkeys"].iter().any(|text| why.contains(text)) {
        HOST_KEY_INVALID
    } else {
        PODS_FAIL
    };
    let message = format!(
        "sshd in pod {pod} keeps its previous configuration and members: {}",
        printable(why)
    );
    Probe {
        fault: Some(Problem::new(reason, message)),
        requeue: Some(LATE_POLL_INTERVAL),
        ..Probe::default()
    }
}

/// A pod that does not have the newest files. Until it is late, that is a problem only if the files have members or a spec that the status does not
/// report yet: a jump host that works stays ready while an address of the site changes.
fn outdated(pod: &str, failed: Option<&str>, expected: &Expected<'_>) -> Probe {
    let late = expected.age >= LATE_AFTER;
    let problem = match failed {
        Some(message) => Some(Problem::new(
            PODS_FAIL,
            format!("pod {pod} cannot write its files: {}", printable(message)),
        )),
        None if late => {
            let message = format!(
                "pod {pod} has not confirmed the newest files within {} s",
                LATE_AFTER.as_secs()
            );
            Some(Problem::new(PROGRESSING, message))
        }
        None => (!expected.is_reported).then(|| {
            let message = format!("pod {pod} has not confirmed the newest files yet");
            Problem::new(PROGRESSING, message)
        }),
    };
    Probe {
        problem,
        requeue: Some(if late { LATE_POLL_INTERVAL } else { POLL_INTERVAL }),
        ..Probe::default()
    }
}

/// What a pod reports: cut off, and without line breaks and other control characters.
fn printable(text: &str) -> String {
    let visible = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    visible.take(MAX_REPORT_CHARACTERS).collect()
}

async fn reported(pod: &Pod, port: &str) -> Answer {
    let Some(address) = pod_http::address(pod, port) else {
        return Answer::None;
    };
    match pod_http::get(address, CONFIG_PATH).await {
        Some((StatusCode::OK, body)) => serde_json::from_slice(&body).map_or(Answer::None, Answer::Running),
        Some((StatusCode::NOT_FOUND, _)) => Answer::Absent,
        Some(_) | None => Answer::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: &str = "new";

    fn running(running: &str, failed: Option<&str>) -> Answer {
        Answer::Running(Running {
            running: Some(running.to_owned()),
            failed: failed.map(str::to_owned),
        })
    }

    fn report(files: Answer, sshd: Answer) -> PodReport {
        PodReport {
            pod: "jh-1".to_owned(),
            files,
            sshd,
        }
    }

    fn assessed(reports: &[PodReport], age: Duration) -> Probe {
        assess(reports, &expected(age, true))
    }

    fn expected(age: Duration, is_reported: bool) -> Expected<'static> {
        Expected {
            files: EXPECTED,
            sshd: "sshd".to_owned(),
            age,
            is_reported,
        }
    }

    #[test]
    fn new_members_are_awaited_from_the_beginning() {
        let current = || report(running(EXPECTED, None), running("sshd", None));
        let without_files = report(running("old", None), running("sshd", None));
        let unread = report(running(EXPECTED, None), running("old", None));
        for behind in [without_files, unread] {
            let probe = assess(&[current(), behind], &expected(Duration::ZERO, false));
            let problem = probe.problem.unwrap();
            assert_eq!(problem.reason, PROGRESSING);
            assert_eq!(problem.message, "pod jh-1 has not confirmed the newest files yet");
            assert_eq!(probe.requeue, Some(POLL_INTERVAL));
        }
        let confirmed = assess(&[current()], &expected(Duration::ZERO, false));
        assert!(confirmed.confirmed && confirmed.problem.is_none());
        // The network may not let the agent reach it.
        let silent = assess(
            &[report(Answer::None, Answer::None)],
            &expected(Duration::ZERO, false),
        );
        assert!(!silent.confirmed && silent.problem.is_none());
    }

    #[test]
    fn texts_of_a_pod_are_cut_and_have_no_control_characters() {
        let text = format!("disk\n\u{1b}[31mfull {}", "é".repeat(32 * 1024));
        let files = report(running("old", Some(&text)), Answer::None);
        let sshd = report(running(EXPECTED, None), running("old", Some(&text)));
        for probe in [assessed(&[files], LATE_AFTER), assessed(&[sshd], LATE_AFTER)] {
            let message = probe.problem.or(probe.fault).unwrap().message;
            assert!(message.contains(": disk  [31mfull éé"), "{message}");
            assert!(!message.contains(char::is_control), "{message}");
            assert!(message.chars().count() < 600, "{message}");
        }
    }

    #[test]
    fn a_pod_whose_sshd_refuses_its_configuration_is_named() {
        let sshd = |why| report(running(EXPECTED, None), running("old", Some(why)));
        for (why, reason) in [
            ("Unable to load host key: /run/x", HOST_KEY_INVALID),
            ("sshd: no hostkeys available -- exiting.", HOST_KEY_INVALID),
            ("Bad configuration option: X", PODS_FAIL),
        ] {
            let probe = assessed(
                &[report(running(EXPECTED, None), running("sshd", None)), sshd(why)],
                LATE_AFTER,
            );
            let fault = probe.fault.unwrap();
            assert_eq!(fault.reason, reason, "{why}");
            assert!(
                fault.message.contains("jh-1") && fault.message.contains(why),
                "{fault:?}"
            );
            assert!(!probe.confirmed && probe.requeue.is_some());
        }
    }

    #[test]
    fn pods_that_are_late_are_reported_and_silent_ones_are_not() {
        let current = || report(running(EXPECTED, None), running("sshd", None));
        let old = || report(running("old", None), running("sshd", None));
        let unread = || report(running(EXPECTED, None), running("old", None));
        let soon = Duration::from_secs(1);
        let late = Some("pod jh-1 has not confirmed the newest files within 10 s");
        for (reports, age, confirmed, problem) in [
            (vec![], soon, true, None),
            (vec![current(), current()], soon, true, None),
            (vec![current(), old()], soon, false, None),
            (vec![current(), old()], LATE_AFTER, false, late),
            (vec![current(), unread()], soon, false, None),
            (vec![current(), unread()], LATE_AFTER, false, late),
            (
                vec![report(running("old", Some("disk full")), Answer::None)],
                soon,
                false,
                Some("pod jh-1 cannot write its files: disk full"),
            ),
            (
                vec![current(), report(Answer::None, Answer::None)],
                LATE_AFTER,
                false,
                None,
            ),
            (
                vec![current(), report(running(EXPECTED, None), Answer::None)],
                LATE_AFTER,
                false,
                None,
            ),
            // One of an older release.
            (
                vec![report(running(EXPECTED, None), Answer::Absent)],
                soon,
                true,
                None,
            ),
        ] {
            let probe = assessed(&reports, age);
            assert_eq!(probe.confirmed, confirmed);
            assert_eq!(probe.requeue.is_none(), confirmed);
            assert_eq!(probe.problem.map(|problem| problem.message).as_deref(), problem);
        }
    }
}
