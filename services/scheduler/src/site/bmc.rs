//! Addresses of BMCs, so that two of them can be compared.

use std::net::{IpAddr, Ipv6Addr};

/// Which BMC, and which of its systems: `HOST[:PORT][/PATH]`. `spec.bmc.address` says besides with which driver metal3 reaches it, and the
/// same machine may have another one when its `BareMetalHost` is made again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bmc(String);

impl Bmc {
    /// Of an address as a host shows it; `None` where it names no BMC.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once("://").unwrap_or(("", text.trim()));
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) = split_port(authority);
        if host.is_empty() {
            return None;
        }
        let host = canonical(host);
        let path = path.trim_end_matches('/');
        let port = port.filter(|port| !is_default(scheme, port));
        Some(Self(match port {
            Some(port) => format!("{host}:{port}{path}"),
            None => format!("{host}{path}"),
        }))
    }
}

/// `[2001:db8::1]:8000`, `192.0.2.1:8000`, `bmc.example`.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (host, Some(port))
        }
        Some(_) | None => (authority, None),
    }
}

fn canonical(host: &str) -> String {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let ip = match inner {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => host.parse().ok(),
    };
    match ip.map(|ip| ip.to_canonical()) {
        Some(IpAddr::V6(ip)) => format!("[{ip}]"),
        Some(IpAddr::V4(ip)) => ip.to_string(),
        None => host.trim_end_matches('.').to_ascii_lowercase(),
    }
}

/// metal3 takes an address without scheme for one of IPMI, and one without transport for one with TLS.
fn is_default(scheme: &str, port: &str) -> bool {
    let scheme = scheme.to_ascii_lowercase();
    let default = match scheme.rsplit_once('+') {
        Some((_, "http")) => "80",
        _ if scheme.is_empty() || scheme == "ipmi" => "623",
        _ => "443",
    };
    port == default
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_system_has_one_address_whatever_the_driver() {
        let same = [
            [
                "redfish+https://192.0.2.1/redfish/v1/Systems/1",
                "idrac-virtualmedia://192.0.2.1:443/redfish/v1/Systems/1/",
                "REDFISH://[::ffff:192.0.2.1]/redfish/v1/Systems/1",
            ],
            ["ipmi://192.0.2.1", "192.0.2.1", " ipmi://192.0.2.1:623/"],
            [
                "redfish+http://BMC.example.:80/redfish/v1/Systems/a",
                "redfish+http://bmc.example/redfish/v1/Systems/a",
                "redfish-virtualmedia+http://bmc.Example:80/redfish/v1/Systems/a",
            ],
            [
                "redfish://[2001:DB8:0::1]:8000/1",
                "redfish://[2001:db8::1]:8000/1",
                "redfish+http://[2001:db8::1]:8000/1/",
            ],
        ];
        for [first, second, third] in same {
            assert!(Bmc::parse(first).is_some());
            assert_eq!(Bmc::parse(first), Bmc::parse(second));
            assert_eq!(Bmc::parse(first), Bmc::parse(third));
        }
    }

    #[test]
    fn systems_of_one_bmc_and_ports_are_told_apart() {
        let all = [
            "redfish+http://192.0.2.1:8000/redfish/v1/Systems/a",
            "redfish+http://192.0.2.1:8000/redfish/v1/Systems/b",
            "redfish+http://192.0.2.1:8000/redfish/v1/Systems/B",
            "redfish+http://192.0.2.1:8001/redfish/v1/Systems/a",
            "redfish+http://192.0.2.1:443/redfish/v1/Systems/a",
            "redfish+http://192.0.2.2:8000/redfish/v1/Systems/a",
            "ipmi://192.0.2.1:6230",
            "ipmi://192.0.2.1:6231",
        ];
        let told: std::collections::BTreeSet<_> = all.iter().filter_map(|text| Bmc::parse(text)).collect();
        assert_eq!(told.len(), all.len(), "{told:?}");
        assert_eq!(
            ["", "redfish://", "redfish:///path", " "].map(Bmc::parse),
            [const { None }; 4]
        );
    }
}
