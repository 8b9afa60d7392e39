//! Objects that are not wanted any more.

use std::collections::BTreeSet;

use api::{Cluster, SIPCluster};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kit::apply::Object;
use kube::{Api, Client, ResourceExt as _, api::DeleteParams, runtime::controller::Action};

use super::{Context, Error, balancers, balancers::Balancer, ownership, status};

/// The cluster is being deleted: once its hosts are given back, its load balancers go.
pub(super) async fn run(object: &SIPCluster, context: &Context) -> Result<Action, Error> {
    let status = object.status.as_ref();
    let held = status
        .and_then(|status| status.placement.as_ref())
        .is_some_and(|held| !held.members.is_empty());
    let answered = status.is_some_and(|status| !status.applied.is_empty()) || status::answered(object);
    if held || !answered {
        return Ok(Action::await_change());
    }
    let mut names = applied(object);
    if let Ok(cluster) = Cluster::parse(object) {
        names.extend(
            balancers::wanted(&cluster)
                .iter()
                .map(|balancer| balancer.name().to_owned()),
        );
    }
    delete(object, &names, context).await?;
    status::removed(object, &context.client).await?;
    Ok(Action::await_change())
}

/// Load balancers that were applied and that the spec does not ask for any more are deleted.
pub(super) async fn superfluous(
    object: &SIPCluster,
    wanted: &[Balancer<'_>],
    context: &Context,
) -> Result<(), Error> {
    let mut names = applied(object);
    for balancer in wanted {
        names.remove(balancer.name());
    }
    delete(object, &names, context).await
}

/// Names of what the status says is applied.
fn applied(object: &SIPCluster) -> BTreeSet<String> {
    let applied = object.status.iter().flat_map(|status| &status.applied);
    applied
        .filter(|applied| status::is_own(&applied.service))
        .map(|applied| applied.service.clone())
        .collect()
}

async fn delete(object: &SIPCluster, names: &BTreeSet<String>, context: &Context) -> Result<(), Error> {
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
        delete_one::<Service>(client, &namespace, name).await?;
        delete_one::<Deployment>(client, &namespace, name).await?;
        delete_one::<Secret>(client, &namespace, name).await?;
        delete_one::<PodDisruptionBudget>(client, &namespace, name).await?;
        delete_one::<NetworkPolicy>(client, &namespace, name).await?;
        delete_one::<RoleBinding>(client, &namespace, name).await?;
        delete_one::<Role>(client, &namespace, name).await?;
        delete_one::<ServiceAccount>(client, &namespace, name).await?;
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
