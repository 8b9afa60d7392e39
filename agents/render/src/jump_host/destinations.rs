//! Where connections from a jump host may go: the nodes' sshd, and the API server of the tenant. `PermitOpen` restricts forwarded ports; the
//! `NetworkPolicy` restricts every process in the pod.

use std::net::{IpAddr, SocketAddr};

use api::labels;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::interface::{API_SERVER_PORT, LISTEN_PORT, NODE_PORT, REPORT_PORT, SESSIONS_PORT};
use super::plan::Plan;
use crate::guards;

const DNS_PORT: u16 = 53;
/// Where Kubernetes has the pods of its DNS, and the label that they have, also those of `CoreDNS`.
const DNS_NAMESPACE: &str = "kube-system";
const DNS_LABEL: (&str, &str) = ("k8s-app", "kube-dns");
/// By this label the API server knows a namespace by its name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The destinations of forwarded ports, sorted, each once.
pub(super) fn forwarded(plan: &Plan<'_>) -> Vec<SocketAddr> {
    let nodes = plan.nodes.iter().flat_map(|node| {
        let api_server = node.is_control_plane().then_some(API_SERVER_PORT);
        let ports = std::iter::once(NODE_PORT).chain(api_server);
        ports.map(|port| SocketAddr::new(node.address(), port))
    });
    let mut all: Vec<SocketAddr> = nodes.chain(plan.api_endpoints.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Who may connect to the pods, and where these may connect to.
pub(super) fn policy(plan: &Plan<'_>) -> NetworkPolicy {
    let internal = [REPORT_PORT, SESSIONS_PORT].into_iter();
    let mut policy = guards::policy(&plan.instance(), Some(LISTEN_PORT..=LISTEN_PORT), internal);
    if let Some(spec) = &mut policy.spec {
        spec.policy_types = Some(["Ingress", "Egress"].map(str::to_owned).into());
        spec.egress = Some(egress(plan));
    }
    policy
}

fn egress(plan: &Plan<'_>) -> Vec<NetworkPolicyEgressRule> {
    let mut addresses: Vec<SocketAddr> = forwarded(plan);
    // The sidecar watches its objects. It depends on the network whether a rule sees the address of the Service or of a server.
    addresses.extend(plan.site_api_servers);
    addresses.sort_unstable();
    addresses.dedup();
    let mut rules: Vec<_> = addresses.into_iter().map(to_address).collect();
    rules.extend(api_balancers(&plan.api_balancers));
    rules.push(NetworkPolicyEgressRule {
        ports: Some(["UDP", "TCP"].map(|protocol| port(protocol, DNS_PORT)).into()),
        to: Some(name_servers(plan.name_servers)),
    });
    rules.push(NetworkPolicyEgressRule {
        ports: Some(vec![port("TCP", plan.power.port())]),
        to: Some(vec![pods(&plan.power.namespace, labels::NAME, &plan.power.app)]),
    });
    rules
}

/// Only the name servers of the site: a server at this port elsewhere could be anything.
fn name_servers(addresses: &[IpAddr]) -> Vec<NetworkPolicyPeer> {
    let (key, value) = DNS_LABEL;
    let of_kubernetes = pods(DNS_NAMESPACE, key, value);
    std::iter::once(of_kubernetes)
        .chain(addresses.iter().copied().map(address))
        .collect()
}

fn pods(namespace: &str, key: &str, value: &str) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        namespace_selector: Some(labelled(NAMESPACE_NAME_LABEL, namespace)),
        pod_selector: Some(labelled(key, value)),
        ..NetworkPolicyPeer::default()
    }
}

/// The pods of the load balancers in the same namespace: most networks apply rules after the address of a Service was replaced by that of
/// a pod.
fn api_balancers(names: &[String]) -> Option<NetworkPolicyEgressRule> {
    let balancers = names.iter().map(|name| NetworkPolicyPeer {
        pod_selector: Some(LabelSelector {
            match_labels: Some(
                [
                    (labels::COMPONENT, labels::COMPONENT_LOAD_BALANCER),
                    (labels::INSTANCE, name),
                ]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ),
            match_expressions: None,
        }),
        ..NetworkPolicyPeer::default()
    });
    // A rule without peers would allow all of them.
    (!names.is_empty()).then(|| NetworkPolicyEgressRule {
        ports: Some(vec![port("TCP", API_SERVER_PORT)]),
        to: Some(balancers.collect()),
    })
}

fn to_address(to: SocketAddr) -> NetworkPolicyEgressRule {
    NetworkPolicyEgressRule {
        ports: Some(vec![port("TCP", to.port())]),
        to: Some(vec![address(to.ip())]),
    }
}

fn address(ip: IpAddr) -> NetworkPolicyPeer {
    let bits = match ip {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    NetworkPolicyPeer {
        ip_block: Some(IPBlock {
            cidr: format!("{ip}/{bits}"),
            except: None,
        }),
        ..NetworkPolicyPeer::default()
    }
}

fn port(protocol: &str, number: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(number))),
        protocol: Some(protocol.to_owned()),
        end_port: None,
    }
}

fn labelled(key: &str, value: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some([(key.to_owned(), value.to_owned())].into()),
        match_expressions: None,
    }
}
