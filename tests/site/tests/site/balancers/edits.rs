//! Any order of edits converges: what a spec names is there and nothing else, and an entry that an edit does not change keeps its
//! objects. Agents are restarted between any two edits, the API server refuses writes, watches are slow, and clusters are deleted and made
//! again. Where nothing changes, nothing is written.
//!
//! `SOAK_EDITS` is the number of edits (without it a few), `SOAK_SEED` the seed.

mod disturbance;
mod objects;
mod wishes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::api::DynamicObject;
use sandbox::{
    region::{HOSTS_NAMESPACE, Region},
    wait,
};
use tokio::time::{Instant, timeout};

use self::{
    disturbance::disturb,
    objects::{Made, made},
};
pub(crate) use self::{
    disturbance::restart_one,
    wishes::{Entry, Most, Wish, Wishes},
};
use crate::{
    faults::ApiProxy,
    fixtures::{
        AGENTS, Cluster, PATIENCE, Role, Stage, applied, cluster, fleet, members, newest_revision, requested,
    },
    steady_state::{quiet_for, writes},
};

const NAMESPACES: [&str; 2] = ["edits-a", "edits-b"];
const FIRST_PORT: u16 = 31_600;
const LAST_PORT: u16 = 31_659;
const MOST_WORKERS: u32 = 3;
const SHORT: u64 = 11;
/// For how long nobody may write at rest, after nobody has written for a moment.
const REST: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5));
const PAUSE: Duration = Duration::from_millis(100);

/// Of which form the load balancers are.
struct Form {
    /// With it, configurations are followed without another pod.
    sidecar: Option<&'static str>,
    /// Pods of each load balancer.
    replicas: u8,
}

/// Waits until a cluster holds what it wants and exactly the entries of its wish follow that, and have objects.
async fn until_made(stage: &mut Stage, of: &Cluster, wish: &Wish, form: &Form) -> Made {
    let ports: BTreeSet<u16> = wish.all().map(|entry| entry.port).collect();
    let clusters = stage.clusters(&of.namespace);
    let deadline = Instant::now() + PATIENCE;
    loop {
        stage.start_agents_that_ended().await;
        let object = clusters.get(&of.name).await.unwrap();
        let made = made(stage, &of.namespace, form).await;
        if let Ok(made) = &made
            && made.keys().copied().collect::<BTreeSet<_>>() == ports
            && follows(&object, wish, made)
        {
            return made.clone();
        }
        let shown = || serde_json::to_string_pretty(&object.data["status"]).unwrap();
        assert!(
            Instant::now() < deadline,
            "{ports:?} are asked for: {made:?}\n{}",
            shown()
        );
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether a cluster is Ready with what it wants, and every load balancer has applied that.
fn follows(object: &DynamicObject, wish: &Wish, made: &Made) -> bool {
    let members = members(object);
    let is_bound = members.len() == wish.members() && members.iter().all(|member| member.state == "Bound");
    let generation = object.metadata.generation;
    let revision = newest_revision(object).unwrap_or_default();
    let applied = applied(object);
    let names: BTreeSet<&str> = applied.iter().map(|applied| &*applied.service).collect();
    is_bound
        && wait::is_true(object, "Ready")
        && names == made.values().map(|(name, _, _)| &**name).collect()
        && (applied.iter())
            .all(|applied| Some(applied.generation) == generation && applied.revision == revision)
}

/// An entry that an edit did not change has the objects that it had.
fn assert_kept((before, after): (&Wish, &Wish), (had, has): (&Made, &Made), form: &Form, what: &str) {
    for entry in after.all() {
        let Some(known) = before.all().find(|known| known.is_same(entry)) else {
            continue;
        };
        let ((_, uid, generation), (_, now_uid, now_generation)) = (&had[&entry.port], &has[&entry.port]);
        assert_eq!(now_uid, uid, "{what}: {entry:?} has another Service");
        // Without a sidecar another member is another configuration.
        let has_same_pods = form.sidecar.is_some() || before.workers == after.workers;
        if known == entry && has_same_pods {
            assert_eq!(now_generation, generation, "{what}: {entry:?} has other pods");
        }
    }
}

/// A site whose agents reach the API server through a proxy each.
async fn start(site: &str, form: &Form) -> (Stage, BTreeMap<sandbox::region::Agent, ApiProxy>) {
    let region = Arc::new(Region::start("north").await.unwrap());
    let mut stage = Stage::start_in(region, site, &[HOSTS_NAMESPACE], &[]).await;
    let mut config = stage.config(&[HOSTS_NAMESPACE]);
    config.haproxy_sidecar_image = form.sidecar.map(str::to_owned);
    let proxies = stage.start_proxied(&AGENTS, &config).await;
    (stage, proxies)
}

async fn edits_converge(site: &str, form: Form) {
    let seed = requested("SOAK_SEED").unwrap_or(1);
    let (mut stage, proxies) = start(site, &form).await;
    let most = Most {
        workers: [MOST_WORKERS; 2],
        entries: 4,
        ports: FIRST_PORT..=LAST_PORT,
        control_planes: true,
        images: &["haproxy:2.8", "haproxy:2.9", "haproxy:3.0"],
        made_again: true,
        replicas: form.replicas,
    };
    let mut wishes = Wishes::new(seed, most);
    let mut has = Vec::new();
    let clusters = NAMESPACES.map(|namespace| cluster(namespace, "shop").role(Role::Worker, 1));
    for (index, shop) in clusters.iter().enumerate() {
        stage.site.create_tenant_namespace(&shop.namespace).await.unwrap();
        stage.load(&fleet(&shop.namespace, MOST_WORKERS, 1, 1)).await;
        stage.create(shop).await;
        stage.edit(shop, wishes.now[index].spec(shop)).await;
        has.push(until_made(&mut stage, shop, &wishes.now[index], &form).await);
    }
    for turn in 0..requested("SOAK_EDITS").unwrap_or(SHORT) {
        let before = wishes.now.clone();
        let what = format!("seed {seed}, edit {turn}: {}", wishes.edit());
        println!("{what}");
        disturb(&proxies, &mut wishes.random);
        for (index, (shop, wish)) in clusters.iter().zip(&wishes.now).enumerate() {
            if wishes.made_again == Some(index) {
                stage.delete(shop).await;
                stage.gone(shop).await;
                stage.create(shop).await;
            }
            stage.edit(shop, wish.spec(shop)).await;
        }
        restart_one(&mut stage, &mut wishes.random).await;
        for (index, shop) in clusters.iter().enumerate() {
            let made = until_made(&mut stage, shop, &wishes.now[index], &form).await;
            if wishes.made_again != Some(index) {
                let edit = (&before[index], &wishes.now[index]);
                assert_kept(edit, (&has[index], &made), &form, &what);
            }
            has[index] = made;
        }
    }

    stage.agents_have_leases().await;
    let at_rest = timeout(PATIENCE, quiet_for(&stage, REST.0)).await.unwrap();
    tokio::time::sleep(REST.1).await;
    let now = writes(&stage);
    assert_eq!(now.len(), at_rest.len(), "{:#?}", &now[at_rest.len()..]);
    for (index, shop) in clusters.iter().enumerate() {
        let made = until_made(&mut stage, shop, &wishes.now[index], &form).await;
        assert_eq!(made, has[index], "nothing has changed at rest");
    }
    stage.nothing_was_forbidden();
}

#[tokio::test]
async fn any_order_of_edits_converges() {
    let form = Form {
        sidecar: None,
        replicas: 2,
    };
    Box::pin(edits_converge("edits", form)).await;
}

/// Nodes that are none run no sidecar, which could be asked what it follows: so there are no pods, but all else that they need.
#[tokio::test]
async fn any_order_of_edits_with_sidecars_converges() {
    let form = Form {
        sidecar: Some("localhost/sip-haproxy-sidecar:1"),
        replicas: 0,
    };
    Box::pin(edits_converge("edits-sidecar", form)).await;
}
