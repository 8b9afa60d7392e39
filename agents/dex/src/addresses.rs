//! The addresses that a provider's Service is given. They are names of the provider's certificate, and one may be missing for a while:
//! somebody has deleted the Service, or its load balancer has no address. A certificate without it would start other pods twice, so the last
//! one stays. Pure.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service as CoreService;
use rustls_pki_types::ServerName;

/// What the API server and the site's load balancer gave a Service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Addresses {
    /// Its cluster IP.
    pub cluster_ip: Option<IpAddr>,
    /// The IP address or DNS name that its load balancer gave.
    pub load_balancer: Option<String>,
}

impl Addresses {
    /// By texts; one that is no address counts as missing.
    #[must_use]
    pub fn read(cluster_ip: Option<&str>, load_balancer: Option<&str>) -> Self {
        let is_name = |name: &&str| ServerName::try_from(*name).is_ok();
        Self {
            cluster_ip: cluster_ip.and_then(|address| address.parse().ok()),
            load_balancer: load_balancer.filter(is_name).map(str::to_owned),
        }
    }

    /// Those that a Service has. `balanced`: the provider is reached by a load balancer of the site.
    #[must_use]
    pub fn from_service(service: &CoreService, balanced: bool) -> Self {
        let spec = service.spec.as_ref();
        let cluster_ip = spec.and_then(|spec| spec.cluster_ip.as_deref());
        let status = service.status.as_ref();
        let ingress = status.and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
        let load_balancer = ingress.and_then(|ingress| ingress.ip.as_deref().or(ingress.hostname.as_deref()));
        Self::read(cluster_ip, load_balancer.filter(|_| balanced))
    }

    /// These, and the last one where one is missing.
    #[must_use]
    pub fn or_last(&self, last: &Self, balanced: bool) -> Self {
        let load_balancer = self.load_balancer.as_ref().or(last.load_balancer.as_ref());
        Self {
            cluster_ip: self.cluster_ip.or(last.cluster_ip),
            load_balancer: load_balancer.filter(|_| balanced).cloned(),
        }
    }

    /// Each as a text.
    pub fn each(&self) -> impl Iterator<Item = String> {
        let cluster_ip = self.cluster_ip.map(|address| address.to_string());
        cluster_ip.into_iter().chain(self.load_balancer.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_missing() {
        for (text, expected) in [
            (Some("198.51.100.7"), true),
            (Some("fd00::7"), true),
            (Some("lb.example.org"), true),
            (Some(""), false),
            (Some(" lb"), false),
            (Some("lb\nbank.example.org"), false),
            (Some("bücher.example"), false),
            (None, false),
        ] {
            let found = Addresses::read(text, text);
            assert_eq!(found.load_balancer.is_some(), expected, "{text:?}");
            let is_ip = text.is_some_and(|text| text.parse::<IpAddr>().is_ok());
            assert_eq!(found.cluster_ip.is_some(), is_ip, "{text:?}");
        }
    }
}
