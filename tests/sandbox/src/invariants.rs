//! Whether a site keeps its promises, as somebody finds who reads its API server and knows nothing else.
//!
//! Hosts are counted and compared here with what `SIPClusters` ask for and say; nothing of how hosts are chosen is used.

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use serde_json::Value;

use crate::{
    inventory,
    sip_clusters::{self, CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
    wait,
};

/// Where a host is: namespace and name.
type Place = (String, String);

/// Promises that a site breaks now, each as a sentence. A site in which something is under way may break some.
///
/// # Errors
/// What the API server answers.
pub async fn broken(client: &Client, host_namespaces: &[&str]) -> Result<Vec<String>, kube::Error> {
    let clusters: Api<DynamicObject> = Api::all_with(client.clone(), &sip_clusters::resource());
    let clusters = clusters.list(&ListParams::default()).await?.items;
    let mut hosts = Vec::new();
    for namespace in host_namespaces {
        let of = inventory::api(client.clone(), namespace);
        hosts.extend(of.list(&ListParams::default()).await?.items);
    }
    Ok(faults(&clusters, &hosts))
}

fn faults(clusters: &[DynamicObject], hosts: &[DynamicObject]) -> Vec<String> {
    let names: BTreeSet<String> = clusters.iter().map(whole).collect();
    let mut found = Vec::new();
    for host in hosts {
        let labels = [CLUSTER_NAMESPACE, CLUSTER_NAME, NODE_TYPE].map(|key| host.labels().get(key));
        match labels.map(|label| label.map(String::as_str)) {
            [None, None, None] => {}
            [Some(namespace), Some(name), Some(_)] if names.contains(&format!("{namespace}/{name}")) => {}
            [Some(namespace), Some(name), Some(_)] => {
                found.push(format!(
                    "{} has labels of {namespace}/{name}, which does not exist",
                    whole(host)
                ));
            }
            other => found.push(format!(
                "{} has some labels and not others: {other:?}",
                whole(host)
            )),
        }
    }
    let mut holders: BTreeMap<Place, String> = BTreeMap::new();
    for cluster in clusters {
        for place in members(cluster, true).into_keys() {
            if let Some(other) = holders.insert(place.clone(), whole(cluster)) {
                found.push(format!(
                    "{place:?} is a member of {other} and of {}",
                    whole(cluster)
                ));
            }
        }
        let labelled: Vec<&DynamicObject> = hosts
            .iter()
            .filter(|host| sip_clusters::holder(host).is_some_and(|(of, _)| of == whole(cluster)))
            .collect();
        found.extend(of_cluster(cluster, &labelled));
    }
    found
}

/// Of one cluster that is not being released, with the hosts that have its labels.
fn of_cluster(cluster: &DynamicObject, labelled: &[&DynamicObject]) -> Vec<String> {
    let name = whole(cluster);
    if cluster.metadata.deletion_timestamp.is_some() {
        return vec![format!("{name} is being deleted")];
    }
    let shown: BTreeMap<Place, (String, String)> = labelled
        .iter()
        .map(|host| {
            let role = host.labels().get(NODE_TYPE).cloned().unwrap_or_default();
            (place(host), (host.uid().unwrap_or_default(), role))
        })
        .collect();
    let mut found = Vec::new();
    let said = members(cluster, false);
    if shown != said {
        found.push(format!(
            "{name} says that it holds {said:?}, and the labels say {shown:?}"
        ));
    }
    let roles = cluster.data.pointer("/spec/nodes").and_then(Value::as_object);
    for (role, wanted) in sip_clusters::wanted(cluster) {
        let of: Vec<&&DynamicObject> = labelled
            .iter()
            .filter(|host| host.labels().get(NODE_TYPE) == Some(&role))
            .collect();
        let set = roles.and_then(|roles| roles.get(&role));
        if wait::is_true(cluster, "Ready") && of.len() as u64 != wanted {
            found.push(format!(
                "{name} is Ready with {} of {wanted} hosts as {role}",
                of.len()
            ));
        }
        let key = set.and_then(|set| set["topologyKey"].as_str());
        let domains: Vec<&str> = of
            .iter()
            .filter_map(|host| host.labels().get(key?).map(String::as_str))
            .collect();
        let distinct = domains.iter().collect::<BTreeSet<_>>().len();
        if key.is_some() && (distinct < of.len() || domains.contains(&"")) {
            found.push(format!("{name} has its {role} hosts in the domains {domains:?}"));
        }
        for (key, value) in set
            .and_then(|set| set.pointer("/labelSelector/matchLabels")?.as_object())
            .into_iter()
            .flatten()
        {
            let others = of
                .iter()
                .filter(|host| host.labels().get(key).map(String::as_str) != value.as_str());
            found.extend(others.map(|host| format!("{name} has {}, which it does not select", whole(host))));
        }
    }
    found
}

/// The uids and roles of a cluster's members in its status; with those that leave, or without.
fn members(cluster: &DynamicObject, leaving: bool) -> BTreeMap<Place, (String, String)> {
    let members = cluster
        .data
        .pointer("/status/placement/members")
        .and_then(Value::as_array);
    let text = |member: &Value, field: &str| member[field].as_str().unwrap_or_default().to_owned();
    members
        .into_iter()
        .flatten()
        .filter(|member| leaving || member["state"] != "Releasing")
        .map(|member| {
            (
                (text(member, "namespace"), text(member, "name")),
                (text(member, "uid"), text(member, "role")),
            )
        })
        .collect()
}

fn place(object: &DynamicObject) -> Place {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn whole(object: &DynamicObject) -> String {
    let (namespace, name) = place(object);
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn host(name: &str, rack: &str) -> Value {
        json!({"metadata": {"namespace": "metal", "name": name, "uid": format!("uid-{name}"), "labels": {
            CLUSTER_NAMESPACE: "shop", CLUSTER_NAME: "orders", NODE_TYPE: "Worker", "rack": rack, "flavor": "w",
        }}})
    }

    fn cluster() -> Value {
        let member = |name: &str| json!({"namespace": "metal", "name": name, "uid": format!("uid-{name}"), "role": "Worker", "state": "Bound"});
        json!({
            "metadata": {"namespace": "shop", "name": "orders", "generation": 1},
            "spec": {"nodes": {"Worker": {
                "count": {"active": 2, "standby": 0}, "topologyKey": "rack",
                "labelSelector": {"matchLabels": {"flavor": "w"}},
            }}},
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}],
                "placement": {"members": [member("a"), member("b")]},
            },
        })
    }

    fn find(cluster: &Value, hosts: &[Value]) -> Vec<String> {
        let object = |value: &Value| serde_json::from_value(value.clone()).unwrap();
        faults(&[object(cluster)], &hosts.iter().map(object).collect::<Vec<_>>())
    }

    fn with(mut value: Value, pointer: &str, to: Value) -> Value {
        *value.pointer_mut(pointer).unwrap() = to;
        value
    }

    #[test]
    fn promises_that_are_broken_are_found_and_kept_ones_are_not() {
        let hosts = [host("a", "r1"), host("b", "r2")];
        assert_eq!(find(&cluster(), &hosts), [""; 0]);
        let [a, b] = hosts;
        let label = |key: &str| format!("/metadata/labels/{}", key.replace('/', "~1"));
        let other = |host: Value, key: &str, value: &str| with(host, &label(key), json!(value));
        for (cluster, hosts, expected) in [
            (
                cluster(),
                vec![a.clone(), host("b", "r1")],
                "domains [\"r1\", \"r1\"]",
            ),
            (
                cluster(),
                vec![a.clone(), host("b", "")],
                "domains [\"r1\", \"\"]",
            ),
            (cluster(), vec![a.clone()], "Ready with 1 of 2 hosts"),
            (
                cluster(),
                vec![a.clone(), b.clone(), host("c", "r3")],
                "Ready with 3 of 2 hosts",
            ),
            (
                cluster(),
                vec![a.clone(), other(b.clone(), "flavor", "x")],
                "metal/b, which it does not select",
            ),
            (
                cluster(),
                vec![a.clone(), other(b.clone(), CLUSTER_NAME, "gone")],
                "shop/gone, which does not exist",
            ),
            (
                cluster(),
                vec![a.clone(), with(b.clone(), "/metadata/uid", json!("new"))],
                "says that it holds",
            ),
            (
                with(
                    cluster(),
                    "/metadata",
                    json!({"namespace": "shop", "name": "orders",
                "deletionTimestamp": "2026-01-01T00:00:00Z"}),
                ),
                vec![a.clone(), b.clone()],
                "is being deleted",
            ),
        ] {
            let found = find(&cluster, &hosts);
            assert!(
                found.iter().any(|fault| fault.contains(expected)),
                "{expected}: {found:?}"
            );
        }
        let mut half = a.clone();
        half["metadata"]["labels"]
            .as_object_mut()
            .unwrap()
            .remove(NODE_TYPE);
        assert!(find(&cluster(), &[half, b.clone()])[0].contains("some labels and not others"));
        let object = |value: &Value| serde_json::from_value::<DynamicObject>(value.clone()).unwrap();
        let twice = with(cluster(), "/metadata/name", json!("other"));
        let both = faults(&[object(&cluster()), object(&twice)], &[object(&a), object(&b)]);
        assert!(
            both.iter()
                .any(|fault| fault.contains("is a member of shop/orders and of shop/other")),
            "{both:?}"
        );
    }
}
