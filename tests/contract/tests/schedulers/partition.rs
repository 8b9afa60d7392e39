//! A scheduler is cut off from etcd.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use sandbox::proxy::Proxy;

use crate::{
    client::reason,
    region::{LEASE, PATIENCE, Region, assert_kept},
};

#[tokio::test]
async fn a_leader_cut_off_from_etcd_stops_before_the_next_begins() {
    let mut region = Region::new(1).await;
    let etcd = region.etcd.members()[0].address();
    let proxy = Proxy::to(etcd).await.unwrap();
    region.add(&[format!("http://{}", proxy.address())]);
    assert_eq!(region.leader(None).await, 0);
    let _reports = region.reported(0).await;
    let first = region.schedulers[0].client.apply("first", 3).await.unwrap();
    let mut promised = BTreeMap::from([("first".to_owned(), first)]);
    let endpoints = region.etcd.endpoints();
    region.add(&endpoints);

    proxy.cut(true);
    let begun = Instant::now();
    let lost = region.schedulers[0].client.apply("lost", 3).await.unwrap_err();
    let [old, new] = &region.schedulers[..] else {
        panic!("there are two")
    };
    let stops = async {
        let mut answered = begun;
        loop {
            let asked = Instant::now();
            if old.client.list().await.is_err() {
                return answered;
            }
            answered = asked;
            assert!(begun.elapsed() < PATIENCE, "it goes on answering");
        }
    };
    let begins = async {
        while new.client.list().await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "nobody leads");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Instant::now()
    };
    // However late this test is told of either: what the old one answered was asked before the new one had answered.
    let (answered, led) = tokio::join!(stops, begins);
    assert!(answered < led, "both lead");
    let stopped = answered - begun;
    assert!(
        stopped < LEASE,
        "it answers for longer than its lease: {stopped:?}"
    );
    println!(
        "cut off: stopped answering after {stopped:?}, the next one leads after {:?}",
        begun.elapsed()
    );

    let _reports = region.reported(1).await;
    let second = region.schedulers[1].client.apply("second", 3).await.unwrap();
    promised.insert("second".to_owned(), second);
    proxy.cut(false);
    let healed = Instant::now();
    let leader = loop {
        match region.schedulers[0].client.list().await {
            Err(status) => match reason(&status).1 {
                Some(leader) => break leader,
                None => assert!(healed.elapsed() < PATIENCE, "{status:?}"),
            },
            Ok(_) => panic!("two lead"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(leader, region.schedulers[1].address);
    let found = region.schedulers[1].client.list().await.unwrap();
    assert_kept(&promised, &found);
    assert!(!found.contains_key("lost"), "{lost:?}, and yet it is there");
}
