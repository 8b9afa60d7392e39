//! What can happen to a site, by chance.

use kube::api::{Patch, PatchParams};
use rand::{
    Rng as _,
    rngs::StdRng,
    seq::{IndexedRandom as _, IteratorRandom as _},
};
use sandbox::{
    inventory::Host,
    region::Agent,
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
};
use serde_json::{Value, json};

use super::{CLUSTERS, SCENARIO, Soak};
use crate::fixtures::{Cluster, Role, cluster, make_again, set_consumer};

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    Created,
    Resized,
    Deleted,
    Failed,
    Recovered,
    MadeAgain,
    Used,
    LetGo,
    LabelRemoved,
    Paused,
    Relabelled,
    AgentKilled(Agent),
    SchedulerKilled,
    LedgerLost,
    ApiServerKilled,
    StoreKilled,
    Moved,
    MoveWithdrawn,
}

/// Each as often as it is here.
const STORM: [Happening; 24] = [
    Happening::Created,
    Happening::Created,
    Happening::Resized,
    Happening::Resized,
    Happening::Resized,
    Happening::Resized,
    Happening::Deleted,
    Happening::Failed,
    Happening::Recovered,
    Happening::MadeAgain,
    Happening::Used,
    Happening::LetGo,
    Happening::LabelRemoved,
    Happening::Paused,
    Happening::Relabelled,
    Happening::AgentKilled(Agent::Cluster),
    Happening::AgentKilled(Agent::LoadBalancer),
    Happening::SchedulerKilled,
    Happening::LedgerLost,
    Happening::ApiServerKilled,
    Happening::StoreKilled,
    Happening::Moved,
    Happening::Moved,
    Happening::MoveWithdrawn,
];

/// What happens while no cluster changes and no host fails.
const CHAINS: [Happening; 8] = [
    Happening::Moved,
    Happening::Moved,
    Happening::Moved,
    Happening::MoveWithdrawn,
    Happening::MoveWithdrawn,
    Happening::AgentKilled(Agent::Cluster),
    Happening::SchedulerKilled,
    Happening::LedgerLost,
];

pub(super) const FAILED: &str = "sip.airshipit.org/failed";
pub(super) const PAUSED: &str = "baremetalhost.metal3.io/paused";
pub(super) const MOVED: &str = "sip.airshipit.org/replace";

/// One that a random number picks, with as many hosts as another one says.
fn shape(random: &mut StdRng, index: u16) -> Cluster {
    let shop = cluster(SCENARIO, &format!("shop{index}"))
        .role(Role::ControlPlane, *[0, 1, 3].choose(random).unwrap())
        .role(Role::Worker, random.random_range(0..5));
    // Some have load balancers, with node ports of their own.
    if index.is_multiple_of(2) {
        shop.balanced(30_100 + index * 3)
    } else {
        shop
    }
}

impl Soak {
    pub(super) async fn patch(&self, host: &str, change: Value) {
        self.stage
            .hosts()
            .patch(host, &PatchParams::default(), &Patch::Merge(change))
            .await
            .unwrap();
    }

    pub(super) async fn annotate(&self, host: &str, key: &str, value: Value) {
        self.patch(host, json!({"metadata": {"annotations": {key: value}}}))
            .await;
    }

    /// Some are paused at times, others made again: one that is gone while it is paused is waited for, for 10 minutes.
    fn any_host(&mut self, what: Happening) -> Host {
        let odd = match what {
            Happening::Paused => 0,
            Happening::MadeAgain => 1,
            _ => self.random.random_range(0..2),
        };
        let eligible = self.hosts.iter().skip(odd).step_by(2);
        eligible.choose(&mut self.random).unwrap().clone()
    }

    /// One thing happens, whatever it is. Clusters that are still ending are passed over.
    pub(super) async fn storm(&mut self) {
        let what = *STORM.choose(&mut self.random).unwrap();
        self.happen(what).await;
    }

    /// A member is moved or stays after all, or a program is killed. Returns the host that was marked.
    pub(super) async fn chain(&mut self) -> Option<String> {
        let what = *CHAINS.choose(&mut self.random).unwrap();
        let host = self.happen(what).await;
        (what == Happening::Moved).then_some(host.name)
    }

    /// Returns the host that it happened to, if it happened to one.
    async fn happen(&mut self, what: Happening) -> Host {
        let index = self.random.random_range(0..CLUSTERS);
        let host = self.any_host(what);
        self.stage.start_agents_that_ended().await;
        match what {
            Happening::Created => {
                let wanted = shape(&mut self.random, index);
                let there = self.stage.clusters(SCENARIO).get_opt(&wanted.name).await.unwrap();
                if there.is_some() {
                    return host;
                }
                self.stage.create(&wanted).await;
                self.clusters.insert(index, wanted);
            }
            Happening::Resized => {
                let Some(before) = self.clusters.keys().copied().choose(&mut self.random) else {
                    return host;
                };
                let wanted = shape(&mut self.random, before);
                self.stage
                    .edit(&wanted, json!({"nodes": wanted.spec()["nodes"]}))
                    .await;
                self.clusters.insert(before, wanted);
            }
            Happening::Deleted => {
                let Some(gone) = self.clusters.remove(&index) else {
                    return host;
                };
                self.stage.delete(&gone).await;
            }
            Happening::Failed => self.annotate(&host.name, FAILED, json!("")).await,
            Happening::Recovered => self.annotate(&host.name, FAILED, Value::Null).await,
            Happening::MadeAgain => make_again(&self.stage, &host).await,
            Happening::Used => {
                let machine = json!({"apiVersion": "x/v1", "kind": "Metal3Machine", "namespace": SCENARIO, "name": host.name});
                set_consumer(&self.stage, &host.name, machine).await;
            }
            Happening::LetGo => set_consumer(&self.stage, &host.name, Value::Null).await,
            Happening::LabelRemoved => {
                let key = *[CLUSTER_NAMESPACE, CLUSTER_NAME, NODE_TYPE]
                    .choose(&mut self.random)
                    .unwrap();
                self.patch(&host.name, json!({"metadata": {"labels": {key: null}}}))
                    .await;
            }
            Happening::Paused => {
                let value = if self.random.random_bool(0.5) {
                    json!("")
                } else {
                    Value::Null
                };
                self.annotate(&host.name, PAUSED, value).await;
            }
            Happening::Relabelled => {
                let value = self.random.random_range(0..9).to_string();
                self.patch(
                    &host.name,
                    json!({"metadata": {"labels": {"soak.example/any": value}}}),
                )
                .await;
            }
            Happening::AgentKilled(agent) => self.stage.agent(agent).restart().await.unwrap(),
            Happening::SchedulerKilled => self.stage.region_mut().scheduler().restart().await.unwrap(),
            Happening::LedgerLost => self.stage.region_mut().lose_ledger().await.unwrap(),
            Happening::ApiServerKilled => self.stage.site.restart_api_server().await.unwrap(),
            Happening::StoreKilled => self.stage.site.restart_store().await.unwrap(),
            Happening::Moved => self.annotate(&host.name, MOVED, json!("")).await,
            Happening::MoveWithdrawn => self.annotate(&host.name, MOVED, Value::Null).await,
        }
        *self.happened.entry(what).or_default() += 1;
        host
    }
}
