//! A site in which everything happens at random: at the end every promise is held, as a checker finds that reads the API
//! server alone.
//!
//! `SOAK_SITE_SECONDS` says for how long, and `SOAK_SEED` which events: it is printed.

use std::{
    collections::BTreeMap,
    env,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

use kube::{
    ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use rand::{
    Rng as _, SeedableRng as _,
    rngs::StdRng,
    seq::{IndexedRandom as _, IteratorRandom as _},
};
use sandbox::{
    inventory::Host,
    promises,
    region::{Agent, HOSTS_NAMESPACE},
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
    wait,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::fixtures::{
    AGENTS, Cluster, History, PATIENCE, Role, Stage, cluster, fleet, given_back, host, make_again,
    set_consumer, sip_labels,
};

const SCENARIO: &str = "soak";
/// Words of an API server that keeps node ports for a Service whose maker was killed before it was made. Nobody but itself frees
/// them: it looks every three minutes, and believes it when it has seen it three times.
const LEFT_BEHIND: &str = "provided port is already allocated";
const REPAIRED: Duration = Duration::from_mins(13);
const CLUSTERS: u16 = 5;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
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
}

/// Each as often as it is here.
const HAPPENINGS: [Happening; 18] = [
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
];

const FAILED: &str = "sip.airshipit.org/failed";
const PAUSED: &str = "baremetalhost.metal3.io/paused";

struct Soak {
    stage: Stage,
    random: StdRng,
    hosts: Vec<Host>,
    /// Hosts that nobody may ever get: each lacks something.
    unfit: Vec<Host>,
    clusters: BTreeMap<u16, Cluster>,
    history: History,
    happened: BTreeMap<Happening, usize>,
}

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
    async fn start(seed: u64) -> Self {
        let stage = Stage::start("site-a", &AGENTS).await;
        stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
        let history = History::of(stage.hosts());
        let hosts = fleet(SCENARIO, 6, 2, 3);
        let mut unfit = vec![
            host(SCENARIO, "cp", "", "unfit-rack"),
            host(SCENARIO, "cp", "r7", "unfit-state").state("provisioned"),
            host(SCENARIO, "worker", "r7", "unfit-cordoned"),
        ];
        stage.load(&hosts).await;
        stage.load(&unfit[..2]).await;
        // It is cordoned before any agent can see it as free: its state comes with the annotation.
        unfit[2] = unfit[2].clone().state("registering");
        stage.load(&unfit[2..]).await;
        let soak = Self {
            stage,
            random: StdRng::seed_from_u64(seed),
            hosts,
            unfit,
            clusters: BTreeMap::new(),
            history,
            happened: BTreeMap::new(),
        };
        let cordoned = soak.unfit[2].name.clone();
        soak.annotate(&cordoned, "sip.airshipit.org/cordoned", json!(""))
            .await;
        soak.stage
            .hosts()
            .patch_status(
                &cordoned,
                &PatchParams::default(),
                &Patch::Merge(json!({"status": {"provisioning": {"state": "available"}}})),
            )
            .await
            .unwrap();
        soak
    }

    async fn patch(&self, host: &str, change: Value) {
        self.stage
            .hosts()
            .patch(host, &PatchParams::default(), &Patch::Merge(change))
            .await
            .unwrap();
    }

    async fn annotate(&self, host: &str, key: &str, value: Value) {
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

    /// One thing happens. Clusters that are still ending are passed over.
    async fn happen(&mut self) {
        let what = *HAPPENINGS.choose(&mut self.random).unwrap();
        let index = self.random.random_range(0..CLUSTERS);
        let host = self.any_host(what);
        match what {
            Happening::Created => {
                let wanted = shape(&mut self.random, index);
                let there = self.stage.clusters(SCENARIO).get_opt(&wanted.name).await.unwrap();
                if there.is_some() {
                    return;
                }
                self.stage.create(&wanted).await;
                self.clusters.insert(index, wanted);
            }
            Happening::Resized => {
                let Some(before) = self.clusters.keys().copied().choose(&mut self.random) else {
                    return;
                };
                let wanted = shape(&mut self.random, before);
                self.stage
                    .edit(&wanted, json!({"nodes": wanted.spec()["nodes"]}))
                    .await;
                self.clusters.insert(before, wanted);
            }
            Happening::Deleted => {
                let Some(gone) = self.clusters.remove(&index) else {
                    return;
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
        }
        *self.happened.entry(what).or_default() += 1;
    }

    /// Nobody hurts anything any more: marks and consumers go.
    async fn calm(&self) {
        for host in &self.hosts {
            let calm = json!({"metadata": {"annotations": {FAILED: null, PAUSED: null}}, "spec": {"consumerRef": null}});
            self.patch(&host.name, calm).await;
        }
    }

    /// Waits until every cluster has been answered for what it asks now, and every promise is held.
    async fn is_settled(&self) {
        let begun = Instant::now();
        // What is answered only then is only begun when nothing that was left behind is in its way any more.
        let mut free = begun;
        loop {
            let clusters = self.stage.clusters(SCENARIO);
            let mut broken = promises::broken(&self.stage.site.client(), &[HOSTS_NAMESPACE])
                .await
                .unwrap();
            let mut left_behind = false;
            for wanted in self.clusters.values() {
                let object = clusters.get(&wanted.name).await.unwrap();
                // One that waits for hosts too says only that.
                let balancers = wait::condition(&object, "LoadBalancerReady");
                left_behind |= balancers.is_some_and(|(_, _, message)| message.contains(LEFT_BEHIND));
                let refused =
                    wait::condition(&object, "Ready").is_some_and(|(_, reason, _)| reason == "Unschedulable");
                if !wait::is_true(&object, "Ready") && !refused {
                    broken.push(format!(
                        "{} is not answered: {:?}",
                        wanted.name,
                        wait::condition(&object, "Ready")
                    ));
                }
            }
            if broken.is_empty() {
                return;
            }
            if left_behind && begun.elapsed() < REPAIRED {
                free = Instant::now();
            }
            assert!(free.elapsed() < PATIENCE, "{}", broken.join("\n"));
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn ends_with_nothing(&mut self) {
        for cluster in self.clusters.values() {
            self.stage
                .clusters(SCENARIO)
                .delete(&cluster.name, &DeleteParams::default())
                .await
                .unwrap();
        }
        for cluster in std::mem::take(&mut self.clusters).values() {
            self.stage.gone(cluster).await;
        }
        for host in self.stage.hosts_of(SCENARIO).await {
            let used = !host.annotations().is_empty();
            assert!(
                sip_labels(&host).is_empty()
                    && (!used || given_back(&host) || self.is_unfit(&host.name_any())),
                "{:?}",
                host.metadata
            );
        }
        let none = |answer: &Value| {
            answer
                .get("placements")
                .is_none_or(|placements| placements == &json!([]))
        };
        self.stage
            .until_answer(
                "sip.placement.v1.PlacementService/ListPlacements",
                json!({"site": "site-a"}),
                none,
            )
            .await;
    }

    fn is_unfit(&self, name: &str) -> bool {
        self.unfit.iter().any(|host| host.name == name)
    }
}

#[tokio::test]
async fn whatever_happens_to_a_site_it_keeps_its_promises() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = number("SOAK_SITE_SECONDS").unwrap_or(15);
    let seed = number("SOAK_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    eprintln!("SOAK_SEED={seed} SOAK_SITE_SECONDS={seconds}");
    let mut soak = Box::pin(Soak::start(seed)).await;
    let (begun, length) = (Instant::now(), Duration::from_secs(seconds));
    let mut settled = 0;
    while begun.elapsed() < length {
        // Between storms the site comes to rest, and is looked at.
        let storm = Instant::now();
        while begun.elapsed() < length && storm.elapsed() < Duration::from_mins(1) {
            soak.happen().await;
            let pause = soak.random.random_range(0..400);
            sleep(Duration::from_millis(pause)).await;
        }
        soak.calm().await;
        soak.is_settled().await;
        settled += 1;
    }
    soak.ends_with_nothing().await;
    let asked = soak.stage.asked_by_agents();
    let (states, passed_on) = soak.history.seen();
    assert_eq!(passed_on, [""; 0]);
    assert!(states > soak.hosts.len(), "nothing was watched");
    let labelled_unfit = asked.iter().filter(|entry| {
        let labels = entry.request_object.pointer("/metadata/labels");
        labels.is_some_and(|labels| labels[CLUSTER_NAME].is_string())
            && entry
                .object_ref
                .as_ref()
                .is_some_and(|object| soak.is_unfit(&object.name))
    });
    assert_eq!(
        labelled_unfit.count(),
        0,
        "a host that nobody can have was labelled"
    );
    println!(
        "SOAK_SEED={seed}: {settled} times at rest with every promise held, after {:?}",
        soak.happened
    );
}
