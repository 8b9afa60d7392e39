//! The stream of a site's reports, opened again whenever it breaks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use proto::inventory::v1::{
    self as wire, Hello, HostChanges, ReportHostsRequest, SnapshotEnd,
    inventory_service_client::InventoryServiceClient, report_hosts_request::Message,
};
use sandbox::authority::Caller;
use tokio::sync::mpsc;
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};

use super::Load;

pub(crate) async fn run(load: Arc<Load>, site: usize) {
    let forever = async {
        loop {
            // However it ended, it begins anew.
            let _ = session(&load, site).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    load.stop.clone().run_until_cancelled(forever).await;
}

async fn session(load: &Load, site: usize) -> Option<()> {
    let site = &load.sites[site];
    let agent = Caller::Agent {
        site: &site.name,
        name: "cluster",
    };
    let mut inventory = InventoryServiceClient::new(load.channel(&load.endpoint(), &agent));
    let (sender, receiver) = mpsc::channel(4);
    let mut sequence = 0;
    let mut message = |message| {
        sequence += 1;
        ReportHostsRequest {
            sequence,
            message: Some(message),
        }
    };
    let mut changed = site.changed();
    let (mut hosts, mut clusters, highest) = site.report();
    let hello = Hello {
        site: site.name.clone(),
        lease_uid: "lease".to_owned(),
        lease_transitions: 1,
        highest_seen: highest,
    };
    let snapshot = HostChanges {
        hosts: hosts.values().cloned().collect(),
        clusters: clusters.values().cloned().collect(),
        ..HostChanges::default()
    };
    for piece in [
        Message::Hello(hello),
        Message::Changes(snapshot),
        Message::SnapshotEnd(SnapshotEnd {}),
    ] {
        sender.send(message(piece)).await.ok()?;
    }
    let mut answers = inventory
        .report_hosts(ReceiverStream::new(receiver))
        .await
        .ok()?
        .into_inner();
    loop {
        tokio::select! {
            answer = answers.next() => { answer?.ok()?; }
            told = changed.changed() => {
                told.ok()?;
                let (now_hosts, now_clusters, _) = site.report();
                let changes = HostChanges {
                    hosts: differing(&hosts, &now_hosts),
                    clusters: differing(&clusters, &now_clusters),
                    deleted_clusters: gone(&clusters, &now_clusters),
                    ..HostChanges::default()
                };
                (hosts, clusters) = (now_hosts, now_clusters);
                sender.send(message(Message::Changes(changes))).await.ok()?;
            }
        }
    }
}

fn differing<T: Clone + PartialEq>(before: &BTreeMap<String, T>, now: &BTreeMap<String, T>) -> Vec<T> {
    now.iter()
        .filter(|(name, value)| before.get(*name) != Some(value))
        .map(|(_, value)| value.clone())
        .collect()
}

fn gone(
    before: &BTreeMap<String, wire::ObservedCluster>,
    now: &BTreeMap<String, wire::ObservedCluster>,
) -> Vec<wire::ClusterRef> {
    before
        .iter()
        .filter(|(name, _)| !now.contains_key(*name))
        .filter_map(|(_, cluster)| cluster.r#ref.clone())
        .collect()
}
