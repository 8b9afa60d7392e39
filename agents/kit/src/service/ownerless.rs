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
    made_for,
    site::Site,
};
use crate::apply;

/// Longest pause between two comparisons of the site's Services with its clusters.
const PAUSE: Duration = Duration::from_secs(30);
/// When a deletion that failed is tried again, unless that is longer than instances last.
const RETRY: Duration = Duration::from_mins(5);
/// How often an object that changes meanwhile is deleted as it is then.
const TRIES: usize = 3;

/// An instance, and the name of the cluster that it was made for.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Instance {
    namespace: String,
    name: String,
    cluster: String,
    /// Of its Service: that of a restored one differs.
    uid: Option<String>,
}

/// When each that was found without its cluster is deleted.
#[derive(Debug, Default)]
struct Found(BTreeMap<Instance, Instant>);

impl Found {
    /// Those that have been found for so long. A deletion that fails is tried again later.
    fn due(&mut self, found: &BTreeSet<Instance>, now: Instant, lasting: Duration) -> Vec<Instance> {
        self.0.retain(|instance, _| found.contains(instance));
        let mut due = Vec::new();
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
                *at = now + lasting.min(RETRY);
                due.push(instance.clone());
            }
        }
        due
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
        let ownerless = ownerless(services.iter().map(AsRef::as_ref), site.identity, is_gone);
        for instance in found.due(&ownerless, Instant::now(), lasting) {
            let Instance {
                namespace,
                name,
                cluster,
                uid: _,
            } = &instance;
            match delete(site, &instance).await {
                Ok(true) => tracing::info!(
                    namespace,
                    name,
                    cluster,
                    "deleted what a deleted SIPCluster has left"
                ),
                Ok(false) => {}
                Err(error) => {
                    let error = runtime::error_chain::chain(&error);
                    tracing::warn!(
                        namespace,
                        name,
                        cluster,
                        error,
                        "what a deleted SIPCluster has left cannot be deleted; requeued"
                    );
                }
            }
        }
    }
}

/// Instances of this agent without an owner, whose cluster is gone.
fn ownerless<'a>(
    services: impl Iterator<Item = &'a Service>,
    identity: &Identity,
    is_gone: impl Fn(&ObjectRef<SIPCluster>) -> bool,
) -> BTreeSet<Instance> {
    let instance = |service: &Service| {
        let mut owners = service.owner_references().iter();
        let has_owner = owners.any(|owner| owner.kind == "SIPCluster");
        let (namespace, name) = (service.namespace()?, service.name_any());
        let cluster = made_for::cluster(service.labels()).filter(|_| !has_owner && identity.owns(&name))?;
        is_gone(&ObjectRef::new(cluster).within(&namespace)).then(|| Instance {
            namespace,
            name,
            cluster: cluster.to_owned(),
            uid: service.uid(),
        })
    };
    services.filter_map(instance).collect()
}

/// Returns whether it was deleted: a cluster of that name may exist by now, which the watch has not shown.
async fn delete(site: &Site, instance: &Instance) -> Result<bool, Error> {
    let clusters = Api::<SIPCluster>::namespaced(site.client.clone(), &instance.namespace);
    let found = clusters.get_metadata_opt(&instance.cluster).await;
    if found.map_err(Error::kubernetes("read the SIPCluster"))?.is_some() {
        return Ok(false);
    }
    site.last_applied.forget(&instance.namespace, &instance.name);
    for Children { kind, suffix } in site.identity.children {
        delete_unowned(site, instance, *kind, suffix).await?;
    }
    delete_unowned(site, instance, Kind::Service, "").await?;
    Ok(true)
}

/// Deletes one object of an instance if it still has no owner and was made for the cluster. A cluster of that name may be made meanwhile, and
/// take it over: so it is deleted only as it was found.
async fn delete_unowned(site: &Site, instance: &Instance, kind: Kind, suffix: &str) -> Result<(), Error> {
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
        let found = found.map_err(Error::kubernetes("find what a deleted SIPCluster has left"))?;
        let Some(found) = found.filter(|found| is_unowned(found, cluster)) else {
            return Ok(());
        };
        match kind.delete_unchanged(&site.client, namespace, &found).await {
            // A Deployment changes with its status.
            Err(error) if apply::code(&error) == Some(409) && tries.next().is_some() => {}
            deleted => {
                return deleted.map_err(Error::kubernetes("delete what a deleted SIPCluster has left"));
            }
        }
    }
}

/// Whether no `SIPCluster` owns an object that was made for this one.
fn is_unowned(found: &ObjectMeta, cluster: &str) -> bool {
    let mut owners = found.owner_references.iter().flatten();
    let has_owner = owners.any(|owner| owner.kind == "SIPCluster");
    let made_for = found.labels.as_ref().and_then(made_for::cluster);
    !has_owner && made_for == Some(cluster)
}

#[cfg(test)]
mod tests {
    use api::labels;
    use serde_json::{Value, json};

    use super::{super::identity::BALANCERS, *};

    fn service(name: &str, labels: &Value, owners: &Value) -> Service {
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
        let found = ownerless(services.iter(), BALANCERS, is_gone);
        let names: Vec<_> = found.iter().map(|instance| &*instance.name).collect();
        assert_eq!(names, ["loadbalancer-worker-gone-a"]);
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
