//! What `override.service` of an entry may change at a site.

use std::collections::BTreeSet;

use api::{Exposure, Override};
use schemars::JsonSchema;
use serde::Deserialize;

use super::identity_providers::Bad;

/// What `override.service` of an entry may change at a site: nothing unless the site's operators list it. Keys of annotations and classes
/// reach controllers of the site with rights of their own, such as those of DNS records and of load balancers. Parsed with
/// [`super::SiteConfig`] only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceOverrides {
    annotations: BTreeSet<String>,
    labels: BTreeSet<String>,
    load_balancer_classes: BTreeSet<String>,
    default_load_balancer: bool,
    external_traffic_policies: BTreeSet<TrafficPolicy>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ServiceOverridesSection {
    /// Prefixes of keys of annotations that `override.service` of an entry may set. Default: none.
    #[serde(default)]
    annotations: BTreeSet<String>,
    /// Prefixes of keys of labels that `override.service` of an entry may set. Default: none.
    #[serde(default)]
    labels: BTreeSet<String>,
    /// Values that `loadBalancerClass` may have. Default: none.
    #[serde(default)]
    load_balancer_classes: BTreeSet<String>,
    /// Whether a Service may have the type `LoadBalancer` without `loadBalancerClass`. Default: false.
    #[serde(default)]
    default_load_balancer: bool,
    /// Values that `externalTrafficPolicy` may have besides `Cluster`. Default: none.
    #[serde(default)]
    external_traffic_policies: BTreeSet<TrafficPolicy>,
}

/// `externalTrafficPolicy` of a Service.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord)]
enum TrafficPolicy {
    /// The policy of every Service that names none.
    Cluster,
    Local,
}

impl ServiceOverrides {
    pub(super) fn parse(section: ServiceOverridesSection) -> Result<Self, Bad> {
        let ServiceOverridesSection {
            annotations,
            labels,
            load_balancer_classes,
            default_load_balancer,
            external_traffic_policies,
        } = section;
        let lists = [
            ("serviceOverrides.annotations", &annotations),
            ("serviceOverrides.labels", &labels),
            ("serviceOverrides.loadBalancerClasses", &load_balancer_classes),
        ];
        for (field, list) in lists {
            if list.contains("") {
                let rule = "must not be empty: an empty prefix would allow every key".to_owned();
                return Err((field, String::new(), rule));
            }
        }
        Ok(Self {
            annotations,
            labels,
            load_balancer_classes,
            default_load_balancer,
            external_traffic_policies,
        })
    }

    /// What of an override the site does not list, as paths below `override.service`.
    #[must_use]
    pub fn refused(&self, changes: &Override) -> Vec<String> {
        let labels = changes.labels().keys().map(|key| ("labels", key, &self.labels));
        let annotations = changes
            .annotations()
            .keys()
            .map(|key| ("annotations", key, &self.annotations));
        let metadata = labels.chain(annotations).filter_map(|(field, key, listed)| {
            let key = key.to_string();
            let is_listed = listed.iter().any(|prefix| key.starts_with(prefix.as_str()));
            (!is_listed).then(|| format!("metadata.{field}[{key}]"))
        });
        let exposure = match changes.exposure() {
            Exposure::NodePort => None,
            Exposure::LoadBalancer { class: None, .. } => (!self.default_load_balancer)
                .then(|| "spec.type LoadBalancer without loadBalancerClass".to_owned()),
            Exposure::LoadBalancer {
                class: Some(class), ..
            } => (!self.load_balancer_classes.contains(class))
                .then(|| format!("spec.loadBalancerClass {class}")),
        };
        let is_local = changes.keeps_clients();
        let policy = (is_local && !self.external_traffic_policies.contains(&TrafficPolicy::Local))
            .then(|| "spec.externalTrafficPolicy Local".to_owned());
        metadata.chain(exposure).chain(policy).collect()
    }
}

#[cfg(test)]
mod tests {
    use api::{Cluster, SIPCluster};
    use serde_json::{Value, json};

    use super::*;

    fn everything() -> Value {
        json!({"service": {
            "metadata": {
                "labels": {"team": "blue"},
                "annotations": {"metallb.universe.tf/address-pool": "tenants", "external-dns.alpha.kubernetes.io/hostname": "a.example"},
            },
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.org/metallb", "externalTrafficPolicy": "Local"},
        }})
    }

    fn refused(site: Value, changes: &Value) -> Vec<String> {
        let object: SIPCluster = serde_json::from_value(json!({
            "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
            "metadata": {"namespace": "tenant", "name": "shop", "uid": "now", "generation": 1},
            "spec": {
                "nodes": {"ControlPlane": {"count": {"active": 1, "standby": 0}, "topologyKey": "example.org/rack", "labelSelector": {}}},
                "services": {"loadBalancerControlPlane": [{
                    "image": "haproxy:3.2", "nodeInterfaceId": "oam-ipv4", "override": changes,
                }]},
            },
        }))
        .unwrap();
        let cluster = Cluster::parse(&object).unwrap();
        let service = cluster.load_balancers_control_plane()[0].service();
        let section = serde_json::from_value(site).unwrap();
        ServiceOverrides::parse(section)
            .unwrap()
            .refused(service.changes())
    }

    #[test]
    fn nothing_is_allowed_by_default() {
        let expected = [
            "metadata.labels[team]",
            "metadata.annotations[external-dns.alpha.kubernetes.io/hostname]",
            "metadata.annotations[metallb.universe.tf/address-pool]",
            "spec.loadBalancerClass example.org/metallb",
            "spec.externalTrafficPolicy Local",
        ];
        assert_eq!(refused(json!({}), &everything()), expected);
        let without_class = json!({"service": {"spec": {"type": "LoadBalancer"}}});
        assert_eq!(
            refused(json!({}), &without_class),
            ["spec.type LoadBalancer without loadBalancerClass"]
        );
        let explicit = json!({"service": {"spec": {"type": "NodePort", "externalTrafficPolicy": "Cluster"}}});
        assert!(refused(json!({}), &explicit).is_empty());
    }

    #[test]
    fn only_what_is_listed_is_allowed() {
        let site = json!({
            "annotations": ["metallb.universe.tf/"], "labels": ["team"],
            "loadBalancerClasses": ["example.org/metallb"], "externalTrafficPolicies": ["Local"],
        });
        assert_eq!(
            refused(site, &everything()),
            ["metadata.annotations[external-dns.alpha.kubernetes.io/hostname]"]
        );
        let without_class = json!({"service": {"spec": {"type": "LoadBalancer"}}});
        assert!(refused(json!({"defaultLoadBalancer": true}), &without_class).is_empty());
    }

    #[test]
    fn an_empty_prefix_is_refused() {
        let section = serde_json::from_value(json!({"annotations": [""]})).unwrap();
        let (field, _, _) = ServiceOverrides::parse(section).unwrap_err();
        assert_eq!(field, "serviceOverrides.annotations");
    }
}
