//! Who owns the objects with an instance's name. A forced apply would take over an object of somebody else, so the agent checks first.

use std::collections::BTreeMap;

use api::{SIPCluster, labels};
use k8s_openapi::api::core::v1::Service;
use kube::{Api, ResourceExt as _, core::ObjectMeta};

use super::{
    error::Error,
    identity::Identity,
    kinds::{Child, Kind},
    made_for,
    problem::{NAME_CONFLICT, Problem},
    site::Site,
};
use crate::{apply::Object, takeover};

/// The field manager of the Airship SIP operator, which wrote by updates.
pub const SIP_MANAGER: &str = "manager";

/// Makes the fields that SIP wrote to an object this agent's, so that the next apply removes those that it lacks: a node selector that no node of
/// the site matches any more, an init container, mounts of single files.
pub(super) async fn take_over<K: Object>(
    site: &Site,
    namespace: &str,
    found: &ObjectMeta,
) -> Result<(), Error> {
    let objects = Api::<K>::namespaced(site.client.clone(), namespace);
    let taken = takeover::take_over(&objects, found, SIP_MANAGER, site.identity.manager).await;
    taken
        .map(drop)
        .map_err(Error::kubernetes("take over what Airship SIP made"))
}

/// Why the objects of a name belong to somebody else; `None` if the cluster may own them. The Service stands for all objects of its instance,
/// which are made after it.
pub(super) async fn foreign(site: &Site, object: &SIPCluster, name: &str) -> Result<Option<String>, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let services = Api::<Service>::namespaced(site.client.clone(), &namespace);
    let existing = services
        .get_opt(name)
        .await
        .map_err(Error::kubernetes("read the Service"))?;
    let (uid, cluster) = (object.uid().unwrap_or_default(), object.name_any());
    Ok(existing.and_then(|existing| foreign_owner(site.identity, (&uid, &cluster), &existing)))
}

/// Why the cluster with this uid and name may not own an instance, by its Service; `None` if it may. A Service is the cluster's if the cluster
/// owns it, or if it was orphaned: it has no owner and the agent's labels. One that SIP made for this cluster may be taken over. SIP set no
/// owner, and labels on pods only, so its Services are known by what they select; it gave every cluster one name of a kind.
#[must_use]
pub fn foreign_owner(
    identity: &Identity,
    (uid, cluster): (&str, &str),
    existing: &Service,
) -> Option<String> {
    let name = format!(
        "Service {}/{}",
        existing.namespace().unwrap_or_default(),
        existing.name_any()
    );
    let selector = existing.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    match existing
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "SIPCluster")
    {
        Some(owner) if owner.uid == uid => None,
        Some(owner) => {
            let instance = (identity, Kind::Service);
            let former = former_owner(&name, instance, &existing.metadata, (uid, cluster));
            Some(former.unwrap_or_else(|| format!("{name} belongs to SIPCluster {}", owner.name)))
        }
        None if is_part_of_sip(existing.labels()) => {
            let is_sip_name = identity.is_sip_name(&existing.name_any(), cluster);
            made_for_another(existing.labels(), cluster, is_sip_name, &name)
        }
        None if selector.is_some_and(is_part_of_sip) => (!identity
            .is_sip_name(&existing.name_any(), cluster))
        .then(|| format!("{name} was made by Airship SIP for another SIPCluster")),
        None => Some(format!("{name} was not made for a SIPCluster")),
    }
}

/// Applies a child, unless an object of its name belongs to somebody else: that object is not changed, and the problem names it. A child that the
/// watch of the agent's objects shows needs no check.
pub(super) async fn apply_child(
    site: &Site,
    cluster: (&str, &str),
    child: &Child,
) -> kube::Result<Result<Option<String>, Problem>> {
    let metadata = child.metadata();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    if site.stores.version(namespace, child).is_none()
        && let Some(found) = child.kind().find(&site.client, namespace, name).await?
        && let Some(message) = foreign_child(site.identity, cluster, child.kind(), &found)
    {
        return Ok(Err(Problem::new(NAME_CONFLICT, message)));
    }
    child.apply(&site.client, site.identity.manager).await.map(Ok)
}

/// Why an object may not be a child of the cluster with this uid and name; `None` if it may. SIP set no owner: its objects are known by their
/// labels or by the names that it gave.
pub(super) fn foreign_child(
    identity: &Identity,
    (uid, cluster): (&str, &str),
    kind: Kind,
    found: &ObjectMeta,
) -> Option<String> {
    let name = found.name.as_deref().unwrap_or_default();
    let described = || {
        let namespace = found.namespace.as_deref().unwrap_or_default();
        format!("{} {namespace}/{name}", kind.as_str())
    };
    let owners = found.owner_references.iter().flatten();
    let mut clusters = owners.filter(|owner| owner.kind == "SIPCluster").peekable();
    if let Some(first) = clusters.peek() {
        let former = former_owner(&described(), (identity, kind), found, (uid, cluster));
        let other = former.unwrap_or_else(|| format!("{} belongs to SIPCluster {}", described(), first.name));
        return clusters.all(|owner| owner.uid != uid).then_some(other);
    }
    let is_sip_name = identity.is_sip_name(name, cluster);
    match found.labels.as_ref().filter(|labels| is_part_of_sip(labels)) {
        Some(on_object) => made_for_another(on_object, cluster, is_sip_name, &described()),
        None => (!is_sip_name).then(|| format!("{} was not made for a SIPCluster", described())),
    }
}

/// Why an object of this kind does not belong to the cluster with this uid and name, if it belongs to a former one of that name; `None` if it does
/// not, or if the agent does not find it among the objects of the former one. Usually the garbage collector deletes it before anybody reads this, and
/// else the agent.
#[must_use]
pub fn former_owner(
    described: &str,
    (identity, kind): (&Identity, Kind),
    object: &ObjectMeta,
    (uid, cluster): (&str, &str),
) -> Option<String> {
    let maker = made_for::Maker::of_object(object)?;
    let name = object.name.as_deref()?;
    let instance = object.labels.as_ref()?.get(labels::INSTANCE)?;
    let is_found = kind == Kind::Service && name == instance || identity.is_child(kind, name, instance);
    if !is_found || maker.name != cluster || maker.uid.is_none_or(|owner| owner == uid) {
        return None;
    }
    let belongs = format!("{described} belongs to a former SIPCluster {cluster}, which is gone");
    Some(if object.deletion_timestamp.is_some() {
        // The agent does not delete it again: it stays until its finalizers are removed.
        format!("{belongs}, and is being deleted")
    } else {
        let seconds = made_for::FORMER_GONE_WITHIN.as_secs();
        format!("{belongs}: the agent deletes it within {seconds} s")
    })
}

/// Why an object without an owner was made for another cluster; `None` if it was not. Two clusters may use one name: the object then stays that
/// of its cluster, whose pods may still run. An object whose labels name no cluster is this cluster's only if it has a name that SIP would have
/// given.
fn made_for_another(
    on_object: &BTreeMap<String, String>,
    cluster: &str,
    is_sip_name: bool,
    described: &str,
) -> Option<String> {
    match made_for::cluster(on_object) {
        Some(named) => (named != cluster).then(|| format!("{described} was made for SIPCluster {named}")),
        None => (!is_sip_name).then(|| {
            format!(
                "{described} has no owner, and no label {} that names its SIPCluster",
                labels::CLUSTER_NAME
            )
        }),
    }
}

fn is_part_of_sip(on_object: &BTreeMap<String, String>) -> bool {
    on_object
        .get(labels::PART_OF)
        .is_some_and(|part| part == labels::PART_OF_SIP)
}

#[cfg(test)]
mod tests {
    use crate::apply::Manager;
    use k8s_openapi::api::core::v1::ServiceSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use kube::core::ObjectMeta;

    use super::{super::kinds::Children, *};

    fn service(owner: Option<&str>, part_of: Option<&str>) -> Service {
        let owner = owner.map(|uid| OwnerReference {
            api_version: "airship.airshipit.org/v1".to_owned(),
            kind: "SIPCluster".to_owned(),
            name: format!("cluster-{uid}"),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        });
        Service {
            metadata: ObjectMeta {
                namespace: Some("ns".to_owned()),
                name: Some("lb".to_owned()),
                owner_references: owner.map(|owner| vec![owner]),
                labels: part_of.map(|part| [(labels::PART_OF.to_owned(), part.to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..Service::default()
        }
    }

    /// As ours for a cluster, without an owner.
    fn without_owner(cluster: &str) -> Service {
        let mut made = service(None, Some("sip"));
        let on_object = made.metadata.labels.get_or_insert_default();
        on_object.insert(labels::CLUSTER_NAME.to_owned(), cluster.to_owned());
        made
    }

    /// As ours for a former cluster, which still owns it.
    fn of_former(cluster: &str, instance: &str) -> Service {
        let mut made = without_owner(cluster);
        let on_object = made.metadata.labels.get_or_insert_default();
        on_object.insert(labels::INSTANCE.to_owned(), instance.to_owned());
        made.metadata.owner_references = service(Some("before"), None).metadata.owner_references;
        for owner in made.metadata.owner_references.iter_mut().flatten() {
            cluster.clone_into(&mut owner.name);
        }
        made
    }

    /// As SIP made it: no labels of its own, and a selector.
    fn selecting(part_of: &str) -> Service {
        Service {
            spec: Some(ServiceSpec {
                selector: Some([(labels::PART_OF.to_owned(), part_of.to_owned())].into()),
                ..ServiceSpec::default()
            }),
            ..service(None, None)
        }
    }

    const IDENTITY: Identity = Identity {
        manager: Manager("agent"),
        condition: api::conditions::JUMP_HOST_READY,
        component: "jumphost",
        name_prefixes: &["jumphost-"],
        sip_prefixes: &["jumphost-"],
        children: &[Children::named(Kind::Secret)],
        pod_labels: &[],
        pod_ports: &[],
        reports_drained: false,
        warnings: &[],
    };

    #[test]
    fn children_of_others_are_not_taken() {
        let found = |name: &str, object: Service| ObjectMeta {
            name: Some(name.to_owned()),
            ..object.metadata
        };
        for (found, expected) in [
            (found("jumphost-shop-1", service(Some("ours"), None)), None),
            (found("jumphost-shop", service(None, Some("sip"))), None),
            (
                found("jumphost-shop-1", service(None, Some("sip"))),
                Some(
                    "Secret ns/jumphost-shop-1 has no owner, and no label sip.airshipit.org/cluster-name that names its SIPCluster",
                ),
            ),
            (found("jumphost-shop-1", without_owner("shop")), None),
            (
                found("jumphost-shop", without_owner("bank")),
                Some("Secret ns/jumphost-shop was made for SIPCluster bank"),
            ),
            // As SIP made it.
            (found("jumphost-shop", service(None, None)), None),
            (
                found("jumphost-shop", service(Some("theirs"), Some("sip"))),
                Some("Secret ns/jumphost-shop belongs to SIPCluster cluster-theirs"),
            ),
            (
                found("jumphost-shop", of_former("shop", "jumphost-shop")),
                Some(
                    "Secret ns/jumphost-shop belongs to a former SIPCluster shop, which is gone: the agent deletes it within 120 s",
                ),
            ),
            (
                found("jumphost-shop", of_former("bank", "jumphost-shop")),
                Some("Secret ns/jumphost-shop belongs to SIPCluster bank"),
            ),
            // The agent does not delete it.
            (
                found("jumphost-shop", of_former("shop", "copied")),
                Some("Secret ns/jumphost-shop belongs to SIPCluster shop"),
            ),
            (
                found("jumphost-shop-1", of_former("shop", "jumphost-shop")),
                Some("Secret ns/jumphost-shop-1 belongs to SIPCluster shop"),
            ),
            (
                found("jumphost-shop-1", service(None, None)),
                Some("Secret ns/jumphost-shop-1 was not made for a SIPCluster"),
            ),
        ] {
            let message = foreign_child(&IDENTITY, ("ours", "shop"), Kind::Secret, &found);
            assert_eq!(message.as_deref(), expected);
        }
    }

    #[test]
    fn only_another_uid_of_the_same_name_is_a_former_owner() {
        const NAME: &str = "jumphost-shop";
        let made_for = |cluster: &str| {
            let mut made = of_former(cluster, NAME).metadata;
            made.name = Some(NAME.to_owned());
            made
        };
        let message = |found: &ObjectMeta, uid: &str| {
            former_owner("Secret s", (&IDENTITY, Kind::Secret), found, (uid, "shop"))
        };
        let mut found = made_for("shop");
        let expected =
            "Secret s belongs to a former SIPCluster shop, which is gone: the agent deletes it within 120 s";
        assert_eq!(message(&found, "now").as_deref(), Some(expected));
        assert_eq!(message(&found, "before"), None);
        assert_eq!(message(&made_for("bank"), "now"), None);
        let mut unowned = made_for("shop");
        unowned.owner_references = None;
        assert_eq!(message(&unowned, "now"), None);
        let mut unlabelled = made_for("shop");
        unlabelled.labels.get_or_insert_default().remove(labels::INSTANCE);
        assert_eq!(message(&unlabelled, "now"), None);
        // The agent does not delete it again.
        found.deletion_timestamp = serde_json::from_value(serde_json::json!("2026-01-01T00:00:00Z")).unwrap();
        let expected = "Secret s belongs to a former SIPCluster shop, which is gone, and is being deleted";
        assert_eq!(message(&found, "now").as_deref(), Some(expected));
    }

    #[test]
    fn only_our_objects_and_those_of_sip_are_taken() {
        for (existing, expected) in [
            (service(Some("ours"), None), None),
            (
                service(None, Some("sip")),
                Some(
                    "Service ns/lb has no owner, and no label sip.airshipit.org/cluster-name that names its SIPCluster",
                ),
            ),
            (without_owner("shop"), None),
            (
                without_owner("bank"),
                Some("Service ns/lb was made for SIPCluster bank"),
            ),
            (
                selecting("shop"),
                Some("Service ns/lb was not made for a SIPCluster"),
            ),
            (
                service(Some("theirs"), Some("sip")),
                Some("Service ns/lb belongs to SIPCluster cluster-theirs"),
            ),
            (
                of_former("shop", "lb"),
                Some(
                    "Service ns/lb belongs to a former SIPCluster shop, which is gone: the agent deletes it within 120 s",
                ),
            ),
            (
                of_former("bank", "lb"),
                Some("Service ns/lb belongs to SIPCluster bank"),
            ),
            // As `kubectl expose` copies the labels; the agent does not delete it.
            (
                of_former("shop", "l"),
                Some("Service ns/lb belongs to SIPCluster shop"),
            ),
            (
                service(None, Some("shop")),
                Some("Service ns/lb was not made for a SIPCluster"),
            ),
            (
                service(None, None),
                Some("Service ns/lb was not made for a SIPCluster"),
            ),
        ] {
            let message = foreign_owner(&IDENTITY, ("ours", "shop"), &existing);
            assert_eq!(message.as_deref(), expected);
        }
    }

    #[test]
    fn what_sip_made_is_taken_for_its_own_cluster_only() {
        let mut existing = selecting("sip");
        for (name, cluster, is_taken) in [
            ("jumphost-shop", "shop", true),
            ("jumphost-shop-1", "shop-1", true),
            // The name of the second entry of the cluster.
            ("jumphost-shop-1", "shop", false),
            ("jumphost-shop", "shop-1", false),
        ] {
            existing.metadata.name = Some(name.to_owned());
            let message = foreign_owner(&IDENTITY, ("ours", cluster), &existing);
            assert_eq!(message.is_none(), is_taken, "{name} {cluster}: {message:?}");
        }
    }
}
