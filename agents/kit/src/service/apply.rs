//! The objects of an instance onto the API server, in two steps: first what members are handed over to, then what runs it.

use api::{SIPCluster, TolerantCluster};
use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client, ResourceExt as _};

use super::{
    claims::{self, Claim},
    error::{Error, refusal},
    kinds::{Child, Kind},
    last_applied::{Configuration, Exposure, Written},
    made_for::{Owner, has_owner_of},
    node_port_conflicts,
    objects::{Applied, Exposed, Objects, Prepared},
    observed::Observed,
    ownership,
    problem::{NAME_CONFLICT, Problem},
    pruning::{self, Unowned},
    readiness,
    site::Site,
};
use crate::apply::{apply, code};

/// Applies Service and configuration, unless they stand as they were applied last.
pub(super) async fn expose(
    site: &Site,
    observed: &Observed<'_>,
    objects: Objects<Prepared>,
) -> Result<Result<Objects<Exposed>, Problem>, Error> {
    let exposure = apply_exposure(site, observed, &objects).await?;
    Ok(exposure.map(|exposure| {
        let running = site.last_applied.workload(&site.stores, &objects);
        objects.exposed(exposure.service, exposure.configured_at, running)
    }))
}

/// The Service comes first, since it is what can be refused; conflicts that are known are found before anything is applied.
async fn apply_exposure(
    site: &Site,
    observed: &Observed<'_>,
    objects: &Objects<Prepared>,
) -> Result<Result<Exposure, Problem>, Error> {
    if let Some(unchanged) = site.last_applied.exposure(&site.stores, objects) {
        return Ok(Ok(unchanged));
    }
    let object = observed.object();
    let rendered = objects.service();
    if let Some(problem) = node_port_conflicts::conflict(site, object, rendered) {
        return Ok(Err(problem));
    }
    let known = site.stores.service(objects);
    let service = match claims::apply(site, object, rendered, known.as_deref()).await? {
        Claim::Ours(service) => {
            site.last_applied.answered(&service);
            *service
        }
        Claim::Foreign(message) => return Ok(Err(Problem::new(NAME_CONFLICT, message))),
        Claim::Refused(message) => {
            return Ok(Err(node_port_conflicts::explain(site, rendered, &message)));
        }
    };
    let configuration = match apply_configuration(site, observed, objects).await? {
        Ok(configuration) => configuration,
        Err(problem) => return Ok(Err(problem)),
    };
    let configured_at = configuration.at;
    site.last_applied
        .record_exposure(objects, &service, configuration);
    Ok(Ok(Exposure {
        service,
        configured_at,
    }))
}

/// Applies what pods read, unless it stands: a change of the Service alone does not write it again.
async fn apply_configuration(
    site: &Site,
    observed: &Observed<'_>,
    objects: &Objects<Prepared>,
) -> Result<Result<Configuration, Problem>, Error> {
    if let Some(unchanged) = site.last_applied.standing_configuration(&site.stores, objects) {
        return Ok(Ok(unchanged));
    }
    let object = observed.object();
    let (mut versions, mut written) = (Vec::new(), None);
    let (uid, name) = (object.uid().unwrap_or_default(), object.name_any());
    let cluster = (&*uid, &*name);
    let mut last = site.last_applied.configuration(objects).into_iter();
    for child in objects.configuration_children() {
        let last = last.next().flatten();
        match apply_part(site, cluster, observed, child, last).await {
            Ok(Ok(part)) => {
                written = part.written(objects, child).or(written);
                versions.push(part.version);
            }
            Ok(Err(problem)) => return Ok(Err(problem)),
            Err(error) => {
                let problem = refusal(action(child), error)?;
                let message = format!("{}: its configuration: {}", objects.name(), problem.message);
                return Ok(Err(Problem::new(problem.reason, message)));
            }
        }
    }
    Ok(Ok(Configuration::applied(objects, versions, written)))
}

/// A part of a configuration, as it was applied.
struct Part {
    /// The version that it had before; `None` if it was not there, or that is not known.
    replaced: Option<String>,
    version: Option<String>,
}

impl Part {
    /// What pods read, if this child is that.
    fn written(&self, objects: &Objects<Prepared>, child: &Child) -> Option<Written> {
        let is_read = child.kind() == Kind::ConfigMap && child.metadata().name == Some(objects.name());
        is_read.then_some(Written {
            replaced: self.replaced.clone(),
            version: self.version.clone()?,
            digest: objects.config_digest().to_owned(),
        })
    }
}

/// A resource version that no object has: an apply on this condition makes an object, and changes none.
const NO_VERSION: &str = "1";

/// Applies one object that pods read. A `ConfigMap` that exists is replaced only as it was when the pass began, before members were read, or as this
/// process has written it: the API server refuses a write that a deposed replica sends late, which could put back a member that has left.
/// One that was not there then is made, and not replaced if it is there by now.
async fn apply_part(
    site: &Site,
    cluster: (&str, &str),
    observed: &Observed<'_>,
    child: &Child,
    last: Option<String>,
) -> kube::Result<Result<Part, Problem>> {
    let name = child.metadata().name.as_deref().unwrap_or_default();
    if child.kind() != Kind::ConfigMap {
        let applied = ownership::apply_child(site, cluster, child).await?;
        return Ok(applied.map(|version| Part {
            replaced: None,
            version,
        }));
    }
    let seen = observed.config_map_version(name);
    // The watch may not have shown the last write yet.
    let last = last.filter(|last| Some(last.as_str()) != seen);
    if let Some(last) = last {
        match apply_to(site, child, Some(last)).await {
            Err(error) if code(&error) == Some(409) => {}
            applied => return applied.map(Ok),
        }
    }
    match apply_to(site, child, seen.map(str::to_owned)).await {
        Err(error) if code(&error) == Some(409) && seen.is_none() => {
            take_over_unobserved(site, cluster, child, error).await
        }
        applied => applied.map(Ok),
    }
}

/// Applies a `ConfigMap` where it has this version; `None`: where there is none.
async fn apply_to(site: &Site, child: &Child, replaced: Option<String>) -> kube::Result<Part> {
    let condition = replaced.as_deref().unwrap_or(NO_VERSION);
    let version = child
        .apply_to(&site.client, site.identity.manager, condition)
        .await?;
    Ok(Part { replaced, version })
}

/// What to do with a `ConfigMap` that exists though the watch has not shown it as the cluster's. One with the labels of ours that is the cluster's
/// is shown soon, and the next pass replaces it as it is shown: `conflict`. Another one is never shown; that one is replaced if it can be ours.
async fn take_over_unobserved(
    site: &Site,
    cluster: (&str, &str),
    child: &Child,
    conflict: kube::Error,
) -> kube::Result<Result<Part, Problem>> {
    let metadata = child.metadata();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let Some(found) = child.kind().find(&site.client, namespace, name).await? else {
        return Err(conflict);
    };
    if let Some(message) = ownership::foreign_child(site.identity, cluster, child.kind(), &found) {
        return Ok(Err(Problem::new(NAME_CONFLICT, message)));
    }
    let is_own = Owner::of_object(&found).is_some_and(|owner| owner.is_cluster(cluster));
    let is_shown = is_own && site.identity.is_labelled(found.labels.as_ref());
    match found.resource_version {
        Some(version) if !is_shown => apply_to(site, child, Some(version)).await.map(Ok),
        _ => Err(conflict),
    }
}

/// An instance after what runs it was applied.
pub(super) enum Running {
    /// All is applied.
    Applied(Objects<Applied>),
    /// Only its Service is applied: nothing else can be rendered yet.
    ServiceOnly(Objects<Exposed>),
    /// The API server refuses what runs it; Service and configuration stay.
    Refused(Objects<Exposed>, Problem),
}

/// Applies what runs an instance, unless it stands as it was applied last.
pub(super) async fn run(
    site: &Site,
    object: &SIPCluster,
    objects: Objects<Exposed>,
) -> Result<Running, Error> {
    if objects.is_service_only() {
        return Ok(Running::ServiceOnly(objects));
    }
    if let Some(deployment) = objects.running().cloned() {
        return Ok(Running::Applied(objects.applied(deployment)));
    }
    if site.identity.reports_drained {
        check_exists(&site.client, object).await?;
    }
    let before = site.stores.workload(&objects);
    let (uid, name) = (object.uid().unwrap_or_default(), object.name_any());
    match apply_workload(site, (&uid, &name), &objects).await? {
        Ok((deployment, now)) => {
            site.last_applied
                .record_workload(&objects, &deployment, before, now);
            Ok(Running::Applied(objects.applied(deployment)))
        }
        Err(problem) => Ok(Running::Refused(objects, problem)),
    }
}

/// Checks that the API server has the cluster, before a write that may start pods: once it is gone, its hosts are released as soon as the cluster
/// agent finds no configuration, Deployment or pod. What the pods read was written before this check, so the agent finds it until it is deleted,
/// and pods that come after that have nothing to read.
///
/// # Errors
/// [`Error::Gone`] and [`Error::Changed`] when the cluster is not there any more, or is another one; what else the API server answers.
async fn check_exists(client: &Client, object: &SIPCluster) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let clusters = Api::<TolerantCluster>::namespaced(client.clone(), &namespace);
    let found = clusters.get_metadata_opt(&object.name_any()).await;
    match found.map_err(Error::kubernetes("read the SIPCluster"))? {
        None => Err(Error::Gone),
        Some(found) if found.metadata.uid != object.metadata.uid => Err(Error::Changed),
        Some(_) => Ok(()),
    }
}

/// What runs an instance, as the API server has it: its Deployment, and the versions of the other objects.
type Workload = (Deployment, Vec<Option<String>>);

async fn apply_workload(
    site: &Site,
    cluster: (&str, &str),
    objects: &Objects<Exposed>,
) -> Result<Result<Workload, Problem>, Error> {
    let (client, manager) = (&site.client, site.identity.manager);
    let known = site.stores.deployment(objects);
    if known.is_none_or(|known| !has_owner_of(&known, objects.deployment())) {
        let (namespace, name) = (objects.namespace(), objects.deployment().name_any());
        let found = Kind::Deployment.find(client, &namespace, &name).await;
        let found = found.map_err(Error::kubernetes("read the Deployment"))?;
        if let Some(found) = found {
            if let Some(message) = ownership::foreign_child(site.identity, cluster, Kind::Deployment, &found)
            {
                return Ok(Err(Problem::new(NAME_CONFLICT, message)));
            }
            ownership::take_over::<Deployment>(site, &namespace, &found).await?;
        }
    }
    // Pods cannot be created without their account.
    let mut versions = match grant(site, cluster, objects.access_children()).await {
        Ok(Ok(versions)) => versions,
        Ok(Err(problem)) => return Ok(Err(problem)),
        Err(error) => return refusal("apply what the pods may do", error).map(Err),
    };
    let (deployment, guards) = tokio::join!(
        apply::<Deployment>(client, manager, objects.deployment()),
        join_all(
            objects
                .guard_children()
                .iter()
                .map(|child| async move { (child, ownership::apply_child(site, cluster, child).await) })
        ),
    );
    if let Ok(deployment) = &deployment {
        site.last_applied.record_deployment(objects, deployment);
    }
    for (child, applied) in guards {
        match applied {
            Ok(Ok(version)) => versions.push(version),
            Ok(Err(problem)) => return Ok(Err(problem)),
            Err(error) => return refusal(action(child), error).map(Err),
        }
    }
    let deployment = match deployment {
        Ok(deployment) => deployment,
        Err(error) => return refusal("apply the Deployment", error).map(Err),
    };
    // Pods of before still need their rights: without them they follow no change.
    let is_rolled_out = readiness::rollout(&deployment).is_none();
    let unwanted = objects.without().iter();
    let unwanted = unwanted.filter(|kind| is_rolled_out || !is_access(**kind));
    let pruned = in_order(
        unwanted
            .map(|kind| prune(site, cluster, objects, *kind))
            .collect(),
    )
    .await?;
    if let Some(problem) = pruned.into_iter().flatten().next() {
        return Ok(Err(problem));
    }
    versions.extend(objects.without().iter().map(|_| None));
    Ok(Ok((deployment, versions)))
}

/// Whether an object of this kind gives pods rights.
fn is_access(kind: Kind) -> bool {
    matches!(kind, Kind::RoleBinding | Kind::Role | Kind::ServiceAccount)
}

async fn prune(
    site: &Site,
    cluster: (&str, &str),
    objects: &Objects<Exposed>,
    kind: Kind,
) -> Result<Option<Problem>, Error> {
    // Nobody but this agent makes accounts and rights for instances, so the watch of its objects shows them.
    if is_access(kind) && !site.stores.shows(objects, kind) {
        return Ok(None);
    }
    let name = (&*objects.namespace(), &*objects.name());
    pruning::delete_child(site, cluster, kind, name, Unowned::Sip).await
}

/// Applies accounts and rights, in the order of `Objects`: `RoleBinding`s are last, since one is accepted only when the API server finds
/// its Role and sees that the agent has as many rights.
async fn grant(
    site: &Site,
    cluster: (&str, &str),
    children: &[Child],
) -> kube::Result<Result<Vec<Option<String>>, Problem>> {
    let first = children.partition_point(|child| child.kind() != Kind::RoleBinding);
    let (first, bindings) = children.split_at(first);
    let mut versions = Vec::with_capacity(children.len());
    for step in [first, bindings] {
        let applied = step
            .iter()
            .map(|child| ownership::apply_child(site, cluster, child));
        for applied in in_order(applied.collect()).await? {
            match applied {
                Ok(version) => versions.push(version),
                Err(problem) => return Ok(Err(problem)),
            }
        }
    }
    Ok(Ok(versions))
}

/// Makes calls concurrently. Of several that fail the first in this order is the one that is reported, whichever ends first: otherwise the
/// status would change with each pass, and each change of it triggers the next pass.
async fn in_order<Call, T, E>(calls: Vec<Call>) -> Result<Vec<T>, E>
where
    Call: Future<Output = Result<T, E>>,
{
    join_all(calls).await.into_iter().collect()
}

fn action(child: &Child) -> String {
    format!("apply the {}", child.kind().as_str())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Checks the cluster with the uid `ours`, where the API server answers this.
    async fn checked(code: u16, body: Value) -> Result<(), Error> {
        let object = json!({"metadata": {"namespace": "tenant", "name": "shop", "uid": "ours"}, "spec": {}});
        let object: SIPCluster = serde_json::from_value(object).unwrap();
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let response = http::Response::builder().status(code);
            let response = response.body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, Infallible>(response.unwrap()))
        });
        check_exists(&Client::new(service, "tenant"), &object).await
    }

    #[tokio::test]
    async fn nothing_is_run_for_a_cluster_that_is_not_known_to_exist() {
        let with_uid = |uid: &str| {
            let metadata = json!({"name": "shop", "uid": uid});
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
        };
        let failure = |code: u16, reason: &str| {
            json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                "message": "no",
            })
        };
        assert!(checked(200, with_uid("ours")).await.is_ok());
        let another = checked(200, with_uid("another")).await;
        assert!(matches!(another, Err(Error::Changed)), "{another:?}");
        let gone = checked(404, failure(404, "NotFound")).await;
        assert!(matches!(gone, Err(Error::Gone)), "{gone:?}");
        let unknown = checked(500, failure(500, "InternalError")).await;
        assert!(matches!(unknown, Err(Error::Kubernetes { .. })), "{unknown:?}");
    }

    #[tokio::test]
    async fn of_several_refusals_the_first_in_order_is_returned() {
        let refused = |turns: usize, error: &'static str| async move {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            Err::<(), _>(error)
        };
        for (first, second) in [(0, 0), (0, 2), (2, 0)] {
            let calls = vec![refused(first, "Role"), refused(second, "ServiceAccount")];
            assert_eq!(in_order(calls).await, Err("Role"), "{first} {second}");
        }
    }
}
