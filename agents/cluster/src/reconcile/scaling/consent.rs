//! Whether an object of Cluster API is of a `SIPCluster`.
//!
//! The namespace of the hosts has the objects of every tenant that has hosts there, and the cluster agent may write each. So what the
//! `SIPCluster` states of itself proves nothing: not the name of the object, and not the annotation that names a Cluster. Only who may
//! write the object or its template can give consent. They have: `hostSelector` of the template has the namespace and name of the one
//! `SIPCluster` whose hosts its Machines use, and the role. The Cluster is compared besides, by the rule that holds for consumers of
//! hosts: Machines of another one could not use these hosts.

use api::{ClusterApiCluster, ScaledKind, labels};
use kit::placement::{ClusterId, ObjectKey};

use super::object::{HostLabels, Object};

/// The `SIPCluster` and role that need consent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requester<'a> {
    pub(super) cluster: &'a ClusterId,
    /// The Cluster API cluster that it serves.
    pub(super) served: &'a ClusterApiCluster,
    pub(super) role: &'a str,
}

/// Why there is no consent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// Nothing shows that the object is of this `SIPCluster`. The message is the same as for one that does not exist.
    Foreign,
    /// Its template selects the hosts of another role.
    OtherRole(String),
    /// It is of another Cluster.
    OtherCluster(String),
}

/// Whether the object is of the `SIPCluster`, by itself and by its template.
pub(super) fn check(
    asking: Requester<'_>,
    object: &Object,
    template: Option<&HostLabels>,
) -> Result<(), Denied> {
    let Requester {
        cluster,
        served,
        role,
    } = asking;
    let selected = |label: &str| Some(template?.0.get(label)?.as_str());
    let is_own = selected(labels::CLUSTER_NAMESPACE) == Some(cluster.namespace())
        && selected(labels::CLUSTER_NAME) == Some(cluster.name());
    if !is_own {
        return Err(Denied::Foreign);
    }
    let selected = selected(labels::NODE_TYPE).unwrap_or_default();
    if selected != role {
        return Err(Denied::OtherRole(selected.to_owned()));
    }
    let named = object.cluster.as_deref().unwrap_or_default();
    if !served.is(&object.id.key.namespace, named) {
        return Err(Denied::OtherCluster(named.to_owned()));
    }
    Ok(())
}

/// Why there is no consent, for messages. It is the same text for an object of another tenant and for one that does not exist, so
/// that no tenant can read the names of others' objects.
pub(super) fn describe(
    asking: Requester<'_>,
    (kind, key): (ScaledKind, &ObjectKey),
    denied: &Denied,
) -> String {
    let Requester {
        cluster,
        served,
        role,
    } = asking;
    match denied {
        Denied::Foreign => format!(
            "there is no {kind} {key} whose Metal3MachineTemplate has {}: {}, {}: {} and {}: {role} in hostSelector.matchLabels",
            labels::CLUSTER_NAMESPACE,
            cluster.namespace(),
            labels::CLUSTER_NAME,
            cluster.name(),
            labels::NODE_TYPE,
        ),
        Denied::OtherRole(selected) => format!(
            "the Metal3MachineTemplate of {kind} {key} has {}: {selected:?} in hostSelector.matchLabels, and the role is {role}",
            labels::NODE_TYPE,
        ),
        Denied::OtherCluster(named) => format!(
            "{kind} {key} is of the Cluster {named:?}, and this SIPCluster serves {served} (annotation {})",
            api::annotations::CLUSTER_API_CLUSTER,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::object_id, *};
    use crate::fixtures::key_in;

    fn object(cluster: Option<&str>) -> Object {
        Object {
            id: object_id(),
            replicas: 1,
            cluster: cluster.map(str::to_owned),
            template: Some("t".to_owned()),
            is_paused: false,
            is_deleting: false,
            other_owner: None,
            set_by: None,
        }
    }

    fn template(namespace: &str, name: &str, role: &str) -> HostLabels {
        let labels = [
            (labels::CLUSTER_NAMESPACE, namespace),
            (labels::CLUSTER_NAME, name),
            (labels::NODE_TYPE, role),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        HostLabels(labels.into())
    }

    /// The victim is `SIPCluster` `a/shop`, whose Cluster is `shop`, with the object `metal/md` for its workers. Each row is what somebody
    /// writes who may edit `SIPCluster`s of the namespace `b` only, and what of the object is as its owner wrote it.
    #[expect(clippy::too_many_lines, reason = "a table of attacks")]
    #[test]
    fn no_tenant_reaches_the_objects_of_another_one() {
        let own = Some(template("a", "shop", "Worker"));
        for (who, asks, annotation, template, cluster, expected) in [
            ("its own", ("a", "shop"), None, own.clone(), Some("shop"), Ok(())),
            (
                "its own, by annotation",
                ("a", "shop"),
                Some("metal/prod"),
                own.clone(),
                Some("prod"),
                Ok(()),
            ),
            (
                "a stranger of another name",
                ("b", "stall"),
                None,
                own.clone(),
                Some("shop"),
                Err(Denied::Foreign),
            ),
            (
                "a stranger of the same name",
                ("b", "shop"),
                None,
                own.clone(),
                Some("shop"),
                Err(Denied::Foreign),
            ),
            (
                "one that claims its Cluster",
                ("b", "stall"),
                Some("shop"),
                own.clone(),
                Some("shop"),
                Err(Denied::Foreign),
            ),
            (
                "one that claims it with the namespace",
                ("b", "shop"),
                Some("metal/shop"),
                own.clone(),
                Some("shop"),
                Err(Denied::Foreign),
            ),
            (
                "an object without template",
                ("b", "shop"),
                None,
                None,
                Some("shop"),
                Err(Denied::Foreign),
            ),
            (
                "a template without labels",
                ("b", "shop"),
                None,
                Some(HostLabels::default()),
                Some("shop"),
                Err(Denied::Foreign),
            ),
            (
                "another of its tenant",
                ("a", "stall"),
                Some("shop"),
                own.clone(),
                Some("shop"),
                Err(Denied::Foreign),
            ),
            (
                "its own control plane for workers",
                ("a", "shop"),
                None,
                Some(self::template("a", "shop", "ControlPlane")),
                Some("shop"),
                Err(Denied::OtherRole("ControlPlane".to_owned())),
            ),
            (
                "of another Cluster",
                ("a", "shop"),
                None,
                own.clone(),
                Some("stall"),
                Err(Denied::OtherCluster("stall".to_owned())),
            ),
            (
                "of no Cluster",
                ("a", "shop"),
                None,
                own.clone(),
                None,
                Err(Denied::OtherCluster(String::new())),
            ),
            (
                "of a Cluster elsewhere",
                ("a", "shop"),
                Some("other/shop"),
                own.clone(),
                Some("shop"),
                Err(Denied::OtherCluster("shop".to_owned())),
            ),
        ] {
            let cluster_id = ClusterId::new(key_in(asks.0, asks.1), "u");
            let served = ClusterApiCluster::served_by(annotation, asks.1);
            let asking = Requester {
                cluster: &cluster_id,
                served: &served,
                role: "Worker",
            };
            let found = check(asking, &object(cluster), template.as_ref());
            assert_eq!(found, expected, "{who}");
        }
    }

    #[test]
    fn an_empty_name_is_no_consent() {
        // A spec cannot name these; labels can be empty.
        let cluster = ClusterId::new(key_in("a", "shop"), "u");
        let served = ClusterApiCluster::served_by(None, "shop");
        let asking = Requester {
            cluster: &cluster,
            served: &served,
            role: "Worker",
        };
        for labels in [
            template("", "", ""),
            template("a", "", "Worker"),
            template("", "shop", "Worker"),
        ] {
            let found = check(asking, &object(Some("shop")), Some(&labels));
            assert_eq!(found, Err(Denied::Foreign));
        }
    }
}
