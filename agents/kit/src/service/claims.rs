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
    /// The Service belongs to the cluster, as it is now.
    Ours(Box<Service>),
    /// Somebody else owns the Service, which was not changed; for people.
    Foreign(String),
    /// The API server refuses the Service; its message.
    Refused(String),
}

/// Applies a Service, or creates it if none of its name exists; an existing one has to be this cluster's or SIP's. `known`: the Service as a
/// watch has shown it last.
///
/// This saves a read in most cases: a Service that is known to be the cluster's is applied on the condition that it is still the same object, and
/// one that no watch has shown is created, which fails if there is another of its name.
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
        // The refusal may be because the existing Service of this name has the node ports already.
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

/// Creates a Service, unless pods of another cluster would receive its traffic; then returns the reason, for people.
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

/// Creates a Service by POST and not by apply: if an apply is aborted (the agent is killed, the connection ends), the API server keeps its node
/// ports for ten minutes, and refuses them to the next try. The created fields count as applied.
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
        // An earlier creation was not completed: now fields that are not wanted any more can be removed.
        Some(_) => apply().await,
        None => Ok(applied),
    }
}

/// Makes the fields that were set by the creation of a Service applied ones. `None` if they are already.
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
