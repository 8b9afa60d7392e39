//! A site's policy: data that an operator of the site writes, not a tenant.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{LabelKey, LabelValue, Namespace};

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
