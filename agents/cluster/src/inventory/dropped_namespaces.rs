//! Namespaces with hosts that left the site's configuration.
//!
//! Their hosts are missing from what is reported, and a member whose host is missing counts as gone: it would be replaced at
//! once, while its tenant runs on it. So the agent asks the API server before anything is reported.

use std::collections::{BTreeMap, BTreeSet};

use api::{BareMetalHost, SIPCluster};
use backon::ExponentialBackoff;
use k8s_openapi::api::core::v1::ObjectReference;
use kit::{
    apply, clusters as site_clusters,
    placement::{ClusterId, HeldHosts, HostId, ObjectKey},
    scheduler_client::pauses,
};
use kube::{Api, Client, Resource as _, ResourceExt as _, api::ListParams};

use super::presence::{Loss, Presence};

/// Hosts that an error names at most.
const MAX_NAMED_HOSTS: usize = 5;

/// A namespace that must stay in the configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("hostNamespaces: {namespace} is not listed, and SIPClusters hold hosts there: {held}; {remedy}")]
pub struct DroppedNamespace {
    namespace: String,
    /// Hosts and their holders, the first few.
    held: String,
    /// What would help, and why it is not known whether the hosts exist, where it is not.
    remedy: String,
    holders: Vec<ObjectReference>,
}

impl DroppedNamespace {
    /// The `SIPCluster`s that hold hosts there.
    #[must_use]
    pub fn holders(&self) -> &[ObjectReference] {
        &self.holders
    }
}

/// A host that a status or the ledger gives to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HeldHost {
    host: HostId,
    by: ClusterId,
}

/// Checks that `configured` has every namespace with hosts that a `SIPCluster` holds and whose loss the API server does not confirm. An API
/// server that does not answer is called again.
///
/// # Errors
/// The first namespace that is missing; a namespace whose hosts cannot be listed counts as one that has them.
pub async fn no_held_hosts_outside(
    client: &Client,
    configured: &BTreeSet<String>,
) -> Result<(), DroppedNamespace> {
    let clusters = clusters(client).await;
    all_lost_in(client, outside(hosts_in_statuses(&clusters), configured)).await
}

/// Checks the same by what the scheduler's ledger gives to clusters: it has a claim before a status names the host, and keeps it if a user removes
/// the status or the `SIPCluster`. A member whose namespace cannot be read is in none that could be kept; the log names its cluster.
///
/// # Errors
/// As [`no_held_hosts_outside`].
pub async fn no_recorded_hosts_outside(
    client: &Client,
    ledger: &[HeldHosts],
    configured: &BTreeSet<String>,
) -> Result<(), DroppedNamespace> {
    for held in ledger.iter().filter(|held| held.unknown() > 0) {
        let (cluster, members) = (held.cluster().key(), held.unknown());
        tracing::warn!(%cluster, members, "the namespaces of members in the scheduler's ledger cannot be read; they are not checked");
    }
    all_lost_in(client, outside(recorded(ledger), configured)).await
}

/// Checks that all these hosts are lost, by their namespaces.
async fn all_lost_in(
    client: &Client,
    outside: BTreeMap<String, BTreeSet<HeldHost>>,
) -> Result<(), DroppedNamespace> {
    for (namespace, held) in outside {
        let found = hosts(client, &namespace).await;
        all_lost(&namespace, &held, &found)?;
    }
    Ok(())
}

/// Every `SIPCluster` of the site.
async fn clusters(client: &Client) -> Vec<SIPCluster> {
    let mut pauses = pauses();
    loop {
        match site_clusters::list(client).await {
            Ok(found) => return found,
            Err(error) => pause("SIPClusters", &error, &mut pauses).await,
        }
    }
}

/// The uids of a namespace's hosts by their names, or why they may not be listed.
async fn hosts(client: &Client, namespace: &str) -> kube::Result<BTreeMap<String, String>> {
    let hosts = Api::<BareMetalHost>::namespaced(client.clone(), namespace);
    let mut pauses = pauses();
    loop {
        match hosts.list_metadata(&ListParams::default()).await {
            Ok(found) => {
                let uids = found
                    .iter()
                    .map(|host| (host.name_any(), host.uid().unwrap_or_default()));
                return Ok(uids.collect());
            }
            Err(error) if is_temporary(&error) => pause("BareMetalHosts", &error, &mut pauses).await,
            Err(error) => return Err(error),
        }
    }
}

/// Whether the API server was not reached, is overloaded or has failed: it can recover without a change by a user.
fn is_temporary(error: &kube::Error) -> bool {
    apply::code(error).is_none_or(|code| code == 429 || code >= 500)
}

/// Waits before the API server is called again.
async fn pause(what: &str, error: &kube::Error, pauses: &mut ExponentialBackoff) {
    let why = runtime::error_chain::chain(error);
    tracing::warn!(error = why, "{what} cannot be listed; retrying");
    tokio::time::sleep(pauses.next().unwrap_or_default()).await;
}

/// Those hosts that are in no configured namespace, by their namespaces.
fn outside(
    held: impl Iterator<Item = HeldHost>,
    configured: &BTreeSet<String>,
) -> BTreeMap<String, BTreeSet<HeldHost>> {
    let mut outside: BTreeMap<String, BTreeSet<HeldHost>> = BTreeMap::new();
    for held in held {
        let namespace = held.host.key().namespace.clone();
        if !configured.contains(&namespace) {
            outside.entry(namespace).or_default().insert(held);
        }
    }
    outside
}

/// The hosts that statuses give to clusters.
fn hosts_in_statuses(clusters: &[SIPCluster]) -> impl Iterator<Item = HeldHost> {
    clusters.iter().flat_map(|cluster| {
        let by = ClusterId::for_object(cluster);
        let hosts = named_hosts(cluster).into_iter();
        hosts.map(move |host| HeldHost { host, by: by.clone() })
    })
}

/// The hosts that the ledger gives to clusters.
fn recorded(ledger: &[HeldHosts]) -> impl Iterator<Item = HeldHost> {
    ledger.iter().flat_map(|held| {
        held.hosts().iter().map(move |host| HeldHost {
            host: host_itself(host),
            by: held.cluster().clone(),
        })
    })
}

/// The host of a member. A member that represents a former address of a host has the host's uid, a `+` and a number.
fn host_itself(id: &HostId) -> HostId {
    let uid = id.uid().split('+').next().unwrap_or_default();
    HostId::new(id.key().clone(), uid)
}

/// The hosts that a status names, also where other fields of its placement cannot be read: without a readable uid, a member counts as one whose host
/// was recreated, if there is a host of its name; without a readable name, as one whose host may exist (its name is empty here). A member without a
/// readable namespace is in none that could be kept.
fn named_hosts(cluster: &SIPCluster) -> Vec<HostId> {
    let host = |namespace: &str, name: &str, uid: &str| {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        HostId::new(ObjectKey { namespace, name }, uid)
    };
    let status = cluster.status.as_ref();
    let placement = status.and_then(|status| status.placement.as_ref());
    let members = placement.map(|placement| &*placement.members).unwrap_or_default();
    let read = members
        .iter()
        .map(|member| host(&member.namespace, &member.name, &member.uid));
    let unread = cluster.spec.left_out.placement.as_ref();
    let unread = unread.and_then(|placement| placement.get("members")?.as_array());
    let unread = unread.into_iter().flatten().filter_map(|member| {
        let text = |field: &str| member.get(field)?.as_str();
        Some(host(
            text("namespace")?,
            text("name").unwrap_or_default(),
            text("uid").unwrap_or_default(),
        ))
    });
    read.chain(unread).collect()
}

/// Checks that all these hosts of a namespace that is not configured are lost. `found`: see [`hosts`].
fn all_lost(
    namespace: &str,
    held: &BTreeSet<HeldHost>,
    found: &kube::Result<BTreeMap<String, String>>,
) -> Result<(), DroppedNamespace> {
    let presence = |host: &HostId| match found {
        Ok(_) if host.key().name.is_empty() => Presence::Unknown(
            "the name of a host in status.placement or the ledger cannot be read".to_owned(),
        ),
        Ok(uids) => Presence::new(host, uids.get(&host.key().name).map(String::as_str)),
        Err(error) => Presence::unknown(namespace, error),
    };
    let kept: Vec<(&HeldHost, Presence)> = held
        .iter()
        .map(|held| (held, presence(&held.host)))
        .filter(|(_, presence)| presence.loss(namespace, false) != Loss::Confirmed)
        .collect();
    let Some((_, first)) = kept.first() else {
        return Ok(());
    };
    let remedy = match first {
        Presence::Unknown(why) => format!(
            "they cannot be confirmed as gone: {why}; if they are not gone, list {namespace} in hostNamespaces again"
        ),
        Presence::Gone | Presence::Present | Presence::Recreated => {
            "list it again, or release these hosts first (delete the SIPClusters, or request that the hosts be replaced; where the SIPCluster \
             is gone, sipctl release-orphan; formerRelease in a status is for a former address of a host)"
                .to_owned()
        }
    };
    let holders: BTreeSet<&ClusterId> = kept.iter().map(|(held, _)| &held.by).collect();
    Err(DroppedNamespace {
        namespace: namespace.to_owned(),
        held: describe(&kept),
        remedy,
        holders: holders.into_iter().map(reference).collect(),
    })
}

/// The `SIPCluster`, for Events.
fn reference(cluster: &ClusterId) -> ObjectReference {
    ObjectReference {
        api_version: Some(SIPCluster::api_version(&()).into_owned()),
        kind: Some(SIPCluster::kind(&()).into_owned()),
        namespace: Some(cluster.namespace().to_owned()),
        name: Some(cluster.name().to_owned()),
        uid: Some(cluster.uid().to_owned()).filter(|uid| !uid.is_empty()),
        ..ObjectReference::default()
    }
}

fn describe(kept: &[(&HeldHost, Presence)]) -> String {
    let named = kept
        .iter()
        .take(MAX_NAMED_HOSTS)
        .map(|(HeldHost { host, by }, presence)| {
            let since = match presence {
                Presence::Recreated => " (recreated since)",
                Presence::Gone | Presence::Present | Presence::Unknown(_) => "",
            };
            format!("{host} by {}{since}", by.key())
        });
    let named = named.collect::<Vec<_>>().join(", ");
    match kept.len().saturating_sub(MAX_NAMED_HOSTS) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use api::MemberState;
    use kube::{client::Body, core::Status};
    use serde_json::json;

    use super::*;
    use crate::fixtures::{answer, cluster, placement_answer};

    /// What the check finds of `tenant/one`, which holds `metal-too/h1` with the uid `uid-h1`.
    fn checked(found: &kube::Result<BTreeMap<String, String>>) -> Result<(), String> {
        let member = json!({
            "namespace": "metal-too", "name": "h1", "uid": "uid-h1", "role": "Worker", "state": "Bound", "revision": 5,
            "since": "2025-01-01T00:00:00Z",
        });
        let placement = json!({ "epoch": 1, "revision": 5, "generation": 3, "members": [member] });
        let clusters = [cluster(&json!({ "placement": placement }))];
        let outside = outside(
            hosts_in_statuses(&clusters),
            &BTreeSet::from(["metal".to_owned()]),
        );
        let checked = all_lost("metal-too", &outside["metal-too"], found);
        checked.map_err(|dropped| {
            assert_eq!(dropped.holders().len(), 1);
            dropped.to_string()
        })
    }

    #[test]
    fn a_placement_that_cannot_be_read_holds_its_hosts_too() {
        let member = json!({"namespace": "metal-too", "name": "h1", "uid": "uid-h1", "state": "Moving"});
        let mut holder = cluster(&json!({}));
        let mut found = |members: serde_json::Value| {
            holder.spec.left_out.placement = Some(json!({ "members": members }));
            let holders = [holder.clone()];
            let outside = outside(hosts_in_statuses(&holders), &BTreeSet::from(["metal".to_owned()]));
            let held: Vec<_> = outside["metal-too"]
                .iter()
                .map(|held| held.host.clone())
                .collect();
            let checked = all_lost("metal-too", &outside["metal-too"], &Ok(uids(&[])));
            (held, checked.is_ok())
        };
        let (held, lost) = found(json!([member, {"name": "h2"}, 3]));
        assert_eq!((held.len(), lost), (1, true));
        assert_eq!((&*held[0].key().name, held[0].uid()), ("h1", "uid-h1"));
        let (held, lost) = found(json!([{"namespace": "metal-too", "host": "h1"}]));
        assert_eq!((held.len(), lost), (1, false), "nobody knows which host it is");
    }

    #[test]
    fn hosts_that_only_the_ledger_gives_away_are_held_too() {
        let mut former = answer("h1", MemberState::Releasing);
        former.host.as_mut().unwrap().uid.push_str("+1");
        let mut newer = answer("h2", MemberState::Bound);
        newer.state = 9;
        let recorded_hosts = placement_answer(vec![answer("h1", MemberState::Claimed), former, newer]);
        let ledger = [HeldHosts::from(recorded_hosts)];
        let without = |configured: &str| {
            let configured = BTreeSet::from([configured.to_owned()]);
            outside(recorded(&ledger), &configured)
        };
        assert!(without("metal").is_empty());
        let outside = without("metal-too");
        let check = |found: &[(&str, &str)]| all_lost("metal", &outside["metal"], &Ok(uids(found)));
        assert_eq!(check(&[]), Ok(()));
        let newer = check(&[("h2", "uid-h2")]).unwrap_err();
        assert!(
            newer.to_string().contains(": metal/h2 by tenant/one; list"),
            "{newer}"
        );
        let dropped = check(&[("h1", "uid-h1")]).unwrap_err();
        let expected = "hold hosts there: metal/h1 by tenant/one; list it again";
        assert!(dropped.to_string().contains(expected), "{dropped}");
        assert!(dropped.to_string().contains("sipctl release-orphan"), "{dropped}");
        let object = cluster(&json!({}));
        assert_eq!(dropped.holders(), [object.object_ref(&())]);
    }

    fn uids(hosts: &[(&str, &str)]) -> BTreeMap<String, String> {
        let hosts = hosts.iter();
        hosts
            .map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned()))
            .collect()
    }

    #[test]
    fn only_a_namespace_without_a_held_host_can_be_dropped() {
        assert_eq!(checked(&Ok(uids(&[]))), Ok(()));
        assert_eq!(checked(&Ok(uids(&[("h2", "uid-h1")]))), Ok(()));
        let held = checked(&Ok(uids(&[("h1", "uid-h1")]))).unwrap_err();
        assert!(
            held.contains("metal-too/h1 by tenant/one; list it again"),
            "{held}"
        );
    }

    #[test]
    fn a_namespace_with_a_recreated_host_cannot_be_dropped() {
        let held = checked(&Ok(uids(&[("h1", "another")]))).unwrap_err();
        assert!(
            held.contains("metal-too/h1 by tenant/one (recreated since); list it again"),
            "{held}"
        );
    }

    #[test]
    fn hosts_that_may_not_be_listed_are_not_gone() {
        let message = "baremetalhosts.metal3.io is forbidden: User \"a\" cannot list resource";
        let forbidden = Status::failure(message, "Forbidden").with_code(403);
        let held = checked(&Err(kube::Error::Api(forbidden.boxed()))).unwrap_err();
        assert!(
            held.contains(&format!(
                "tenant/one; they cannot be confirmed as gone: {message}"
            )),
            "{held}"
        );
        for help in [
            "deploy/agents/host-namespace in metal-too",
            "list metal-too in hostNamespaces again",
        ] {
            assert!(held.contains(help), "{held}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_fails_is_asked_again() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let (code, body) = if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                (
                    503,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "reason": "", "message": ""}),
                )
            } else {
                let host = json!({
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "h1", "uid": "uid-h1"},
                });
                (
                    200,
                    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [host]}),
                )
            };
            let response = http::Response::builder().status(code);
            let response = response
                .body(Body::from(serde_json::to_vec(&body).unwrap()))
                .unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let found = hosts(&Client::new(service, "metal-too"), "metal-too").await;
        assert_eq!(found.unwrap(), uids(&[("h1", "uid-h1")]));
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
