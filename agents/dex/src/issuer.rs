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
    /// Whether an address may be missing in them for a while: somebody has deleted the Service, or its load balancer has no address.
    pub(crate) lacks_address: bool,
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
        lacks_address: service.is_none() || (by_load_balancer && given.is_none()),
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
        let mut entry = json!({"nodePort": 30_556, "clusterIP": "192.0.2.1"});
        entry.as_object_mut()?.append(&mut fields.as_object()?.clone());
        reached_by(&entry, None).unwrap().at
    }

    fn reached_by(fields: &Value, service: Option<&CoreService>) -> Result<Reached, Problem> {
        let mut entry = json!({"image": "dex:2", "nodeInterfaceId": "oam"});
        let mut fields = fields.as_object().unwrap().clone();
        entry.as_object_mut().unwrap().append(&mut fields);
        let object: SIPCluster = serde_json::from_value(json!({
            "metadata": {"namespace": "tenants", "name": "shop", "uid": "u"},
            "spec": {"services": {"auth": [entry]}},
        }))
        .unwrap();
        let cluster = Cluster::parse(&object).unwrap();
        reached(&cluster.auth()[0], "tenants", service)
    }

    #[test]
    fn an_address_that_may_come_back_is_missed() {
        let service = |ingress: Value| -> CoreService {
            serde_json::from_value(json!({
                "spec": {"clusterIP": "10.96.0.7"}, "status": {"loadBalancer": {"ingress": ingress}},
            }))
            .unwrap()
        };
        let (without, with) = (service(json!([])), service(json!([{"ip": "198.51.100.7"}])));
        let port = json!({"hostname": "sso", "nodePort": 30_556});
        let balanced =
            json!({"hostname": "sso", "override": {"service": {"spec": {"type": "LoadBalancer"}}}});
        for (fields, service, expected) in [
            (&port, None, true),
            (&port, Some(&without), false),
            (&balanced, None, true),
            (&balanced, Some(&without), true),
            (&balanced, Some(&with), false),
        ] {
            let reached = reached_by(fields, service).unwrap();
            assert_eq!(reached.lacks_address, expected, "{fields}");
        }
    }

    #[test]
    fn the_load_balancers_address_is_published() {
        let by_load_balancer = json!({"override": {"service": {"spec": {"type": "LoadBalancer"}}}});
        let named = |more: &Value| {
            let mut fields = by_load_balancer.as_object().unwrap().clone();
            fields.append(&mut more.as_object().unwrap().clone());
            Value::Object(fields)
        };
        let service = |ingress: &Value| -> CoreService {
            serde_json::from_value(json!({
                "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 443, "nodePort": 31_000}]},
                "status": {"loadBalancer": {"ingress": ingress}},
            }))
            .unwrap()
        };
        let (none, ip) = (json!([]), json!([{"ip": "198.51.100.7"}]));
        let name = json!([{"hostname": "lb.example.org"}]);
        let hostname = json!({"hostname": "sso.example.org"});
        let issuer = json!({"issuer": "https://login.example.org/shop"});
        for (fields, ingress, expected, names) in [
            // Nothing is published before the address is given, or while it is taken back for a moment.
            (json!({}), &none, None, vec![]),
            (
                json!({}),
                &ip,
                Some("https://198.51.100.7/dex"),
                vec!["198.51.100.7"],
            ),
            (
                json!({}),
                &name,
                Some("https://lb.example.org/dex"),
                vec!["lb.example.org"],
            ),
            // A name of its own does not wait, and the port is that of the load balancer and no node's.
            (
                hostname.clone(),
                &none,
                Some("https://sso.example.org/dex"),
                vec!["sso.example.org"],
            ),
            (
                hostname,
                &ip,
                Some("https://sso.example.org/dex"),
                vec!["sso.example.org", "198.51.100.7"],
            ),
            (
                issuer,
                &ip,
                Some("https://login.example.org/shop"),
                vec!["login.example.org", "198.51.100.7"],
            ),
        ] {
            let service = service(ingress);
            let found = reached_by(&named(&fields), Some(&service)).unwrap();
            let case = format!("{fields} {ingress}");
            assert_eq!(found.issuer.as_ref().map(HttpsUrl::as_str), expected, "{case}");
            assert!(found.issuer.is_none_or(|issuer| issuer.port() == SERVICE_PORT));
            let mut all = Names::default();
            for name in ["auth-shop.tenants.svc", "10.96.0.7"].into_iter().chain(names) {
                all.add(name);
            }
            assert_eq!(found.names, all, "{case}");
            // It is checked as people reach it.
            assert_eq!(found.at, None, "{case}");
        }
    }

    #[test]
    fn a_published_name_is_resolved() {
        assert_eq!(at(&json!({})), "192.0.2.1:30556".parse().ok());
        assert_eq!(at(&json!({"hostname": "sso.example.org"})), None);
        assert_eq!(at(&json!({"issuer": "https://sso.example.org/dex"})), None);
    }
}
