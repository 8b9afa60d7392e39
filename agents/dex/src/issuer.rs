//! Where a provider is reached. Pure.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use api::{Auth, Exposure, HttpsUrl, conditions::auth::ISSUER_UNKNOWN};
use k8s_openapi::api::core::v1::Service as CoreService;
use kit::service::Problem;
use render::dex::{ISSUER_PATH, SERVICE_PORT};

use crate::certificates::Names;

/// Where a provider is reached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reached {
    /// The URL that tokens name; `None` as long as the port or the address is not given.
    pub(crate) issuer: Option<HttpsUrl>,
    /// Where the agent finds it without resolving a name.
    pub(crate) at: Option<SocketAddr>,
    /// Names for its certificate.
    pub(crate) names: Names,
}

/// By the entry, and by the Service as the API server has it.
pub(crate) fn reached(
    entry: &Auth,
    namespace: &str,
    service: Option<&CoreService>,
) -> Result<Reached, Problem> {
    let common = entry.service();
    let by_load_balancer = matches!(common.changes().exposure(), Exposure::LoadBalancer { .. });
    let port = if by_load_balancer {
        Some(SERVICE_PORT)
    } else {
        entry
            .node_port()
            .map(NonZeroU16::get)
            .or_else(|| node_port(service?))
    };
    let given = service.and_then(ingress);
    let address = common.cluster_ip().map(|address| address.to_string());
    let address = address.or_else(|| given.clone());
    let provider = entry.provider();
    let host = provider.hostname().clone().or_else(|| address.clone());
    let issuer = match (provider.issuer(), host) {
        (Some(issuer), _) => Some(issuer.clone()),
        (None, Some(host)) => port.and_then(|port| HttpsUrl::from_parts(&host, port, ISSUER_PATH)),
        (None, None) if by_load_balancer => None,
        (None, None) => {
            return Err(Problem::new(
                ISSUER_UNKNOWN,
                format!("{}: set hostname, clusterIP or issuer", common.object_name()),
            ));
        }
    };
    let mut names = Names::default();
    names.add(&format!("{}.{namespace}.svc", common.object_name()));
    let cluster_ip = service.and_then(|service| service.spec.as_ref()?.cluster_ip.as_deref());
    let hosts = [
        provider.hostname().as_deref(),
        address.as_deref(),
        given.as_deref(),
        cluster_ip.filter(|address| *address != "None"),
        issuer.as_ref().map(HttpsUrl::host),
    ];
    for host in hosts.into_iter().flatten() {
        names.add(host);
    }
    // What is published by name is checked by name: the name may lead elsewhere.
    let by_name = provider.issuer().is_some() || provider.hostname().is_some();
    let at = common.cluster_ip().filter(|_| !by_name).zip(port);
    Ok(Reached {
        issuer,
        at: at.map(|(address, port): (IpAddr, u16)| SocketAddr::new(address, port)),
        names,
    })
}

fn node_port(service: &CoreService) -> Option<u16> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    u16::try_from(ports.first()?.node_port?).ok()
}

/// The address that the site's load balancer gave.
fn ingress(service: &CoreService) -> Option<String> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    let ingress = status.ingress.as_ref()?.first()?;
    ingress.ip.clone().or_else(|| ingress.hostname.clone())
}

#[cfg(test)]
mod tests {
    use api::{Cluster, SIPCluster};
    use serde_json::{Value, json};

    use super::*;

    fn at(fields: &Value) -> Option<SocketAddr> {
        let mut entry =
            json!({"image": "dex:2", "nodeInterfaceId": "oam", "nodePort": 30_556, "clusterIP": "192.0.2.1"});
        entry.as_object_mut()?.append(&mut fields.as_object()?.clone());
        let object: SIPCluster = serde_json::from_value(json!({
            "metadata": {"namespace": "tenants", "name": "shop", "uid": "u"},
            "spec": {"services": {"auth": [entry]}},
        }))
        .unwrap();
        let cluster = Cluster::parse(&object).unwrap();
        reached(&cluster.auth()[0], "tenants", None).unwrap().at
    }

    #[test]
    fn a_published_name_is_resolved() {
        assert_eq!(at(&json!({})), "192.0.2.1:30556".parse().ok());
        assert_eq!(at(&json!({"hostname": "sso.example.org"})), None);
        assert_eq!(at(&json!({"issuer": "https://sso.example.org/dex"})), None);
    }
}
