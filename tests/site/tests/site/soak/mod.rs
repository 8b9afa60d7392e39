//! A site in which everything happens at random: at the end every promise is held, as a checker finds that reads the API
//! server alone.
//!
//! `SOAK_SITE_SECONDS` says for how long, and `SOAK_SEED` which events: it is printed.

mod chains;
mod happenings;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use sandbox::{
    invariants,
    inventory::{FLAVOR, Host},
    region::HOSTS_NAMESPACE,
    sip_clusters::{self, CLUSTER_NAME},
    wait,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use self::{
    chains::{Members, Wanted},
    happenings::{FAILED, Happening, MOVED, PAUSED},
};
use crate::fixtures::{
    AGENTS, Cluster, History, PATIENCE, Role, Stage, fleet, given_back, host, requested, sip_labels,
};

const SCENARIO: &str = "soak";
/// Words of an API server that keeps node ports for a Service whose maker was killed before it was made. Nobody but itself frees
/// them: it looks every three minutes, and believes it when it has seen it three times.
const LEFT_BEHIND: &str = "provided port is already allocated";
/// What a cluster says of a member whose host was deleted around the time when the ledger was lost. The scheduler does not know any more
/// whether the host was paused for a move of Cluster API's objects, so it waits for it for ten minutes.
const GONE: &str = "its BareMetalHost is gone";
/// How long these may take.
const REPAIRED: Duration = Duration::from_mins(13);
const CLUSTERS: u16 = 5;
/// How long members are moved between two storms.
const MOVES: Duration = Duration::from_secs(20);

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

impl Soak {
    async fn start(seed: u64) -> Self {
        let stage = Stage::start("site-a", &AGENTS).await;
        stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
        let history = History::watch(stage.hosts());
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

    /// Nobody hurts anything any more: marks and consumers go.
    async fn calm(&self) {
        for host in &self.hosts {
            let calm = json!({"metadata": {"annotations": {FAILED: null, PAUSED: null, MOVED: null}}, "spec": {"consumerRef": null}});
            self.patch(&host.name, calm).await;
        }
    }

    /// Waits until every cluster has been answered for what it asks now, and every promise is held.
    async fn is_settled(&mut self) {
        // Of an owner that is deleted and created again while the API server restarts, the garbage collector of Kubernetes keeps what the former
        // one owned until it starts again: here the pods of a Deployment.
        self.stage
            .site
            .control_plane()
            .controller_manager
            .restart()
            .await
            .unwrap();
        let begun = Instant::now();
        // What is answered only then is only begun when nothing that takes time is in its way any more.
        let mut free = begun;
        loop {
            self.stage.start_agents_that_ended().await;
            let clusters = self.stage.clusters(SCENARIO);
            let mut broken = invariants::broken(&self.stage.site.client(), &[HOSTS_NAMESPACE])
                .await
                .unwrap();
            let mut takes_time = false;
            for wanted in self.clusters.values() {
                let object = clusters.get(&wanted.name).await.unwrap();
                // One that waits for hosts too says only that.
                let balancers = wait::condition(&object, "LoadBalancerReady");
                takes_time |= balancers.is_some_and(|(_, _, message)| message.contains(LEFT_BEHIND));
                let ready = wait::condition(&object, "Ready");
                let is_gone = ready.is_some_and(|(_, _, message)| message.contains(GONE));
                takes_time |= is_gone && self.happened.contains_key(&Happening::LedgerLost);
                let refused =
                    wait::condition(&object, "Ready").is_some_and(|(_, reason, _)| reason == "Unschedulable");
                if refused && self.fits(&object).await {
                    broken.push(format!(
                        "{} is refused though there are hosts for it",
                        wanted.name
                    ));
                }
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
            if takes_time && begun.elapsed() < REPAIRED {
                free = Instant::now();
            }
            if free.elapsed() >= PATIENCE {
                self.print_state().await;
                panic!("{}", broken.join("\n"));
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Prints what a person would look for first.
    async fn print_state(&self) {
        let kinds = "deployments,replicasets,pods,events";
        // A node that was not ready for a while makes its pods not ready, which their containers' READY does not show.
        let conditions =
            r#"jsonpath={range .items[*]}{.kind} {.metadata.name} {.status.conditions}{"\n"}{end}"#;
        for listed in [
            ["get", "-n", SCENARIO, "-o", "wide", kinds],
            ["get", "-n", SCENARIO, "-o", conditions, "nodes,pods"],
            [
                "get",
                "-n",
                HOSTS_NAMESPACE,
                "-o",
                "wide",
                "baremetalhosts,secrets",
            ],
            ["get", "-n", SCENARIO, "-o", "yaml", "sipclusters"],
        ] {
            println!("{}", self.stage.kubectl(&listed).await);
        }
        let site = self.stage.site.name();
        let placements = json!({"site": site, "pageSize": 1000});
        let placements = self
            .stage
            .call("sip.placement.v1.PlacementService/ListPlacements", placements)
            .await;
        println!("{placements:#}");
        for host in &self.hosts {
            let host = json!({"site": site, "namespace": HOSTS_NAMESPACE, "name": host.name});
            let known = self
                .stage
                .call("sip.inventory.v1.InventoryService/GetHost", host)
                .await;
            println!("{known}");
        }
    }

    /// Whether what a cluster lacks is there: control planes in racks that it is not in yet, workers anywhere.
    async fn fits(&self, cluster: &DynamicObject) -> bool {
        let name = format!("{SCENARIO}/{}", cluster.name_any());
        let hosts = self.stage.hosts_of(SCENARIO).await;
        let wanted = sip_clusters::wanted(cluster);
        [Role::ControlPlane, Role::Worker].into_iter().all(|role| {
            let of = hosts.iter().filter(|host| {
                host.labels()[FLAVOR] == format!("{SCENARIO}-{}", role.flavor())
                    && !self.is_unfit(&host.name_any())
            });
            // A domain that is the cluster's already serves it once, like one with a free host.
            let domains: BTreeSet<&String> = of
                .filter(|host| sip_clusters::holder(host).is_none_or(|(holder, _)| holder == name))
                .map(|host| &host.labels()[role.topology_key()])
                .collect();
            domains.len() as u64 >= wanted.get(role.name()).copied().unwrap_or(0)
        })
    }

    /// Members are moved, stay after all and are moved again, while programs are killed: hosts that nobody moves stay, and no role has fewer
    /// hosts than it wants at any moment. Returns how many hosts were released for others.
    async fn moves_members(&mut self) -> usize {
        let mut wanted = Wanted::new();
        for cluster in self
            .stage
            .clusters(SCENARIO)
            .list(&ListParams::default())
            .await
            .unwrap()
        {
            if wait::is_true(&cluster, "Ready") {
                let name = format!("{SCENARIO}/{}", cluster.name_any());
                let roles = sip_clusters::wanted(&cluster).into_iter();
                wanted.extend(
                    roles.map(|(role, count)| ((name.clone(), role), usize::try_from(count).unwrap())),
                );
            }
        }
        let members = Members::watch(self.stage.hosts(), wanted).await;
        let before = members.labelled();
        let mut marked = BTreeSet::new();
        let begun = Instant::now();
        while begun.elapsed() < MOVES {
            marked.extend(self.chain().await);
            let pause = self.random.random_range(0..2_000);
            sleep(Duration::from_millis(pause)).await;
        }
        let (left, broken) = members.found();
        assert_eq!(broken, [""; 0]);
        let unmoved: Vec<&String> = left
            .iter()
            .filter(|host| before.contains(*host) && !marked.contains(*host))
            .collect();
        assert_eq!(unmoved, [""; 0], "members were released that nobody moved");
        left.len()
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
    let seconds = requested("SOAK_SITE_SECONDS").unwrap_or(15);
    let seed = requested("SOAK_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    eprintln!("SOAK_SEED={seed} SOAK_SITE_SECONDS={seconds}");
    let mut soak = Box::pin(Soak::start(seed)).await;
    let (begun, length) = (Instant::now(), Duration::from_secs(seconds));
    let (mut settled, mut moved) = (0, 0);
    while begun.elapsed() < length {
        // Between storms the site comes to rest, and is looked at.
        let storm = Instant::now();
        while begun.elapsed() < length && storm.elapsed() < Duration::from_mins(1) {
            soak.storm().await;
            let pause = soak.random.random_range(0..400);
            sleep(Duration::from_millis(pause)).await;
        }
        soak.calm().await;
        soak.is_settled().await;
        moved += soak.moves_members().await;
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
        "SOAK_SEED={seed}: {settled} times at rest with every promise held, {moved} members moved, after {:?}",
        soak.happened
    );
}
