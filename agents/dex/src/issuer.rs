//! How users and the agent reach a provider. Pure.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroU16,
    time::SystemTime,
};

use api::{Auth, Exposure, HttpsUrl, conditions::auth::ISSUER_UNKNOWN};
use k8s_openapi::api::core::v1::Service as CoreService;
use kit::service::Problem;
use render::dex::{ISSUER_PATH, SERVICE_PORT};

use crate::{addresses::Addresses, certificates::Names};

/// The issuer of a provider, where the agent connects to it, and the names in its certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ProviderAddress {
    /// The URL that tokens name; `None` as long as the Service has no port or no address.
    pub(crate) issuer: Option<HttpsUrl>,
    /// Where the agent connects to without resolving a name; `None`: by the name.
    pub(crate) at: Option<SocketAddr>,
    /// Names that its certificate must have.
    pub(crate) names: Names,
    /// `names` without last addresses that the Service lacks now, for a CA that refuses them: without that of the load balancer, and without any.
    pub(crate) fallbacks: [Names; 2],
}

fn by_load_balancer(entry: &Auth) -> bool {
    matches!(
        entry.service().changes().exposure(),
        Exposure::LoadBalancer { .. }
    )
}

/// The addresses of an entry's Service at present, as the API server has it.
fn current_addresses(entry: &Auth, service: Option<&CoreService>) -> Addresses {
    let given = service.map(|service| Addresses::from_service(service, by_load_balancer(entry)));
    given.unwrap_or_default()
}

/// The addresses of an entry's Service, with those of `last` where one is missing.
pub(crate) fn addresses(
    entry: &Auth,
    service: Option<&CoreService>,
    last: &Addresses,
    now: SystemTime,
) -> Addresses {
    current_addresses(entry, service).or_last(last, by_load_balancer(entry), now)
}

/// Determines the issuer and the names by the entry, the Service as the API server has it, and [`addresses`].
pub(crate) fn provider_address(
    entry: &Auth,
    namespace: &str,
    service: Option<&CoreService>,
    addresses: &Addresses,
) -> Result<ProviderAddress, Problem> {
    let common = entry.service();
    let by_load_balancer = by_load_balancer(entry);
    let port = if by_load_balancer {
        Some(SERVICE_PORT)
    } else {
        entry
            .node_port()
            .map(NonZeroU16::get)
            .or_else(|| node_port(service?))
    };
    let given = current_addresses(entry, service);
    let address = common.cluster_ip().map(|address| address.to_string());
    let address = address.or_else(|| given.load_balancer.clone());
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
    let in_site = format!("{}.{namespace}.svc", common.object_name());
    let hosts = [
        Some(&*in_site),
        provider.hostname().as_deref(),
        address.as_deref(),
        issuer.as_ref().map(HttpsUrl::host),
    ];
    let with = |addresses: &Addresses| {
        let mut names = Names::from_hosts(hosts.into_iter().flatten());
        addresses.each().for_each(|address| names.add(&address));
        names
    };
    let names = with(addresses);
    let without_balancer = Addresses {
        load_balancer: given.load_balancer.clone(),
        ..addresses.clone()
    };
    let fallbacks = [with(&without_balancer), with(&given)];
    // A published name is checked by resolving it: it may lead elsewhere.
    let by_name = provider.issuer().is_some() || provider.hostname().is_some();
    let at = common.cluster_ip().filter(|_| !by_name).zip(port);
    Ok(ProviderAddress {
        issuer,
        at: at.map(|(address, port): (IpAddr, u16)| SocketAddr::new(address, port)),
        names,
        fallbacks,
    })
}

fn node_port(service: &CoreService) -> Option<u16> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    u16::try_from(ports.first()?.node_port?).ok()
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

    fn reached_by(fields: &Value, service: Option<&CoreService>) -> Result<ProviderAddress, Problem> {
        reached_after(fields, service, &Addresses::default()).1
    }

    fn reached_after(
        fields: &Value,
        service: Option<&CoreService>,
        last: &Addresses,
    ) -> (Addresses, Result<ProviderAddress, Problem>) {
        let mut entry = json!({"image": "dex:2", "nodeInterfaceId": "oam"});
        let mut fields = fields.as_object().unwrap().clone();
        entry.as_object_mut().unwrap().append(&mut fields);
        let object: SIPCluster = serde_json::from_value(json!({
            "metadata": {"namespace": "tenants", "name": "shop", "uid": "u"},
            "spec": {"services": {"auth": [entry]}},
        }))
        .unwrap();
        let cluster = Cluster::parse(&object).unwrap();
        let entry = &cluster.auth()[0];
        let addresses = addresses(entry, service, last, SystemTime::now());
        let provider_address = provider_address(entry, "tenants", service, &addresses);
        (addresses, provider_address)
    }

    #[test]
    fn only_addresses_of_the_service_outlast_it() {
        let at_node = |host: &str| json!({"hostname": host, "nodePort": 30_556});
        let balanced = |host: &str| json!({"hostname": host, "override": {"service": {"spec": {"type": "LoadBalancer"}}}});
        let service = |cluster_ip: &str, ingress: Value| -> CoreService {
            serde_json::from_value(json!({
                "spec": {"clusterIP": cluster_ip}, "status": {"loadBalancer": {"ingress": ingress}},
            }))
            .unwrap()
        };
        let (lb, first, second) = ("198.51.100.7", "10.96.0.7", "10.96.0.8");
        let with = |cluster_ip: &str| service(cluster_ip, json!([{"ip": lb}]));
        let without = |cluster_ip: &str| service(cluster_ip, json!([]));
        let mut last = Addresses::default();
        for (what, fields, service, addresses, present) in [
            ("no Service yet", balanced("sso.one"), None, vec![], vec![]),
            (
                "no address yet",
                balanced("sso.one"),
                Some(without(first)),
                vec![first],
                vec![first],
            ),
            (
                "it is given",
                balanced("sso.one"),
                Some(with(first)),
                vec![first, lb],
                vec![first, lb],
            ),
            (
                "it is taken back",
                balanced("sso.two"),
                Some(without(first)),
                vec![first, lb],
                vec![first],
            ),
            (
                "the Service is deleted",
                balanced("sso.two"),
                None,
                vec![first, lb],
                vec![],
            ),
            (
                "it is made again",
                balanced("sso.two"),
                Some(without(second)),
                vec![second, lb],
                vec![second],
            ),
            (
                "the same is given",
                balanced("sso.two"),
                Some(with(second)),
                vec![second, lb],
                vec![second, lb],
            ),
            (
                "it is no longer balanced",
                at_node("sso.two"),
                Some(with(second)),
                vec![second],
                vec![second],
            ),
            (
                "it is again",
                balanced("sso.two"),
                Some(without(second)),
                vec![second],
                vec![second],
            ),
        ] {
            let (kept, provider_address) = reached_after(&fields, service.as_ref(), &last);
            let provider_address = provider_address.unwrap();
            let host = fields["hostname"].as_str().unwrap();
            // No name that the spec had before is among them.
            let all = |addresses: &[&str]| {
                let of_spec = ["auth-shop.tenants.svc", host];
                Names::from_hosts(of_spec.into_iter().chain(addresses.iter().copied()))
            };
            assert_eq!(provider_address.names, all(&addresses), "{what}");
            let is_balancers = |address: &&str| *address == lb && !present.contains(address);
            let without_balancer: Vec<_> = addresses
                .iter()
                .copied()
                .filter(|address| !is_balancers(address))
                .collect();
            assert_eq!(
                provider_address.fallbacks,
                [all(&without_balancer), all(&present)],
                "{what}"
            );
            last = kept;
        }
        // What is given is known also where the provider has no issuer.
        let nameless = json!({"nodePort": 30_556});
        let (kept, provider_address) = reached_after(&nameless, Some(&with(first)), &last);
        assert!(provider_address.is_err() && kept == Addresses::read(Some(first), None));
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
            let all = ["auth-shop.tenants.svc", "10.96.0.7"].into_iter().chain(names);
            let all = Names::from_hosts(all);
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
