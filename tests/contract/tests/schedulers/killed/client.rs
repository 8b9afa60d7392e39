//! The agent of two clusters, which does one thing at a time.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use proto::{
    inventory::v1::{ClusterSpec, LabelSelector, MemberState, Role},
    placement::v1::{
        ApplyClusterRequest, ConfirmHostsRequest, GetPlacementRequest, Placement, ReleaseClusterRequest,
        ReleaseConfirmation, placement_service_client::PlacementServiceClient,
    },
};
use rand::{Rng as _, rngs::StdRng};
use sandbox::authority::Caller;
use tonic::{Code, Status, transport::Channel};

use super::{
    CLIENTS, CLUSTERS, Load, SITES,
    history::Name,
    site::{NAMESPACE, Patched, Site, reference},
};

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(5);
/// The same for one that asks again soon.
const IMPATIENCE: Duration = Duration::from_millis(500);

pub(crate) struct Client {
    load: Arc<Load>,
    site: usize,
    rng: StdRng,
    placements: PlacementServiceClient<Channel>,
    /// What it reads of others. With certificates that is a reader's right.
    others: PlacementServiceClient<Channel>,
    clusters: Vec<Cluster>,
}

/// A `SIPCluster` of the client's.
struct Cluster {
    name: String,
    /// Counts the times it was made.
    made: u64,
    generation: i64,
    /// The last answer.
    told: Option<Placement>,
    /// It was deleted: it only goes on to release.
    deleting: bool,
}

impl Cluster {
    fn uid(&self) -> String {
        format!("{}-{}", self.name, self.made)
    }
}

impl Client {
    pub(crate) fn new(load: Arc<Load>, number: usize, rng: StdRng) -> Self {
        let endpoint = load.endpoint();
        // Every other one stays connected to a scheduler that does not move, and goes on asking it: what was asked last it
        // finds when it goes on itself, and whatever it says then must be true of now.
        let (endpoint, limit) = if number.is_multiple_of(2) {
            (endpoint.keep_alive_timeout(Duration::from_mins(1)), IMPATIENCE)
        } else {
            (endpoint, LIMIT)
        };
        let endpoint = endpoint.timeout(limit);
        let site = &load.sites[number % SITES].name;
        let agent = Caller::Agent {
            site,
            name: "cluster",
        };
        let placements = PlacementServiceClient::new(load.channel(&endpoint, &agent));
        let others = match &load.pki {
            Some(_) => {
                let name = format!("client-{number}");
                PlacementServiceClient::new(load.channel(&endpoint, &Caller::Reader(&name)))
            }
            None => placements.clone(),
        };
        let clusters = (0..CLUSTERS).map(|cluster| Cluster {
            name: name(number, cluster),
            made: 1,
            generation: 0,
            told: None,
            deleting: false,
        });
        Self {
            site: number % SITES,
            rng,
            placements,
            others,
            clusters: clusters.collect(),
            load,
        }
    }

    pub(crate) async fn run(mut self) {
        for index in 0..self.clusters.len() {
            self.exists(index);
        }
        while !self.load.stop.is_cancelled() {
            let index = self.rng.random_range(0..self.clusters.len());
            let step = match self.rng.random_range(0..10) {
                0..3 => self.apply(index).await,
                3..7 => self.act(index).await,
                7 => self.release(index).await,
                _ => self.read().await,
            };
            match step {
                Ok(()) => _ = self.load.answered.fetch_add(1, Ordering::Relaxed),
                // The process is down, or the site is not synced yet.
                Err(status) if retried(&status) => tokio::time::sleep(Duration::from_millis(3)).await,
                Err(status) => panic!("{status:?}"),
            }
        }
    }

    fn site(&self) -> &Site {
        &self.load.sites[self.site]
    }

    fn exists(&self, index: usize) {
        let cluster = &self.clusters[index];
        self.site()
            .edit(|site| site.clusters.insert(cluster.name.clone(), (cluster.uid(), None)));
    }

    fn known_as(&self, index: usize) -> Name {
        (self.site().name.clone(), self.clusters[index].name.clone())
    }

    /// Keeps an answer; the status holds its revision.
    fn heard(&mut self, index: usize, placement: Option<Placement>) {
        self.load
            .history
            .answered(&self.known_as(index), placement.as_ref());
        let seen = placement.as_ref().and_then(|placement| placement.revision);
        let name = &self.clusters[index].name;
        self.site().edit(|site| {
            if let Some((_, status)) = site.clusters.get_mut(name) {
                *status = seen.or(*status);
            }
        });
        self.clusters[index].told = placement;
    }

    /// Declares another size.
    async fn apply(&mut self, index: usize) -> Result<(), Status> {
        let site = self.site().name.clone();
        let active = self.rng.random_range(0..=5);
        let cluster = &mut self.clusters[index];
        if cluster.deleting {
            return self.release(index).await;
        }
        cluster.generation += 1;
        let request = ApplyClusterRequest {
            site,
            cluster: Some(reference(&cluster.name, &cluster.uid())),
            generation: cluster.generation,
            spec: Some(ClusterSpec {
                roles: vec![Role {
                    name: "Worker".to_owned(),
                    label_selector: Some(LabelSelector::default()),
                    active,
                    ..Role::default()
                }],
                network_ids: Vec::new(),
                other_bytes: 0,
            }),
            ..ApplyClusterRequest::default()
        };
        let begun = Instant::now();
        let answer = self.placements.apply_cluster(request).await?;
        self.load.took(begun.elapsed());
        self.heard(index, answer.into_inner().placement);
        Ok(())
    }

    /// Deletes the cluster, or goes on to; when all is released it is made again.
    async fn release(&mut self, index: usize) -> Result<(), Status> {
        let site = self.site().name.clone();
        let cluster = &mut self.clusters[index];
        cluster.deleting = true;
        let request = ReleaseClusterRequest {
            site,
            cluster: Some(reference(&cluster.name, &cluster.uid())),
        };
        let answer = self.placements.release_cluster(request).await?;
        let placement = answer.into_inner().placement;
        let ended = placement.is_none();
        self.heard(index, placement);
        if ended {
            let cluster = &mut self.clusters[index];
            cluster.made += 1;
            cluster.generation = 0;
            cluster.deleting = false;
            self.exists(index);
        }
        Ok(())
    }

    /// Does to hosts what the last answer asks for.
    async fn act(&mut self, index: usize) -> Result<(), Status> {
        let cluster = &self.clusters[index];
        let known_as = self.known_as(index);
        let mut released = Vec::new();
        for member in cluster.told.iter().flat_map(|told| &told.members) {
            let host = member.host.clone().unwrap_or_default();
            let patched = if member.state() == MemberState::Releasing {
                released.push(ReleaseConfirmation {
                    host: Some(host.clone()),
                    revision: member.revision,
                });
                self.site().unlabel(&host.name, &cluster.name, member.revision)
            } else {
                self.site().label(&host.name, &cluster.name, member.revision)
            };
            // After a confirmation of which no answer came the host may be somebody else's already.
            if let Patched::Refused(why) = patched
                && !self.load.history.may_be_gone(&known_as, &host.name)
            {
                self.load.history.contradiction(why);
            }
        }
        if released.is_empty() {
            return Ok(());
        }
        for host in released.iter().filter_map(|release| release.host.as_ref()) {
            self.load.history.gives(&known_as, &host.name);
        }
        let request = ConfirmHostsRequest {
            site: self.site().name.clone(),
            cluster: Some(reference(&cluster.name, &cluster.uid())),
            released,
        };
        let answer = self.placements.confirm_hosts(request).await?;
        self.heard(index, answer.into_inner().placement);
        Ok(())
    }

    /// Reads a cluster of anybody's.
    async fn read(&mut self) -> Result<(), Status> {
        let other = self.rng.random_range(0..CLIENTS);
        let site = self.load.sites[other % SITES].name.clone();
        let name = name(other, self.rng.random_range(0..CLUSTERS));
        let known_as = (site.clone(), name.clone());
        let reached = self.load.history.reached(&known_as);
        let must_be_found = self.load.history.must_be_found(&known_as);
        let request = GetPlacementRequest {
            site,
            cluster: Some(reference(&name, "")),
            at_least: None,
        };
        debug_assert_eq!(NAMESPACE, "tenant");
        match self.others.get_placement(request).await {
            Ok(answer) => {
                if let Some(placement) = answer.into_inner().placement {
                    self.load.history.read(&known_as, reached, &placement);
                }
                Ok(())
            }
            // It may have gone meanwhile, unless nobody has released its hosts.
            Err(status) if status.code() == Code::NotFound => {
                self.load.history.not_found(&known_as, must_be_found);
                Ok(())
            }
            Err(status) => Err(status),
        }
    }
}

fn name(client: usize, cluster: usize) -> String {
    format!("c{client:02}-{cluster}")
}

/// Whether the call is made again later. That it was superseded is so for a moment after a cluster was made again, until
/// the site has reported it.
fn retried(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Internal
            | Code::ResourceExhausted
            | Code::Aborted
    )
}
