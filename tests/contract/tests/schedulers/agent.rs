//! What runs in a site, as it is: the cluster agent's reports, and the watch that all agents share.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    pin::pin,
    time::{Duration, Instant},
};

use api::{BareMetalHost, Cluster, MemberState, SIPCluster};
use cluster_agent::{
    answered::Answered,
    inventory::{self, Inventory},
};
use futures::StreamExt as _;
use kit::election::Election;
use kit::{
    placement::{ObjectKey, Placement},
    scheduler_client::{Scheduler, WatchEvent},
};
use proto::inventory::v1 as wire;
use runtime::{readiness::Readiness, tls};
use serde_json::json;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{client::SITE, region::PATIENCE, service::Service};

fn connect(service: &Service) -> Scheduler {
    let endpoint = format!("http://{}", service.address).parse().unwrap();
    Scheduler::new(SITE, tls::channel(&endpoint, None).unwrap())
}

/// Reports a site's hosts, and declares clusters.
pub(crate) struct Reporter {
    scheduler: Scheduler,
    inventory: Inventory,
    _running: JoinSet<Result<(), Infallible>>,
}

impl Reporter {
    pub(crate) fn start(service: &Service, hosts: usize) -> Self {
        let scheduler = connect(service);
        let inventory = Inventory::default();
        for index in 0..hosts {
            inventory.put_host(&host(index));
        }
        let gate = Readiness::default().gate("reports");
        let mut running = JoinSet::new();
        let election = Election {
            lease_uid: "lease".to_owned(),
            transitions: 0,
        };
        running.spawn(inventory::report(
            scheduler.clone(),
            election,
            inventory.clone(),
            Answered::default(),
            Vec::new(),
            gate,
            || {},
        ));
        Self {
            scheduler,
            inventory,
            _running: running,
        }
    }

    /// Declares a cluster of one host until it is placed, and writes its status, as a controller does.
    pub(crate) async fn place(&self, name: &str) {
        self.observe(name, None);
        let cluster = cluster(name);
        let begun = Instant::now();
        loop {
            match self.scheduler.apply(&cluster, None).await {
                Ok(placement) => return self.observe(name, Some(&placement)),
                Err(status) => assert!(begun.elapsed() < PATIENCE, "{status:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The API server holds a cluster with this in its status.
    fn observe(&self, name: &str, placement: Option<&Placement>) {
        let members = placement.into_iter().flat_map(Placement::members).map(|member| {
            let state = match member.state() {
                MemberState::Claimed => wire::MemberState::Claimed,
                MemberState::Bound => wire::MemberState::Bound,
                MemberState::Releasing => wire::MemberState::Releasing,
            };
            let host = member.host();
            wire::ObservedMember {
                host: Some(wire::HostRef {
                    namespace: host.key().namespace.clone(),
                    name: host.key().name.clone(),
                    uid: host.uid().to_owned(),
                }),
                role: member.role().to_owned(),
                state: state.into(),
                revision: member.revision(),
                ..wire::ObservedMember::default()
            }
        });
        let observed = wire::ObservedCluster {
            r#ref: Some(reference(name)),
            generation: 1,
            members: members.collect(),
            revision: placement.map(|placement| wire::Revision {
                epoch: placement.position().epoch(),
                revision: placement.position().revision(),
            }),
            ..wire::ObservedCluster::default()
        };
        let key = ObjectKey {
            namespace: "tenant".to_owned(),
            name: name.to_owned(),
        };
        self.inventory.put_cluster(key, observed);
    }
}

/// Follows a site's placements.
pub(crate) struct Watcher {
    told: mpsc::UnboundedReceiver<WatchEvent>,
    _running: JoinSet<()>,
}

/// What a watcher has been told until it had heard of all that it waited for.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) clusters: BTreeSet<String>,
    pub(crate) resets: usize,
    pub(crate) interruptions: usize,
}

impl Watcher {
    pub(crate) fn start(service: &Service) -> Self {
        let scheduler = connect(service);
        let (sender, told) = mpsc::unbounded_channel();
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut events = pin!(scheduler.watch());
            while let Some(event) = events.next().await {
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self {
            told,
            _running: running,
        }
    }

    /// Waits until it was told of all these clusters.
    pub(crate) async fn hears_of(&mut self, clusters: &[&str]) -> Received {
        let mut all = Received::default();
        let hearing = async {
            while !clusters.iter().all(|name| all.clusters.contains(*name)) {
                match self.told.recv().await.unwrap() {
                    WatchEvent::Changed(cluster) => _ = all.clusters.insert(cluster.name),
                    WatchEvent::Reset => all.resets += 1,
                    WatchEvent::Disconnected(_) => all.interruptions += 1,
                    WatchEvent::Synced => {}
                }
            }
        };
        let heard = tokio::time::timeout(PATIENCE, hearing).await;
        assert!(heard.is_ok(), "{clusters:?} are not all told: {all:?}");
        all
    }
}

fn reference(name: &str) -> wire::ClusterRef {
    wire::ClusterRef {
        namespace: "tenant".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    }
}

fn cluster(name: &str) -> Cluster {
    let object: SIPCluster = serde_json::from_value(json!({
        "apiVersion": "airship.airshipit.org/v1",
        "kind": "SIPCluster",
        "metadata": { "namespace": "tenant", "name": name, "uid": format!("uid-{name}"), "generation": 1 },
        "spec": { "nodes": { "Worker": { "labelSelector": {}, "count": { "active": 1, "standby": 0 } } } },
    }))
    .unwrap();
    Cluster::parse(&object).unwrap()
}

fn host(index: usize) -> BareMetalHost {
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": {
            "namespace": "metal", "name": format!("h{index}"), "uid": format!("uid-{index}"), "resourceVersion": "7",
        },
        "spec": { "online": true },
        "status": { "operationalStatus": "OK", "provisioning": { "state": "available" } },
    });
    serde_json::from_value(host).unwrap()
}
