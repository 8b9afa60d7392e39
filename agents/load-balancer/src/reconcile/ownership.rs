//! Whose an object is that has the name of ours. A forced apply would take it over; nobody else's is.

use std::collections::BTreeMap;

use api::{SIPCluster, labels};
use k8s_openapi::api::core::v1::Service;
use kit::apply::{self, Object};
use kube::{Api, Client, ResourceExt as _};

use super::{Error, MANAGER};

/// Under this name SIP wrote fields, by updates.
const SIP: &str = "manager";

/// What has come of applying a Service.
#[derive(Debug)]
pub(super) enum Ownership {
    /// It is ours, and as it is now.
    Ours(Box<Service>),
    /// It is another's, and was left alone; for people.
    Anothers(String),
    /// The API server takes no such Service; its words.
    Refused(String),
}

/// Applies a Service, if there is none of its name or that is ours or SIP's. `known`: the one that a watch has shown last.
///
/// One look at the API server is saved where it is known what there is: a Service that is ours is applied on the condition that
/// it is still the same, and one that nobody has seen without force, so that another's is never taken over.
pub(super) async fn apply(
    client: &Client,
    object: &SIPCluster,
    service: &Service,
    known: Option<&Service>,
) -> Result<Ownership, Error> {
    let ours = known.filter(|known| is_owned_by(known, &object.uid().unwrap_or_default()));
    let first = match (known, ours) {
        (_, Some(ours)) => {
            let mut same = service.clone();
            same.metadata.uid = ours.uid();
            Some(apply::apply(client, MANAGER, &same).await)
        }
        (None, None) => Some(apply::apply_unclaimed(client, MANAGER, service).await),
        (Some(_), None) => None,
    };
    match first {
        Some(Err(error)) if apply::code(&error) == Some(409) => {}
        Some(applied) => return outcome(applied),
        None => {}
    }
    let (namespace, name) = (object.namespace().unwrap_or_default(), service.name_any());
    if let Some(message) = claimed_by_another(client, object, &name).await? {
        return Ok(Ownership::Anothers(message));
    }
    take_over::<Service>(client, &namespace, &name).await?;
    outcome(apply::apply(client, MANAGER, service).await)
}

fn outcome(applied: kube::Result<Service>) -> Result<Ownership, Error> {
    match applied {
        Ok(service) => Ok(Ownership::Ours(Box::new(service))),
        Err(error) if apply::is_refusal(&error) => Ok(Ownership::Refused(apply::reason(&error))),
        Err(error) => Err(Error::kubernetes("apply the Service")(error)),
    }
}

/// What SIP wrote to an object of this name becomes ours, so that what of it we do not ask for goes: a selector of nodes that no
/// site has any more, an init container, mounts of single files. Of a Secret there is nothing else.
pub(super) async fn take_over<K: Object>(client: &Client, namespace: &str, name: &str) -> Result<(), Error> {
    let objects = Api::<K>::namespaced(client.clone(), namespace);
    let failed = || Error::kubernetes("take over what SIP made");
    if let Some(object) = objects.get_metadata_opt(name).await.map_err(failed())? {
        kit::takeover::take_over(&objects, &object.metadata, SIP, MANAGER)
            .await
            .map_err(failed())?;
    }
    Ok(())
}

fn is_owned_by(service: &Service, uid: &str) -> bool {
    service
        .owner_references()
        .iter()
        .any(|owner| owner.kind == "SIPCluster" && owner.uid == uid)
}

/// Why the objects of a name cannot be ours; `None` when they can. The Service stands for the Secret and the Deployment
/// of the same name, which are made after it.
pub(super) async fn claimed_by_another(
    client: &Client,
    object: &SIPCluster,
    name: &str,
) -> Result<Option<String>, Error> {
    let services = Api::<Service>::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let existing = services
        .get_opt(name)
        .await
        .map_err(Error::kubernetes("read the Service"))?;
    Ok(existing.and_then(|existing| another(&existing, &object.uid().unwrap_or_default())))
}

/// An object is ours when its owner is, and may be taken over when SIP made it: SIP set no owner, and labels on pods only, so
/// that its Services are known by what they select.
fn another(existing: &Service, uid: &str) -> Option<String> {
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
        Some(owner) => Some(format!("{name} belongs to SIPCluster {}", owner.name)),
        None if is_part_of_sip(existing.labels()) || selector.is_some_and(is_part_of_sip) => None,
        None => Some(format!("{name} was not made for a SIPCluster")),
    }
}

fn is_part_of_sip(of: &BTreeMap<String, String>) -> bool {
    of.get(labels::PART_OF)
        .is_some_and(|part| part == labels::PART_OF_SIP)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use kube::core::ObjectMeta;

    use super::*;

    fn service(owner: Option<&str>, part_of: Option<&str>) -> Service {
        let owner = owner.map(|uid| OwnerReference {
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

    #[test]
    fn only_our_own_objects_and_those_that_sip_left_are_taken() {
        for (existing, expected) in [
            (service(Some("ours"), None), None),
            (service(None, Some("sip")), None),
            (selecting("sip"), None),
            (
                selecting("shop"),
                Some("Service ns/lb was not made for a SIPCluster"),
            ),
            (
                service(Some("theirs"), Some("sip")),
                Some("Service ns/lb belongs to SIPCluster cluster-theirs"),
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
            assert_eq!(another(&existing, "ours").as_deref(), expected);
        }
    }
}
