//! Whether any pod of a cluster's load balancers may still route to hosts that leave. Hosts are released on this evidence, so what is
//! not known counts as routing.
//!
//! Every pod that belongs to the cluster is asked, whichever load balancer it is of: of one in the spec, of one
//! that it no longer names, and of one whose changes are refused. So is every pod of an instance of the cluster, whatever its label says: the
//! instance's configuration is what it reads. So is every configuration that a pod may start with, and every Deployment
//! that starts pods with what the Airship SIP operator made.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use api::{Drained, MemberState, Placement, conditions::ready::PROGRESSING, labels};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, future, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kit::{
    apply,
    load_balancers::{belongs_to, selector},
    pages,
    service::{Drain, Observed, Problem, Stores, revision},
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::time::timeout;

use crate::{
    configurations,
    pod_config::{self, Confirmation},
    pod_routing::{Desired, Routing, routing},
    release_wait_times::ReleaseWaitTimes,
    sip_deployments,
};

/// Timeout for collecting the evidence of one cluster. A tenant decides how many pods there are, and few clusters are reconciled at the same time.
const COLLECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The source of the evidence.
#[derive(Clone, Copy)]
pub(crate) struct Evidence<'a> {
    pub(crate) client: &'a Client,
    pub(crate) stores: &'a Stores,
    pub(crate) waits: &'a ReleaseWaitTimes,
    /// Whether load balancers are rendered with a sidecar.
    pub(crate) have_sidecars: bool,
}

/// Observes whether the hosts that leave may be released. The configurations of `desired` are on the API server, and every load
/// balancer that is not in it has been deleted or could not be changed.
pub(crate) async fn drain(
    evidence: Evidence<'_>,
    observed: &Observed<'_>,
    desired: &[(String, String)],
) -> Drain {
    let known = observed.drained();
    let Evidence { stores, waits, .. } = evidence;
    let goal = observed.placement().and_then(|held| open_goal(held, known));
    let Some(goal) = goal else {
        waits.end(observed.object());
        return Drain::unchanged(known);
    };
    let waited = waits.waited(&stores.clusters, observed.object(), goal, Instant::now());
    let configurations = desired.iter();
    let desired = Desired {
        configurations: configurations
            .map(|(name, digest)| (name.as_str(), digest.as_str()))
            .collect(),
        have_sidecars: evidence.have_sidecars,
    };
    let blocker = timeout(
        COLLECTION_TIMEOUT,
        find_blocker(evidence, observed, goal, &desired),
    )
    .await;
    let blocker = blocker.unwrap_or_else(|_| {
        let seconds = COLLECTION_TIMEOUT.as_secs();
        Some(Blocker::routes(format!(
            "not all pods of the cluster's load balancers have answered within {seconds} s"
        )))
    });
    match blocker {
        None => Drain::unchanged(Some(goal)),
        Some(Blocker { why, forbidden }) => Drain {
            forbidden,
            ..blocked(known, &why, waited)
        },
    }
}

/// The hosts that leave wait; that is reported when it takes longer than usual.
fn blocked(known: Option<Drained>, why: &str, waited: Duration) -> Drain {
    let slow = waited >= pod_config::SLOW_AFTER;
    Drain {
        drained: known,
        problem: slow.then(|| Problem::new(PROGRESSING, format!("hosts are not released: {why}"))),
        requeue: Some(pod_config::pause(waited)),
        ..Drain::default()
    }
}

/// Why hosts that leave cannot be released yet.
struct Blocker {
    /// For messages.
    why: String,
    /// The API server refuses to list pods or configurations.
    forbidden: bool,
}

impl Blocker {
    fn routes(why: String) -> Self {
        Self {
            why,
            forbidden: false,
        }
    }

    fn unlisted(what: &str, error: &kube::Error) -> Self {
        Self {
            why: format!(
                "the {what} of the cluster's load balancers cannot be listed: {}",
                apply::reason(error)
            ),
            forbidden: apply::code(error) == Some(403),
        }
    }
}

/// Which objects the evidence is about.
struct ClusterObjects<'a> {
    cluster: &'a str,
    /// Names of its instances.
    instances: BTreeSet<&'a str>,
}

impl ClusterObjects<'_> {
    /// Whether an object of an instance is among them.
    fn contains(&self, object: &impl ResourceExt) -> bool {
        let instance = object.labels().get(labels::INSTANCE);
        belongs_to(object, self.cluster)
            || instance.is_some_and(|instance| self.instances.contains(instance.as_str()))
    }
}

async fn find_blocker(
    Evidence { client, stores, .. }: Evidence<'_>,
    observed: &Observed<'_>,
    goal: Drained,
    desired: &Desired<'_>,
) -> Option<Blocker> {
    let (namespace, name) = (observed.namespace(), observed.object().name_any());
    let of_spec = desired.configurations.keys().copied();
    let own_objects = ClusterObjects {
        cluster: &name,
        instances: observed
            .names()
            .iter()
            .map(String::as_str)
            .chain(of_spec)
            .collect(),
    };
    // The watch shows cheaply that it is too early. Only a list that the API server makes now shows that it is time: the watch may
    // be behind, or have delivered nothing yet.
    if let Some(why) = routing_pod(&stores.pods.within(&namespace), &own_objects, desired).await {
        return Some(Blocker::routes(why));
    }
    let own = ListParams::default().labels(&selector());
    // Configurations first: what starts after this list does not read one that is older.
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    match pages::metadata(maps, own.clone()).try_collect::<Vec<_>>().await {
        Ok(listed) => {
            if let Some(why) = configurations::find_older(&listed, |map| own_objects.contains(map), goal) {
                return Some(Blocker::routes(why));
            }
        }
        Err(error) => return Some(Blocker::unlisted("configurations", &error)),
    }
    // Before the pods too: one that is gone by then starts no pod that the list does not have.
    match sip_deployments::find_first(client, &namespace, &name).await {
        Ok(None) => {}
        Ok(Some(why)) => return Some(Blocker::routes(why)),
        Err(error) => return Some(Blocker::unlisted("Deployments", &error)),
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let of_cluster = pages::objects(pods, own).try_filter(|pod| future::ready(own_objects.contains(pod)));
    let listed = match of_cluster.map_ok(Arc::new).try_collect::<Vec<_>>().await {
        Ok(listed) => listed,
        Err(error) => return Some(Blocker::unlisted("pods", &error)),
    };
    routing_pod(&listed, &own_objects, desired)
        .await
        .map(Blocker::routes)
}

/// The value of `status.drained` once no pod routes to the hosts that leave; `None` while none leaves.
fn goal(held: &Placement) -> Option<Drained> {
    let leaves = |member: &api::Member| member.state == MemberState::Releasing;
    let leave = held.former_release.is_some() || held.members.iter().any(leaves);
    leave.then(|| Drained {
        epoch: held.epoch,
        revision: revision(held),
    })
}

/// The value of `status.drained` once no pod routes to the hosts that leave; `None` while none leaves, and while what is reported covers those that
/// do. What is reported stays when the release that it was for has ended: the highest revision of the releases in progress is a lower one, and a
/// lower report would have no new information.
#[must_use]
pub fn open_goal(held: &Placement, reported: Option<Drained>) -> Option<Drained> {
    let is_covered =
        |goal: &Drained| reported.is_some_and(|reported| reported.covers(goal.epoch, goal.revision));
    goal(held).filter(|goal| !is_covered(goal))
}

/// The first by name of the cluster's pods that may route to hosts that leave, and why; for messages. The watch has them in any order, and the
/// status names the same one as long as it may.
async fn routing_pod(pods: &[Arc<Pod>], own: &ClusterObjects<'_>, desired: &Desired<'_>) -> Option<String> {
    let mut own: Vec<_> = pods.iter().filter(|pod| own.contains(&***pod)).collect();
    own.sort_by_key(|pod| pod.name_any());
    let mut asked = Vec::new();
    for pod in own {
        match routing(pod, desired) {
            Routing::No => {}
            Routing::Possible(why) => return Some(why),
            Routing::QueryRunning(digest) => {
                asked.push(pod_config::query_pod(Arc::clone(pod), digest).boxed());
            }
            Routing::QueryStart(digest) => {
                asked.push(pod_config::query_start(Arc::clone(pod), digest).boxed());
            }
        }
    }
    // Whoever may make pods decides how many have these labels; the first that does not confirm decides.
    let mut answers = stream::iter(asked).buffered(pod_config::MAX_CONCURRENT_QUERIES);
    while let Some(answer) = answers.next().await {
        if let Confirmation::Missing { pod, failed } = answer {
            let failed = failed.map_or_else(String::new, |message| format!(": {message}"));
            return Some(format!(
                "pod {pod} has not confirmed that it runs the newest configuration{failed}"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_release_that_members_do_not_show_is_drained() {
        let member = json!({
            "namespace": "metal", "name": "h1", "uid": "again", "role": "Worker", "state": "Bound", "revision": 5,
        });
        let held = |former: Value| {
            let held = json!({
                "epoch": 1, "revision": 9, "generation": 1, "members": [member], "formerRelease": former,
            });
            serde_json::from_value::<Placement>(held).unwrap()
        };
        assert_eq!(goal(&held(json!(null))), None);
        let drained = Drained {
            epoch: 1,
            revision: 7,
        };
        assert_eq!(goal(&held(json!(7))), Some(drained));
    }

    #[test]
    fn a_report_never_goes_back_within_an_epoch() {
        let member = json!({
            "namespace": "metal", "name": "h1", "uid": "u", "role": "Worker", "state": "Releasing", "revision": 5,
        });
        // The release of revision 7 has ended.
        let held = json!({"epoch": 2, "revision": 9, "generation": 1, "members": [member]});
        let held: Placement = serde_json::from_value(held).unwrap();
        let reported = |epoch, revision| Some(Drained { epoch, revision });
        for (known, is_open) in [
            (None, true),
            (reported(2, 4), true),
            (reported(2, 5), false),
            (reported(2, 7), false),
            (reported(1, 7), true),
            // No placement had this epoch: the cluster agent would wait for ever.
            (reported(3, 1), true),
        ] {
            let expected = is_open.then_some(Drained {
                epoch: 2,
                revision: 5,
            });
            assert_eq!(open_goal(&held, known), expected, "{known:?}");
        }
    }

    #[test]
    fn every_pod_of_an_instance_is_asked() {
        let own = ClusterObjects {
            cluster: "shop",
            instances: ["lb-a"].into(),
        };
        let pod = |cluster: Option<&str>, instance: &str| -> Pod {
            let labels = json!({(labels::INSTANCE): instance});
            let mut labels = labels.as_object().unwrap().clone();
            labels.extend(cluster.map(|cluster| (labels::CLUSTER_NAME.to_owned(), json!(cluster))));
            serde_json::from_value(json!({"metadata": {"name": "lb", "labels": labels}})).unwrap()
        };
        for (cluster, instance, expected) in [
            (Some("shop"), "lb-a", true),
            (Some("shop"), "lb-before", true),
            (Some("bank"), "lb-a", true),
            (None, "lb-a", true),
            (Some("bank"), "lb-b", false),
            (None, "lb-b", false),
            (None, "loadbalancer-worker-shop", true),
        ] {
            assert_eq!(
                own.contains(&pod(cluster, instance)),
                expected,
                "{cluster:?} {instance}"
            );
        }
    }

    #[tokio::test]
    async fn of_several_pods_the_first_by_name_is_reported() {
        let own = ClusterObjects {
            cluster: "shop",
            instances: BTreeSet::new(),
        };
        let desired = Desired {
            configurations: [].into(),
            have_sidecars: true,
        };
        let pod = |name: &str| {
            let labels = json!({(labels::INSTANCE): "lb", (labels::CLUSTER_NAME): "shop"});
            let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": "n", "containers": []}});
            Arc::new(serde_json::from_value::<Pod>(pod).unwrap())
        };
        for pods in [[pod("lb-1"), pod("lb-2")], [pod("lb-2"), pod("lb-1")]] {
            let why = routing_pod(&pods, &own, &desired).await.unwrap();
            assert!(why.starts_with("pod lb-1 of lb still runs"), "{why}");
        }
    }

    #[test]
    fn hosts_that_wait_long_are_reported() {
        let known = Some(Drained {
            epoch: 1,
            revision: 2,
        });
        let soon = blocked(known, "pod x still runs", Duration::from_secs(1));
        assert_eq!((soon.drained, soon.problem), (known, None));
        let long = blocked(known, "pod x still runs", Duration::from_mins(1));
        assert_eq!(
            long.problem.unwrap().message,
            "hosts are not released: pod x still runs"
        );
        assert!(long.requeue > soon.requeue);
    }
}
