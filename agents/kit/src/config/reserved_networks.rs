//! Addresses of a site that no host has.

use std::net::IpAddr;

use ipnet::IpNet;

use super::identity_providers::Bad;

/// Addresses of a site that no host has: those of its API server, and the networks that its operators list, such as the range of Services.
/// A load balancer that connects to one would pass a tenant's clients on to the site's own components.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedNetworks(Vec<IpNet>);

impl ReservedNetworks {
    pub(super) fn parse(networks: Vec<String>) -> Result<Self, Bad> {
        let network = |text: String| {
            text.parse::<IpNet>().map_err(|_| {
                let rule = "must be a network such as 10.96.0.0/12 or 2001:db8::/64".to_owned();
                ("reservedNetworks", text, rule)
            })
        };
        networks
            .into_iter()
            .map(network)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// With one more address.
    #[must_use]
    pub fn with(mut self, address: Option<IpAddr>) -> Self {
        self.0.extend(address.map(IpNet::from));
        self
    }

    /// Whether no host has this address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_the_api_server_are_reserved() {
        let networks =
            ReservedNetworks::parse(vec!["10.96.0.0/12".to_owned(), "fd00::/108".to_owned()]).unwrap();
        let networks = networks.with("192.0.2.10".parse().ok());
        for (address, expected) in [
            ("10.96.0.1", true),
            ("10.111.255.255", true),
            ("10.112.0.0", false),
            ("fd00::1", true),
            ("192.0.2.10", true),
            ("192.0.2.11", false),
        ] {
            assert_eq!(networks.contains(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        let (field, value, _) = ReservedNetworks::parse(vec!["services".to_owned()]).unwrap_err();
        assert_eq!((field, &*value), ("reservedNetworks", "services"));
    }
}
