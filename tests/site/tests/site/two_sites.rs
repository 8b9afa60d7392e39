//! One scheduler for two sites, each with an API server of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use sandbox::{
    etcd::Etcd,
    inventory::FLAVOR,
    process::Group,
    proxy::Proxy,
    region::{HOSTS_NAMESPACE, Region},
};
use serde_json::{Value, json};

use crate::{
    faults::double_labels,
    fixtures::{AGENTS, Cluster, Role, Stage, cluster, fleet, held, members},
};

const SCENARIO: &str = "two";
const SITES: [&str; 2] = ["site-a", "site-b"];
/// Hosts of each cluster.
const SIZE: u32 = 2;
const RACKS: u32 = 4;
/// Clusters for which each site has hosts beyond those that both have.
const SPARE: u32 = 4;
const FIND_CAPACITY: &str = "sip.inventory.v1.InventoryService/FindCapacity";
const LIST_PLACEMENTS: &str = "sip.placement.v1.PlacementService/ListPlacements";

/// Clusters of both sites together.
fn clusters() -> u32 {
    env::var("SOAK_TWO_SITES").map_or(24, |count| count.parse().unwrap())
}

fn shop(number: u32) -> Cluster {
    cluster(SCENARIO, &format!("shop{number}")).role(Role::Worker, SIZE)
}

/// A site with hosts for so many clusters, whose agents reach the scheduler by this way.
async fn site(region: &Arc<Region>, name: &str, clusters: u32, way: &Proxy) -> Stage {
    let mut stage = Stage::start_in(Arc::clone(region), name, &[HOSTS_NAMESPACE], &[]).await;
    for agent in AGENTS {
        stage
            .start_agent_where(agent, |config| {
                *config = config.clone().by(format!("https://{}", way.address()));
            })
            .await;
    }
    stage.agents_are_ready().await;
    stage
        .load(&fleet(SCENARIO, RACKS, 0, (clusters * SIZE).div_ceil(RACKS)))
        .await;
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    stage
}

/// Waits until so many more of these clusters fit into each of these sites, and the others are named as those that are not synced.
async fn capacity(stage: &Stage, expected: &[(&str, u32)]) {
    let role = json!({
        "name": "Worker",
        "labelSelector": {"matchLabels": {FLAVOR: format!("{SCENARIO}-worker")}},
        "topologyKey": Role::Worker.topology_key(),
        "active": SIZE,
    });
    let request = json!({"spec": {"roles": [role]}, "maxCopies": 1000});
    let of = |answer: &Value, list: &str| answer[list].as_array().cloned().unwrap_or_default();
    let name = |site: &Value| site["site"].as_str().unwrap_or_default().to_owned();
    stage
        .until_answer(FIND_CAPACITY, request, |answer| {
            let copies = of(answer, "sites").into_iter();
            let copies: BTreeMap<String, u64> = copies
                .map(|site| (name(&site), site["copies"].as_u64().unwrap_or_default()))
                .collect();
            let unsynced: BTreeSet<String> = of(answer, "unsynced").iter().map(name).collect();
            let wanted = expected.iter();
            let wanted: BTreeMap<String, u64> = wanted
                .map(|(site, copies)| ((*site).to_owned(), u64::from(*copies)))
                .collect();
            let absent = SITES.map(str::to_owned).into_iter();
            let absent: BTreeSet<String> = absent.filter(|site| !wanted.contains_key(site)).collect();
            copies == wanted && unsynced == absent
        })
        .await;
}

/// Each of these clusters is Ready; its status, the labels of its hosts and the ledger name the same hosts, and no other cluster of the site
/// has one of them.
async fn all_hold(stage: &Stage, numbers: impl Iterator<Item = u32>) {
    let site = stage.site.name();
    let (mut promised, mut taken) = (BTreeMap::new(), BTreeSet::new());
    for number in numbers {
        let shop = shop(number);
        let of = members(&stage.ready(&shop).await);
        assert_eq!(of.len(), SIZE as usize, "{site}: {}", shop.name);
        assert_eq!(
            held(&of),
            stage.labelled(SCENARIO, &shop).await,
            "{site}: {}",
            shop.name
        );
        let uids: BTreeSet<String> = of.into_iter().map(|member| member.uid).collect();
        assert!(
            taken.is_disjoint(&uids),
            "{site}: {} has hosts of another",
            shop.name
        );
        taken.extend(uids.iter().cloned());
        promised.insert(shop.name, uids);
    }
    let ledger = stage
        .call(LIST_PLACEMENTS, json!({"site": site, "pageSize": 1000}))
        .await;
    let ledger: BTreeMap<String, BTreeSet<String>> = (ledger["placements"].as_array().unwrap().iter())
        .map(|placement| {
            let members = placement["members"].as_array().unwrap().iter();
            let uids = members.map(|member| member["host"]["uid"].as_str().unwrap().to_owned());
            let name = placement["cluster"]["name"].as_str().unwrap();
            (name.to_owned(), uids.collect())
        })
        .collect();
    assert_eq!(ledger, promised, "{site}");
    assert_eq!(double_labels(&stage.asked_by_agents()), [""; 0]);
}

async fn create(stages: [&Stage; 2], numbers: std::ops::Range<u32>) {
    for number in numbers {
        for stage in stages {
            stage.create(&shop(number)).await;
        }
    }
}

/// How long it takes until one more cluster is Ready.
async fn placed_within(stage: &Stage, number: u32) -> Duration {
    let began = Instant::now();
    stage.create(&shop(number)).await;
    stage.ready(&shop(number)).await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sites_of_a_region_share_nothing_but_the_scheduler() {
    let count = clusters() / 2;
    let room = count + SPARE;
    let region = Arc::new(Region::start("north").await.unwrap());
    let ways = [(); 2].map(|()| Proxy::to(region.address()));
    let [way_of_a, way_of_b] = try_join_all(ways).await.unwrap().try_into().unwrap();
    let (a, mut b) = tokio::join!(
        site(&region, SITES[0], room, &way_of_a),
        site(&region, SITES[1], room, &way_of_b),
    );
    capacity(&a, &[(SITES[0], room), (SITES[1], room)]).await;

    // The scheduler is killed, moved from its file to etcd, and killed there, while both sites place clusters of the same names.
    let group = Group::new("two-sites").unwrap();
    let etcd = Etcd::start(&group, 1).await.unwrap();
    let half = count / 2;
    create([&a, &b], 0..half).await;
    region.kill_and_restart().await.unwrap();
    let (first, rest) = (half..half + half / 2, half + half / 2..count);
    tokio::join!(create([&a, &b], first), async {
        region.move_to_etcd(&etcd).await.unwrap();
    });
    tokio::join!(create([&a, &b], rest), async {
        region.kill_and_restart().await.unwrap();
    });
    tokio::join!(all_hold(&a, 0..count), all_hold(&b, 0..count));
    capacity(&a, &[(SITES[0], SPARE), (SITES[1], SPARE)]).await;
    println!("{} clusters in two sites", 2 * count);
    println!("one more with both at work: {:?}", placed_within(&a, count).await);

    // One site is cut off.
    way_of_b.cut(true);
    let (kept, ended) = (shop(0), shop(1));
    b.delete(&ended).await;
    b.create(&shop(count)).await;
    println!(
        "one more with a site cut off: {:?}",
        placed_within(&a, count + 1).await
    );
    capacity(&a, &[(SITES[0], SPARE - 2)]).await;
    let before = b.labelled(SCENARIO, &kept).await;
    assert_eq!(
        before.len(),
        SIZE as usize,
        "a site that is cut off keeps its hosts"
    );
    way_of_b.cut(false);
    b.gone(&ended).await;
    let numbers = || (0..=count).filter(|number| *number != 1);
    all_hold(&b, numbers()).await;
    assert_eq!(b.labelled(SCENARIO, &kept).await, before);
    capacity(&a, &[(SITES[0], SPARE - 2), (SITES[1], SPARE)]).await;

    // The API server of one site goes away and comes back.
    b.site.kill_api_server().await.unwrap();
    println!(
        "one more with an API server gone: {:?}",
        placed_within(&a, count + 2).await
    );
    b.restart_api_server().await;
    b.create(&shop(1)).await;
    tokio::join!(all_hold(&a, 0..count + 3), all_hold(&b, 0..=count));
}
