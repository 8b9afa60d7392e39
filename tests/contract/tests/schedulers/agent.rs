//! What runs in a site, as it is: the cluster agent's reports, and the watch that all agents share.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    pin::pin,
    time::{Duration, Instant},
};

use api::BareMetalHost;
use cluster_agent::inventory::{self, Inventory, Key};
use futures::StreamExt as _;
use kit::election::Election;
use kit::scheduler::{Scheduler, Watched};
use proto::{
    inventory::v1 as wire,
    placement::v1::{ApplyClusterRequest, Placement},
};
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
        self.observe(name, &Placement::default());
        let begun = Instant::now();
        loop {
            match self.scheduler.apply(cluster(name)).await {
                Ok(placement) => return self.observe(name, &placement),
                Err(status) => assert!(begun.elapsed() < PATIENCE, "{status:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The API server holds a cluster with this in its status.
    fn observe(&self, name: &str, placement: &Placement) {
        let members = placement.members.iter().map(|member| wire::ObservedMember {
            host: member.host.clone(),
            role: member.role.clone(),
            state: member.state,
            revision: member.revision,
            replaces: member.replaces.clone(),
            release_reason: member.release_reason.clone(),
        });
        let observed = wire::ObservedCluster {
            r#ref: Some(reference(name)),
            generation: 1,
            members: members.collect(),
            revision: placement.revision,
            ..wire::ObservedCluster::default()
        };
        let key = Key {
            namespace: "tenant".to_owned(),
            name: name.to_owned(),
        };
        self.inventory.put_cluster(key, observed);
    }
}

/// Follows a site's placements.
pub(crate) struct Watcher {
    told: mpsc::UnboundedReceiver<Watched>,
    _running: JoinSet<()>,
}

/// What a watcher has been told until it had heard of all that it waited for.
#[derive(Debug, Default)]
pub(crate) struct Told {
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
    pub(crate) async fn hears_of(&mut self, clusters: &[&str]) -> Told {
        let mut all = Told::default();
        let hearing = async {
            while !clusters.iter().all(|name| all.clusters.contains(*name)) {
                match self.told.recv().await.unwrap() {
                    Watched::Changed(cluster) => _ = all.clusters.insert(cluster.name),
                    Watched::Reset => all.resets += 1,
                    Watched::Disconnected(_) => all.interruptions += 1,
                    Watched::Synced => {}
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

fn cluster(name: &str) -> ApplyClusterRequest {
    ApplyClusterRequest {
        site: SITE.to_owned(),
        cluster: Some(reference(name)),
        generation: 1,
        created: None,
        spec: Some(wire::ClusterSpec {
            roles: vec![wire::Role {
                name: "Worker".to_owned(),
                label_selector: Some(wire::LabelSelector::default()),
                active: 1,
                ..wire::Role::default()
            }],
            network_ids: Vec::new(),
        }),
    }
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
