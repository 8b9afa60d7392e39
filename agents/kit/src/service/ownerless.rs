//! Deletes instances of `SIPCluster`s that are gone and do not own them any more, so that the garbage collector leaves them: one was deleted
//! with `--cascade=orphan` while this agent did not run, or a backup was restored without it.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::{Duration, Instant},
};

use api::SIPCluster;
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, ResourceExt as _, runtime::reflector::ObjectRef};
use tokio::{sync::watch, time};

use super::{
    error::Error,
    identity::Identity,
    kinds::{Children, Kind},
    made_for::{Whose, is_of_instance},
    site::Site,
};
use crate::apply;

/// Longest pause between two comparisons of the site's Services with its clusters.
const PAUSE: Duration = Duration::from_secs(30);
/// When a deletion that failed is tried again, unless that is longer than instances last.
const RETRY: Duration = Duration::from_mins(5);
/// How often an object that changes meanwhile is deleted as it is then.
const TRIES: usize = 3;
/// Instances of a namespace that are deleted in one turn.
const IN_TURN: usize = 8;

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
struct Found(BTreeMap<Instance, Instant>);

impl Found {
    /// Those that have been found for so long: of each namespace a few, those first that have waited longest. A deletion that fails is tried
    /// again later.
    fn due(&mut self, found: &BTreeSet<Instance>, now: Instant, lasting: Duration) -> Vec<Instance> {
        self.0.retain(|instance, _| found.contains(instance));
        let mut due: BTreeMap<&str, Vec<(Instant, &Instance)>> = BTreeMap::new();
        for instance in found {
            let at = self.0.entry(instance.clone()).or_insert_with(|| {
                let Instance { namespace, name, cluster, uid: _ } = instance;
                let seconds = lasting.as_secs();
                tracing::info!(
                    namespace,
                    name,
                    cluster,
                    seconds,
                    "a deleted SIPCluster has left this; it is deleted after that time, unless the SIPCluster is made again"
                );
                now + lasting
            });
            if now >= *at {
                due.entry(&instance.namespace).or_default().push((*at, instance));
            }
        }
        let mut taken = Vec::new();
        for (_, mut of_namespace) in due {
            of_namespace.sort();
            let next = of_namespace.into_iter().take(IN_TURN);
            taken.extend(next.map(|(_, instance)| instance.clone()));
        }
        for instance in &taken {
            self.0.insert(instance.clone(), now + lasting.min(RETRY));
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

/// Deletes them once they have been so for `lasting`: a restore may bring a Service before its cluster. Begins once `listed` is true.
pub(super) async fn delete_all(
    site: &Site,
    lasting: Duration,
    mut listed: watch::Receiver<bool>,
) -> Infallible {
    if listed.wait_for(|listed| *listed).await.is_err() {
        // The process ends.
        return std::future::pending().await;
    }
    let mut found = Found::default();
    loop {
        time::sleep(PAUSE.min(lasting)).await;
        let services = site.stores.services.state();
        let clusters = &site.stores.clusters;
        let is_gone = |cluster: &ObjectRef<SIPCluster>| clusters.get(cluster).is_none();
        let services = services.iter().map(AsRef::as_ref);
        let others = site.stores.without_owner(site.identity);
        let ownerless = ownerless(services, others, site.identity, is_gone);
        let mut refused = BTreeSet::new();
        for instance in found.due(&ownerless, Instant::now(), lasting) {
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

/// Instances of this agent without an owner, whose cluster is gone. `others`: those of which the watches in namespaces with clusters show other
/// objects than a Service; somebody may have deleted that.
fn ownerless<'a>(
    services: impl Iterator<Item = &'a Service>,
    others: BTreeSet<(String, String, String)>,
    identity: &Identity,
    is_gone: impl Fn(&ObjectRef<SIPCluster>) -> bool,
) -> BTreeSet<Instance> {
    let is_left = |namespace: &str, name: &str, cluster: &str| {
        identity.owns(name) && is_gone(&ObjectRef::new(cluster).within(namespace))
    };
    let instance = |service: &Service| {
        let (namespace, name) = (service.namespace()?, service.name_any());
        let Whose::MadeFor(cluster) = Whose::by_metadata(&service.metadata)? else {
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

/// Returns whether anything was deleted: a cluster of that name may exist by now, which the watch has not shown.
async fn delete(site: &Site, instance: &Instance) -> Result<bool, Failure> {
    let mut deleted = false;
    if exists(site, instance).await? {
        return Ok(deleted);
    }
    let mut refused = None;
    for Children { kind, suffix } in site.identity.children {
        // What it holds is not made again alike.
        if *kind == Kind::Secret && exists(site, instance).await? {
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
    if exists(site, instance).await? {
        return Ok(deleted);
    }
    if delete_unowned(site, instance, Kind::Service, "").await? {
        site.last_applied.forget(&instance.namespace, &instance.name);
        deleted = true;
    }
    Ok(deleted)
}

/// Whether the cluster of an instance exists, by the API server.
async fn exists(site: &Site, instance: &Instance) -> Result<bool, Failure> {
    let clusters = Api::<SIPCluster>::namespaced(site.client.clone(), &instance.namespace);
    let found = clusters.get_metadata_opt(&instance.cluster).await;
    found.map(|found| found.is_some()).map_err(Failure::reading)
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
    let mut tries = 0..TRIES;
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
            Err(error) if apply::code(&error) == Some(409) && tries.next().is_some() => {}
            deleted => return deleted.map(|()| true).map_err(Failure::deleting),
        }
    }
}

/// Whether no `SIPCluster` owns an object that was made for this one. One that is being deleted stays as it is.
fn is_unowned(found: &ObjectMeta, cluster: &str) -> bool {
    found.deletion_timestamp.is_none()
        && Whose::by_metadata(found) == Some(Whose::MadeFor(cluster.to_owned()))
}

#[cfg(test)]
mod tests {
    use api::labels;
    use serde_json::{Value, json};

    use super::{super::identity::BALANCERS, *};

    fn service(name: &str, labels: &Value, owners: &Value) -> Service {
        let mut labels = labels.clone();
        labels[labels::INSTANCE] = json!(name);
        let metadata =
            json!({"namespace": "tenant", "name": name, "labels": labels, "ownerReferences": owners});
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn only_what_was_made_for_a_cluster_that_is_gone_is_found() {
        let of = |cluster: &str| json!({"app.kubernetes.io/part-of": "sip", "sip.airshipit.org/cluster-name": cluster});
        let owner = json!([{"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": "gone", "uid": "u"}]);
        let services = [
            service("loadbalancer-worker-gone-a", &of("gone"), &Value::Null),
            service("loadbalancer-worker-shop", &of("shop"), &Value::Null),
            // The garbage collector deletes it.
            service("loadbalancer-worker-gone-b", &of("gone"), &owner),
            // Another agent's, and one that the Airship SIP operator may have made.
            service("jumphost-gone", &of("gone"), &Value::Null),
            service(
                "loadbalancer-worker-gone",
                &json!({"app.kubernetes.io/part-of": "sip"}),
                &Value::Null,
            ),
        ];
        let is_gone = |cluster: &ObjectRef<SIPCluster>| cluster.name != "shop";
        let other = |name: &str, cluster: &str| ("tenant".to_owned(), name.to_owned(), cluster.to_owned());
        let others = [
            other("loadbalancer-worker-gone-a", "gone"),
            // Somebody has deleted its Service.
            other("loadbalancer-worker-gone-d", "gone"),
            other("loadbalancer-worker-shop-b", "shop"),
            other("jumphost-gone-b", "gone"),
        ];
        let mut ending = service("loadbalancer-worker-gone-c", &of("gone"), &Value::Null);
        ending.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        // Somebody has copied the labels.
        let mut copied = service("loadbalancer-worker-gone-e", &of("gone"), &Value::Null);
        copied.metadata.name = Some("loadbalancer-worker-gone-stats".to_owned());
        let services = services.iter().chain([&ending, &copied]);
        let found = ownerless(services, others.into(), BALANCERS, is_gone);
        let names: Vec<_> = found.iter().map(|instance| &*instance.name).collect();
        assert_eq!(
            names,
            ["loadbalancer-worker-gone-a", "loadbalancer-worker-gone-d"]
        );
    }

    #[test]
    fn a_namespace_with_many_delays_no_other() {
        let of = |namespace: &str, number: usize| Instance {
            namespace: namespace.to_owned(),
            name: format!("{number:04}"),
            cluster: "gone".to_owned(),
            uid: None,
        };
        let mut all: BTreeSet<Instance> = (0..100).map(|number| of("a", number)).collect();
        all.insert(of("b", 0));
        let (begun, lasting) = (Instant::now(), Duration::from_mins(20));
        let mut found = Found::default();
        assert_eq!(found.due(&all, begun, lasting), []);
        let mut seen = BTreeSet::new();
        for tick in 0..13 {
            let due = found.due(&all, begun + lasting + PAUSE * tick, lasting);
            assert!(due.len() <= IN_TURN + 1);
            assert_eq!(due.contains(&of("b", 0)), tick == 0 || tick == 10, "{tick}");
            seen.extend(due);
        }
        // None is tried again before each was tried.
        assert_eq!(seen.len(), 101);
    }

    #[test]
    fn only_a_refused_read_ends_the_turn_of_a_namespace() {
        let failed = |code| {
            let status = kube::core::Status::failure("no", "no").with_code(code);
            kube::Error::Api(status.boxed())
        };
        assert!(Failure::reading(failed(403)).has_no_rights);
        for failure in [Failure::reading(failed(500)), Failure::deleting(failed(403))] {
            assert!(!failure.has_no_rights, "{}", failure.error);
        }
    }

    #[test]
    fn only_what_stays_so_long_enough_is_due() {
        let of = |name: &str, uid: &str| Instance {
            namespace: "tenant".to_owned(),
            name: name.to_owned(),
            cluster: "gone".to_owned(),
            uid: Some(uid.to_owned()),
        };
        let instance = |name: &str| of(name, "u");
        let (both, one) = ([instance("a"), instance("b")].into(), [instance("a")].into());
        let (begun, lasting) = (Instant::now(), Duration::from_mins(20));
        let mut found = Found::default();
        assert_eq!(found.due(&both, begun, lasting), []);
        assert_eq!(found.due(&one, begun + lasting / 2, lasting), []);
        // The other one was owned meanwhile.
        let at = begun + lasting;
        assert_eq!(found.due(&both, at, lasting), [instance("a")]);
        // Its deletion has failed.
        assert_eq!(found.due(&both, at + RETRY / 2, lasting), []);
        assert_eq!(found.due(&both, at + RETRY, lasting), [instance("a")]);
        assert_eq!(
            found.due(&both, at + lasting, lasting),
            [instance("a"), instance("b")]
        );
        // Another one of that name was restored.
        let restored = [of("a", "v")].into();
        assert_eq!(found.due(&restored, at + lasting * 2, lasting), []);
        assert_eq!(found.due(&restored, at + lasting * 3, lasting), [of("a", "v")]);
    }

    #[test]
    fn only_what_was_made_for_the_cluster_is_deleted() {
        let found = |labels: Value, owner: Option<&str>| -> ObjectMeta {
            let owner =
                owner.map(|kind| json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u"}]));
            serde_json::from_value(json!({"name": "lb", "labels": labels, "ownerReferences": owner})).unwrap()
        };
        let ours = || json!({(labels::PART_OF): labels::PART_OF_SIP, (labels::CLUSTER_NAME): "shop"});
        assert!(is_unowned(&found(ours(), None), "shop"));
        assert!(is_unowned(&found(ours(), Some("Job")), "shop"));
        for other in [
            found(ours(), Some("SIPCluster")),
            found(json!(null), None),
            found(json!({(labels::CLUSTER_NAME): "shop"}), None),
            found(json!({(labels::PART_OF): labels::PART_OF_SIP}), None),
            found(
                json!({(labels::PART_OF): labels::PART_OF_SIP, (labels::CLUSTER_NAME): "bank"}),
                None,
            ),
        ] {
            assert!(!is_unowned(&other, "shop"), "{other:?}");
        }
    }
}
