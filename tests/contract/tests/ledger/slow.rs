//! A network to etcd that is slow, or away: one site's large entries keep nobody else waiting, and no term from beginning.

use std::time::{Duration, Instant};

use sandbox::proxy::Proxy;
use scheduler::ledger::{
    Commit, Ledger as _, Page, Query,
    etcd::{Etcd, Location},
};

use crate::{
    backends::{Bed as _, Cluster, EtcdBed, arguments},
    changes::{Model, put},
    contract::{batch, commit, sized_in},
};

/// Bytes a second.
const PACE: u32 = 20 << 20;

/// The ledger of a process that reaches the first member by this way.
pub(crate) fn open(cluster: &Cluster, way: &Proxy, name: &str) -> Etcd {
    let endpoints = [format!("http://{}", way.address())];
    let args = arguments(&format!("/contract/{name}"));
    let location = cluster
        .runtime
        .block_on(Location::new(&endpoints, &args))
        .unwrap();
    cluster
        .open(&location, cluster.elect(&location, "there"))
        .unwrap()
}

/// Where the first member is.
pub(crate) fn first(cluster: &Cluster) -> String {
    cluster.endpoints[0].trim_start_matches("http://").to_owned()
}

pub(crate) fn read(ledger: &Etcd, wanted: bool) -> Result<Page, scheduler::ledger::Error> {
    ledger.read_log(Query {
        before: Commit::MAX,
        limit: 1000,
        most: 4096,
        wanted: &|_| wanted,
        gone: &|| false,
    })
}

#[test]
fn large_records_keep_no_term_from_beginning() {
    let cluster = Cluster::start(1);
    let ledger = EtcdBed::new(&cluster, "slow").open();
    let mut model = Model::new();
    for number in 0..150 {
        let change = put(&model, &format!("c{number}"), Some(5_000));
        commit(&*ledger, &mut model, &[change]);
    }
    drop(ledger);
    let way = cluster
        .runtime
        .block_on(Proxy::slow(first(&cluster), PACE))
        .unwrap();
    let ledger = open(&cluster, &way, "slow");
    assert!(ledger.load().unwrap() == model.contents());
}

/// A page is not as large as those before let expect.
#[test]
fn small_entries_before_large_ones_delay_no_page() {
    let cluster = Cluster::start(1);
    let ledger = EtcdBed::new(&cluster, "mixed").open();
    let mut model = Model::new();
    for _ in 0..60 {
        let large = sized_in(&model, "b", Duration::ZERO, 900 << 10);
        commit(&*ledger, &mut model, &[large]);
    }
    let small = batch(&model, 300, |model| sized_in(model, "b", Duration::ZERO, 10));
    commit(&*ledger, &mut model, &small);
    drop(ledger);
    let way = cluster
        .runtime
        .block_on(Proxy::slow(first(&cluster), PACE))
        .unwrap();
    let ledger = open(&cluster, &way, "mixed");
    let begun = Instant::now();
    let page = read(&ledger, false).unwrap();
    assert!(page.next.is_some(), "a page has 16 MiB at most");
    // 16 MiB and one answer that is not taken.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn what_etcd_does_not_answer_is_given_up_in_time() {
    let cluster = Cluster::start(1);
    let way = cluster.runtime.block_on(Proxy::to(first(&cluster))).unwrap();
    let ledger = open(&cluster, &way, "away");
    let mut model = Model::new();
    let one = sized_in(&model, "a", Duration::ZERO, 10);
    commit(&ledger, &mut model, &[one]);
    assert_eq!(read(&ledger, true).unwrap().decisions.len(), 1);
    way.cut(true);
    let begun = Instant::now();
    read(&ledger, true).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
