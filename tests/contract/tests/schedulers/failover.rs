//! A scheduler is killed or stopped, or a member of etcd.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use proto::placement::v1::Placement;
use tokio::task::JoinSet;

use crate::{
    client::{Client, reason},
    region::{LEASE, PATIENCE, Region, assert_kept},
};

#[tokio::test]
async fn one_of_three_leads_and_the_others_say_where_it_is() {
    let region = Region::start(1, 3).await;
    let leader = region.leader(None).await;

    for (index, scheduler) in region.schedulers.iter().enumerate() {
        let answer = scheduler.client.list().await;
        if index == leader {
            answer.unwrap();
        } else {
            let begun = Instant::now();
            let mut status = answer.unwrap_err();
            while reason(&status).1.is_none() && begun.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(50)).await;
                status = scheduler.client.list().await.unwrap_err();
            }
            assert_eq!(
                reason(&status),
                (
                    "NOT_LEADER".to_owned(),
                    Some(region.schedulers[leader].address.clone())
                ),
                "{status:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_killed_leader_is_replaced_and_its_promises_are_kept() {
    let mut region = Region::start(1, 3).await;
    let leader = region.leader(None).await;
    let _reports = region.reported(leader).await;
    let mut promised = BTreeMap::new();
    for index in 0..20 {
        let name = format!("c{index}");
        let placement = region.schedulers[leader].client.apply(&name, 3).await.unwrap();
        promised.insert(name, placement);
    }

    region.schedulers[leader].process.kill9().await.unwrap();
    let killed = Instant::now();
    let next = region.leader(Some(leader)).await;
    let waited = killed.elapsed();

    println!("leader killed -> new leader answers: {waited:?}, lease {LEASE:?}");
    let client = &region.schedulers[next].client;
    assert_kept(&promised, &client.list().await.unwrap());
    let _reports = region.reported(next).await;
    let more = client.apply("more", 3).await.unwrap();
    promised.insert("more".to_owned(), more);
    assert_kept(&promised, &client.list().await.unwrap());
}

/// Asks for clusters until told to stop, and returns what was promised.
fn load(client: &Client, worker: usize) -> impl Future<Output = BTreeMap<String, Placement>> + use<> {
    let client = client.clone();
    async move {
        let mut promised = BTreeMap::new();
        for index in 0.. {
            let name = format!("w{worker}-{index}");
            match client.apply(&name, 1).await {
                Ok(placement) => promised.insert(name, placement),
                Err(_) => break,
            };
        }
        promised
    }
}

#[tokio::test]
async fn a_leader_paused_past_its_lease_writes_nothing() {
    let region = Region::start(1, 2).await;
    let old = region.leader(None).await;
    let _reports = region.reported(old).await;
    let mut loads = JoinSet::new();
    for worker in 0..8 {
        loads.spawn(load(&region.schedulers[old].client, worker));
    }
    // Some of them are being written when it is stopped.
    tokio::time::sleep(Duration::from_millis(300)).await;

    region.schedulers[old].process.pause().unwrap();
    let new = region.leader(Some(old)).await;
    let before = region.schedulers[new].client.list().await.unwrap();
    let _reports_to_new = region.reported(new).await;
    let fresh = region.schedulers[new].client.apply("fresh", 3).await.unwrap();
    region.schedulers[old].process.resume().unwrap();

    let mut promised = BTreeMap::from([("fresh".to_owned(), fresh)]);
    while let Some(load) = loads.join_next().await {
        promised.extend(load.unwrap());
    }
    assert!(promised.len() > 8, "there was load: {}", promised.len());
    let begun = Instant::now();
    let status = loop {
        match region.schedulers[old].client.list().await {
            Err(status) if reason(&status).1.is_some() => break status,
            answer => assert!(begun.elapsed() < PATIENCE, "{answer:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(reason(&status).1.as_ref(), Some(&region.schedulers[new].address));
    let after = region.schedulers[new].client.list().await.unwrap();
    assert_kept(&promised, &after);
    let written: Vec<_> = after
        .keys()
        .filter(|name| !before.contains_key(*name) && *name != "fresh")
        .collect();
    assert!(written.is_empty(), "the old leader has written {written:?}");
}

#[tokio::test]
async fn a_killed_member_of_etcd_costs_no_promise_and_no_leader() {
    let mut region = Region::start(3, 2).await;
    let leader = region.leader(None).await;
    let _reports = region.reported(leader).await;
    let mut promised = BTreeMap::new();
    let mut number = 0;
    for member in 0..3 {
        // One after the other, so its leader is among them.
        region.etcd.members()[member].process.kill9().await.unwrap();
        let begun = Instant::now();
        let mut kept = 0;
        let mut reports = None;
        let mut refused = Vec::new();
        while kept < 10 {
            assert!(
                begun.elapsed() < PATIENCE,
                "{kept} are promised, then no more: {:?}",
                refused.last()
            );
            let leader = region.leader(None).await;
            let client = region.schedulers[leader].client.clone();
            let name = format!("c{number}");
            match client.apply(&name, 1).await {
                Ok(placement) => {
                    promised.insert(name, placement);
                    number += 1;
                    kept += 1;
                }
                // A new leader wants a report first.
                Err(status) => {
                    let reported = client.report(crate::region::HOSTS, None).await;
                    refused.push((status, reported.as_ref().err().cloned()));
                    reports = reported.ok();
                }
            }
        }
        drop(reports);
        region.etcd.members()[member].process.restart().await.unwrap();
        region.etcd.members()[member].ready().await.unwrap();
        let leader = region.leader(None).await;
        let _reports = region.reported(leader).await;
        assert_kept(&promised, &region.schedulers[leader].client.list().await.unwrap());
    }
    assert_eq!(promised.len(), 30);
}
