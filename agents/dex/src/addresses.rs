//! The addresses of a provider's Service, which are names in the provider's certificate. One may be missing for a while: somebody has deleted the
//! Service, or its load balancer has no address. A certificate without it would make the pods restart twice, so the last address stays a name;
//! that of a load balancer only for a while, since the site may give it to another Service. Pure.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use k8s_openapi::api::core::v1::Service as CoreService;
use rustls_pki_types::ServerName;

/// How long the last address of a load balancer stays a name of the certificate.
pub const LOAD_BALANCER_ADDRESS_RETENTION: Duration = Duration::from_hours(24);

/// What the API server and the site's load balancer gave a Service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Addresses {
    /// Cluster IP of the Service.
    pub cluster_ip: Option<IpAddr>,
    /// The IP address or DNS name that its load balancer gave.
    pub load_balancer: Option<String>,
    /// Since when `load_balancer` is the last address, and the Service has none; `None`: the Service has it.
    pub missing_since: Option<SystemTime>,
}

impl Addresses {
    /// Parses texts; a text that is not an address counts as missing.
    #[must_use]
    pub fn read(cluster_ip: Option<&str>, load_balancer: Option<&str>) -> Self {
        let is_name = |name: &&str| ServerName::try_from(*name).is_ok();
        Self {
            cluster_ip: cluster_ip.and_then(|address| address.parse().ok()),
            load_balancer: load_balancer.filter(is_name).map(str::to_owned),
            missing_since: None,
        }
    }

    /// The addresses of a Service. `balanced`: whether users reach the provider by a load balancer of the site.
    #[must_use]
    pub fn from_service(service: &CoreService, balanced: bool) -> Self {
        let spec = service.spec.as_ref();
        let cluster_ip = spec.and_then(|spec| spec.cluster_ip.as_deref());
        let status = service.status.as_ref();
        let ingress = status.and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
        let load_balancer = ingress.and_then(|ingress| ingress.ip.as_deref().or(ingress.hostname.as_deref()));
        Self::read(cluster_ip, load_balancer.filter(|_| balanced))
    }

    /// These addresses, with those of `last` where one is missing; that of a load balancer for [`LOAD_BALANCER_ADDRESS_RETENTION`] at most. Where
    /// the recorded time is in the future, since the clock was ahead, the wait begins now.
    #[must_use]
    pub fn or_last(self, last: &Self, balanced: bool, now: SystemTime) -> Self {
        let cluster_ip = self.cluster_ip.or(last.cluster_ip);
        let missing_since = last.missing_since.filter(|since| *since <= now).unwrap_or(now);
        let is_kept = now
            .duration_since(missing_since)
            .is_ok_and(|lacked| lacked < LOAD_BALANCER_ADDRESS_RETENTION);
        let kept = last.load_balancer.clone().filter(|_| balanced && is_kept);
        match (self.load_balancer, kept) {
            (None, Some(kept)) => Self {
                cluster_ip,
                load_balancer: Some(kept),
                missing_since: Some(missing_since),
            },
            (load_balancer, _) => Self {
                cluster_ip,
                load_balancer,
                missing_since: None,
            },
        }
    }

    /// Each address as a text.
    pub fn each(&self) -> impl Iterator<Item = String> {
        let cluster_ip = self.cluster_ip.map(|address| address.to_string());
        cluster_ip.into_iter().chain(self.load_balancer.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_addresses_count_as_missing() {
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

    #[test]
    fn the_last_address_of_a_load_balancer_is_kept_for_a_day() {
        let had = Addresses::read(Some("10.96.0.7"), Some("198.51.100.7"));
        let without = || Addresses::read(Some("10.96.0.7"), None);
        let begin = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        let first = without().or_last(&had, true, begin);
        assert_eq!(
            (&first.load_balancer, first.missing_since),
            (&had.load_balancer, Some(begin))
        );
        let second = Duration::from_secs(1);
        let last = begin + LOAD_BALANCER_ADDRESS_RETENTION - second;
        assert_eq!(
            without().or_last(&first, true, last),
            first,
            "nothing is written meanwhile"
        );
        for gone in [
            without().or_last(&first, true, begin + LOAD_BALANCER_ADDRESS_RETENTION),
            without().or_last(&first, false, begin),
            without().or_last(&without(), true, begin),
        ] {
            assert_eq!(gone, without());
        }
        assert_eq!(had.clone().or_last(&first, true, last), had, "it is given again");
        // The clock was ahead, and is not any more.
        let past = begin - LOAD_BALANCER_ADDRESS_RETENTION;
        let again = without().or_last(&first, true, past);
        assert_eq!(
            (&again.load_balancer, again.missing_since),
            (&had.load_balancer, Some(past))
        );
    }
}
