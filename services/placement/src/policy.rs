//! A site's policy: data that an operator of the site writes, not a tenant.

use std::collections::{BTreeMap, BTreeSet};

use vocabulary::{LabelKey, LabelValue, Namespace};

/// A site's policy. The default one has no hierarchy, cordons, quotas or preferences.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(
    feature = "serde",
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct Policy {
    /// Label keys of the site's failure domains from the outermost inwards, e.g. room, rack. Hosts of a role are
    /// spread over them as evenly as their selectors and topology keys allow; a preference, never a refusal.
    pub hierarchy: Vec<LabelKey>,
    /// Domains whose hosts get no new claim.
    pub cordoned: BTreeSet<Domain>,
    /// The most hosts that the clusters of one namespace may hold together. No entry: no limit.
    pub quotas: BTreeMap<Namespace, u32>,
    /// Namespaces of `BareMetalHosts` in the order in which they are tried for a new cluster; those not named come last.
    pub namespace_preference: Vec<Namespace>,
}

/// One value of one label key: the hosts that carry it are in one domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct Domain {
    /// The label key.
    pub key: LabelKey,
    /// Its value.
    pub value: LabelValue,
}

impl std::fmt::Display for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_strictly_and_names_what_is_wrong() {
        let text = r#"{"hierarchy": ["room", "rack"], "cordoned": [{"key": "rack", "value": "r1"}],
            "quotas": {"tenant": 5}, "namespacePreference": ["metal"]}"#;
        let policy: Policy = serde_json::from_str(text).expect("valid");
        assert_eq!(
            (policy.hierarchy.len(), policy.cordoned.len(), policy.quotas.len()),
            (2, 1, 1)
        );
        assert_eq!(
            serde_json::from_str::<Policy>("{}").expect("valid"),
            Policy::default()
        );
        let unknown = serde_json::from_str::<Policy>(r#"{"hierachy": []}"#)
            .expect_err("a typo")
            .to_string();
        assert!(unknown.contains("unknown field `hierachy`"), "{unknown}");
        let bad = serde_json::from_str::<Policy>(r#"{"hierarchy": ["-"]}"#)
            .expect_err("no label key")
            .to_string();
        assert!(bad.contains("label key \"-\" is not valid"), "{bad}");
    }
}
