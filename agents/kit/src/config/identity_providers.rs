//! What the site's operators set for identity providers.

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;

/// What the site's operators set for identity providers. Parsed with [`super::SiteConfig`] only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityProviders {
    allowed_networks: Option<Vec<IpNet>>,
    cluster_issuer: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct IdentityProvidersSection {
    /// Networks to which agents connect where a tenant names the address: directories, issuers and API servers of tenants. Default: all
    /// networks but loopback, unspecified, link-local and multicast addresses, and the metadata addresses of clouds
    /// ([rules](auth.md#where-the-agent-connects-to)).
    allowed_networks: Option<Vec<String>>,
    /// `ClusterIssuer` of cert-manager for [identity providers](auth.md) whose entry names neither CA nor issuer. Default: the agent makes a CA
    /// for each.
    cluster_issuer: Option<String>,
}

/// A value that breaks a rule: its field, the value and the rule.
pub(super) type Bad = (&'static str, String, String);

impl IdentityProviders {
    pub(super) fn parse(section: IdentityProvidersSection) -> Result<Self, Bad> {
        let IdentityProvidersSection {
            allowed_networks,
            cluster_issuer,
        } = section;
        let network = |text: String| {
            text.parse::<IpNet>().map_err(|_| {
                let rule = "must be a network such as 192.0.2.0/24 or 2001:db8::/64".to_owned();
                ("identityProviders.allowedNetworks", text, rule)
            })
        };
        let allowed_networks = allowed_networks.map(|networks| networks.into_iter().map(network).collect());
        if let Some(name) = cluster_issuer.as_ref().filter(|name| name.is_empty()) {
            let rule = "must be the name of a ClusterIssuer".to_owned();
            return Err(("identityProviders.clusterIssuer", name.clone(), rule));
        }
        Ok(Self {
            allowed_networks: allowed_networks.transpose()?,
            cluster_issuer,
        })
    }

    /// Networks that the agent may connect to where a tenant names the host. `None`: all but addresses that mean this machine, its
    /// link, or services of a cloud for its machines.
    #[must_use]
    pub fn allowed_networks(&self) -> Option<&[IpNet]> {
        self.allowed_networks.as_deref()
    }

    /// `ClusterIssuer` of cert-manager that issues certificates of providers whose entry names no CA and no issuer. `None`: the agent
    /// makes a CA for each.
    #[must_use]
    pub fn cluster_issuer(&self) -> Option<&str> {
        self.cluster_issuer.as_deref()
    }
}
