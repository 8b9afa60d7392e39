//! The status of a cluster by the outcomes of its instances.

use api::{Applied, Placement};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{
    endpoints::endpoints,
    identity::Identity,
    members::revision,
    observed::Observed,
    outcome::{Drain, Instance, Outcome},
    problem::{AVAILABLE, PROGRESSING, Problem},
    remarks::{all, first},
    status::Status,
};
use crate::conditions::{Finding, NAMESPACE_NOT_GRANTED, REMOVED};

/// The status of a cluster by the outcome of every instance that the spec of this generation asks for. Refusals come first, then
/// what fails, then what only takes time.
pub(super) fn status(
    identity: &Identity,
    protocol: fn(i32) -> &'static str,
    (generation, held): (i64, &Placement),
    outcomes: &[Outcome],
    drain: &Drain,
) -> Status {
    let (mut applied, mut reached) = (Vec::new(), Vec::new());
    let (mut refused, mut failing, mut progressing) = (Vec::new(), Vec::new(), Vec::new());
    let (mut warnings, mut remarks) = (Vec::new(), Vec::new());
    let mut predecessors = Vec::new();
    for outcome in outcomes {
        let instance = match outcome {
            Outcome::Applied(instance) => instance,
            Outcome::Refused(problem, endpoints) => {
                refused.push(problem.clone());
                reached.extend(endpoints.clone());
                continue;
            }
            Outcome::Predecessor(predecessor) => {
                predecessors.push(&*predecessor.name);
                reached.extend(predecessor.endpoints.clone());
                continue;
            }
            Outcome::Failed(failed) => {
                applied.extend(failed.applied.clone());
                reached.extend(failed.endpoints.clone());
                progressing.push(failed.problem.clone());
                continue;
            }
        };
        let Instance {
            name,
            service,
            address,
            problems,
            problem,
            substitutes,
            remark,
            warnings: instance_warnings,
            requeue: _,
            endpoint,
        } = &**instance;
        warnings.extend(instance_warnings.iter().map(|warning| (warning, name.as_str())));
        remarks.extend(remark.as_ref().map(|remark| (remark, name.as_str())));
        applied.push(Applied {
            service: name.clone(),
            epoch: held.epoch,
            revision: revision(held),
            generation,
        });
        let (endpoints, pending) = endpoints(name, service, address.as_deref(), protocol, endpoint);
        reached.extend(endpoints);
        for problem in problems.iter().chain(problem).chain(&pending).chain(substitutes) {
            let problem = problem.named(name);
            if problem.is_progress() {
                progressing.push(problem);
            } else {
                failing.push(problem);
            }
        }
    }
    progressing.extend(drain.problem.clone());
    let problem = [refused, failing, progressing]
        .into_iter()
        .find_map(|problems| summary(identity, &problems));
    let problem = match problem {
        Some(problem) => Some(with_predecessors(problem, &predecessors)),
        None if predecessors.is_empty() => None,
        None => Some(Finding::no(
            identity.condition,
            PROGRESSING,
            predecessors_message(&predecessors),
        )),
    };
    let finding = match (problem, all(identity.warnings, &warnings)) {
        (Some(problem), None) => problem,
        (Some(problem), Some((_, warning))) => Finding {
            message: format!("{}; {warning}", problem.message),
            ..problem
        },
        (None, warning) => {
            let remark = warning.or_else(|| first(&remarks));
            let (reason, remark) = remark.unwrap_or((AVAILABLE, String::new()));
            Finding::yes(identity.condition, reason, remark)
        }
    };
    Status {
        finding: Some(finding),
        applied,
        endpoints: reached,
        drained: drain.drained,
    }
}

/// The finding, and which predecessors stay because of it.
pub(super) fn with_predecessors(finding: Finding, predecessors: &[&str]) -> Finding {
    if predecessors.is_empty() {
        return finding;
    }
    Finding {
        message: format!("{}; {}", finding.message, predecessors_message(predecessors)),
        ..finding
    }
}

fn predecessors_message(predecessors: &[&str]) -> String {
    format!(
        "until pods of the new entries of its list are available, this stays: {}",
        predecessors.join(", ")
    )
}

/// Whether the existing condition of this generation may stay after calls have failed: the new status reports neither a refusal nor a failure of
/// pods.
pub(super) fn may_keep_condition(observed: &Observed<'_>, status: &Status) -> bool {
    let is_progress = |finding: &Finding| finding.reason == PROGRESSING;
    observed.has_condition_of_generation() && status.finding.as_ref().is_some_and(is_progress)
}

/// Whether the existing condition has become wrong: it is True, and pods of an instance are starting anew. While a call fails for another
/// instance, the condition stays: most failed calls succeed the next time.
pub(super) fn is_disproved(condition: Option<&Condition>, outcomes: &[Outcome]) -> bool {
    let worked = condition.is_some_and(|condition| condition.status == "True");
    worked && !outcomes.iter().any(Outcome::is_failed) && outcomes.iter().any(Outcome::is_rolling_out)
}

/// Whether the condition of the earlier generation has to stay, since the agent has not checked yet whether the instances work by this one.
/// Changes the status to Progressing; without an earlier condition, that is written.
pub(super) fn is_unchecked(had_condition: bool, status: &mut Status) -> bool {
    let Some(finding) = status
        .finding
        .as_mut()
        .filter(|finding| finding.status == Some(true))
    else {
        return false;
    };
    let why = "the agent is checking whether the service works";
    *finding = Finding::no(finding.kind, PROGRESSING, why);
    had_condition
}

/// The problems that have the reason of the first one; the others are reported once these are solved.
pub(super) fn summary(identity: &Identity, problems: &[Problem]) -> Option<Finding> {
    let reason = problems.first()?.reason;
    let messages: Vec<&str> = problems
        .iter()
        .filter(|problem| problem.reason == reason)
        .map(|problem| problem.message.as_str())
        .collect();
    Some(Finding::no(identity.condition, reason, messages.join("; ")))
}

/// The status while the cluster has no placement; what was applied stays.
pub(super) fn waits_for_placement(
    identity: &Identity,
    observed: &Observed<'_>,
    predecessors: &[&str],
) -> Status {
    let finding = Finding::no(
        identity.condition,
        PROGRESSING,
        "the cluster has no placement yet",
    );
    unchanged(observed, with_predecessors(finding, predecessors))
}

/// The status with this finding; what was applied stays.
pub(super) fn unchanged(observed: &Observed<'_>, finding: Finding) -> Status {
    Status {
        finding: Some(finding),
        applied: observed.applied(),
        endpoints: observed.endpoints(),
        drained: observed.drained(),
    }
}

/// The status while the agent has no rights in the cluster's namespace; what was applied there stays. `refusal`: the API server's message.
pub(super) fn not_granted(identity: &Identity, observed: &Observed<'_>, refusal: &str) -> Status {
    let namespace = observed.namespace();
    let message = format!(
        "{} has no rights in namespace {namespace}: apply (kubectl apply -k) a kustomization with `namespace: {namespace}` and the \
         component deploy/tenant-namespace; the API server: {refusal}",
        identity.manager.0,
    );
    unchanged(
        observed,
        Finding::no(identity.condition, NAMESPACE_NOT_GRANTED, message),
    )
}

/// The status once nothing is asked for: every instance is deleted, except those whose deletion is refused. Pods may still be ending.
pub(super) fn withdrawn(identity: &Identity, refused: &[Problem], drain: &Drain) -> Status {
    let problems = refused.iter().chain(&drain.problem).cloned().collect::<Vec<_>>();
    Status {
        finding: summary(identity, &problems),
        applied: Vec::new(),
        endpoints: Vec::new(),
        drained: drain.drained,
    }
}

/// The status of a cluster that is being deleted, and of which nothing is desired any more. As long as an object is left, or a pod may route to
/// hosts that leave, the condition stays: other agents do not wait for an agent that has none.
pub(super) fn deleting(identity: &Identity, (refused, is_done): (&[Problem], bool), drain: &Drain) -> Status {
    if is_done && drain.problem.is_none() && drain.requeue.is_none() {
        return removed(identity, drain);
    }
    let ends = "the cluster is being deleted: not all objects and pods that were made for it are gone";
    let mut status = withdrawn(identity, refused, drain);
    let finding = || Finding::no(identity.condition, PROGRESSING, ends);
    status.finding.get_or_insert_with(finding);
    status
}

/// The status once every object that was made for the cluster is deleted.
pub(super) fn removed(identity: &Identity, drain: &Drain) -> Status {
    let message = "the cluster is being deleted";
    Status {
        finding: Some(Finding::no(identity.condition, REMOVED, message)),
        applied: Vec::new(),
        endpoints: Vec::new(),
        drained: drain.drained,
    }
}

#[cfg(test)]
mod tests;
