//! Checks whether the image's own haproxy accepts the output of a template, before anything is rendered by it: a Job runs `haproxy -c` once.

use std::sync::Arc;

use api::{
    conditions::{
        load_balancer::{PODS_FAIL, REFUSED},
        ready::PROGRESSING,
    },
    labels,
};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
};
use kit::{
    apply,
    service::{Error, Problem, TenantStore, readiness},
};
use kube::{Api, Client, ResourceExt as _, api::DeleteParams};
use render::load_balancer::Check;

use crate::identity::MANAGER;

/// Lines of haproxy's output that are reported at most.
const MAX_REPORTED_LINES: usize = 5;
/// Characters of these lines that are reported at most.
const MAX_REPORTED_CHARACTERS: usize = 1_000;
/// Directory of the checked files in the pod, which is left out of reports.
const CHECKED_DIRECTORY: &str = "/usr/local/etc/haproxy/";
/// Exit code of haproxy when it refuses a configuration. Other codes mean that it could not run.
const REFUSED_EXIT_CODE: i32 = 1;

/// How far a check is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Haproxy accepts what the template makes.
    Accepted,
    /// It refuses it, with these alerts.
    Refused(String),
    /// Not known yet; why.
    Pending(Problem),
}

/// Observes a check, and begins it where there is none. A check that the API server refuses is tried again.
pub(crate) async fn observe(
    client: &Client,
    pods: &TenantStore<Pod>,
    check: &Check,
) -> Result<Outcome, Error> {
    let namespace = check.job.namespace().unwrap_or_default();
    if let Some(pod) = pod(&pods.within(&namespace), &check.id) {
        return Ok(outcome(pod, |file, number| check.line(file, number)));
    }
    match begin(client, check).await {
        Ok(()) => Ok(Outcome::Pending(Problem::new(
            PROGRESSING,
            "the template is being checked",
        ))),
        Err(error) if apply::code(&error).is_some_and(|code| (400..500).contains(&code)) => {
            let message = format!(
                "the check of the template cannot be started: {}",
                apply::reason(&error)
            );
            Ok(Outcome::Pending(Problem::new(REFUSED, message)))
        }
        Err(error) => Err(Error::kubernetes("start the check of a template")(error)),
    }
}

async fn begin(client: &Client, check: &Check) -> kube::Result<()> {
    let job: Job = apply::apply(client, MANAGER, &check.job).await?;
    let config_map = check.config_map(&job.uid().unwrap_or_default());
    apply::apply::<ConfigMap>(client, MANAGER, &config_map)
        .await
        .map(drop)
}

/// Deletes the Job of a check whose outcome is known; its pod and `ConfigMap` follow.
pub(crate) async fn delete(client: &Client, check: &Check) -> Result<(), Error> {
    let jobs = Api::<Job>::namespaced(client.clone(), &check.job.namespace().unwrap_or_default());
    match jobs
        .delete(&check.job.name_any(), &DeleteParams::background())
        .await
    {
        Err(error) if apply::code(&error) != Some(404) => {
            Err(Error::kubernetes("delete the check of a template")(error))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The pod of a check, among those of its namespace.
fn pod<'a>(pods: &'a [Arc<Pod>], id: &str) -> Option<&'a Arc<Pod>> {
    pods.iter().find(|pod| {
        let check = pod.labels().get(labels::TEMPLATE_CHECK);
        check.is_some_and(|check| check == id) && pod.metadata.deletion_timestamp.is_none()
    })
}

fn outcome<'a>(pod: &Arc<Pod>, line: impl Fn(&str, usize) -> Option<&'a str>) -> Outcome {
    let status = pod.status.clone().unwrap_or_default();
    match status.phase.as_deref() {
        Some("Succeeded") => Outcome::Accepted,
        Some("Failed") => failed(pod, line),
        _ => {
            let trouble = readiness::trouble(std::slice::from_ref(pod));
            Outcome::Pending(
                trouble.unwrap_or_else(|| Problem::new(PROGRESSING, "the template is being checked")),
            )
        }
    }
}

/// The outcome of a pod that has failed. If haproxy did not run in it, the pod is no evidence on the template, which is checked again when the
/// Job is gone.
fn failed<'a>(pod: &Pod, line: impl Fn(&str, usize) -> Option<&'a str>) -> Outcome {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let ended = containers
        .iter()
        .filter_map(|container| container.state.as_ref()?.terminated.as_ref())
        .filter(|ended| ended.exit_code != 0)
        .collect::<Vec<_>>();
    let refused = ended
        .iter()
        .find(|ended| ended.exit_code == REFUSED_EXIT_CODE)
        .and_then(|ended| ended.message.as_deref())
        .map(|output| alerts(output, line))
        .filter(|alerts| !alerts.is_empty());
    if let Some(alerts) = refused {
        return Outcome::Refused(alerts);
    }
    let of_container = ended.first().map(|ended| {
        let parts = [ended.reason.as_deref(), ended.message.as_deref()];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        format!("exit code {}: {}", ended.exit_code, parts.join(": "))
    });
    let of_pod = || {
        [status.reason, status.message]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(": ")
    };
    let message = format!(
        "the template check did not complete: pod {}: {}",
        pod.name_any(),
        of_container.unwrap_or_else(of_pod)
    );
    Outcome::Pending(Problem::new(PODS_FAIL, message))
}

/// The first alerts in haproxy's output, with the line that they are about, since lines of the template and of its output have different numbers.
fn alerts<'a>(output: &str, line: impl Fn(&str, usize) -> Option<&'a str>) -> String {
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty());
    let alerts: Vec<&str> = lines().filter(|line| line.contains("[ALERT]")).collect();
    let reported = if alerts.is_empty() {
        lines().collect()
    } else {
        alerts
    };
    let reported: Vec<&str> = reported.into_iter().take(MAX_REPORTED_LINES).collect();
    let mut reported = reported.join("; ").replace(CHECKED_DIRECTORY, "");
    if let Some(meant) = parse_location(&reported).and_then(|(file, number)| line(file, number)) {
        reported = format!("{reported}; that line is: {}", meant.trim());
    }
    match reported.char_indices().nth(MAX_REPORTED_CHARACTERS) {
        Some((end, _)) => format!("{}…", reported.get(..end).unwrap_or(&reported)),
        None => reported,
    }
}

/// The first place that haproxy names: `parsing [FILE:LINE]`.
fn parse_location(output: &str) -> Option<(&str, usize)> {
    let (place, _) = output.split_once("parsing [")?.1.split_once(']')?;
    let (file, number) = place.rsplit_once(':')?;
    Some((file, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HAPROXY_OUTPUT: &str = "[NOTICE]   (1) : haproxy version is 2.6.12\n\
        [WARNING]  (1) : config : something odd\n\
        [ALERT]    (1) : config : parsing [/usr/local/etc/haproxy/members.cfg:12] : unknown keyword 'x'\n\
        [ALERT]    (1) : config : Fatal errors found in configuration.\n";

    fn check_pod(status: &Value) -> Arc<Pod> {
        let metadata = json!({
            "name": "check-1", "namespace": "ns", "labels": {labels::TEMPLATE_CHECK: "1f"},
        });
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap())
    }

    fn ended(code: i32, reason: &str, message: &str) -> Value {
        json!({
            "name": "members", "image": "haproxy:0", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "reason": reason, "message": message}},
        })
    }

    #[test]
    fn a_template_is_refused_by_haproxys_own_words_alone() {
        let open = |reason, message: &str| Outcome::Pending(Problem::new(reason, message));
        let (fine, refused) = (ended(0, "Completed", ""), ended(1, "Error", HAPROXY_OUTPUT));
        let alerts = "[ALERT]    (1) : config : parsing [members.cfg:12] : unknown keyword 'x'; \
                     [ALERT]    (1) : config : Fatal errors found in configuration.; that line is: x y";
        let line = |file: &str, number: usize| (file == "members.cfg" && number == 12).then_some("  x y");
        for (status, expected) in [
            (json!({"phase": "Succeeded"}), Outcome::Accepted),
            (
                json!({"phase": "Pending"}),
                open(PROGRESSING, "the template is being checked"),
            ),
            (
                json!({"phase": "Running"}),
                open(PROGRESSING, "the template is being checked"),
            ),
            (
                json!({"phase": "Failed", "containerStatuses": [fine, refused]}),
                Outcome::Refused(alerts.to_owned()),
            ),
            (
                json!({"phase": "Failed", "containerStatuses": [ended(137, "OOMKilled", "")]}),
                open(
                    PODS_FAIL,
                    "the template check did not complete: pod check-1: exit code 137: OOMKilled: ",
                ),
            ),
            (
                json!({"phase": "Failed", "containerStatuses": [ended(128, "StartError", "no haproxy")]}),
                open(
                    PODS_FAIL,
                    "the template check did not complete: pod check-1: exit code 128: StartError: no haproxy",
                ),
            ),
            (
                json!({"phase": "Failed", "reason": "Evicted", "message": "no memory"}),
                open(
                    PODS_FAIL,
                    "the template check did not complete: pod check-1: Evicted: no memory",
                ),
            ),
        ] {
            assert_eq!(outcome(&check_pod(&status), line), expected, "{status}");
        }
    }

    #[test]
    fn the_first_alerts_are_reported_and_cut() {
        let none = |_: &str, _: usize| None;
        assert_eq!(alerts("  \nsomething\n", none), "something");
        let many = alerts(&"[ALERT] x\n".repeat(9), none);
        assert_eq!(many.matches("[ALERT]").count(), MAX_REPORTED_LINES);
        let long = alerts(&format!("[ALERT] {}", "é".repeat(5_000)), none);
        assert_eq!(long.chars().count(), MAX_REPORTED_CHARACTERS + 1);
    }

    #[test]
    fn a_check_has_a_pod_of_its_number_that_is_to_stay() {
        let pods = [check_pod(&json!({"phase": "Running"}))];
        assert!(pod(&pods, "1f").is_some());
        assert!(pod(&pods, "2f").is_none());
        let mut ending = Pod::clone(&pods[0]);
        ending.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-11-21T00:00:00Z")).unwrap());
        assert!(pod(&[Arc::new(ending)], "1f").is_none());
    }
}
