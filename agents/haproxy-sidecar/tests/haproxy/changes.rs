//! Members come, go, come back and move while connections go through.

use std::time::{Duration, Instant};

use crate::configuration::PORT;
use crate::rig::Pod;
use crate::traffic::{Connection, Traffic};
use haproxy_sidecar::tables::Admin;

const LONG: Duration = Duration::from_mins(10);

#[tokio::test]
async fn members_join_and_idle_members_leave_at_once() {
    let (mut pod, first) = Pod::of_two(LONG).await;
    let front = (first.front, PORT).into();
    let worker = pod.worker().await;
    let mut kept = Connection::open(front).await.unwrap();

    let c = pod.addresses.get(3);
    pod.member("c", c).await;
    let three = first.clone().with("c", c);
    pod.want(&three);
    pod.runs(&three).await;
    let mut new = Connection::to(front, &format!("c@{c}")).await;
    assert!(new.echoes().await);
    drop(new);

    let unused = if kept.member.starts_with("a@") { "b" } else { "a" };
    let started = Instant::now();
    let two = three.without(unused);
    pod.want(&two);
    pod.runs(&two).await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    let current = pod.observe().await.current.unwrap();
    assert_eq!(current.servers.len(), 2, "{current:#?}");
    assert_eq!(
        (current.pid, pod.metrics.reloads()),
        (worker, 0),
        "nothing was started anew"
    );
    assert!(kept.echoes().await);
}

#[tokio::test]
async fn connections_drain_before_the_configuration_counts_as_running() {
    let drain = Duration::from_secs(2);
    let (pod, first) = Pod::of_two(drain).await;
    let front = (first.front, PORT).into();
    let a = format!("a@{}", first.members["a"]);
    let mut leading_there = Connection::to(front, &a).await;

    let without = first.without("a");
    let started = Instant::now();
    pod.want(&without);
    while started.elapsed() < drain.mul_f32(0.8) {
        assert!(leading_there.echoes().await, "after {:?}", started.elapsed());
        assert_ne!(pod.report().running.running, Some(without.digest()));
        let elsewhere = Connection::open(front).await.unwrap();
        // The first may have come before it was told.
        if started.elapsed() > Duration::from_secs(1) {
            assert_ne!(elsewhere.member, a);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    leading_there.ended().await;
    assert!(started.elapsed() >= drain, "{:?}", started.elapsed());
    pod.runs(&without).await;
    assert_eq!(pod.metrics.reloads(), 0);
}

#[tokio::test]
async fn a_member_that_returns_while_draining_keeps_its_connections() {
    let drain = Duration::from_secs(2);
    let (pod, first) = Pod::of_two(drain).await;
    let front = (first.front, PORT).into();
    let worker = pod.worker().await;
    let a = format!("a@{}", first.members["a"]);
    let mut leading_there = Connection::to(front, &a).await;

    pod.want(&first.clone().without("a"));
    while pod.admin("a").await != Admin::Drain {
        assert!(leading_there.echoes().await);
    }
    pod.want(&first);
    pod.runs(&first).await;
    assert_eq!(pod.admin("a").await, Admin::Ready);
    let back = Instant::now();
    while back.elapsed() < drain.mul_f32(1.5) {
        assert!(leading_there.echoes().await, "after {:?}", back.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(Connection::to(front, &a).await.echoes().await);
    assert_eq!((pod.worker().await, pod.metrics.reloads()), (worker, 0));
}

#[tokio::test]
async fn a_configuration_is_reloaded_again_after_commands() {
    let (mut pod, first) = Pod::of_two(LONG).await;
    let (one, other) = (pod.addresses.get(3), pod.addresses.get(4));
    for address in [one, other] {
        pod.member("c", address).await;
    }
    let (at_one, at_other) = (first.clone().with("c", one), first.clone().with("c", other));
    // c moves by a reload, and leaves and returns to its first address by commands.
    for wanted in [&at_one, &at_other, &first, &at_one] {
        pod.want(wanted);
        pod.runs(wanted).await;
    }
    assert_eq!(pod.metrics.reloads(), 1);

    let started = Instant::now();
    pod.want(&at_other);
    pod.runs(&at_other).await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(pod.metrics.reloads(), 2);
}

#[tokio::test]
async fn connections_to_an_old_address_last_for_the_drain_time() {
    let drain = Duration::from_secs(2);
    let (mut pod, first) = Pod::of_two(drain).await;
    let front = (first.front, PORT).into();
    let before = format!("a@{}", first.members["a"]);
    let mut leading_there = Connection::to(front, &before).await;
    let mut to_b = Connection::to(front, &format!("b@{}", first.members["b"])).await;
    let elsewhere = pod.addresses.get(3);
    pod.member("a", elsewhere).await;

    let moved = first.clone().with("a", elsewhere);
    let started = Instant::now();
    pod.want(&moved);
    let mut there = Connection::to(front, &format!("a@{elsewhere}")).await;
    while started.elapsed() < drain.mul_f32(0.8) {
        assert!(leading_there.echoes().await, "after {:?}", started.elapsed());
        assert_ne!(pod.report().running.running, Some(moved.digest()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    leading_there.ended().await;
    assert!(started.elapsed() >= drain, "{:?}", started.elapsed());
    pod.runs(&moved).await;
    assert!(there.echoes().await && to_b.echoes().await, "nobody else is cut");
    assert_eq!(pod.metrics.reloads(), 1);
}

#[tokio::test]
async fn members_omitted_by_a_template_drain_in_old_workers() {
    let drain = Duration::from_secs(2);
    let (pod, first) = Pod::of_two(drain).await;
    let front = (first.front, PORT).into();
    let mut to_a = Connection::to(front, &format!("a@{}", first.members["a"])).await;
    let mut to_b = Connection::to(front, &format!("b@{}", first.members["b"])).await;

    // Two workers ago by the end of it.
    let mut template = first.noting("# of an operator");
    template.template = true;
    pod.want(&template);
    pod.runs(&template).await;
    assert!(to_a.echoes().await && to_b.echoes().await, "both stay");

    let without = template.without("a");
    let started = Instant::now();
    pod.want(&without);
    while started.elapsed() < drain.mul_f32(0.8) {
        assert!(to_a.echoes().await, "after {:?}", started.elapsed());
        assert_ne!(pod.report().running.running, Some(without.digest()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    to_a.ended().await;
    pod.runs(&without).await;
    assert!(to_b.echoes().await, "nobody else is cut");
    assert_eq!(pod.metrics.reloads(), 2);
    let observed = pod.observe().await;
    assert_eq!(
        observed.old.len(),
        1,
        "the worker that has a connection to b: {observed:#?}"
    );
}

#[tokio::test]
async fn a_member_gets_no_connection_before_it_answers() {
    let (mut pod, first) = Pod::of_two(LONG).await;
    let front = (first.front, PORT).into();
    let c = pod.addresses.get(3);
    let traffic = Traffic::start(front, 10);
    let three = first.with("c", c);
    pod.want(&three);
    pod.runs(&three).await;
    let opened = traffic.opened();
    while traffic.opened() < opened + 300 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    pod.member("c", c).await;
    Connection::to(front, &format!("c@{c}")).await;
    let seen = traffic.end().await;
    assert_eq!((&*seen.refused, seen.cut.len()), (&[][..], 0), "{seen:?}");
}

#[tokio::test]
async fn a_member_that_came_and_answers_no_longer_is_used_no_longer() {
    let (mut pod, first) = Pod::of_two(LONG).await;
    let front = (first.front, PORT).into();
    let c = pod.addresses.get(3);
    let there = pod.member("c", c).await;
    let three = first.with("c", c);
    pod.want(&three);
    pod.runs(&three).await;
    Connection::to(front, &format!("c@{c}")).await;

    there.abort();
    let deadline = Instant::now() + crate::rig::PATIENCE;
    while !pod
        .log()
        .contains("/c is DOWN, reason: Layer4 connection problem")
    {
        assert!(Instant::now() < deadline, "{}", pod.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..20 {
        let connection = Connection::open(front).await.unwrap();
        assert!(!connection.member.starts_with("c@"), "{}", connection.member);
    }
}
