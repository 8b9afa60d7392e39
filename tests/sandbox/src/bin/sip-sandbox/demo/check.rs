//! Whether what is about to be shown is what it should be.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use kube::{ResourceExt as _, api::DynamicObject};
use sandbox::{
    inventory,
    region::Grpcurl,
    sip_clusters::{holder, wanted},
    site::Site,
    wait,
};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{FITTING, PATIENCE};

/// Whether the scheduler has said no to the present generation, with a reason.
pub(super) fn is_refused(cluster: &DynamicObject) -> bool {
    wait::condition(cluster, "Ready").is_some_and(|(status, reason, message)| {
        status == "False" && reason == "Unschedulable" && !message.is_empty()
    })
}

/// Every ready cluster has exactly the hosts that it asks for, no two of its control-plane hosts in one rack; a
/// refused one has none.
pub(super) fn placements(clusters: &[DynamicObject], hosts: &[DynamicObject]) -> anyhow::Result<()> {
    let none = String::new();
    for cluster in clusters {
        let name = wait::full_name(cluster);
        let mut held: BTreeMap<String, u64> = BTreeMap::new();
        let mut racks = BTreeSet::new();
        for host in hosts {
            let Some((_, role)) = holder(host).filter(|(of, _)| *of == name) else {
                continue;
            };
            if role == "ControlPlane" {
                let rack = host.labels().get(inventory::RACK).unwrap_or(&none);
                ensure!(
                    racks.insert(rack.clone()),
                    "{name} has two control-plane hosts in rack {rack}"
                );
            }
            *held.entry(role).or_default() += 1;
        }
        let expected = if is_refused(cluster) {
            BTreeMap::new()
        } else {
            wanted(cluster)
        };
        ensure!(held == expected, "{name} holds {held:?}, expected {expected:?}");
    }
    Ok(())
}

/// At every port of a real node that the clusters' endpoints name, HAProxy takes connections.
///
/// kube-proxy learns of a ready pod a moment later than the API server.
pub(super) async fn endpoints(address: Ipv4Addr, clusters: &[DynamicObject]) -> anyhow::Result<()> {
    let ports: Vec<u16> = clusters
        .iter()
        .filter_map(|cluster| cluster.data.pointer("/status/endpoints")?.as_array())
        .flatten()
        .filter_map(|endpoint| u16::try_from(endpoint.get("port")?.as_u64()?).ok())
        .collect();
    ensure!(!ports.is_empty(), "no cluster tells an endpoint");
    for port in ports {
        let connected = async {
            while TcpStream::connect((address, port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, connected)
            .await
            .with_context(|| format!("nobody takes connections at {address}:{port}"))?;
    }
    Ok(())
}

/// The scheduler lists its services by reflection and tells where a cluster is placed.
pub(super) async fn scheduler(grpcurl: &Grpcurl, site: &Site) -> anyhow::Result<()> {
    let list = grpcurl.run(&["list"]).await?;
    for service in [
        "sip.placement.v1.PlacementService",
        "sip.inventory.v1.InventoryService",
    ] {
        ensure!(
            list.stdout.contains(service),
            "{service} is not listed: {}{}",
            list.stdout,
            list.stderr
        );
    }
    let answer = grpcurl.call(GET_PLACEMENT, &request(site, FITTING[0])).await?;
    ensure!(answer.success, "GetPlacement: {}", answer.stderr.trim());
    let placement: Value = serde_json::from_str(&answer.stdout).context("the answer of GetPlacement")?;
    let members = placement
        .pointer("/placement/members")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    ensure!(
        members == 7,
        "GetPlacement tells {members} members of shop/orders, expected 7: {}",
        answer.stdout
    );
    Ok(())
}

pub(super) const GET_PLACEMENT: &str = "sip.placement.v1.PlacementService/GetPlacement";
pub(super) const PLAN_CLUSTER: &str = "sip.placement.v1.PlacementService/PlanCluster";

/// The request of `GetPlacement` and of `PlanCluster` for a cluster that is known.
pub(super) fn request(site: &Site, (namespace, name): (&str, &str)) -> Value {
    json!({"site": site.name(), "cluster": {"namespace": namespace, "name": name}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn cluster(status: &str, reason: &str) -> DynamicObject {
        object(json!({
            "metadata": {"namespace": "shop", "name": "orders", "generation": 1},
            "spec": {"nodes": {"ControlPlane": {"count": {"active": 2, "standby": 0}}}},
            "status": {"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": "because"}]},
        }))
    }

    fn host(rack: &str, cluster: Option<&str>) -> DynamicObject {
        let mut labels = json!({inventory::RACK: rack});
        if let Some(cluster) = cluster {
            labels["sip.airshipit.org/cluster-namespace"] = "shop".into();
            labels["sip.airshipit.org/cluster-name"] = cluster.into();
            labels["sip.airshipit.org/node-type"] = "ControlPlane".into();
        }
        object(json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn placements_are_checked_for_number_rack_and_refusal() {
        let (ready, refused) = (
            cluster("True", "ReconciliationSucceeded"),
            cluster("False", "Unschedulable"),
        );
        let ours = |racks: [&str; 2]| racks.map(|rack| host(rack, Some("orders"))).to_vec();
        let cases = [
            (&ready, ours(["a", "b"]), Ok(())),
            (
                &ready,
                ours(["a", "a"]),
                Err("shop/orders has two control-plane hosts in rack a"),
            ),
            (
                &ready,
                vec![host("a", Some("orders")), host("b", None)],
                Err("shop/orders holds {\"ControlPlane\": 1}"),
            ),
            (
                &ready,
                vec![host("a", Some("other"))],
                Err("shop/orders holds {}"),
            ),
            (&refused, vec![host("a", None)], Ok(())),
            (
                &refused,
                ours(["a", "b"]),
                Err("shop/orders holds {\"ControlPlane\": 2}, expected {}"),
            ),
        ];

        for (cluster, hosts, expected) in cases {
            let outcome =
                placements(std::slice::from_ref(cluster), &hosts).map_err(|error| error.to_string());
            match (&outcome, expected) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{error}"),
                _ => panic!("{outcome:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn a_refusal_without_a_reason_is_none() {
        let mut silent = cluster("False", "Unschedulable");
        silent.data["status"]["conditions"][0]["message"] = "".into();

        assert!(is_refused(&cluster("False", "Unschedulable")));
        assert!(!is_refused(&silent));
        assert!(!is_refused(&cluster("False", "Progressing")));
    }
}
