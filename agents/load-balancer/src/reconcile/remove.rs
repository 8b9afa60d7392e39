//! Objects that are not wanted any more.

use std::collections::BTreeSet;

use api::SIPCluster;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kit::apply::Object;
use kube::{Api, Client, ResourceExt as _, api::DeleteParams};

use super::{Context, Error, existing, ownership, status};

/// Names of the cluster's load balancers that exist, and of those that the status says are applied: a watch may not have shown
/// these yet.
pub(super) fn made(object: &SIPCluster, context: &Context) -> BTreeSet<String> {
    let services = context.services.state();
    let deployments = context.children.deployments();
    let mut names = existing::names(
        object,
        services.iter().map(AsRef::as_ref),
        deployments.iter().map(AsRef::as_ref),
    );
    let applied = object.status.iter().flat_map(|status| &status.applied);
    let applied = applied.filter(|applied| status::is_own(&applied.service));
    names.extend(applied.map(|applied| applied.service.clone()));
    names
}

/// Deletes load balancers, except objects of their names that are somebody else's. The Service goes last: as long as it is
/// there, what is left of its load balancer is found.
pub(super) async fn delete<'a>(
    object: &SIPCluster,
    names: impl Iterator<Item = &'a str>,
    context: &Context,
) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let client = &context.client;
    for name in names {
        context.children.removed(&namespace, name);
        context.templates.forget(&namespace, name);
        if ownership::claimed_by_another(client, object, name)
            .await?
            .is_some()
        {
            continue;
        }
        delete_one::<Deployment>(client, &namespace, name).await?;
        delete_one::<Secret>(client, &namespace, name).await?;
        delete_one::<PodDisruptionBudget>(client, &namespace, name).await?;
        delete_one::<NetworkPolicy>(client, &namespace, name).await?;
        delete_one::<RoleBinding>(client, &namespace, name).await?;
        delete_one::<Role>(client, &namespace, name).await?;
        delete_one::<ServiceAccount>(client, &namespace, name).await?;
        delete_one::<Service>(client, &namespace, name).await?;
    }
    Ok(())
}

/// The load balancer has too few pods for a budget.
pub(super) async fn budget(client: &Client, object: &SIPCluster, name: &str) -> Result<(), Error> {
    delete_one::<PodDisruptionBudget>(client, &object.namespace().unwrap_or_default(), name).await
}

async fn delete_one<K: Object>(client: &Client, namespace: &str, name: &str) -> Result<(), Error> {
    let deleted = Api::<K>::namespaced(client.clone(), namespace)
        .delete(name, &DeleteParams::background())
        .await;
    match deleted {
        Err(error) if kit::apply::code(&error) != Some(404) => {
            Err(Error::kubernetes("delete what is not wanted any more")(error))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}
