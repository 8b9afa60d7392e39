//! Whether another cluster of the site has the issuer of a provider. Pure.
//!
//! API servers take a token for a person's by issuer and client: with the issuer of another cluster's provider, and a CA that both have, an API
//! server would let the people of that cluster in. The provider would also count as ready, since the other one answers.

use api::{HttpsUrl, SIPCluster};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

/// Whose the issuer is already: of two clusters that publish it, of the older one. It tells nothing of other namespaces.
pub(crate) fn other_owner<'a>(
    object: &SIPCluster,
    issuer: &HttpsUrl,
    clusters: impl Iterator<Item = &'a SIPCluster>,
) -> Option<String> {
    let is_published = publishes(object, issuer);
    let mut others = clusters.filter(|other| {
        other.uid() != object.uid()
            && publishes(other, issuer)
            && (!is_published || precedence(other) < precedence(object))
    });
    let other = others.next()?;
    Some(if other.namespace() == object.namespace() {
        format!("SIPCluster {}", other.name_any())
    } else {
        "a SIPCluster of another namespace".to_owned()
    })
}

fn publishes(cluster: &SIPCluster, issuer: &HttpsUrl) -> bool {
    let endpoints = cluster.status.iter().flat_map(|status| &status.endpoints);
    let mut issuers = endpoints.filter_map(|endpoint| endpoint.issuer.as_deref());
    issuers.any(|other| other == issuer.as_str())
}

fn precedence(cluster: &SIPCluster) -> (Option<Time>, Option<String>) {
    (cluster.creation_timestamp(), cluster.uid())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(namespace: &str, name: &str, hour: u8, issuer: Option<&str>) -> SIPCluster {
        let endpoints: Vec<_> = issuer
            .iter()
            .map(|issuer| json!({"name": "auth", "port": 443, "issuer": issuer}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {
                "namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"),
                "creationTimestamp": format!("2026-01-01T{hour:02}:00:00Z"),
            },
            "spec": {},
            "status": {"endpoints": endpoints},
        }))
        .unwrap()
    }

    #[test]
    fn an_issuer_is_of_the_cluster_that_has_it_first() {
        const SSO: &str = "https://sso.example.org/dex";
        let issuer = HttpsUrl::from_parts("sso.example.org", 443, "/dex").unwrap();
        assert_eq!(issuer.as_str(), SSO);
        let shop = |issuer| cluster("tenants", "shop", 2, issuer);
        for (object, other, expected) in [
            (
                shop(None),
                cluster("tenants", "bank", 3, Some(SSO)),
                Some("SIPCluster bank"),
            ),
            (
                shop(None),
                cluster("bank", "bank", 3, Some(SSO)),
                Some("a SIPCluster of another namespace"),
            ),
            (shop(Some(SSO)), cluster("tenants", "bank", 3, Some(SSO)), None),
            (
                shop(Some(SSO)),
                cluster("tenants", "bank", 1, Some(SSO)),
                Some("SIPCluster bank"),
            ),
            (
                shop(None),
                cluster("tenants", "bank", 1, Some("https://sso.example.org:8443/dex")),
                None,
            ),
            (shop(None), cluster("tenants", "bank", 1, None), None),
            (shop(Some(SSO)), shop(Some(SSO)), None),
        ] {
            let found = other_owner(&object, &issuer, [&other].into_iter());
            assert_eq!(found.as_deref(), expected, "{object:?} {other:?}");
        }
    }
}
