//! Templates of `haproxy.cfg` for Airship SIP. It reads them from `ConfigMap`s in the namespaces of `SIPCluster`s, where the agents do not read them:
//! one that a site has changed must be translated before the switch-over. Pure.

use std::collections::{BTreeMap, BTreeSet};

use placement::{ClusterName, Namespace};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::input::{Document, Input};

/// A template of Airship SIP.
struct Stock {
    config_map: &'static str,
    key: &'static str,
    /// SHA-256, in hexadecimal digits, of the text that Airship SIP comes with, without white space at its end. No release has another one.
    digest: &'static str,
}

static STOCK: [Stock; 2] = [
    Stock {
        config_map: "loadbalancercontrolplane",
        key: "loadBalancerControlPlane.cfg",
        digest: "4e196a8d38124e5b7705efc5d7077f2607caae3451dfa5eb5ac49fea8a63f7ef",
    },
    Stock {
        config_map: "loadbalancerworker",
        key: "loadBalancerWorker.cfg",
        digest: "889c1678d5774ccea6bb3a6ea0d4c6bcb896941642294a453fa7325d94c13356",
    },
];

impl Stock {
    /// White space at the end is lost in some ways of writing YAML, and means nothing to HAProxy.
    fn is_text(&self, text: &str) -> bool {
        hex::encode(Sha256::digest(text.trim_end())) == self.digest
    }
}

/// Names of the `ConfigMap`s that may hold a template.
pub(crate) fn config_map_names() -> impl Iterator<Item = &'static str> {
    STOCK.iter().map(|stock| stock.config_map)
}

/// A template that a site has changed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomTemplate {
    /// The `ConfigMap` that Airship SIP reads, `namespace/name`.
    pub config_map: String,
    /// Its key.
    pub key: String,
    /// The `ConfigMap` that the agents read, `namespace/name`; its key is the same.
    pub translation: String,
    /// Whether that `ConfigMap` holds a text of its own.
    pub is_translated: bool,
}

impl CustomTemplate {
    /// What was found and what to do, as a sentence for people.
    #[must_use]
    pub fn message(&self) -> String {
        let Self {
            config_map,
            key,
            translation,
            is_translated,
        } = self;
        let found = format!(
            "ConfigMap {config_map}, key {key}: differs from the template that Airship SIP comes with"
        );
        if *is_translated {
            format!("{found}; the agents use ConfigMap {translation} in its place")
        } else {
            format!(
                "{found}; the agents do not read it: translate it into ConfigMap {translation}, same key \
                 (docs/load-balancers.md, \"Templates\"), or accept the built-in configuration"
            )
        }
    }
}

/// The `ConfigMap`s of a site, as far as they have templates.
#[derive(Clone, Debug, Default)]
pub struct Templates {
    /// By namespace and key. Each key belongs to one name of a `ConfigMap`.
    texts: BTreeMap<(String, &'static str), String>,
    has_config_maps: bool,
}

impl Templates {
    /// Reads the `ConfigMap`s among documents. One without a namespace is in `default`.
    #[must_use]
    pub fn read(documents: &[Document], default: &Namespace) -> Self {
        let mut found = Self::default();
        for object in documents.iter().map(Document::object) {
            let text = |field: &str| object.get(field).and_then(Value::as_str);
            if (text("apiVersion"), text("kind")) != (Some("v1"), Some("ConfigMap")) {
                continue;
            }
            found.has_config_maps = true;
            let metadata = |field: &str| object.get("metadata")?.get(field)?.as_str();
            let name = metadata("name").unwrap_or_default();
            let Some(stock) = STOCK.iter().find(|stock| stock.config_map == name) else {
                continue;
            };
            let template = object.get("data").and_then(|data| data.get(stock.key)?.as_str());
            // Without a text there is nothing to translate.
            let Some(template) = template.filter(|text| !text.trim().is_empty()) else {
                continue;
            };
            let namespace = metadata("namespace").filter(|namespace| !namespace.is_empty());
            let namespace = namespace.unwrap_or(default.as_str()).to_owned();
            found.texts.insert((namespace, stock.key), template.to_owned());
        }
        found
    }

    /// Whether any `ConfigMap` was read. Every namespace of a cluster has one, so if there is none, they were left out.
    #[must_use]
    pub fn has_config_maps(&self) -> bool {
        self.has_config_maps
    }

    /// The templates that differ from those of Airship SIP, in the namespaces of the input's clusters. `agents`: the namespace of the agents.
    #[must_use]
    pub fn customised(&self, input: &Input, agents: &Namespace) -> Vec<CustomTemplate> {
        let mut found = Vec::new();
        for namespace in namespaces(input) {
            for stock in &STOCK {
                let text = self.text(namespace, stock);
                let Some(text) = text.filter(|text| !stock.is_text(text)) else {
                    continue;
                };
                // A copy of the text is no translation: the agents refuse the actions of Go.
                let is_translated = self
                    .text(agents, stock)
                    .is_some_and(|translated| translated != text && !stock.is_text(translated));
                let named = |namespace: &Namespace| format!("{namespace}/{}", stock.config_map);
                found.push(CustomTemplate {
                    config_map: named(namespace),
                    key: stock.key.to_owned(),
                    translation: named(agents),
                    is_translated,
                });
            }
        }
        found
    }

    fn text(&self, namespace: &Namespace, stock: &Stock) -> Option<&str> {
        let place = (namespace.as_str().to_owned(), stock.key);
        self.texts.get(&place).map(String::as_str)
    }
}

/// The namespaces of the input's clusters: Airship SIP reads templates in these.
pub(crate) fn namespaces(input: &Input) -> BTreeSet<&Namespace> {
    input.clusters.keys().map(ClusterName::namespace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_at_the_end_does_not_change_a_template() {
        let stock = Stock {
            config_map: "map",
            key: "key",
            // Of "a".
            digest: "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
        };
        for (text, expected) in [
            ("a", true),
            ("a\n", true),
            ("a \n\n", true),
            (" a", false),
            ("b", false),
        ] {
            assert_eq!(stock.is_text(text), expected, "{text:?}");
        }
    }
}
