//! A process of the cluster agent, small: it reports, declares, and does to hosts what the real agent's rules say.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use cluster_agent::{
    inventory::ObservedHost,
    reconcile::{
        host_actions::{HostAction, Verb},
        label_or_release::assess,
    },
};
use kit::placement::{ClusterId, ObjectKey};
use proto::{
    inventory::v1::{
        self as wire, ClusterSpec, Hello, HostChanges, LabelSelector, ReportHostsRequest, Role, SnapshotEnd,
        inventory_service_client::InventoryServiceClient, report_hosts_request::Message,
    },
    placement::v1::{
        ApplyClusterRequest, ConfirmHostsRequest, Member, Placement, ReleaseClusterRequest,
        ReleaseConfirmation, placement_service_client::PlacementServiceClient,
    },
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tokio::{sync::mpsc, time::sleep};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::{Request, Status, transport::Channel};

use crate::{
    history::History,
    network,
    world::{Cluster, Host, ROLE, SITE, World, cluster_reference, reported, reported_cluster},
};

const PACE: Duration = Duration::from_millis(30);

#[derive(Clone)]
pub(crate) struct Agent {
    number: usize,
    world: Arc<Mutex<World>>,
    history: Arc<Mutex<History>>,
    rng: Arc<Mutex<StdRng>>,
}

type Hosts = BTreeMap<String, Host>;

impl Agent {
    pub(crate) fn new(
        number: usize,
        seed: u64,
        world: Arc<Mutex<World>>,
        history: Arc<Mutex<History>>,
    ) -> Self {
        let rng = StdRng::seed_from_u64((seed << 1) | u64::try_from(number).unwrap());
        Self {
            number,
            world,
            history,
            rng: Arc::new(Mutex::new(rng)),
        }
    }

    /// Its name on the network.
    pub(crate) fn host(&self) -> String {
        format!("agent-{}", self.number)
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn elected(&self) -> Option<i64> {
        let now = turmoil::sim_elapsed().unwrap_or_default();
        self.world().elected(self.number, now)
    }

    pub(crate) async fn run(self) -> turmoil::Result {
        let channel = network::channel();
        futures::join!(self.report(channel.clone()), self.control(channel));
        Ok(())
    }

    async fn report(&self, channel: Channel) {
        loop {
            if let Some(transitions) = self.elected() {
                // However it ended, it begins anew.
                let _ = self.session(channel.clone(), transitions).await;
            }
            sleep(PACE).await;
        }
    }

    async fn session(&self, channel: Channel, transitions: i64) -> Option<()> {
        let (sender, receiver) = mpsc::channel(4);
        let mut sequence = 0;
        let mut message = |message| {
            sequence += 1;
            ReportHostsRequest {
                sequence,
                message: Some(message),
            }
        };
        let seen = self.world().clone();
        let hello = Hello {
            site: SITE.to_owned(),
            lease_uid: "lease".to_owned(),
            lease_transitions: transitions,
            highest_seen: seen.highest(),
        };
        sender.send(message(Message::Hello(hello))).await.ok()?;
        sender
            .send(message(Message::Changes(changes(None, &seen))))
            .await
            .ok()?;
        sender
            .send(message(Message::SnapshotEnd(SnapshotEnd {})))
            .await
            .ok()?;
        let mut inventory = InventoryServiceClient::new(channel);
        let opened = inventory.report_hosts(ReceiverStream::new(receiver));
        let opened = tokio::time::timeout(Duration::from_secs(1), opened).await.ok()?;
        let mut answers = opened.ok()?.into_inner();
        let mut before = seen;
        loop {
            tokio::select! {
                answer = answers.next() => { answer?.ok()?; }
                () = sleep(Duration::from_millis(10)) => {
                    self.elected()?;
                    let now = self.world().clone();
                    let changes = changes(Some(&before), &now);
                    before = now;
                    if changes != HostChanges::default() {
                        sender.send(message(Message::Changes(changes))).await.ok()?;
                    }
                }
            }
        }
    }

    async fn control(&self, channel: Channel) {
        let mut placements = PlacementServiceClient::new(channel);
        loop {
            sleep(PACE).await;
            if self.elected().is_none() {
                continue;
            }
            let clusters = self.world().clusters.clone();
            for (name, cluster) in clusters {
                // A call that is not answered is made again in the next round.
                let _ = self.reconcile(&mut placements, &name, &cluster).await;
            }
        }
    }

    /// A pause anywhere: the process is slow, or stopped for a while.
    async fn pause(&self) {
        let pause = {
            let mut rng = self.rng.lock().unwrap();
            if rng.random_ratio(1, 4) {
                rng.random_range(1..400)
            } else {
                0
            }
        };
        sleep(Duration::from_millis(pause)).await;
    }

    async fn reconcile(
        &self,
        placements: &mut PlacementServiceClient<Channel>,
        name: &str,
        cluster: &Cluster,
    ) -> Result<(), Status> {
        let reference = cluster_reference(name, cluster);
        let placement = if cluster.deleting {
            let request = ReleaseClusterRequest {
                site: SITE.to_owned(),
                cluster: Some(reference.clone()),
            };
            let answer = placements.release_cluster(timed(request)).await?;
            answer.into_inner().placement
        } else {
            let answer = placements
                .apply_cluster(timed(declaration(name, cluster)))
                .await?;
            answer.into_inner().placement
        };
        let Some(placement) = placement else {
            let mut world = self.world();
            if world
                .clusters
                .get(name)
                .is_some_and(|now| now.uid == cluster.uid && now.deleting)
            {
                world.clusters.remove(name);
            }
            return Ok(());
        };
        self.history.lock().unwrap().answered(name, &placement);
        self.pause().await;
        if let Some(now) = self.world().clusters.get_mut(name) {
            now.status = placement.revision;
        }
        let hosts = self.world().hosts.clone();
        self.pause().await;
        let released = self.act(name, &reference, &placement, &hosts);
        if released.is_empty() {
            return Ok(());
        }
        let request = ConfirmHostsRequest {
            site: SITE.to_owned(),
            cluster: Some(reference),
            released,
        };
        let answer = placements.confirm_hosts(timed(request)).await?;
        if let Some(placement) = answer.into_inner().placement {
            self.history.lock().unwrap().answered(name, &placement);
        }
        Ok(())
    }

    /// Does what the rules say, according to hosts as they were seen, and returns what is to be confirmed.
    fn act(
        &self,
        name: &str,
        reference: &wire::ClusterRef,
        placement: &Placement,
        hosts: &Hosts,
    ) -> Vec<ReleaseConfirmation> {
        let mut released = Vec::new();
        for member in &placement.members {
            let host = member.host.clone().unwrap_or_default().name;
            let Some(seen) = hosts.get(&host) else { continue };
            let written = match due(reference, member, reported(&host, seen)) {
                Some(Verb::Label | Verb::Relabel | Verb::RelabelClaimed | Verb::Adopt) => {
                    self.world()
                        .patch(&host, seen.version, |host| host.label = Some(name.to_owned()));
                    false
                }
                Some(Verb::Unlabel) => self.world().patch(&host, seen.version, |host| {
                    host.label = None;
                    host.mark = member.revision;
                }),
                Some(Verb::Confirm) => true,
                Some(Verb::ConfirmGone) => !self.world().hosts.contains_key(&host),
                None => false,
            };
            if written {
                self.history.lock().unwrap().gives(name, &host, member.revision);
                released.push(ReleaseConfirmation {
                    host: member.host.clone(),
                    revision: member.revision,
                });
            }
        }
        released
    }
}

/// What the agent's rules say is due.
fn due(reference: &wire::ClusterRef, member: &Member, report: wire::Host) -> Option<Verb> {
    let wire::ClusterRef { namespace, name, uid } = reference.clone();
    let cluster = ClusterId::new(ObjectKey { namespace, name }, uid);
    let member = member.clone().try_into().unwrap();
    let host = ObservedHost::from_report(report, String::new(), None, None);
    let assessment = assess(&cluster, None, &member, Some(&host), true);
    assessment.action().map(HostAction::verb)
}

fn declaration(name: &str, cluster: &Cluster) -> ApplyClusterRequest {
    ApplyClusterRequest {
        site: SITE.to_owned(),
        cluster: Some(cluster_reference(name, cluster)),
        generation: cluster.generation,
        spec: Some(ClusterSpec {
            roles: vec![Role {
                name: ROLE.to_owned(),
                label_selector: Some(LabelSelector::default()),
                active: cluster.want,
                ..Role::default()
            }],
            network_ids: Vec::new(),
            other_bytes: 0,
        }),
        ..ApplyClusterRequest::default()
    }
}

/// What is reported by who has reported `before` already.
fn changes(before: Option<&World>, now: &World) -> HostChanges {
    let mut changes = HostChanges::default();
    for (name, host) in &now.hosts {
        if before.and_then(|before| before.hosts.get(name)) != Some(host) {
            changes.hosts.push(reported(name, host));
        }
    }
    for (name, cluster) in &now.clusters {
        if before.and_then(|before| before.clusters.get(name)) != Some(cluster) {
            changes.clusters.push(reported_cluster(name, cluster));
        }
    }
    for (name, cluster) in before.iter().flat_map(|before| &before.clusters) {
        if !now.clusters.contains_key(name) {
            changes.deleted_clusters.push(cluster_reference(name, cluster));
        }
    }
    changes
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_secs(1));
    request
}
