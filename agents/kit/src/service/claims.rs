//! Applies the Service of an instance, if its name is the cluster's to take: the other objects are made after it.

use api::SIPCluster;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, ResourceExt as _, core::ObjectMeta};

use super::{
    error::Error,
    ownership::{foreign, take_over},
    site::Site,
    vacancy,
};
use crate::{apply, takeover};

/// The result of applying a Service.
#[derive(Debug)]
pub(super) enum Claim {
    /// It is ours, and as it is now.
    Ours(Box<Service>),
    /// Somebody else owns it, and it was not touched; for people.
    Foreign(String),
    /// The API server refuses it, in its words.
    Refused(String),
}

/// Applies a Service, or creates it if none of its name exists; the existing one has to be ours or SIP's. `known`: the one that a watch has
/// shown last.
///
/// This mostly saves a read: a Service that is known to be ours is applied on the condition that it is still the same object, and
/// one that no watch has shown is created, so that another's is never taken over.
pub(super) async fn apply(
    site: &Site,
    object: &SIPCluster,
    service: &Service,
    known: Option<&Service>,
) -> Result<Claim, Error> {
    let ours = known.filter(|known| is_owned_by(known, &object.uid().unwrap_or_default()));
    let first = match (known, ours) {
        (_, Some(ours)) => {
            let mut same = service.clone();
            same.metadata.uid = ours.uid();
            Some(update(site, &same).await)
        }
        (None, None) => match create_where_vacant(site, object, service).await? {
            Ok(created) => Some(created),
            Err(message) => return Ok(Claim::Foreign(message)),
        },
        (Some(_), None) => None,
    };
    let refused = match first {
        Some(Err(error)) if apply::code(&error) == Some(409) => None,
        // Node ports of one that exists already are taken, by itself.
        Some(Err(error)) if known.is_none() && apply::is_refusal(&error) => Some(error),
        Some(applied) => return claim(applied),
        None => None,
    };
    let name = service.name_any();
    if let Some(message) = foreign(site, object, &name).await? {
        return Ok(Claim::Foreign(message));
    }
    let namespace = object.namespace().unwrap_or_default();
    let services = Api::<Service>::namespaced(site.client.clone(), &namespace);
    let found = services.get_metadata_opt(&name).await;
    let found = found.map_err(Error::kubernetes("read the Service"))?;
    claim(match (found, refused) {
        (Some(found), _) => {
            take_over::<Service>(site, &namespace, &found.metadata).await?;
            update(site, service).await
        }
        (None, Some(refused)) => Err(refused),
        (None, None) => match create_where_vacant(site, object, service).await? {
            Ok(created) => created,
            Err(message) => return Ok(Claim::Foreign(message)),
        },
    })
}

/// Creates a Service, unless it would lead to another cluster's pods: then the reason, for people.
async fn create_where_vacant(
    site: &Site,
    object: &SIPCluster,
    service: &Service,
) -> Result<Result<kube::Result<Service>, String>, Error> {
    let occupant = vacancy::occupant(site, object, &service.name_any()).await;
    Ok(
        match occupant.map_err(Error::kubernetes("list what has the name of the Service"))? {
            Some(message) => Err(message),
            None => Ok(create(site, service).await),
        },
    )
}

/// Creates a Service. It is not created by an apply: an API server keeps the node ports of one that is aborted for ten minutes (the agent
/// is killed, the connection ends), and refuses them to the next try. What it creates counts as applied.
async fn create(site: &Site, service: &Service) -> kube::Result<Service> {
    let mut created = apply::create(&site.client, site.identity.manager, service).await?;
    if let Some(metadata) = settle(site, &created).await? {
        created.metadata.resource_version = metadata.resource_version;
    }
    Ok(created)
}

/// Applies a Service that exists.
async fn update(site: &Site, service: &Service) -> kube::Result<Service> {
    let apply = async || apply::apply(&site.client, site.identity.manager, service).await;
    let applied = apply().await?;
    match settle(site, &applied).await? {
        // Its creation ended half-way: now fields of it that are not asked for any more can go.
        Some(_) => apply().await,
        None => Ok(applied),
    }
}

/// Makes the fields of a Service that were set when it was created fields that were applied. `None` when they are.
async fn settle(site: &Site, service: &Service) -> kube::Result<Option<ObjectMeta>> {
    let namespace = service.namespace().unwrap_or_default();
    let services = Api::<Service>::namespaced(site.client.clone(), &namespace);
    let manager = site.identity.manager;
    takeover::take_over(&services, &service.metadata, manager.0, manager).await
}

fn claim(applied: kube::Result<Service>) -> Result<Claim, Error> {
    match applied {
        Ok(service) => Ok(Claim::Ours(Box::new(service))),
        Err(error) if apply::is_refusal(&error) => Ok(Claim::Refused(apply::reason(&error))),
        Err(error) => Err(Error::kubernetes("apply the Service")(error)),
    }
}

fn is_owned_by(service: &Service, uid: &str) -> bool {
    service
        .owner_references()
        .iter()
        .any(|owner| owner.kind == "SIPCluster" && owner.uid == uid)
}
