//! What guards the pods: how many may be taken at once, and who may connect to them.

use api::labels;
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Plan, objects};

fn selector(plan: &Plan<'_>) -> LabelSelector {
    LabelSelector {
        match_labels: Some(objects::pod_labels(plan)),
        match_expressions: None,
    }
}

pub(super) fn budget(plan: &Plan<'_>) -> Option<PodDisruptionBudget> {
    (plan.entry.replicas() > 1).then(|| PodDisruptionBudget {
        metadata: objects::child(plan),
        spec: Some(PodDisruptionBudgetSpec {
            selector: Some(selector(plan)),
            max_unavailable: Some(IntOrString::Int(1)),
            // A pod that does not work is in nobody's way.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    })
}

/// Everybody may connect to what is balanced; to the internal ports only who is in a namespace that the site's people have
/// marked. A node always reaches its own pods, so probes need no rule.
pub(super) fn policy(plan: &Plan<'_>) -> NetworkPolicy {
    let port = |first: u16, last: u16| NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(first))),
        end_port: (last > first).then_some(i32::from(last)),
        protocol: Some("TCP".to_owned()),
    };
    // The ports are one range.
    let balanced = plan
        .ports
        .first()
        .zip(plan.ports.last())
        .map(|(first, last)| NetworkPolicyIngressRule {
            ports: Some(vec![port(first.number, last.number)]),
            from: None,
        });
    let internal = plan.sidecar.map(|_| plan.report_port());
    let internal = std::iter::once(plan.internal_port()).chain(internal);
    let internal = NetworkPolicyIngressRule {
        ports: Some(internal.map(|number| port(number, number)).collect()),
        from: Some(vec![NetworkPolicyPeer {
            namespace_selector: Some(LabelSelector {
                match_labels: Some([(labels::SCRAPES.to_owned(), labels::TRUE.to_owned())].into()),
                match_expressions: None,
            }),
            ..NetworkPolicyPeer::default()
        }]),
    };
    NetworkPolicy {
        metadata: objects::child(plan),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(plan)),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(balanced.into_iter().chain([internal]).collect()),
            egress: None,
        }),
    }
}
