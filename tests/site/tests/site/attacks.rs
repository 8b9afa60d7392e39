//! One host, strangers and one certificate attack a region of two sites, one after the other: the others do not notice.
//!
//! `SOAK_ATTACKS` is the length of the second attack in seconds. With it, what calls of others take beside the third is compared with what
//! they take without; another load on the machine changes that, so the short form only prints it.

use std::{
    collections::{BTreeSet, VecDeque},
    env, fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use api::SIPCluster;
use k8s_openapi::api::core::v1::Event;
use kit::{
    placement::{ClusterId, ObjectKey, Position},
    scheduler_client::Scheduler,
};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    runtime::watcher,
};
use proto::placement::v1::{GetPlacementRequest, GetPlacementResponse};
use runtime::{
    identity::{self, Realm},
    metrics::Metrics,
    tls::{self, Channel, ClientTls, ClientTlsArgs, TlsMetrics},
};
use sandbox::{
    authority::{Caller, Identity, TRUST_DOMAIN},
    region::{HOSTS_NAMESPACE, Region},
    sip_clusters::holder,
    strangers, wait,
};
use serde_json::json;
use tokio::{task::JoinSet, time::MissedTickBehavior};
use tonic::{Code, Request, Status, client::Grpc};
use tonic_prost::ProstCodec;

use crate::fixtures::{AGENTS, Cluster, PATIENCE, Role, Stage, cluster, fleet, held, members};

const SCENARIO: &str = "attacked";
const SITES: [&str; 2] = ["site-a", "site-b"];
/// A revision that a site of this size does not reach, and that a ledger could.
const MARK: u64 = 1 << 62;
/// Connections that say nothing, at once.
const SILENT: usize = 10_000;
/// New ones each second.
const NEW: usize = 500;
/// How long they come, if nothing else was asked for.
const SHORT: Duration = Duration::from_secs(3);
/// How long an agent may take to connect and to be answered.
const CONNECT: Duration = Duration::from_secs(2);
/// Calls of one certificate at once, and its connections.
const CALLS: usize = 10_000;
const CONNECTIONS: usize = 20;
/// Of these, as many as one identity may have under way.
const PLACES: usize = 256;
/// In which a request has to arrive.
const ARRIVAL: Duration = Duration::from_secs(10);
const GET_PLACEMENT: &str = "/sip.placement.v1.PlacementService/GetPlacement";
/// Calls of others that are measured.
const MEASURED: u32 = 200;
/// How often they are: something else may be at work on the machine during one of them.
const ATTEMPTS: u32 = 4;

/// How long attacks take, if that was asked for.
fn soak() -> Option<Duration> {
    let seconds = env::var("SOAK_ATTACKS").ok()?;
    Some(Duration::from_secs(seconds.parse().unwrap()))
}

fn shop() -> Cluster {
    cluster(SCENARIO, "shop").role(Role::Worker, 2)
}

async fn site(region: &Arc<Region>, name: &str) -> Stage {
    let stage = Stage::start_in(Arc::clone(region), name, &[HOSTS_NAMESPACE], &AGENTS).await;
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    stage.load(&fleet(SCENARIO, 2, 0, 2)).await;
    stage.create(&shop()).await;
    stage.ready(&shop()).await;
    stage
}

/// Grows, shrinks, deletes and makes the cluster of a site again. Never is one of these hosts its member.
async fn changes_as_before(stage: &Stage, never: &BTreeSet<String>) {
    for count in [3, 2] {
        let changed = shop().role(Role::Worker, count);
        stage.edit(&changed, changed.spec().clone()).await;
        stage.ready(&changed).await;
        let what = format!("hold {count} hosts");
        let object = stage.until(&changed, &what, |object| {
            members(object).len() == usize::try_from(count).unwrap()
        });
        let held = held(&members(&object.await));
        assert!(!held.keys().any(|host| never.contains(host)), "{held:?}");
    }
    stage.delete(&shop()).await;
    stage.gone(&shop()).await;
    stage.create(&shop()).await;
    stage.ready(&shop()).await;
}

/// Hosts about which a site has a warning of a release mark.
async fn warned(stage: &Stage) -> BTreeSet<String> {
    let events: Api<Event> = Api::namespaced(stage.site.client(), HOSTS_NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap();
    let of_marks = events.into_iter().filter(is_about_mark);
    of_marks.filter_map(|event| event.involved_object.name).collect()
}

fn is_about_mark(event: &Event) -> bool {
    let note = event.message.as_deref().unwrap_or_default();
    event.reason.as_deref() == Some("InvalidHost") && note.contains("placement-revision")
}

/// The epochs of both sites.
async fn epochs(stage: &Stage) -> Vec<String> {
    let listed = stage
        .call("sip.inventory.v1.InventoryService/ListSites", json!({}))
        .await;
    let sites = listed["sites"].as_array().unwrap().iter();
    sites
        .map(|site| site["revision"]["epoch"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// A free host shows a mark that no ledger here has issued.
async fn one_host(stages: [&Stage; 2]) {
    let [a, b] = stages;
    let hosts = a.hosts_of(SCENARIO).await;
    let free = hosts.iter().find(|host| holder(host).is_none()).unwrap();
    let marked = BTreeSet::from([free.name_any()]);
    let annotations = json!({"sip.airshipit.org/placement-revision": MARK.to_string()});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    a.hosts()
        .patch(&free.name_any(), &PatchParams::default(), &patch)
        .await
        .unwrap();
    let events: Api<Event> = Api::namespaced(a.site.client(), HOSTS_NAMESPACE);
    wait::until_all(
        events,
        watcher::Config::default(),
        "a warning of the mark",
        PATIENCE,
        |events: &[&Event]| events.iter().any(|event| is_about_mark(event)),
    )
    .await
    .unwrap();

    let none = BTreeSet::new();
    tokio::join!(changes_as_before(a, &marked), changes_as_before(b, &none));

    assert_eq!(warned(a).await, marked);
    assert_eq!(warned(b).await, none);
    assert_eq!(epochs(a).await, ["1", "1"], "no site has moved");
}

/// How somebody reaches the scheduler: as agents do, by a connection of its own.
fn channel(region: &Region, who: &Identity) -> Channel {
    let args = ClientTlsArgs {
        tls_cert: Some(who.certificate.clone()),
        tls_key: Some(who.key.clone()),
        tls_ca: Some(who.authority.clone()),
        plaintext_loopback: false,
        tls_reload_seconds: Duration::from_hours(1),
    };
    let realm = Realm::new(TRUST_DOMAIN.parse().unwrap(), region.name().parse().unwrap());
    let metrics = TlsMetrics::registered(&Metrics::default());
    let client = ClientTls::load(&args, &realm, identity::Caller::Scheduler, &metrics).unwrap();
    let endpoint = region.endpoint().parse().unwrap();
    tls::channel(&endpoint, client.map(|(client, _)| client)).unwrap()
}

fn agent(region: &Region, site: &str) -> Identity {
    let caller = Caller::Agent {
        site,
        name: "cluster",
    };
    region.authority().issue(&caller).unwrap()
}

fn id(name: &str, uid: &str) -> ClusterId {
    let key = ObjectKey {
        namespace: SCENARIO.to_owned(),
        name: name.to_owned(),
    };
    ClusterId::new(key, uid)
}

/// Files that this process may have open for connections: others of its tests need some too.
fn files() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let soft: usize = line
        .split_whitespace()
        .nth(3)
        .unwrap()
        .parse()
        .unwrap_or(usize::MAX);
    soft / 4 * 3
}

/// Connects from one address again and again, says nothing, and keeps so many open.
async fn stay_silent(region: Arc<Region>, number: u8, most: usize, opened: Arc<AtomicUsize>) {
    let to = region.address().parse().unwrap();
    let pause = Duration::from_secs(1) * u32::from(strangers::ADDRESSES) / u32::try_from(NEW).unwrap();
    let mut next = tokio::time::interval(pause);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut open = VecDeque::new();
    loop {
        if open.len() >= most {
            next.tick().await;
            open.pop_front();
        }
        if let Ok(stream) = strangers::connect(to, number).await {
            open.push_back(stream);
            opened.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Strangers connect from many addresses and say nothing.
async fn strangers(stages: [&Stage; 2]) {
    let region = &stages[0].region;
    let silent = SILENT.min(files());
    let opened = Arc::new(AtomicUsize::new(0));
    let mut crowd = JoinSet::new();
    for number in 0..strangers::ADDRESSES {
        let most = silent / usize::from(strangers::ADDRESSES);
        crowd.spawn(stay_silent(Arc::clone(region), number, most, Arc::clone(&opened)));
    }
    let begun = Instant::now();
    while opened.load(Ordering::Relaxed) < silent {
        assert!(begun.elapsed() < PATIENCE, "{opened:?} of {silent} are connected");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (begun, before) = (Instant::now(), opened.load(Ordering::Relaxed));
    let mut took = Vec::new();
    let connects = async {
        let identity = agent(region, SITES[0]);
        // Fewer than the handshakes that a site may make each second.
        let mut pace = tokio::time::interval(Duration::from_millis(100));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while begun.elapsed() < soak().unwrap_or(SHORT) {
            pace.tick().await;
            let started = Instant::now();
            Scheduler::new(SITES[0], channel(region, &identity))
                .placement(&id("shop", ""), None)
                .await
                .unwrap();
            took.push(started.elapsed());
        }
    };
    let none = BTreeSet::new();
    let [a, b] = stages;
    tokio::join!(connects, changes_as_before(a, &none), changes_as_before(b, &none));
    let new = opened.load(Ordering::Relaxed) - before;
    let longest = took.iter().max().unwrap();
    println!(
        "{silent} silent connections and {new} new ones in {:.1?}: of {} connections of an agent the longest took {longest:.1?}",
        begun.elapsed(),
        took.len()
    );
    assert!(*longest < CONNECT, "{took:?}");
}

/// Calls for a position that no ledger has reached, all at once. Each is answered: nobody waits for that position.
async fn ask_for_position(channels: &[Channel]) {
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    for channel in channels.iter().cycle().take(CALLS) {
        let caller = Scheduler::new(SITES[0], channel.clone());
        let far = Position::new(1, MARK - 1);
        calls.spawn(async move { caller.placement(&id("shop", ""), Some(far)).await.unwrap_err() });
    }
    calls.join_all().await;
    println!(
        "{CALLS} calls for position 1.{} were answered in {:.1?}",
        MARK - 1,
        begun.elapsed()
    );
}

/// Calls of which nothing arrives, all at once: as many as their identity has places hang, the others are refused. Where that takes longer
/// than a request may take to arrive, those that hang end, and others take their places.
async fn hang(channels: &[Channel]) -> JoinSet<Status> {
    let mut hanging = JoinSet::new();
    let begun = Instant::now();
    for channel in channels.iter().cycle().take(CALLS) {
        let mut client = Grpc::new(channel.clone());
        hanging.spawn(async move {
            client.ready().await.unwrap();
            let requests = Request::new(futures::stream::pending::<GetPlacementRequest>());
            let codec = ProstCodec::<GetPlacementRequest, GetPlacementResponse>::default();
            let path = GET_PLACEMENT.parse().unwrap();
            client
                .streaming(requests, path, codec)
                .await
                .map(drop)
                .unwrap_err()
        });
    }
    let mut refused = 0;
    while hanging.len() > PLACES {
        let status = hanging.join_next().await.unwrap().unwrap();
        match status.code() {
            Code::ResourceExhausted => refused += 1,
            Code::DeadlineExceeded => assert!(begun.elapsed() >= ARRIVAL, "{status}"),
            // The scheduler has closed a connection of the flood, or the flood has kept it from its keepalive: the client makes another. What it
            // tells of the calls on it depends on what it was doing.
            Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal => {}
            other => panic!("{other:?}: {status}"),
        }
    }
    assert!(refused > PLACES, "{refused} of {CALLS} are refused");
    hanging
}

/// The 99th percentile of so many changes of a cluster, one after the other: each is answered within its deadline.
async fn p99(caller: &Scheduler, generation: &mut i64) -> Duration {
    let mut took = Vec::new();
    for _ in 0..MEASURED {
        *generation += 1;
        let mut object = shop().role(Role::Worker, 0).object();
        object.metadata.name = Some("measured".to_owned());
        object.metadata.uid = Some("measured".to_owned());
        object.metadata.generation = Some(*generation);
        let object: SIPCluster = object.try_parse().unwrap();
        let cluster = api::Cluster::parse(&object).unwrap();
        let started = Instant::now();
        caller.apply(&cluster, None).await.unwrap();
        took.push(started.elapsed());
    }
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

/// One certificate has thousands of calls at once.
async fn one_certificate(stages: [&Stage; 2]) {
    let region = &stages[0].region;
    let hostile = region.authority().issue(&Caller::Reader("hostile")).unwrap();
    let channels: Vec<Channel> = (0..CONNECTIONS).map(|_| channel(region, &hostile)).collect();
    let none = BTreeSet::new();
    let [a, b] = stages;
    tokio::join!(
        ask_for_position(&channels),
        changes_as_before(a, &none),
        changes_as_before(b, &none)
    );
    let measured = Scheduler::new(SITES[1], channel(region, &agent(region, SITES[1])));
    let mut generation = 0;
    p99(&measured, &mut generation).await;
    let mut figures = Vec::new();
    for _ in 0..ATTEMPTS {
        let quiet = p99(&measured, &mut generation).await;
        let mut hanging = hang(&channels).await;
        let beside = p99(&measured, &mut generation).await;
        println!(
            "ApplyCluster p99: {quiet:.1?} quiet, {beside:.1?} beside {CALLS} calls of one certificate that hang, {:.1} times",
            beside.as_secs_f64() / quiet.as_secs_f64()
        );
        hanging.shutdown().await;
        figures.push((quiet, beside));
        if soak().is_none() || beside < 2 * quiet {
            measured.release(&id("measured", "measured")).await.unwrap();
            return;
        }
    }
    panic!("p99 quiet and beside {CALLS} calls: {figures:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_caller_or_stranger_does_not_stop_a_region() {
    let region = Arc::new(Region::start("north").await.unwrap());
    let (a, b) = tokio::join!(site(&region, SITES[0]), site(&region, SITES[1]));
    let stages = [&a, &b];
    let begun = Instant::now();
    one_host(stages).await;
    println!("a host with a mark of nobody: {:.1?}", begun.elapsed());
    strangers(stages).await;
    one_certificate(stages).await;
    for stage in stages {
        let object = stage.ready(&shop()).await;
        assert_eq!(held(&members(&object)), stage.labelled(SCENARIO, &shop()).await);
    }
}
