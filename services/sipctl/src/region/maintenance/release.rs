//! Confirms by hand that nothing routes to a host that its cluster releases: what `docs/force-deletion.md` has of `kubectl patch`.

use api::{BareMetalHost, Member, MemberState, SIPCluster, annotations, labels};
use backon::{ExponentialBuilder, Retryable as _};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use placement::HostName;
use serde_json::{Value, json};

use super::{
    access::{self, Access},
    host::FIELD_MANAGER,
};
use crate::region::outcome::{DRY_RUN, Outcome};

const LABELS: [&str; 3] = [labels::CLUSTER_NAMESPACE, labels::CLUSTER_NAME, labels::NODE_TYPE];

/// Takes the labels off a host that its cluster releases and marks it with the revision of the release, which is what the cluster agent does once
/// the load-balancer agent has confirmed that no pod routes to the host.
///
/// # Errors
/// When the API server does not answer.
pub(super) async fn confirm(access: Access, name: HostName, dry_run: bool) -> anyhow::Result<Outcome> {
    let client = access.client().await?;
    let tried = async || attempt(&client, &name, dry_run).await;
    let tried = tried
        .retry(ExponentialBuilder::default().with_max_times(5))
        .when(access::is_conflict);
    match tried.await {
        Ok(outcome) => Ok(outcome),
        Err(error) => Ok(Outcome::refused(String::new(), access::refused(error)?)),
    }
}

/// One try with the host and the cluster as they are now: the patch fails if the host has changed since.
async fn attempt(client: &Client, name: &HostName, dry_run: bool) -> kube::Result<Outcome> {
    let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), name.namespace().as_str());
    let host = hosts.get(name.name()).await?;
    let label = |key: &str| host.labels().get(key).cloned();
    let (Some(namespace), Some(cluster)) = (label(labels::CLUSTER_NAMESPACE), label(labels::CLUSTER_NAME))
    else {
        let why = format!("{name} has no labels of a cluster: there is nothing to confirm");
        return Ok(Outcome::refused(String::new(), why));
    };
    let clusters: Api<SIPCluster> = Api::namespaced(client.clone(), &namespace);
    let Some(object) = clusters.get_opt(&cluster).await? else {
        let why = format!("SIPCluster {namespace}/{cluster} does not exist: use sipctl release-orphan");
        return Ok(Outcome::refused(String::new(), why));
    };
    let of = format!("{namespace}/{cluster}");
    let revision = match released(&host, &object) {
        Ok(revision) => revision,
        Err(why) => return Ok(Outcome::refused(String::new(), format!("{name}: {why} {of}"))),
    };
    let mut text = format!(
        "Host {name} (uid {}): {of} releases it at revision {revision}.\nIt loses its labels, and can be claimed by another cluster: only if no pod \
         routes to it.\n",
        host.uid().unwrap_or_default()
    );
    if dry_run {
        text.push_str(DRY_RUN);
        return Ok(Outcome::done(text));
    }
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(patch(&host, revision));
    hosts.patch_metadata(name.name(), &params, &patch).await?;
    text.push_str("Done: the cluster agent confirms the release.\n");
    Ok(Outcome::done(text))
}

/// The revision at which the cluster began to release the host; otherwise why it cannot be confirmed, before the name of the cluster.
fn released(host: &BareMetalHost, cluster: &SIPCluster) -> Result<u64, &'static str> {
    let status = cluster.status.as_ref();
    let placement = status.and_then(|status| status.placement.as_ref());
    let mut members = placement.iter().flat_map(|placement| &placement.members);
    let member: Option<&Member> = members.find(|member| Some(&member.uid) == host.metadata.uid.as_ref());
    match member {
        None => Err("it is no member of"),
        Some(member) if member.state != MemberState::Releasing => Err("it is not released by"),
        Some(_) if host.spec.consumer_ref.is_some() => {
            Err("it is still used, which only its consumer can end; it is released by")
        }
        Some(member) => Ok(member.revision),
    }
}

/// The whole patch. It fails if the host has changed, or has been recreated, since it was read.
fn patch(host: &BareMetalHost, revision: u64) -> Value {
    let labels: serde_json::Map<String, Value> = LABELS
        .into_iter()
        .map(|key| (key.to_owned(), Value::Null))
        .collect();
    json!({ "metadata": {
        "uid": host.uid(),
        "resourceVersion": host.resource_version(),
        "labels": labels,
        "annotations": {annotations::PLACEMENT_REVISION: revision.to_string()},
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(uid: &str, spec: &Value) -> BareMetalHost {
        let host = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"namespace": "metal", "name": "h", "uid": uid, "resourceVersion": "7"}, "spec": spec,
        });
        serde_json::from_value(host).unwrap()
    }

    fn cluster(uid: &str, state: &str) -> SIPCluster {
        let member = json!({
            "namespace": "metal", "name": "h", "uid": uid, "role": "Worker", "state": state, "revision": 9,
        });
        let cluster = json!({
            "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "metadata": {"namespace": "a", "name": "shop"}, "spec": {},
            "status": {"placement": {"epoch": 1, "revision": 9, "generation": 1, "members": [member]}},
        });
        serde_json::from_value(cluster).unwrap()
    }

    #[test]
    fn only_a_release_of_this_very_host_is_confirmed() {
        let (free, used) = (
            json!({}),
            json!({"consumerRef": {"kind": "Metal3Machine", "name": "m"}}),
        );
        assert_eq!(released(&host("u", &free), &cluster("u", "Releasing")), Ok(9));
        for (host, cluster) in [
            (host("u", &free), cluster("u", "Bound")),
            (host("u", &free), cluster("u", "Claimed")),
            (host("u", &used), cluster("u", "Releasing")),
            (host("again", &free), cluster("u", "Releasing")),
        ] {
            assert!(released(&host, &cluster).is_err());
        }
    }

    #[test]
    fn the_patch_is_for_the_host_as_it_was_read() {
        let patch = patch(&host("u", &json!({})), 9);
        assert_eq!(
            (&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]),
            (&json!("u"), &json!("7"))
        );
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({"sip.airshipit.org/placement-revision": "9"})
        );
        for label in LABELS {
            assert!(patch["metadata"]["labels"].as_object().unwrap()[label].is_null());
        }
    }
}
