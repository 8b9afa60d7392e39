//! Objects that are not wanted any more.

use std::collections::BTreeSet;

use api::{Cluster, SIPCluster};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Secret, Service},
};
use kube::{Api, ResourceExt as _, api::DeleteParams, runtime::controller::Action};

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
    let background = DeleteParams::background();
    let client = &context.client;
    for name in names {
        context.children.removed(&namespace, name);
        if ownership::claimed_by_another(client, object, name)
            .await?
            .is_some()
        {
            continue;
        }
        let service = Api::<Service>::namespaced(client.clone(), &namespace)
            .delete(name, &background)
            .await;
        gone(service.map(drop), "delete the Service")?;
        let deployment = Api::<Deployment>::namespaced(client.clone(), &namespace)
            .delete(name, &background)
            .await;
        gone(deployment.map(drop), "delete the Deployment")?;
        let secret = Api::<Secret>::namespaced(client.clone(), &namespace)
            .delete(name, &background)
            .await;
        gone(secret.map(drop), "delete the Secret")?;
    }
    Ok(())
}

fn gone(deleted: kube::Result<()>, action: &'static str) -> Result<(), Error> {
    match deleted {
        Err(error) if kit::apply::code(&error) != Some(404) => Err(Error::kubernetes(action)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
