//! The objects of an instance onto the API server, in two steps: first what members are handed over to, then what runs it.

use std::time::Instant;

use api::SIPCluster;
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;

use super::{
    error::{Error, refusal},
    kinds::{Child, Kind},
    last_applied::Unchanged,
    node_ports,
    objects::{Applied, Exposed, Objects, Prepared},
    ownership::{self, Claim},
    problem::{NAME_CONFLICT, Problem},
    pruning,
    site::Site,
};
use crate::apply::apply;

/// Applies Service and configuration, unless they stand as they were applied last. The Service comes first, since it is what can be
/// refused; conflicts that are known are found before anything is applied.
pub(super) async fn expose(
    site: &Site,
    object: &SIPCluster,
    objects: Objects<Prepared>,
) -> Result<Result<Objects<Exposed>, Problem>, Error> {
    let unchanged = match site.last_applied.exposure(&site.stores, &objects) {
        Some(unchanged) => unchanged,
        None => match apply_exposure(site, object, &objects).await? {
            Ok(applied) => applied,
            Err(problem) => return Ok(Err(problem)),
        },
    };
    let running = site.last_applied.workload(&site.stores, &objects);
    Ok(Ok(objects.exposed(unchanged.service, unchanged.at, running)))
}

async fn apply_exposure(
    site: &Site,
    object: &SIPCluster,
    objects: &Objects<Prepared>,
) -> Result<Result<Unchanged, Problem>, Error> {
    let rendered = objects.service();
    if let Some(problem) = node_ports::conflict(site, object, rendered) {
        return Ok(Err(problem));
    }
    let known = site.stores.service(objects);
    let service = match ownership::apply(site, object, rendered, known.as_deref()).await? {
        Claim::Ours(service) => *service,
        Claim::Foreign(message) => return Ok(Err(Problem::new(NAME_CONFLICT, message))),
        Claim::Refused(words) => {
            let problem = node_ports::explain(&site.client, rendered, &words).await?;
            return Ok(Err(problem));
        }
    };
    let mut versions = Vec::new();
    for child in objects.configuration_children() {
        match child.apply(&site.client, site.identity.manager).await {
            Ok(version) => versions.push(version),
            Err(error) => {
                let problem = refusal(action(child), error)?;
                let message = format!("{}: its configuration: {}", objects.name(), problem.message);
                return Ok(Err(Problem::new(problem.reason, message)));
            }
        }
    }
    let at = Instant::now();
    site.last_applied.record_exposure(objects, &service, versions, at);
    Ok(Ok(Unchanged { service, at }))
}

/// An instance after what runs it was applied.
pub(super) enum Running {
    /// All is applied.
    Applied(Objects<Applied>),
    /// The API server refuses what runs it; Service and configuration stay.
    Refused(Objects<Exposed>, Problem),
}

/// Applies what runs an instance, unless it stands as it was applied last.
pub(super) async fn run(site: &Site, objects: Objects<Exposed>) -> Result<Running, Error> {
    if let Some(deployment) = objects.running().cloned() {
        return Ok(Running::Applied(objects.applied(deployment)));
    }
    let before = site.stores.workload(&objects);
    match apply_workload(site, &objects).await? {
        Ok((deployment, now)) => {
            site.last_applied
                .record_workload(&objects, &deployment, before, now);
            Ok(Running::Applied(objects.applied(deployment)))
        }
        Err(problem) => Ok(Running::Refused(objects, problem)),
    }
}

/// What runs an instance, as the API server has it: its Deployment, and the versions of the other objects.
type Workload = (Deployment, Vec<Option<String>>);

async fn apply_workload(site: &Site, objects: &Objects<Exposed>) -> Result<Result<Workload, Problem>, Error> {
    let (client, manager) = (&site.client, site.identity.manager);
    if site.stores.deployment(objects).is_none() {
        let name = objects.deployment().name_any();
        ownership::take_over::<Deployment>(site, &objects.namespace(), &name).await?;
    }
    // Pods cannot be created without their account.
    let mut versions = match grant(site, objects.access_children()).await {
        Ok(versions) => versions,
        Err(error) => return refusal("apply what the pods may do", error).map(Err),
    };
    let (deployment, guards, pruned) = tokio::join!(
        apply::<Deployment>(client, manager, objects.deployment()),
        join_all(
            objects
                .guard_children()
                .iter()
                .map(|child| async move { (child, child.apply(client, manager).await) })
        ),
        try_join_all(objects.without().iter().map(|kind| prune(site, objects, *kind))),
    );
    pruned?;
    for (child, applied) in guards {
        match applied {
            Ok(version) => versions.push(version),
            Err(error) => return refusal(action(child), error).map(Err),
        }
    }
    versions.extend(objects.without().iter().map(|_| None));
    match deployment {
        Ok(deployment) => Ok(Ok((deployment, versions))),
        Err(error) => refusal("apply the Deployment", error).map(Err),
    }
}

async fn prune(site: &Site, objects: &Objects<Exposed>, kind: Kind) -> Result<(), Error> {
    pruning::delete_child(site, kind, &objects.namespace(), &objects.name()).await
}

/// Applies accounts and rights, in the order of `Objects`: `RoleBinding`s are last, since one is accepted only when the API server finds
/// its Role and sees that the agent has as many rights.
async fn grant(site: &Site, children: &[Child]) -> kube::Result<Vec<Option<String>>> {
    let manager = site.identity.manager;
    let first = children.partition_point(|child| child.kind() != Kind::RoleBinding);
    let (first, bindings) = children.split_at(first);
    let mut versions = try_join_all(first.iter().map(|child| child.apply(&site.client, manager))).await?;
    versions.extend(try_join_all(bindings.iter().map(|child| child.apply(&site.client, manager))).await?);
    Ok(versions)
}

fn action(child: &Child) -> String {
    format!("apply the {}", child.kind().as_str())
}
