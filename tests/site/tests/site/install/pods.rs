//! What guards the pods of `deploy/`: only those that call the API server have a token for it, a network policy selects each of them, and
//! each is restricted, has probes and states what it needs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    drift::{Rendered, containers, list, text},
    manifests::kustomizations,
};

/// The workloads whose pods have a token of the API server, and what for. Others have none.
const WITH_TOKEN: [(&str, &str); 4] = [
    ("sip-cluster-agent", "reads and labels hosts"),
    ("sip-dex-agent", "runs identity providers"),
    ("sip-jump-host-agent", "runs jump hosts"),
    ("sip-load-balancer-agent", "runs load balancers"),
];
/// Kinds that start pods.
const WORKLOADS: [&str; 6] = [
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "ReplicaSet",
    "StatefulSet",
];

fn is_without_token(workload: &Value) -> bool {
    let pod = &workload["spec"]["template"]["spec"];
    let mut sources = list(&pod["volumes"]).flat_map(|volume| list(&volume["projected"]["sources"]));
    pod["automountServiceAccountToken"] == false
        && !sources.any(|source| source["serviceAccountToken"].is_object())
}

/// Whether a policy is for the pods of a workload. One without labels is for every pod of its namespace.
fn selects(policy: &Value, workload: &Value) -> bool {
    let labels = &workload["spec"]["template"]["metadata"]["labels"];
    let selector = &policy["spec"]["podSelector"];
    let wanted = selector["matchLabels"].as_object();
    assert!(selector["matchExpressions"].is_null(), "not read here: {policy}");
    policy["metadata"]["namespace"] == workload["metadata"]["namespace"]
        && wanted.is_none_or(|wanted| wanted.iter().all(|(key, value)| &labels[key] == value))
}

#[test]
fn only_pods_that_call_the_api_server_have_a_token_for_it() {
    let mut with_token = BTreeSet::new();
    for folder in kustomizations() {
        let rendered = Rendered::overlay(&folder.display().to_string());
        assert_eq!(rendered.of_kind("Pod").count(), 0, "{}", folder.display());
        for workload in WORKLOADS.iter().flat_map(|kind| rendered.of_kind(kind)) {
            if !is_without_token(workload) {
                with_token.insert(text(&workload["metadata"]["name"]).to_owned());
            }
        }
    }
    let expected = WITH_TOKEN.map(|(name, _)| name.to_owned());
    assert_eq!(with_token, BTreeSet::from(expected));
}

#[test]
fn every_container_is_restricted_probed_and_limited() {
    for folder in kustomizations() {
        let shown = folder.display().to_string();
        let rendered = Rendered::overlay(&shown);
        for workload in WORKLOADS.iter().flat_map(|kind| rendered.of_kind(kind)) {
            let name = text(&workload["metadata"]["name"]);
            let pod = &workload["spec"]["template"]["spec"];
            assert_eq!(pod["enableServiceLinks"], false, "{shown}: {name}");
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{shown}: {name}");
            let profile = &pod["securityContext"]["seccompProfile"]["type"];
            assert_eq!(profile, "RuntimeDefault", "{shown}: {name}");
            for container in list(&pod["initContainers"]).chain(containers(workload)) {
                let security = &container["securityContext"];
                assert_eq!(security["allowPrivilegeEscalation"], false, "{shown}: {name}");
                assert_eq!(security["readOnlyRootFilesystem"], true, "{shown}: {name}");
                assert_eq!(
                    security["capabilities"],
                    json!({"drop": ["ALL"]}),
                    "{shown}: {name}"
                );
                // A Job ends by itself.
                for probe in ["livenessProbe", "readinessProbe"] {
                    let is_probed = container[probe].is_object();
                    assert_eq!(is_probed, workload["kind"] != "Job", "{shown}: {name}: {probe}");
                }
                for amount in ["/requests/cpu", "/requests/memory", "/limits/memory"] {
                    let stated = container["resources"].pointer(amount);
                    assert!(stated.is_some(), "{shown}: {name}: {amount}");
                }
            }
        }
    }
}

/// In an ordered `StatefulSet` Kubernetes waits until a pod is ready before it replaces it: one with a wrong image would stay.
#[test]
fn stateful_sets_replace_pods_that_never_became_ready() {
    let mut seen = BTreeSet::new();
    for folder in kustomizations() {
        let shown = folder.display().to_string();
        let rendered = Rendered::overlay(&shown);
        for workload in rendered.of_kind("StatefulSet") {
            let name = text(&workload["metadata"]["name"]);
            let policy = &workload["spec"]["podManagementPolicy"];
            assert_eq!(policy, "Parallel", "{shown}: {name}");
            seen.insert(name.to_owned());
        }
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[test]
fn every_workload_has_a_policy_for_the_ports_it_declares() {
    let mut seen = BTreeSet::new();
    for folder in kustomizations() {
        let shown = folder.display().to_string();
        let rendered = Rendered::overlay(&shown);
        for workload in WORKLOADS.iter().flat_map(|kind| rendered.of_kind(kind)) {
            let name = text(&workload["metadata"]["name"]);
            let policies: Vec<&Value> = rendered
                .of_kind("NetworkPolicy")
                .filter(|policy| selects(policy, workload))
                .collect();
            let closed = |policy: &&Value| list(&policy["spec"]["policyTypes"]).any(|kind| kind == "Ingress");
            assert!(
                policies.iter().any(closed),
                "{shown}: everybody connects to {name}"
            );
            // A rule without ports would open all of them.
            let rules = policies
                .iter()
                .flat_map(|policy| list(&policy["spec"]["ingress"]));
            let open = rules.flat_map(|rule| {
                assert!(list(&rule["ports"]).next().is_some(), "{shown}: {name}: {rule}");
                list(&rule["ports"]).map(|port| port["port"].clone())
            });
            let declared = containers(workload).flat_map(|container| list(&container["ports"]));
            assert_eq!(
                open.map(|port| port.to_string()).collect::<BTreeSet<_>>(),
                declared
                    .map(|port| port["name"].to_string())
                    .collect::<BTreeSet<_>>(),
                "{shown}: {name}"
            );
            seen.insert(name.to_owned());
        }
    }
    assert_eq!(seen.len(), 9, "{seen:?}");
}
