//! Deletes instances of `SIPCluster`s that are gone and do not own them any more, so that the garbage collector leaves them: one was deleted
//! with `--cascade=orphan` while this agent did not run, or a backup was restored without it. A `SIPCluster` that is made again with a spec that
//! is refused changes nothing of that: nobody knows what of the instance it would keep, such as keys that log in to a jump host.
//!
//! It also deletes instances of `SIPCluster`s that are gone and still own them. The garbage collector deletes those within seconds, unless the
//! `SIPCluster` was deleted and made again while the collector's watch was interrupted: the next list shows it the new one as a change of the former
//! one, and it keeps what the former one owned until it starts anew. No `SIPCluster` takes these over.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::{Duration, Instant},
};

use api::{Cluster, SIPCluster, TolerantCluster};
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, ResourceExt as _, core::response::reason, runtime::reflector::ObjectRef};
use tokio::{sync::watch, time};

use super::{
    error::Error,
    identity::Identity,
    kinds::{Children, Kind},
    made_for::{FORMER_GONE_WITHIN, Maker, is_of_instance},
    site::Site,
};
use crate::apply;

/// Longest pause between two comparisons of the site's Services with its clusters.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How long an instance stays whose owner is gone, so that the garbage collector can delete it. The comparison that finds it and the one that
/// deletes it are each late by a pause.
const FORMER_STAYS: Duration = FORMER_GONE_WITHIN
    .saturating_sub(MAX_POLL_INTERVAL)
    .saturating_sub(MAX_POLL_INTERVAL);
/// When a deletion that failed is tried again, unless that is longer than instances last.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);
/// How often an object that changes meanwhile is deleted as it is then.
const MAX_DELETE_ATTEMPTS: usize = 3;
/// Instances of a namespace that are deleted in one turn.
const MAX_DELETIONS_PER_NAMESPACE: usize = 8;

/// An instance, and the cluster that made it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Instance {
    namespace: String,
    name: String,
    maker: Maker,
    /// Of its Service, if it has one: that of a restored one differs.
    uid: Option<String>,
}

impl Instance {
    /// How long it stays after it was found. `ownerless_for`: how long one without an owner does.
    fn stays_for(&self, ownerless_for: Duration) -> Duration {
        if self.maker.uid.is_some() {
            ownerless_for.min(FORMER_STAYS)
        } else {
            ownerless_for
        }
    }

    fn log_found(&self, stays_for: Duration) {
        let Self {
            namespace,
            name,
            maker,
            uid: _,
        } = self;
        let (cluster, seconds) = (&maker.name, stays_for.as_secs());
        if maker.uid.is_some() {
            tracing::info!(
                namespace,
                name,
                cluster,
                seconds,
                "a SIPCluster that is gone owns objects of this name; the agent deletes them after these seconds, unless the garbage collector deletes them first"
            );
        } else {
            tracing::info!(
                namespace,
                name,
                cluster,
                seconds,
                "a deleted SIPCluster has left objects of this name; the agent deletes them after these seconds, unless the SIPCluster is created again with a valid spec"
            );
        }
    }
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
                let stays_for = instance.stays_for(ownerless_for);
                instance.log_found(stays_for);
                now + stays_for
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
            let pause = instance.stays_for(ownerless_for).min(MAX_RETRY_DELAY);
            self.0.insert(instance.clone(), now + pause);
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
        let live = site.stores.cluster_uids();
        let others = site.stores.without_live_owner(site.identity, &live);
        let ownerless = ownerless(services, &others, site.identity, &live, may_take_over);
        let mut refused = BTreeSet::new();
        for instance in times.due(&ownerless, Instant::now(), ownerless_for) {
            let Instance {
                namespace,
                name,
                maker,
                uid: _,
            } = &instance;
            let cluster = &maker.name;
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

/// Instances of this agent without an owner, which no cluster may take over, and those whose owner is none of the clusters with the uids in `live`.
/// `others`: those of which the watches in namespaces with clusters show other objects than a Service; somebody may have deleted that.
fn ownerless<'a>(
    services: impl Iterator<Item = &'a Service>,
    others: &BTreeSet<(String, String, Maker)>,
    identity: &Identity,
    live: &BTreeSet<String>,
    may_take_over: impl Fn(&ObjectRef<SIPCluster>, &str) -> bool,
) -> BTreeSet<Instance> {
    let is_left = |namespace: &str, name: &str, maker: &Maker| {
        let has_cluster = || {
            if maker.uid.is_some() {
                maker.is_owner_among(live)
            } else {
                may_take_over(&ObjectRef::new(&maker.name).within(namespace), name)
            }
        };
        identity.owns(name) && !has_cluster()
    };
    let instance = |service: &Service| {
        let (namespace, name) = (service.namespace()?, service.name_any());
        let maker = Maker::of_object(&service.metadata)?;
        let stays = service.metadata.deletion_timestamp.is_none() && is_of_instance(&service.metadata, &name);
        (stays && is_left(&namespace, &name, &maker)).then(|| Instance {
            namespace,
            name,
            maker,
            uid: service.uid(),
        })
    };
    let mut found: BTreeSet<Instance> = services.filter_map(instance).collect();
    let known: BTreeSet<_> = found
        .iter()
        .map(|found| (found.namespace.clone(), found.name.clone(), found.maker.clone()))
        .collect();
    for (namespace, name, maker) in others.difference(&known) {
        if is_left(namespace, name, maker) {
            found.insert(Instance {
                namespace: namespace.clone(),
                name: name.clone(),
                maker: maker.clone(),
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
        // What a Secret holds is not made again alike. Of an instance with an owner each object is checked, as by the garbage collector.
        let is_checked = *kind == Kind::Secret || instance.maker.uid.is_some();
        if is_checked && has_cluster(site, instance).await? {
            return Ok(deleted);
        }
        match delete_object(site, instance, *kind, suffix).await {
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
    if delete_object(site, instance, Kind::Service, "").await? {
        site.last_applied.forget(&instance.namespace, &instance.name);
        deleted = true;
    }
    Ok(deleted)
}

/// Whether the API server has the cluster that owns an instance, or one that may take an instance without an owner over.
async fn has_cluster(site: &Site, instance: &Instance) -> Result<bool, Failure> {
    let clusters = Api::<TolerantCluster>::namespaced(site.client.clone(), &instance.namespace);
    let Maker { name, uid } = &instance.maker;
    if let Some(uid) = uid {
        let found = existing(clusters.get_metadata(name).await)?;
        return Ok(found.is_some_and(|found| may_have_uid(&found.metadata, uid)));
    }
    let found = existing(clusters.get(name).await)?;
    Ok(found
        .map(TolerantCluster::into_inner)
        .is_some_and(|found| may_take_over(&found, &instance.name, || Cluster::parse(&found).is_ok())))
}

/// Whether this uid is that of a cluster, or may be: an answer without any is not one of the API server, and the owner may exist.
fn may_have_uid(cluster: &ObjectMeta, uid: &str) -> bool {
    cluster.uid.as_ref().is_none_or(|found| found == uid)
}

/// A cluster, or `None` if the API server states as its reason that none has that name. A 404 without this reason is an error, since the cluster may
/// exist: a proxy answers so, and an API server that does not serve this version of `SIPCluster`s.
fn existing<K>(found: kube::Result<K>) -> Result<Option<K>, Failure> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.reason == reason::NOT_FOUND => Ok(None),
        Err(error) => Err(Failure::reading(error)),
    }
}

/// Deletes one object of an instance if it still has the same maker, and the same owner or none. A cluster of that name may be made meanwhile, and
/// take it over: so it is deleted only as it was found. Returns whether it was.
async fn delete_object(site: &Site, instance: &Instance, kind: Kind, suffix: &str) -> Result<bool, Failure> {
    let Instance {
        namespace,
        name,
        maker,
        uid: _,
    } = instance;
    let name = format!("{name}{suffix}");
    let mut attempts = 0..MAX_DELETE_ATTEMPTS;
    loop {
        let found = kind.find(&site.client, namespace, &name).await;
        let found = found.map_err(Failure::reading)?;
        let is_left = |found: &ObjectMeta| is_left_by(found, maker) && is_of_instance(found, &instance.name);
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

/// Whether an object has this maker, as its only owner, or without one among `SIPCluster`s. One that is being deleted stays as it is.
fn is_left_by(found: &ObjectMeta, maker: &Maker) -> bool {
    found.deletion_timestamp.is_none() && Maker::of_object(found).as_ref() == Some(maker)
}

#[cfg(test)]
mod tests;
