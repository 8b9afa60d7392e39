//! A reader, and a site's load-balancer agent, who call whatever they like.

use std::{sync::Arc, time::Instant};

use proto::{
    inventory::v1::{
        ClusterSpec, ExplainHostRequest, FindCapacityRequest, LabelSelector, ListHostsRequest,
        RepairSiteRequest, ResetSiteFenceRequest, Revision, Role,
        inventory_service_client::InventoryServiceClient,
    },
    ledger::v1::{ExportLedgerRequest, ledger_service_client::LedgerServiceClient},
    placement::v1::{
        ApplyClusterRequest, ConfirmHostsRequest, GetPlacementRequest, ListDecisionsRequest,
        ListPlacementsRequest, PlanClusterRequest, ReleaseClusterRequest, WatchPlacementsRequest,
        WatchPlacementsResponse, placement_service_client::PlacementServiceClient,
    },
};
use rand::{Rng as _, rngs::StdRng};
use sandbox::authority::Caller;
use tonic::{Streaming, transport::Channel};

use super::{
    HOSTILE,
    attack::{Attack, CONNECTED},
    numbers,
};
use crate::killed::site::reference;

/// Callers of each kind, each with a connection of its own and one call after the other.
pub(crate) const CALLERS: usize = 24;
/// Watches that one of them keeps open and does not read.
const UNREAD: usize = 8;

/// One of them.
struct Hostile {
    attack: Arc<Attack>,
    who: Caller<'static>,
    rng: StdRng,
    channel: Channel,
    connected: Instant,
    unread: Vec<Streaming<WatchPlacementsResponse>>,
}

/// Runs until the attack ends.
pub(crate) async fn run(attack: Arc<Attack>, who: Caller<'static>, number: usize) {
    let mut hostile = Hostile {
        rng: attack.rng(&who.to_string(), number),
        channel: attack.channel(&who),
        connected: Instant::now(),
        attack: Arc::clone(&attack),
        who,
        unread: Vec::new(),
    };
    while !attack.stop.is_cancelled() {
        hostile.step().await;
    }
}

/// A spec with borders in it.
pub(crate) fn spec(rng: &mut StdRng) -> ClusterSpec {
    let roles = (0..rng.random_range(0..4)).map(|number| Role {
        name: if rng.random_bool(0.8) {
            format!("Role{number}")
        } else {
            numbers::text(rng)
        },
        label_selector: Some(LabelSelector::default()),
        active: numbers::count(rng),
        standby: numbers::count(rng),
        ..Role::default()
    });
    ClusterSpec {
        roles: roles.collect(),
        network_ids: Vec::new(),
        other_bytes: 0,
    }
}

impl Hostile {
    /// Some site: its own, one that must not notice, or none.
    fn site(&mut self) -> String {
        match self.rng.random_range(0..8) {
            0 => numbers::text(&mut self.rng),
            1..4 => HOSTILE.to_owned(),
            _ => {
                let victim = self.rng.random_range(0..self.attack.victims.len());
                self.attack.victims[victim].clone()
            }
        }
    }

    fn revision(&mut self) -> Revision {
        Revision {
            epoch: numbers::unsigned(&mut self.rng),
            revision: numbers::unsigned(&mut self.rng),
        }
    }

    async fn step(&mut self) {
        match self.rng.random_range(0..16) {
            0 if self.connected.elapsed() >= CONNECTED => {
                self.channel = self.attack.channel(&self.who);
                self.connected = Instant::now();
            }
            1 => self.watch().await,
            0 | 2..7 => self.read().await,
            7..11 => self.list().await,
            _ => self.change().await,
        }
    }

    /// Opens a watch that nobody reads.
    async fn watch(&mut self) {
        let request = WatchPlacementsRequest {
            site: self.site(),
            resume: Some(self.revision()).filter(|_| self.rng.random_bool(0.5)),
        };
        let mut placements = PlacementServiceClient::new(self.channel.clone());
        let watched = placements.watch_placements(request);
        let watched = self.attack.call("WatchPlacements", &self.who, watched).await;
        if self.unread.len() >= UNREAD {
            self.unread.clear();
        }
        self.unread.extend(watched.map(tonic::Response::into_inner));
    }

    async fn read(&mut self) {
        let (attack, who) = (Arc::clone(&self.attack), self.who.clone());
        let mut placements = PlacementServiceClient::new(self.channel.clone());
        let mut inventory = InventoryServiceClient::new(self.channel.clone());
        let site = self.site();
        match self.rng.random_range(0..4) {
            0 => {
                let request = GetPlacementRequest {
                    site,
                    cluster: Some(reference("c00-0", "")),
                    at_least: Some(self.revision()),
                };
                attack
                    .call("GetPlacement", &who, placements.get_placement(request))
                    .await;
            }
            1 => {
                let request = PlanClusterRequest {
                    site,
                    cluster: Some(reference(&numbers::text(&mut self.rng), "")),
                    spec: Some(spec(&mut self.rng)),
                };
                attack
                    .call("PlanCluster", &who, placements.plan_cluster(request))
                    .await;
            }
            2 => {
                let request = FindCapacityRequest {
                    spec: Some(spec(&mut self.rng)),
                    namespace: numbers::text(&mut self.rng),
                    max_copies: numbers::count(&mut self.rng),
                };
                attack
                    .call("FindCapacity", &who, inventory.find_capacity(request))
                    .await;
            }
            _ => {
                let request = ExplainHostRequest {
                    site,
                    namespace: "metal".to_owned(),
                    name: numbers::text(&mut self.rng),
                    ..ExplainHostRequest::default()
                };
                attack
                    .call("ExplainHost", &who, inventory.explain_host(request))
                    .await;
            }
        }
    }

    async fn list(&mut self) {
        let (attack, who) = (Arc::clone(&self.attack), self.who.clone());
        let mut placements = PlacementServiceClient::new(self.channel.clone());
        let mut inventory = InventoryServiceClient::new(self.channel.clone());
        let (site, page_size) = (self.site(), numbers::page(&mut self.rng));
        let page_token = if self.rng.random_bool(0.7) {
            String::new()
        } else {
            numbers::text(&mut self.rng)
        };
        match self.rng.random_range(0..3) {
            0 => {
                let request = ListDecisionsRequest {
                    site,
                    cluster: None,
                    page_size,
                    page_token,
                };
                attack
                    .call("ListDecisions", &who, placements.list_decisions(request))
                    .await;
            }
            1 => {
                let request = ListPlacementsRequest {
                    site,
                    namespace: String::new(),
                    page_size,
                    page_token,
                };
                attack
                    .call("ListPlacements", &who, placements.list_placements(request))
                    .await;
            }
            _ => {
                let request = ListHostsRequest {
                    site,
                    label_selector: None,
                    page_size,
                    page_token,
                };
                attack
                    .call("ListHosts", &who, inventory.list_hosts(request))
                    .await;
            }
        }
    }

    /// What it has no right to.
    async fn change(&mut self) {
        let (attack, who) = (Arc::clone(&self.attack), self.who.clone());
        let mut placements = PlacementServiceClient::new(self.channel.clone());
        let mut inventory = InventoryServiceClient::new(self.channel.clone());
        let site = self.site();
        let cluster = Some(reference("c00-0", "c00-0-1"));
        match self.rng.random_range(0..6) {
            0 => {
                let request = ApplyClusterRequest {
                    site,
                    cluster,
                    generation: numbers::signed(&mut self.rng),
                    created: Some(numbers::time(&mut self.rng)),
                    spec: Some(spec(&mut self.rng)),
                };
                attack
                    .call("ApplyCluster, no right", &who, placements.apply_cluster(request))
                    .await;
            }
            1 => {
                let request = ReleaseClusterRequest { site, cluster };
                attack
                    .call(
                        "ReleaseCluster, no right",
                        &who,
                        placements.release_cluster(request),
                    )
                    .await;
            }
            2 => {
                let request = ConfirmHostsRequest {
                    site,
                    cluster,
                    released: Vec::new(),
                };
                attack
                    .call("ConfirmHosts, no right", &who, placements.confirm_hosts(request))
                    .await;
            }
            3 => {
                let request = ResetSiteFenceRequest { site };
                attack
                    .call(
                        "ResetSiteFence, no right",
                        &who,
                        inventory.reset_site_fence(request),
                    )
                    .await;
            }
            4 => {
                let request = RepairSiteRequest { site, dry_run: false };
                attack
                    .call("RepairSite, no right", &who, inventory.repair_site(request))
                    .await;
            }
            _ => {
                let mut ledger = LedgerServiceClient::new(self.channel.clone());
                let export = ledger.export_ledger(ExportLedgerRequest::default());
                attack.call("ExportLedger, no right", &who, export).await;
            }
        }
    }
}
