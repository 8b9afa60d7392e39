//! How users reach a service: what `override` of an entry changes in its Service.

use std::collections::BTreeMap;

use serde_json::Value;
use vocabulary::{LabelKey, LabelValue};

use crate::cluster::selector::{label_key, label_value};
use crate::fault::Fault;
use crate::labels;

const TYPES: &str = "must be NodePort or LoadBalancer";
const POLICIES: &str = "must be Cluster or Local";
const ONLY_LOAD_BALANCER: &str = "may only be set with type LoadBalancer";
/// Labels by which the agents and users find what was made for a SIPCluster.
const RESERVED: [&str; 6] = [
    labels::PART_OF,
    labels::COMPONENT,
    labels::NAME,
    labels::INSTANCE,
    labels::MANAGED_BY,
    labels::CLUSTER_NAME,
];

/// What a Service is besides what the agent makes it. Selector, ports and owner are never the user's.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Override {
    labels: BTreeMap<LabelKey, LabelValue>,
    annotations: BTreeMap<LabelKey, String>,
    exposure: Exposure,
    keeps_clients: bool,
}

/// Where a Service is reached.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Exposure {
    /// On ports of the site's nodes.
    #[default]
    NodePort,
    /// On an address that a load balancer of the site gives.
    LoadBalancer {
        /// Which load balancer; `None`: the site's default.
        class: Option<String>,
        /// Whether it has ports on the site's nodes too.
        node_ports: bool,
    },
}

impl Override {
    /// Labels that the Service has too. None of those that all children have.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<LabelKey, LabelValue> {
        &self.labels
    }

    /// Annotations of the Service.
    #[must_use]
    pub fn annotations(&self) -> &BTreeMap<LabelKey, String> {
        &self.annotations
    }

    /// Where the Service is reached.
    #[must_use]
    pub fn exposure(&self) -> &Exposure {
        &self.exposure
    }

    /// Whether pods see the addresses of clients (`externalTrafficPolicy: Local`): nodes without a pod do not answer then.
    #[must_use]
    pub fn keeps_clients(&self) -> bool {
        self.keeps_clients
    }
}

impl Exposure {
    /// Whether the API server gives ports on the site's nodes to a Service that does not ask for certain ones.
    #[must_use]
    pub fn has_node_ports(&self) -> bool {
        match self {
            Self::NodePort => true,
            Self::LoadBalancer { class: _, node_ports } => *node_ports,
        }
    }
}

pub(super) fn parse(value: Option<&Value>, path: &str, faults: &mut Vec<Fault>) -> Override {
    let mut read = Reader { faults };
    let fields = read.object(value, path, &["service"]);
    let path = format!("{path}.service");
    let service = read.object(fields.get("service").copied(), &path, &["metadata", "spec"]);
    let (at_metadata, at_spec) = (format!("{path}.metadata"), format!("{path}.spec"));
    let metadata = read.object(
        service.get("metadata").copied(),
        &at_metadata,
        &["labels", "annotations"],
    );
    let spec = read.object(
        service.get("spec").copied(),
        &at_spec,
        &[
            "type",
            "loadBalancerClass",
            "allocateLoadBalancerNodePorts",
            "externalTrafficPolicy",
        ],
    );
    Override {
        labels: read.labels(metadata.get("labels").copied(), &format!("{at_metadata}.labels")),
        annotations: read.annotations(
            metadata.get("annotations").copied(),
            &format!("{at_metadata}.annotations"),
        ),
        exposure: read.exposure(&spec, &at_spec),
        keeps_clients: read.keeps_clients(&spec, &at_spec),
    }
}

struct Reader<'a> {
    faults: &'a mut Vec<Fault>,
}

/// The fields of an object that are there and not null.
type Fields<'v> = BTreeMap<&'v str, &'v Value>;

impl Reader<'_> {
    /// The known fields; others are faults.
    fn object<'v>(&mut self, value: Option<&'v Value>, path: &str, known: &[&str]) -> Fields<'v> {
        let mut fields = Fields::new();
        for (key, value) in self.entries(value, path) {
            if known.contains(&key) {
                fields.insert(key, value);
            } else {
                let rule = format!("is an unknown field; supported: {}", known.join(", "));
                self.faults
                    .push(Fault::text(&format!("{path}.{key}"), &value.to_string(), rule));
            }
        }
        fields
    }

    /// The entries of a map that are not null.
    fn entries<'v>(&mut self, value: Option<&'v Value>, path: &str) -> Fields<'v> {
        let entries = match value {
            None | Some(Value::Null) => return Fields::new(),
            Some(Value::Object(entries)) => entries,
            Some(other) => {
                self.faults
                    .push(Fault::text(path, &other.to_string(), "must be an object"));
                return Fields::new();
            }
        };
        let entries = entries.iter().filter(|(_, value)| !value.is_null());
        entries.map(|(key, value)| (key.as_str(), value)).collect()
    }

    fn text<'v>(&mut self, value: &'v Value, path: &str) -> Option<&'v str> {
        let text = value.as_str();
        if text.is_none() {
            self.faults
                .push(Fault::text(path, &value.to_string(), "must be a text"));
        }
        text
    }

    fn labels(&mut self, value: Option<&Value>, path: &str) -> BTreeMap<LabelKey, LabelValue> {
        let mut labels = BTreeMap::new();
        for (key, value) in self.entries(value, path) {
            let path = format!("{path}[{key}]");
            if RESERVED.contains(&key) {
                self.faults
                    .push(Fault::text(&path, &value.to_string(), "is set by the agent"));
                continue;
            }
            let key = label_key(key, &path, self.faults);
            let value = self
                .text(value, &path)
                .and_then(|value| label_value(value, &path, self.faults));
            labels.extend(key.zip(value));
        }
        labels
    }

    fn annotations(&mut self, value: Option<&Value>, path: &str) -> BTreeMap<LabelKey, String> {
        let mut annotations = BTreeMap::new();
        for (key, value) in self.entries(value, path) {
            let path = format!("{path}[{key}]");
            let key = label_key(key, &path, self.faults);
            let value = self.text(value, &path).map(str::to_owned);
            annotations.extend(key.zip(value));
        }
        annotations
    }

    fn exposure(&mut self, spec: &Fields<'_>, path: &str) -> Exposure {
        let field = |name: &str| format!("{path}.{name}");
        let class = spec
            .get("loadBalancerClass")
            .and_then(|value| self.class(value, &field("loadBalancerClass")));
        let node_ports = spec.get("allocateLoadBalancerNodePorts").and_then(|value| {
            let flag = value.as_bool();
            if flag.is_none() {
                let path = field("allocateLoadBalancerNodePorts");
                self.faults
                    .push(Fault::text(&path, &value.to_string(), "must be true or false"));
            }
            flag
        });
        let kind = spec.get("type").map(|kind| (*kind, kind.as_str()));
        match kind {
            Some((_, Some("LoadBalancer"))) => {
                return Exposure::LoadBalancer {
                    class,
                    node_ports: node_ports.unwrap_or(true),
                };
            }
            None | Some((_, Some("NodePort"))) => {}
            Some((kind, _)) => self
                .faults
                .push(Fault::text(&field("type"), &kind.to_string(), TYPES)),
        }
        for name in ["loadBalancerClass", "allocateLoadBalancerNodePorts"] {
            if let Some(value) = spec.get(name) {
                self.faults
                    .push(Fault::text(&field(name), &value.to_string(), ONLY_LOAD_BALANCER));
            }
        }
        Exposure::NodePort
    }

    fn keeps_clients(&mut self, spec: &Fields<'_>, path: &str) -> bool {
        match spec
            .get("externalTrafficPolicy")
            .map(|policy| (*policy, policy.as_str()))
        {
            None | Some((_, Some("Cluster"))) => false,
            Some((_, Some("Local"))) => true,
            Some((policy, _)) => {
                let path = format!("{path}.externalTrafficPolicy");
                self.faults
                    .push(Fault::text(&path, &policy.to_string(), POLICIES));
                false
            }
        }
    }

    /// A class has the form of a label's key.
    fn class(&mut self, value: &Value, path: &str) -> Option<String> {
        let text = self.text(value, path)?;
        label_key(text, path, self.faults).map(|key| key.to_string())
    }
}
