//! Which Cluster API cluster the hosts of a SIPCluster are for, and whether a host's consumer belongs to it.
//!
//! The policy in `deploy/policies` decides by the same rules on the API server.

use std::fmt;

use vocabulary::LabelValue;

use crate::{annotations, bare_metal_host::ConsumerReference, fault::Fault, labels, sip_cluster::SIPCluster};

/// Group of metal3's own kinds.
pub const METAL3: &str = "metal3.io";
/// Kind of metal3 by which a tenant claims a host of another namespace. It may have a consumer of its own, such as a `Metal3Machine`.
pub const HOST_CLAIM: &str = "HostClaim";

/// A Cluster API cluster. Its namespace may be left open.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterApiCluster {
    namespace: Option<String>,
    name: String,
}

/// Whether a host's consumer belongs to a Cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ownership {
    /// It belongs to this Cluster.
    Own,
    /// It belongs to another Cluster.
    Foreign,
    /// Nothing on the host names its Cluster.
    Unknown,
}

impl ClusterApiCluster {
    /// Parses annotation [`annotations::CLUSTER_API_CLUSTER`] of a SIPCluster; `None` without the annotation.
    ///
    /// # Errors
    /// When its value is not `NAME` or `NAMESPACE/NAME`.
    pub fn parse(object: &SIPCluster) -> Result<Option<Self>, Fault> {
        let annotations = object.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|all| all.get(annotations::CLUSTER_API_CLUSTER)) else {
            return Ok(None);
        };
        Self::from_text(text).map(Some).ok_or_else(|| {
            let path = format!("metadata.annotations[{}]", annotations::CLUSTER_API_CLUSTER);
            Fault::text(
                &path,
                text,
                "must name a Cluster API cluster as NAME or NAMESPACE/NAME, each at most 63 characters",
            )
        })
    }

    /// The Cluster that a host's annotation names; without one, or where it cannot be parsed, the Cluster with the name of the SIPCluster.
    #[must_use]
    pub fn served_by(annotation: Option<&str>, sip_cluster: &str) -> Self {
        annotation.and_then(Self::from_text).unwrap_or_else(|| Self {
            namespace: None,
            name: sip_cluster.to_owned(),
        })
    }

    fn from_text(text: &str) -> Option<Self> {
        let part = |text: &str| {
            let valid = !text.is_empty() && text.parse::<LabelValue>().is_ok();
            valid.then(|| text.to_owned())
        };
        match text.split_once('/') {
            None => Some(Self {
                namespace: None,
                name: part(text)?,
            }),
            Some((namespace, name)) => Some(Self {
                namespace: Some(part(namespace)?),
                name: part(name)?,
            }),
        }
    }

    /// Its name: the value of [`labels::CLUSTER_API`] on its hosts.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the Cluster of this namespace and name is this one.
    #[must_use]
    pub fn is(&self, namespace: &str, name: &str) -> bool {
        self.name == name && self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// Whether a host's consumer belongs to this Cluster. `tenant`: namespace of the SIPCluster; `label`: value of [`labels::CLUSTER_API`] on the
    /// host.
    #[must_use]
    pub fn owns(&self, consumer: &ConsumerReference, tenant: &str, label: Option<&str>) -> Ownership {
        let is_claim = consumer.is_host_claim();
        // A HostClaim carries no name of a Cluster; it lives in the namespace of the tenant.
        let namespace = self.namespace.as_deref().or(is_claim.then_some(tenant));
        let label = label.filter(|label| !label.is_empty());
        if namespace.is_some_and(|namespace| Some(namespace) != consumer.namespace.as_deref()) {
            return Ownership::Foreign;
        }
        match label {
            Some(label) if label == self.name => Ownership::Own,
            Some(_) => Ownership::Foreign,
            None if is_claim => Ownership::Own,
            None => Ownership::Unknown,
        }
    }
}

impl ConsumerReference {
    /// Whether it is a `HostClaim` of metal3.
    #[must_use]
    pub fn is_host_claim(&self) -> bool {
        let group = self.api_version.as_deref().unwrap_or_default();
        let group = group.split('/').next().unwrap_or_default();
        (group, self.kind.as_deref()) == (METAL3, Some(HOST_CLAIM))
    }
}

impl fmt::Display for ClusterApiCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// Describes a consumer and its Cluster for messages. `label`: value of [`labels::CLUSTER_API`] on the host.
#[must_use]
pub fn described(consumer: &ConsumerReference, label: Option<&str>) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (kind, namespace, name) = (
        part(&consumer.kind),
        part(&consumer.namespace),
        part(&consumer.name),
    );
    match label {
        Some(label) if !label.is_empty() => {
            format!("{kind} {namespace}/{name} of the Cluster API cluster {label}")
        }
        Some(_) | None => format!("{kind} {namespace}/{name} (no label {})", labels::CLUSTER_API),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer(version: &str, kind: &str, namespace: &str) -> ConsumerReference {
        ConsumerReference {
            api_version: Some(version.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some("m-0".to_owned()),
        }
    }

    #[test]
    fn a_consumer_belongs_by_label_and_namespace() {
        let machine = consumer(
            "infrastructure.cluster.x-k8s.io/v1beta1",
            "Metal3Machine",
            "metal",
        );
        let claim = consumer("metal3.io/v1alpha1", "HostClaim", "tenant");
        let thing = consumer("x/v1", "Thing", "y");
        for (annotation, user, label, expected) in [
            (None, &machine, Some("shop"), Ownership::Own),
            (None, &machine, Some("stall"), Ownership::Foreign),
            (None, &machine, None, Ownership::Unknown),
            (None, &machine, Some(""), Ownership::Unknown),
            (Some("stall"), &machine, Some("stall"), Ownership::Own),
            (Some("stall"), &machine, Some("shop"), Ownership::Foreign),
            (Some("metal/stall"), &machine, Some("stall"), Ownership::Own),
            (Some("other/stall"), &machine, Some("stall"), Ownership::Foreign),
            (None, &claim, None, Ownership::Own),
            (None, &claim, Some("stall"), Ownership::Foreign),
            (Some("other/shop"), &claim, None, Ownership::Foreign),
            (None, &thing, None, Ownership::Unknown),
        ] {
            let served = ClusterApiCluster::served_by(annotation, "shop");
            let label_shown = label.unwrap_or("-");
            assert_eq!(
                served.owns(user, "tenant", label),
                expected,
                "{served} {} {label_shown}",
                described(user, label)
            );
        }
        let elsewhere = consumer("metal3.io/v1alpha1", "HostClaim", "tenant-b");
        let served = ClusterApiCluster::served_by(None, "shop");
        assert_eq!(served.owns(&elsewhere, "tenant", None), Ownership::Foreign);
    }

    #[test]
    fn an_annotation_that_names_no_cluster_is_a_fault() {
        for bad in ["", "/shop", "metal/", "a/b/c", "-"] {
            assert_eq!(ClusterApiCluster::from_text(bad), None, "{bad}");
        }
    }
}
