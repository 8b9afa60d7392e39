//! What the steps of a pass find of one instance, and of the hosts that leave.

use std::{borrow::Cow, time::Duration};

use api::{Applied, Drained, Endpoint, conditions::Reason};
use k8s_openapi::api::core::v1::Service;

use super::{
    endpoints,
    objects::{Objects, Prepared},
    observed::Observed,
    problem::{NAME_CONFLICT, Problem, REFUSED, Unserved},
};

/// The rendered objects of an instance, and what of the spec is not in them.
#[derive(Debug)]
pub struct Rendered {
    /// What is applied.
    pub objects: Objects<Prepared>,
    /// What of the spec is not in them.
    pub findings: Findings,
}

/// What of the spec is not in the objects of an instance.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What the objects lack. Reported before problems of pods.
    pub problems: Vec<Problem>,
    /// What they contain instead of what the spec asks for. Reported after problems of pods.
    pub substitutes: Vec<Problem>,
    /// When the next pass is due because of what the preparing step waits for.
    pub requeue: Option<Duration>,
    /// What users need to know about each endpoint besides where it is: a host key, an issuer.
    pub endpoint: Endpoint,
    /// What the spec is warned of. The condition states it beside any problem of instances that are not refused, and where there is none, it is True with the reason of the first
    /// warning by [`Identity::warnings`](super::Identity::warnings).
    pub warnings: Vec<Remark>,
}

impl Rendered {
    /// Objects that have everything that was asked for.
    #[must_use]
    pub fn complete(objects: Objects<Prepared>) -> Self {
        Self {
            objects,
            findings: Findings::default(),
        }
    }
}

/// What the pods of an applied instance answer.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// Why the instance does not work as applied.
    pub problem: Option<Problem>,
    /// What the pods that run report of themselves. Unlike `problem` it is also reported while new pods do not start.
    pub fault: Option<Problem>,
    /// A remark on an instance that is available.
    pub remark: Option<Remark>,
    /// Whether every pod has confirmed the configuration: they are not asked again before it changes.
    pub confirmed: bool,
    /// When the pods are asked again.
    pub requeue: Option<Duration>,
}

/// States something about an available instance under a reason of its own. The condition stays True.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Remark {
    /// Reason for the condition.
    pub reason: Reason,
    /// For people, after the names of the instances.
    pub text: Cow<'static, str>,
}

/// Whether anything may still route to the hosts that leave a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drain {
    /// For `status.drained`.
    pub drained: Option<Drained>,
    /// What holds the hosts up for longer than usual.
    pub problem: Option<Problem>,
    /// When this is observed again, if no watch triggers a pass before.
    pub requeue: Option<Duration>,
    /// Whether the API server refused a list that the agent needs for this: its rights may be gone though watches continue.
    pub forbidden: bool,
}

impl Drain {
    /// As the status has it.
    #[must_use]
    pub fn unchanged(drained: Option<Drained>) -> Self {
        Self {
            drained,
            ..Self::default()
        }
    }
}

/// The result of a pass for one instance.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// Its Service and configuration are on the API server, and what runs it too unless there is a problem.
    Applied(Box<Instance>),
    /// What the spec asks for is refused, and nothing of it was applied; or what it does not ask for cannot be deleted. Users reach what there is
    /// of it at these endpoints.
    Refused(Problem, Vec<Endpoint>),
    /// It stays until no entry of its kind is new.
    Predecessor(Predecessor),
    /// A call failed. The status keeps what was reported of the instance before.
    Failed(Failed),
}

/// One instance that the spec does not name, and that still serves at these endpoints.
#[derive(Clone, Debug)]
pub(super) struct Predecessor {
    pub(super) name: String,
    pub(super) endpoints: Vec<Endpoint>,
}

/// One instance for which a call failed, with what was reported of it last.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) problem: Problem,
    pub(super) applied: Vec<Applied>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// One instance that is on the API server.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) name: String,
    /// The Service as it is now, with the node ports that the API server gave.
    pub(super) service: Service,
    /// The address that users reach, where the spec names one.
    pub(super) address: Option<String>,
    /// See [`Findings::problems`].
    pub(super) problems: Vec<Problem>,
    /// What is wrong with what runs it.
    pub(super) problem: Option<Problem>,
    /// See [`Findings::substitutes`].
    pub(super) substitutes: Vec<Problem>,
    pub(super) remark: Option<Remark>,
    /// See [`Findings::warnings`].
    pub(super) warnings: Vec<Remark>,
    pub(super) requeue: Option<Duration>,
    /// See [`Findings::endpoint`].
    pub(super) endpoint: Endpoint,
}

impl Outcome {
    /// Whether its pods are still being made, by its Deployment.
    pub(super) fn is_rolling_out(&self) -> bool {
        match self {
            Self::Applied(instance) => instance.problem.as_ref().is_some_and(Problem::is_progress),
            Self::Refused(..) | Self::Failed(_) | Self::Predecessor(_) => false,
        }
    }

    /// Whether the API server refused a part of it, or an object with the name of a part is not the cluster's. No watch triggers a pass when the
    /// port becomes free, the network exists, the quota is raised or that object is gone.
    pub(super) fn is_refused(&self) -> bool {
        match self {
            Self::Applied(instance) => instance
                .problem
                .as_ref()
                .is_some_and(|problem| [REFUSED, NAME_CONFLICT].contains(&problem.reason)),
            Self::Refused(..) => true,
            Self::Failed(_) | Self::Predecessor(_) => false,
        }
    }

    /// An instance that is not served.
    pub(super) fn unserved(unserved: &Unserved, name: &str, observed: &Observed<'_>) -> Self {
        match unserved {
            Unserved::Refused(problem) => Self::Refused(problem.clone(), observed.endpoints_of_service(name)),
            Unserved::Failed(problem) => {
                let (mut applied, mut endpoints) = (observed.applied(), observed.endpoints());
                applied.retain(|applied| applied.service == name);
                endpoints.retain(|endpoint| endpoints::instance(endpoint) == name);
                Self::Failed(Failed {
                    problem: problem.named(name),
                    applied,
                    endpoints,
                })
            }
        }
    }

    /// Whether a call failed.
    pub(super) fn is_failed(&self) -> bool {
        match self {
            Self::Failed(_) => true,
            Self::Applied(_) | Self::Refused(..) | Self::Predecessor(_) => false,
        }
    }

    /// When the next pass is due.
    pub(super) fn requeue(&self) -> Option<Duration> {
        match self {
            Self::Applied(instance) => instance.requeue,
            Self::Refused(..) | Self::Failed(_) | Self::Predecessor(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::problem::{IMAGE_PULL, PODS_FAIL, PROGRESSING},
        *,
    };

    fn applied(problem: Option<Problem>) -> Outcome {
        Outcome::Applied(Box::new(Instance {
            name: "lb".to_owned(),
            service: serde_json::from_value(json!({})).unwrap(),
            address: None,
            problems: Vec::new(),
            problem,
            substitutes: Vec::new(),
            remark: None,
            warnings: Vec::new(),
            requeue: None,
            endpoint: Endpoint::default(),
        }))
    }

    #[test]
    fn conflicts_of_any_object_are_retried_with_a_backoff() {
        assert!(!applied(None).is_refused());
        for (reason, expected) in [
            (NAME_CONFLICT, true),
            (REFUSED, true),
            (PROGRESSING, false),
            (PODS_FAIL, false),
            (IMAGE_PULL, false),
        ] {
            let problem = || Problem::new(reason, "Deployment ns/lb was not made for a SIPCluster");
            assert_eq!(applied(Some(problem())).is_refused(), expected, "{reason}");
            // Of a Service.
            assert!(Outcome::Refused(problem(), Vec::new()).is_refused(), "{reason}");
        }
    }
}
