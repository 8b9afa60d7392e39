//! Where connections from a jump host may go: the nodes' sshd, and the API server of the tenant. By `PermitOpen` for those who forward
//! ports, and by the `NetworkPolicy` for everything in the pod.

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
/// By this label the API server knows a namespace by its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// What ports may be forwarded to, in order, each once.
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
    // The sidecar follows its objects. Whether a rule sees the address of the Service or that of a server depends on the network.
    addresses.extend(plan.site_api_servers);
    addresses.sort_unstable();
    addresses.dedup();
    let mut rules: Vec<_> = addresses.into_iter().map(to_address).collect();
    let names = [("UDP", DNS_PORT), ("TCP", DNS_PORT)].map(|(protocol, number)| port(protocol, number));
    rules.push(NetworkPolicyEgressRule {
        ports: Some(names.into()),
        to: None,
    });
    rules.push(NetworkPolicyEgressRule {
        ports: Some(vec![port("TCP", plan.power.port())]),
        to: Some(vec![NetworkPolicyPeer {
            namespace_selector: Some(labelled(NAMESPACE_NAME, &plan.power.namespace)),
            pod_selector: Some(labelled(labels::NAME, &plan.power.app)),
            ..NetworkPolicyPeer::default()
        }]),
    });
    rules
}

fn to_address(address: SocketAddr) -> NetworkPolicyEgressRule {
    let bits = match address.ip() {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    NetworkPolicyEgressRule {
        ports: Some(vec![port("TCP", address.port())]),
        to: Some(vec![NetworkPolicyPeer {
            ip_block: Some(IPBlock {
                cidr: format!("{}/{bits}", address.ip()),
                except: None,
            }),
            ..NetworkPolicyPeer::default()
        }]),
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
