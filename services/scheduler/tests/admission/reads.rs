//! Questions that need a core for long: what others' calls take beside them, and when they end.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use proto::{
    inventory::v1::{
        ClusterSpec, FindCapacityRequest, FindCapacityResponse, LabelSelector, ListHostsRequest,
        ListSitesRequest, Role, inventory_service_client::InventoryServiceClient,
    },
    placement::v1::{PlanClusterRequest, placement_service_client::PlacementServiceClient},
};
use runtime::{metrics::Metrics, tls::Channel};
use tokio::task::JoinSet;
use tonic::{Response, Status};

use crate::fixtures::{Served, agent, apply, cluster, durations_of_changes, reader, spec};

/// Hosts of the site that is asked about: each of its copies takes one.
const HOSTS: usize = 1000;
/// Copies that each question counts.
const COPIES: u32 = 1000;
/// Questions at once: as many as one identity may have under way.
const QUESTIONS: usize = 8;
/// Changes in each round.
const CALLS: i64 = 40;
/// Rounds that may be tried: something else may be at work on the machine in one of them.
const ROUNDS: i64 = 8;

fn question() -> FindCapacityRequest {
    FindCapacityRequest {
        spec: Some(spec(1)),
        namespace: "tenant".to_owned(),
        max_copies: COPIES,
    }
}

async fn find_capacity(channel: Channel) -> Result<Response<FindCapacityResponse>, Status> {
    InventoryServiceClient::new(channel)
        .find_capacity(question())
        .await
}

/// The median of so many changes of a site, one after the other.
async fn median(client: &mut PlacementServiceClient<Channel>, site: &str, round: i64) -> Duration {
    let first = round * CALLS + 1;
    let took = durations_of_changes(client, site, first..first + CALLS).await;
    took[took.len() / 2]
}

/// Measures changes of a site beside the calls that `begin` starts in each round. `limit`: how long they may take then, from how long they take
/// without other calls.
async fn changes_are_answered_beside(
    (served, site): (&Served, &str),
    calls: &str,
    limit: impl Fn(Duration) -> Duration,
    begin: impl AsyncFn() -> JoinSet<()>,
) {
    let mut client = served.placements(&agent(site, "cluster"));
    median(&mut client, site, 0).await;
    let mut figures = Vec::new();
    for round in 0..ROUNDS {
        let quiet = median(&mut client, site, 2 * round + 1).await;
        let mut asked = begin().await;
        let beside = median(&mut client, site, 2 * round + 2).await;
        asked.shutdown().await;
        println!("ApplyCluster, median: {quiet:?} quiet, {beside:?} beside {QUESTIONS} {calls}");
        if beside < limit(quiet) {
            return;
        }
        figures.push((quiet, beside));
    }
    panic!("quiet, and beside {QUESTIONS} {calls}: {figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_answered_beside_one_readers_scans() {
    let _alone = crate::ALONE.lock().await;
    let served = Served::start().await;
    let _large = served.report_hosts("large", HOSTS).await;
    let _site = served.report("b").await;
    let scans = format!("scans of {COPIES} copies");
    let limit = |quiet: Duration| 4 * quiet + Duration::from_millis(5);
    changes_are_answered_beside((&served, "b"), &scans, limit, async || {
        let channel = served.channel(&reader("scanning"));
        let mut asked: JoinSet<()> = JoinSet::new();
        for _ in 0..QUESTIONS {
            let channel = channel.clone();
            asked.spawn(async move {
                loop {
                    find_capacity(channel.clone()).await.unwrap();
                }
            });
        }
        // They are at work, not on their way.
        let before = decisions(&served.metrics);
        while decisions(&served.metrics) < before + 10 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        asked
    })
    .await;
}

/// How many decisions were made for questions about capacity.
fn decisions(metrics: &Metrics) -> u64 {
    let text = metrics.encode().unwrap();
    let line = "sip_scheduler_decision_duration_seconds_count{action=\"capacity\"} ";
    let count = text.lines().find_map(|found| found.strip_prefix(line));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_ends_when_its_caller_has_left() {
    let _alone = crate::ALONE.lock().await;
    let served = Served::start().await;
    let _large = served.report_hosts("large", HOSTS).await;
    let mut asked = JoinSet::new();
    let channel = served.channel(&reader("leaving"));
    for _ in 0..QUESTIONS {
        asked.spawn(find_capacity(channel.clone()));
    }
    while decisions(&served.metrics) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    asked.shutdown().await;

    // The scan under way ends with the copy that it counts, those that wait for a turn do not begin.
    let mut last = None;
    while last != Some(decisions(&served.metrics)) {
        last = Some(decisions(&served.metrics));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let made = last.unwrap();
    let all = u64::from(COPIES) * u64::try_from(QUESTIONS).unwrap();
    println!("{made} of {all} copies were counted");
    assert!(made < all / 2, "{made}");
}

/// A plan of many roles, which is long in the making.
fn large_plan() -> PlanClusterRequest {
    let role = spec(156).roles.remove(0);
    let roles = (0..8).map(|number| Role {
        name: format!("Role{number}"),
        topology_key: String::new(),
        ..role.clone()
    });
    PlanClusterRequest {
        site: "large".to_owned(),
        cluster: Some(cluster("planned")),
        spec: Some(ClusterSpec {
            roles: roles.collect(),
            ..ClusterSpec::default()
        }),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_holds_up_no_change_of_its_site() {
    let _alone = crate::ALONE.lock().await;
    let served = Served::start().await;
    let _large = served.report_hosts("large", HOSTS).await;
    let mut client = served.placements(&agent("large", "cluster"));
    let mut planner = served.placements(&reader("planning"));
    let planned = tokio::spawn(async move {
        let started = Instant::now();
        planner.plan_cluster(large_plan()).await.unwrap();
        started.elapsed()
    });
    let mut longest = Duration::ZERO;
    let mut generation = 0;
    while !planned.is_finished() {
        generation += 1;
        let started = Instant::now();
        let workers = u32::try_from(generation % 3).unwrap();
        let change = apply("large", "measured", generation, workers);
        client.apply_cluster(change).await.unwrap();
        longest = longest.max(started.elapsed());
    }
    let planned = planned.await.unwrap();
    println!("the plan took {planned:?}, {generation} changes beside it {longest:?} at most");
    assert!(longest < planned / 2, "{longest:?} beside a plan of {planned:?}");
}

/// Locks a site for a change until the sender is dropped.
fn at_work(served: &Served, site: &str) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
    let site = served.region.site(site).unwrap();
    let (locked, is_locked) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let work = thread::spawn(move || {
        let _site = site.lock();
        locked.send(()).unwrap();
        let _ = ended.recv();
    });
    is_locked.recv().unwrap();
    (end, work)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_of_a_site_at_work_keep_no_copy_from_others() {
    let served = Served::start().await;
    let _b = served.report("b").await;
    let (end, work) = at_work(&served, "a");
    let plan = |site: &str| PlanClusterRequest {
        site: site.to_owned(),
        cluster: Some(cluster("planned")),
        spec: Some(spec(1)),
    };
    // More than there are copies of all sites at once, each of an identity of its own.
    let callers = (2 * thread::available_parallelism().unwrap().get() + 4).min(60);
    let mut plans = JoinSet::new();
    for number in 0..callers {
        let (mut planner, of) = (
            served.placements(&reader(&format!("planner-{number}"))),
            plan("a"),
        );
        plans.spawn(async move { planner.plan_cluster(of).await });
    }
    // Meanwhile they have come to the site that is at work.
    let mut client = InventoryServiceClient::new(served.channel(&reader("asking")));
    for _ in 0..200 {
        client.list_sites(ListSitesRequest::default()).await.unwrap();
    }
    let mut other = served.placements(&reader("other"));
    let planned = tokio::time::timeout(Duration::from_secs(20), other.plan_cluster(plan("b"))).await;
    drop(end);
    work.join().unwrap();
    planned
        .expect("PlanCluster of another site waits for a copy")
        .unwrap();
    while let Some(planned) = plans.join_next().await {
        planned.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_about_other_sites_pass_one_at_work() {
    let served = Served::start().await;
    let _b = served.report("b").await;
    let (end, work) = at_work(&served, "a");

    // As many as one identity may have under way wait for the site that is at work.
    let waiting = served.channel(&reader("waiting"));
    let hosts = |site: &str| ListHostsRequest {
        site: site.to_owned(),
        ..ListHostsRequest::default()
    };
    let mut asked = JoinSet::new();
    for _ in 0..QUESTIONS {
        let (mut client, of) = (InventoryServiceClient::new(waiting.clone()), hosts("a"));
        asked.spawn(async move { client.list_hosts(of).await });
    }
    let mut client = InventoryServiceClient::new(served.channel(&reader("asking")));
    let patience = Duration::from_secs(20);
    let sites = tokio::time::timeout(patience, client.list_sites(ListSitesRequest::default())).await;
    let of_b = tokio::time::timeout(patience, client.list_hosts(hosts("b"))).await;
    let capacity = tokio::time::timeout(patience, client.find_capacity(question())).await;
    drop(end);
    work.join().unwrap();

    let sites = sites.unwrap().unwrap().into_inner().sites;
    assert_eq!(sites.len(), 2);
    assert!(
        sites.iter().all(|site| site.synced && site.hosts == 3),
        "{sites:?}"
    );
    let of_b = of_b.expect("ListHosts of another site waits for a turn").unwrap();
    assert_eq!(of_b.into_inner().hosts.len(), 3);
    let capacity = capacity
        .expect("FindCapacity waits for the site")
        .unwrap()
        .into_inner();
    assert_eq!((capacity.sites.len(), &*capacity.unsynced[0].site), (1, "a"));
    while let Some(listed) = asked.join_next().await {
        assert_eq!(listed.unwrap().unwrap().into_inner().hosts.len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_find_nothing_hold_up_no_change_of_their_site() {
    const MANY: usize = 40_000;
    let _alone = crate::ALONE.lock().await;
    let served = Served::start().await;
    let _large = served.report_hosts("large", MANY).await;
    let nobody = ListHostsRequest {
        site: "large".to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: [("rack".to_owned(), "of-nobody".to_owned())].into(),
            ..LabelSelector::default()
        }),
        ..ListHostsRequest::default()
    };
    let limit = |quiet: Duration| 2 * quiet + Duration::from_millis(10);
    changes_are_answered_beside((&served, "large"), "lists that find nothing", limit, async || {
        let channel = served.channel(&reader("looking"));
        let mut asked: JoinSet<()> = JoinSet::new();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..QUESTIONS {
            let (channel, nobody, tell) = (channel.clone(), nobody.clone(), tell.clone());
            asked.spawn(async move {
                let mut client = InventoryServiceClient::new(channel);
                loop {
                    let found = client.list_hosts(nobody.clone()).await.unwrap().into_inner();
                    assert_eq!((found.hosts.len(), &*found.next_page_token), (0, ""));
                    let _ = tell.send(());
                }
            });
        }
        // They are at work, not on their way.
        told.recv().await.unwrap();
        asked
    })
    .await;
}
