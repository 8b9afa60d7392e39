//! Deletes instances of `SIPCluster`s that are gone and do not own them any more, so that the garbage collector leaves them: one was deleted
//! with `--cascade=orphan` while this agent did not run, or a backup was restored without it. A `SIPCluster` that is made again with a spec that
//! is refused changes nothing of that: nobody knows what of the instance it would keep, such as keys that log in to a jump host.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::{Duration, Instant},
};

use api::{Cluster, SIPCluster, TolerantCluster};
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, ResourceExt as _, runtime::reflector::ObjectRef};
use tokio::{sync::watch, time};

use super::{
    error::Error,
    identity::Identity,
    kinds::{Children, Kind},
    made_for::{Owner, is_of_instance},
    site::Site,
};
use crate::apply;

/// Longest pause between two comparisons of the site's Services with its clusters.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// When a deletion that failed is tried again, unless that is longer than instances last.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);
/// How often an object that changes meanwhile is deleted as it is then.
const MAX_DELETE_ATTEMPTS: usize = 3;
/// Instances of a namespace that are deleted in one turn.
const MAX_DELETIONS_PER_NAMESPACE: usize = 8;

/// An instance, and the name of the cluster that it was made for.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Instance {
    namespace: String,
    name: String,
    cluster: String,
    /// Of its Service, if it has one: that of a restored one differs.
    uid: Option<String>,
}

/// When each that was found without its cluster is deleted.
#[derive(Debug, Default)]
struct DeletionTimes(BTreeMap<Instance, Instant>);

impl DeletionTimes {
    /// Those that have been found for so long: of each namespace a few, those first that have waited longest. A deletion that fails is tried
    /// again later.
    fn due(&mut self, found: &BTreeSet<Instance>, now: Instant, ownerless_for: Duration) -> Vec<Instance> {
        self.0.retain(|instance, _| found.contains(instance));
        let mut due: BTreeMap<&str, Vec<(Instant, &Instance)>> = BTreeMap::new();
        for instance in found {
            let at = self.0.entry(instance.clone()).or_insert_with(|| {
                let Instance { namespace, name, cluster, uid: _ } = instance;
                let seconds = ownerless_for.as_secs();
                tracing::info!(
                    namespace,
                    name,
                    cluster,
                    seconds,
                    "a deleted SIPCluster has left this; it is deleted after that time, unless the SIPCluster is made again with a valid spec"
                );
                now + ownerless_for
            });
            if now >= *at {
                due.entry(&instance.namespace).or_default().push((*at, instance));
            }
        }
        let mut taken = Vec::new();
        for (_, mut of_namespace) in due {
            of_namespace.sort();
            let next = of_namespace.into_iter().take(MAX_DELETIONS_PER_NAMESPACE);
            taken.extend(next.map(|(_, instance)| instance.clone()));
        }
        for instance in &taken {
            self.0
                .insert(instance.clone(), now + ownerless_for.min(MAX_RETRY_DELAY));
        }
        taken
    }
}

/// Why an instance is not deleted.
struct Failure {
    error: Error,
    /// The agent may not even read its objects.
    has_no_rights: bool,
}

impl Failure {
    fn reading(source: kube::Error) -> Self {
        let error = Error::kubernetes("find what a deleted SIPCluster has left")(source);
        let has_no_rights = error.is_forbidden();
        Self { error, has_no_rights }
    }

    fn deleting(source: kube::Error) -> Self {
        Self {
            error: Error::kubernetes("delete what a deleted SIPCluster has left")(source),
            has_no_rights: false,
        }
    }
}

/// Deletes them once they have been so for `ownerless_for`: a restore may bring a Service before its cluster. Begins once `listed` is true.
pub(super) async fn delete_all(
    site: &Site,
    ownerless_for: Duration,
    mut listed: watch::Receiver<bool>,
) -> Infallible {
    if listed.wait_for(|listed| *listed).await.is_err() {
        // The process ends.
        return std::future::pending().await;
    }
    let mut times = DeletionTimes::default();
    loop {
        time::sleep(MAX_POLL_INTERVAL.min(ownerless_for)).await;
        let services = site.stores.services.state();
        let clusters = &site.stores.clusters;
        let may_take_over = |cluster: &ObjectRef<SIPCluster>, instance: &str| {
            let cluster = clusters.get(cluster);
            cluster.is_some_and(|cluster| {
                may_take_over(&cluster, instance, || site.spec_ports(&cluster).is_some())
            })
        };
        let services = services.iter().map(AsRef::as_ref);
        let others = site.stores.without_owner(site.identity);
        let ownerless = ownerless(services, others, site.identity, may_take_over);
        let mut refused = BTreeSet::new();
        for instance in times.due(&ownerless, Instant::now(), ownerless_for) {
            let Instance {
                namespace,
                name,
                cluster,
                uid: _,
            } = &instance;
            if refused.contains(namespace) {
                continue;
            }
            match delete(site, &instance).await {
                Ok(true) => tracing::info!(
                    namespace,
                    name,
                    cluster,
                    "deleted what a deleted SIPCluster has left"
                ),
                Ok(false) => {}
                Err(Failure { error, has_no_rights }) => {
                    let error = runtime::error_chain::chain(&error);
                    tracing::warn!(
                        namespace,
                        name,
                        cluster,
                        error,
                        "what a deleted SIPCluster has left cannot be deleted; requeued"
                    );
                    // It asks once, however many there are.
                    if has_no_rights {
                        refused.insert(namespace.clone());
                    }
                }
            }
        }
    }
}

/// Instances of this agent without an owner, which no cluster may take over. `others`: those of which the watches in namespaces with clusters
/// show other objects than a Service; somebody may have deleted that.
fn ownerless<'a>(
    services: impl Iterator<Item = &'a Service>,
    others: BTreeSet<(String, String, String)>,
    identity: &Identity,
    may_take_over: impl Fn(&ObjectRef<SIPCluster>, &str) -> bool,
) -> BTreeSet<Instance> {
    let is_left = |namespace: &str, name: &str, cluster: &str| {
        identity.owns(name) && !may_take_over(&ObjectRef::new(cluster).within(namespace), name)
    };
    let instance = |service: &Service| {
        let (namespace, name) = (service.namespace()?, service.name_any());
        let Owner::MadeFor(cluster) = Owner::of_object(&service.metadata)? else {
            return None;
        };
        let stays = service.metadata.deletion_timestamp.is_none() && is_of_instance(&service.metadata, &name);
        (stays && is_left(&namespace, &name, &cluster)).then(|| Instance {
            namespace,
            name,
            cluster,
            uid: service.uid(),
        })
    };
    let mut found: BTreeSet<Instance> = services.filter_map(instance).collect();
    let known: BTreeSet<_> = found
        .iter()
        .map(|found| (found.namespace.clone(), found.name.clone()))
        .collect();
    for (namespace, name, cluster) in others {
        if is_left(&namespace, &name, &cluster) && !known.contains(&(namespace.clone(), name.clone())) {
            found.insert(Instance {
                namespace,
                name,
                cluster,
                uid: None,
            });
        }
    }
    found
}

/// Whether this cluster, of the name that an instance without an owner was made for, may take the instance over: its pass adopts it, revokes
/// what its spec does not grant, or deletes it. If the spec is refused, only what the cluster has applied itself or what may serve its hosts stays.
/// `is_valid`: whether the spec is not refused, which takes long for a large one.
fn may_take_over(cluster: &SIPCluster, instance: &str, is_valid: impl FnOnce() -> bool) -> bool {
    let status = cluster.status.as_ref();
    let mut applied = status.into_iter().flat_map(|status| &status.applied);
    let held = status.and_then(|status| status.placement.as_ref());
    let may_hold =
        cluster.spec.left_out.placement.is_some() || held.is_some_and(|held| !held.members.is_empty());
    may_hold || applied.any(|applied| applied.service == instance) || is_valid()
}

/// Returns whether anything was deleted: a cluster that may take it over may exist by now, which the watch has not shown.
async fn delete(site: &Site, instance: &Instance) -> Result<bool, Failure> {
    let mut deleted = false;
    if has_cluster(site, instance).await? {
        return Ok(deleted);
    }
    let mut refused = None;
    for Children { kind, suffix } in site.identity.children {
        // What it holds is not made again alike.
        if *kind == Kind::Secret && has_cluster(site, instance).await? {
            return Ok(deleted);
        }
        match delete_unowned(site, instance, *kind, suffix).await {
            Ok(is_deleted) => deleted |= is_deleted,
            // Somebody's policy may keep one; the others do not wait for it.
            Err(failure) if !failure.has_no_rights => refused = refused.or(Some(failure)),
            Err(failure) => return Err(failure),
        }
    }
    // By its Service the others are found again.
    if let Some(refused) = refused {
        return Err(refused);
    }
    if has_cluster(site, instance).await? {
        return Ok(deleted);
    }
    if delete_unowned(site, instance, Kind::Service, "").await? {
        site.last_applied.forget(&instance.namespace, &instance.name);
        deleted = true;
    }
    Ok(deleted)
}

/// Whether the API server has a cluster that may take an instance over.
async fn has_cluster(site: &Site, instance: &Instance) -> Result<bool, Failure> {
    let clusters = Api::<TolerantCluster>::namespaced(site.client.clone(), &instance.namespace);
    let found = clusters.get_opt(&instance.cluster).await;
    let found = found.map_err(Failure::reading)?;
    Ok(found
        .map(TolerantCluster::into_inner)
        .is_some_and(|found| may_take_over(&found, &instance.name, || Cluster::parse(&found).is_ok())))
}

/// Deletes one object of an instance if it still has no owner and was made for the cluster. A cluster of that name may be made meanwhile, and
/// take it over: so it is deleted only as it was found. Returns whether it was.
async fn delete_unowned(site: &Site, instance: &Instance, kind: Kind, suffix: &str) -> Result<bool, Failure> {
    let Instance {
        namespace,
        name,
        cluster,
        uid: _,
    } = instance;
    let name = format!("{name}{suffix}");
    let mut attempts = 0..MAX_DELETE_ATTEMPTS;
    loop {
        let found = kind.find(&site.client, namespace, &name).await;
        let found = found.map_err(Failure::reading)?;
        let is_left =
            |found: &ObjectMeta| is_unowned(found, cluster) && is_of_instance(found, &instance.name);
        let Some(found) = found.filter(is_left) else {
            return Ok(false);
        };
        match kind.delete_unchanged(&site.client, namespace, &found).await {
            // A Deployment changes with its status.
            Err(error) if apply::code(&error) == Some(409) && attempts.next().is_some() => {}
            deleted => return deleted.map(|()| true).map_err(Failure::deleting),
        }
    }
}

/// Whether no `SIPCluster` owns an object that was made for this one. One that is being deleted stays as it is.
fn is_unowned(found: &ObjectMeta, cluster: &str) -> bool {
    found.deletion_timestamp.is_none() && Owner::of_object(found) == Some(Owner::MadeFor(cluster.to_owned()))
}

#[cfg(test)]
mod tests;
