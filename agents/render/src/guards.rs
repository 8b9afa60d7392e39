//! What guards the pods of an instance: how many may be evicted at once, and who may connect to them.

use std::ops::RangeInclusive;

use api::labels;
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::metadata::Instance;

/// Limits evictions while nodes drain to one pod at a time. `None` with fewer than two pods: it would block the drain.
#[must_use]
pub fn budget(instance: &Instance<'_>) -> Option<PodDisruptionBudget> {
    (instance.entry().replicas() > 1).then(|| PodDisruptionBudget {
        metadata: instance.metadata(),
        spec: Some(PodDisruptionBudgetSpec {
            selector: Some(instance.selector()),
            max_unavailable: Some(IntOrString::Int(1)),
            // A pod that does not work must not block a drain.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    })
}

/// Everybody may connect to the public ports; to the internal ones only pods of namespaces that the site's operators have labelled
/// with [`labels::SCRAPES`]. A node always reaches its own pods, so probes need no rule.
pub fn policy(
    instance: &Instance<'_>,
    public: Option<RangeInclusive<u16>>,
    internal: impl Iterator<Item = u16>,
) -> NetworkPolicy {
    let port = |first: u16, last: u16| NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(first))),
        end_port: (last > first).then_some(i32::from(last)),
        protocol: Some("TCP".to_owned()),
    };
    let public = public.map(|range| NetworkPolicyIngressRule {
        ports: Some(vec![port(*range.start(), *range.end())]),
        from: None,
    });
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
        metadata: instance.metadata(),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(instance.selector()),
            policy_types: Some(vec!["Ingress".to_owned()]),
            // A rule without ports would open all of them.
            ingress: Some(
                public
                    .into_iter()
                    .chain(
                        [internal]
                            .into_iter()
                            .filter(|rule| rule.ports.as_ref().is_some_and(|ports| !ports.is_empty())),
                    )
                    .collect(),
            ),
            egress: None,
        }),
    }
}
