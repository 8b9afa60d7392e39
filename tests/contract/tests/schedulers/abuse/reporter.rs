//! A site's cluster agent that reports whatever it likes: of its own site, and of others.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use proto::{
    inventory::v1::{
        self as wire, ReportHostsRequest, ReportHostsResponse, Revision, SnapshotEnd,
        inventory_service_client::InventoryServiceClient, report_hosts_request::Message,
    },
    placement::v1::{
        ApplyClusterRequest, ConfirmHostsRequest, ReleaseClusterRequest, ReleaseConfirmation,
        placement_service_client::PlacementServiceClient,
    },
};
use rand::{Rng as _, rngs::StdRng};
use sandbox::authority::Caller;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Streaming, transport::Channel};
use vocabulary::labels;

use super::{
    HOSTILE,
    attack::{Attack, CONNECTED},
    callers::spec,
    numbers,
};
use crate::killed::site::reference;

/// How many of them there are, as one identity.
pub(crate) const REPORTERS: usize = 6;
/// Hosts in one message at most: as many as it may have, and one more.
const HOSTS: usize = 1001;

/// Who they are.
pub(crate) const WHO: Caller<'static> = Caller::Agent {
    site: HOSTILE,
    name: "cluster",
};

/// An open stream.
struct Stream {
    requests: mpsc::Sender<ReportHostsRequest>,
    /// Never read after the first.
    _answers: Streaming<ReportHostsResponse>,
}

struct Hostile {
    attack: Arc<Attack>,
    rng: StdRng,
    channel: Channel,
    connected: Instant,
    streams: Vec<Stream>,
}

/// Runs until the attack ends.
pub(crate) async fn run(attack: Arc<Attack>, number: usize) {
    let mut hostile = Hostile {
        rng: attack.rng("reporter", number),
        channel: attack.channel(&WHO),
        connected: Instant::now(),
        attack: Arc::clone(&attack),
        streams: Vec::new(),
    };
    while !attack.stop.is_cancelled() {
        hostile.step().await;
    }
}

fn revision(rng: &mut StdRng) -> Revision {
    Revision {
        epoch: numbers::unsigned(rng),
        revision: numbers::unsigned(rng),
    }
}

fn host_reference(rng: &mut StdRng) -> wire::HostRef {
    let name = if rng.random_bool(0.9) {
        format!("h{:02}", rng.random_range(0..12))
    } else {
        numbers::text(rng)
    };
    wire::HostRef {
        namespace: "metal".to_owned(),
        uid: format!("uid-{name}"),
        name,
    }
}

/// A host that shows what it likes, also that it is a victim's.
fn host(rng: &mut StdRng) -> wire::Host {
    let mut labels: BTreeMap<_, _> = (0..rng.random_range(0..40))
        .map(|number| {
            (
                format!("label-{number}"),
                numbers::text(rng).chars().take(60).collect(),
            )
        })
        .collect();
    if rng.random_bool(0.5) {
        labels.insert(labels::CLUSTER_NAMESPACE.to_owned(), "tenant".to_owned());
        labels.insert(labels::CLUSTER_NAME.to_owned(), "c00-0".to_owned());
        labels.insert(labels::NODE_TYPE.to_owned(), "Worker".to_owned());
    }
    wire::Host {
        r#ref: Some(host_reference(rng)),
        labels,
        provisioning_state: rng.random_range(-1..15),
        operational_status: rng.random_range(-1..8),
        error_since: Some(numbers::time(rng)),
        release_mark: numbers::unsigned(rng),
        ..wire::Host::default()
    }
}

/// A `SIPCluster` whose status has what it likes.
fn observed(rng: &mut StdRng) -> wire::ObservedCluster {
    let member = |rng: &mut StdRng| wire::ObservedMember {
        host: Some(host_reference(rng)),
        role: "Worker".to_owned(),
        state: rng.random_range(-1..5),
        revision: numbers::unsigned(rng),
        ordinal: Some(numbers::count(rng)),
        domain: Some(numbers::text(rng)),
        ..wire::ObservedMember::default()
    };
    wire::ObservedCluster {
        r#ref: Some(reference(&format!("c{:02}-0", rng.random_range(0..9)), "forged")),
        generation: numbers::signed(rng),
        created: Some(numbers::time(rng)),
        deleting: rng.random_bool(0.2),
        members: (0..rng.random_range(0..20)).map(|_| member(rng)).collect(),
        revision: Some(revision(rng)),
        topology_keys: [("Worker".to_owned(), numbers::text(rng))].into(),
    }
}

fn changes(rng: &mut StdRng) -> wire::HostChanges {
    let hosts = if rng.random_bool(0.2) {
        rng.random_range(1..=HOSTS)
    } else {
        rng.random_range(0..12)
    };
    wire::HostChanges {
        hosts: (0..hosts).map(|_| host(rng)).collect(),
        deleted_hosts: (0..rng.random_range(0..3)).map(|_| host_reference(rng)).collect(),
        clusters: (0..rng.random_range(0..5)).map(|_| observed(rng)).collect(),
        deleted_clusters: Vec::new(),
    }
}

impl Hostile {
    /// Some site: its own, or one that must not notice.
    fn site(&mut self) -> String {
        if self.rng.random_bool(0.7) {
            return HOSTILE.to_owned();
        }
        let victim = self.rng.random_range(0..self.attack.victims.len());
        self.attack.victims[victim].clone()
    }

    async fn step(&mut self) {
        match self.rng.random_range(0..10) {
            0 if self.connected.elapsed() >= CONNECTED => {
                self.channel = self.attack.channel(&WHO);
                self.connected = Instant::now();
            }
            0..4 => self.open().await,
            4..7 => self.report(),
            _ => self.change().await,
        }
        if self.streams.len() > 3 {
            self.streams.clear();
        }
    }

    /// Opens a stream of reports.
    async fn open(&mut self) {
        let hello = wire::Hello {
            site: self.site(),
            lease_uid: match self.rng.random_range(0..6) {
                0 => numbers::text(&mut self.rng),
                1 => format!("lease-{}", self.rng.random_range(0..1000)),
                _ => "lease".to_owned(),
            },
            lease_transitions: numbers::signed(&mut self.rng),
            highest_seen: Some(revision(&mut self.rng)),
        };
        let (requests, stream) = mpsc::channel(16);
        let first = [
            Message::Hello(hello),
            Message::Changes(changes(&mut self.rng)),
            Message::SnapshotEnd(SnapshotEnd {}),
        ];
        for (message, sequence) in first.into_iter().zip(1..) {
            let request = ReportHostsRequest {
                sequence,
                message: Some(message),
            };
            requests.try_send(request).unwrap();
        }
        let mut inventory = InventoryServiceClient::new(self.channel.clone());
        let opened = async {
            let mut answers = inventory
                .report_hosts(ReceiverStream::new(stream))
                .await?
                .into_inner();
            answers.message().await?;
            Ok(answers)
        };
        let opened = self.attack.call("ReportHosts", &WHO, opened).await;
        self.streams.extend(opened.map(|answers| Stream {
            requests,
            _answers: answers,
        }));
    }

    /// Goes on with one of them.
    fn report(&mut self) {
        let message = match self.rng.random_range(0..8) {
            0 => None,
            1 => Some(Message::SnapshotEnd(SnapshotEnd {})),
            _ => Some(Message::Changes(changes(&mut self.rng))),
        };
        let sequence = if self.rng.random_bool(0.8) {
            4
        } else {
            numbers::unsigned(&mut self.rng)
        };
        if let Some(stream) = self.streams.last() {
            let sent = stream.requests.try_send(ReportHostsRequest { sequence, message });
            self.attack
                .count("reports", if sent.is_ok() { "sent" } else { "not taken" });
        }
    }

    /// Changes clusters: of its own site it may.
    async fn change(&mut self) {
        let attack = Arc::clone(&self.attack);
        let mut placements = PlacementServiceClient::new(self.channel.clone());
        let site = self.site();
        let name = match self.rng.random_range(0..4) {
            0 => numbers::text(&mut self.rng),
            _ => format!("c{:02}-0", self.rng.random_range(0..9)),
        };
        let cluster = Some(reference(&name, "forged"));
        match self.rng.random_range(0..4) {
            0 => {
                let request = ReleaseClusterRequest { site, cluster };
                attack
                    .call("ReleaseCluster", &WHO, placements.release_cluster(request))
                    .await;
            }
            1 => {
                let released = (0..self.rng.random_range(0..4)).map(|_| ReleaseConfirmation {
                    host: Some(host_reference(&mut self.rng)),
                    revision: numbers::unsigned(&mut self.rng),
                });
                let released = released.collect();
                let request = ConfirmHostsRequest {
                    site,
                    cluster,
                    released,
                };
                attack
                    .call("ConfirmHosts", &WHO, placements.confirm_hosts(request))
                    .await;
            }
            _ => {
                let request = ApplyClusterRequest {
                    site,
                    cluster,
                    generation: numbers::signed(&mut self.rng),
                    created: Some(numbers::time(&mut self.rng)),
                    spec: Some(spec(&mut self.rng)),
                };
                attack
                    .call("ApplyCluster", &WHO, placements.apply_cluster(request))
                    .await;
            }
        }
    }
}
