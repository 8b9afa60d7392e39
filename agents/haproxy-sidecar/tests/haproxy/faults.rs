//! What goes wrong: configurations that HAProxy refuses, processes that end at any time, orders that HAProxy does not know.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use haproxy_sidecar::tables::Admin;
use render::running::Running;
use runtime::sidecar::Report;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::configuration::{Configuration, PORT, config_map};
use crate::rig::{PATIENCE, Pod};
use crate::traffic::{Connection, Traffic};

const LONG: Duration = Duration::from_mins(10);

fn front(configuration: &Configuration) -> SocketAddr {
    (configuration.front, PORT).into()
}

fn file(pod: &Pod) -> String {
    std::fs::read_to_string(pod.directory.path().join("haproxy.cfg")).unwrap()
}

#[tokio::test]
async fn a_refused_configuration_leaves_the_previous_one_running() {
    let (mut pod, first) = Pod::of_two(LONG).await;
    let mut kept = Connection::open(front(&first)).await.unwrap();
    let broken = first.clone().noting("  no-such-keyword");
    pod.want(&broken);
    let report = pod
        .until("it is refused", |report| report.running.failed.is_some())
        .await;
    assert_eq!(report.running.running, None);
    let failed = report.running.failed.unwrap();
    assert!(
        failed.starts_with("HAProxy refuses the configuration"),
        "{failed}"
    );
    assert!(pod.log().contains("no-such-keyword"), "{}", pod.log());
    assert!(kept.echoes().await);
    assert!(Connection::open(front(&first)).await.unwrap().echoes().await);

    // If it crashes now, it starts with what it ran.
    assert!(!file(&pod).contains("no-such-keyword"), "{}", file(&pod));
    pod.kill_haproxy();
    pod.start_haproxy();
    let deadline = Instant::now() + PATIENCE;
    while Connection::open(front(&first)).await.is_err() {
        assert!(Instant::now() < deadline, "{}", pod.log());
    }
    let refused = |report: &Report<Running>| report.running.failed.is_some();
    pod.until("it is still refused", refused).await;

    let good = first.noting("# good again").without("a");
    pod.want(&good);
    pod.runs(&good).await;
    assert_eq!(pod.observe().await.current.unwrap().servers.len(), 1);
}

/// Longer than a HAProxy takes to answer that has read the file already.
const STARTED_BY_THEN: Duration = Duration::from_secs(12);

#[tokio::test]
async fn what_a_dead_haproxy_will_start_with_is_reported() {
    let (mut pod, first) = Pod::of_two(LONG).await;
    let broken = first.clone().noting("  no-such-keyword");
    pod.want(&broken);
    pod.until("it is refused", |report| report.running.failed.is_some())
        .await;
    pod.kill_haproxy();
    let mut reports = pod.reports();
    let reported = reports.wait_for(|report| report.starts_with.is_some());
    let early = tokio::time::timeout(STARTED_BY_THEN, reported).await;
    assert!(early.is_err(), "the file holds the configuration before");

    let digest = first.digest();
    pod.want(&first);
    pod.until("it is in the file", |report| {
        report.starts_with.as_ref() == Some(&digest)
    })
    .await;
    pod.start_haproxy();
    pod.runs(&first).await;
    assert_eq!(pod.report().starts_with, None, "it runs");
}

#[tokio::test]
async fn what_was_reported_for_its_start_is_never_taken_back() {
    let mut pod = Pod::empty(LONG);
    let proxy = mishear(&pod, &[]);
    let [at_front, a, b] = [0, 1, 2].map(|which| pod.addresses.get(which));
    pod.member("a", a).await;
    pod.member("b", b).await;
    let first = Configuration::new(at_front).with("a", a).with("b", b);
    pod.want(&first);
    pod.until("it is written", |report| report.started).await;
    pod.start_haproxy_with("real.sock", "haproxy.cfg");
    pod.runs(&first).await;
    drop(proxy);
    pod.kill_haproxy();

    let without = first.clone().without("a");
    let digest = without.digest();
    pod.want(&without);
    pod.until("it is in the file", |report| {
        report.starts_with.as_ref() == Some(&digest)
    })
    .await;
    // It starts with that, and before this is observed another one comes, which it refuses.
    pod.start_haproxy_with("real.sock", "haproxy.cfg");
    let deadline = Instant::now() + PATIENCE;
    while Connection::open(front(&first)).await.is_err() {
        assert!(Instant::now() < deadline, "{}", pod.log());
    }
    pod.want(&without.noting("  no-such-keyword"));
    while !file(&pod).contains("no-such-keyword") {
        assert!(Instant::now() < deadline, "{}", file(&pod));
        tokio::task::yield_now().await;
    }
    std::fs::remove_file(pod.socket()).unwrap();
    let _proxy = mishear(&pod, &[]);
    pod.until("it is refused", |report| report.running.failed.is_some())
        .await;
    let left = file(&pod);
    assert!(!left.contains("no-such-keyword"), "{left}");
    assert!(
        !left.contains("server a "),
        "a host has left on that report:\n{left}"
    );
}

#[tokio::test]
async fn a_haproxy_that_starts_late_runs_the_newest() {
    let mut pod = Pod::empty(LONG);
    let [at_front, a, b] = [0, 1, 2].map(|which| pod.addresses.get(which));
    let first = Configuration::new(at_front).with("a", a);
    assert!(!pod.report().started);
    pod.want(&first);
    let report = pod.until("it is written", |report| report.started).await;
    assert_eq!(report.running.running, None, "nothing runs yet");
    let second = first.with("b", b);
    pod.want(&second);
    pod.start_haproxy();
    pod.runs(&second).await;
}

#[tokio::test]
async fn a_haproxy_that_is_killed_and_starts_again_is_noticed() {
    let (mut pod, first) = Pod::of_two(LONG).await;
    for change in 0..3 {
        pod.kill_haproxy();
        pod.until("nothing runs", |report| report.running.running.is_none())
            .await;
        let next = first.clone().with("c", pod.addresses.get(10 + change));
        if change > 0 {
            pod.want(&next);
        }
        pod.start_haproxy();
        pod.runs(if change > 0 { &next } else { &first }).await;
        assert!(Connection::open(front(&first)).await.unwrap().echoes().await);
    }
}

/// A haproxy that has read the file just before a newer one took its place, and the newest configuration.
async fn behind(newer: impl FnOnce(Configuration) -> Configuration) -> (Pod, Configuration) {
    let (mut pod, first) = Pod::of_two(LONG).await;
    let directory = pod.directory.path().to_owned();
    let older = std::fs::read(directory.join("haproxy.cfg")).unwrap();
    let newest = newer(first.clone());
    pod.want(&newest);
    pod.runs(&newest).await;

    pod.stop_following().await;
    pod.kill_haproxy();
    std::fs::write(directory.join("haproxy.cfg"), older).unwrap();
    pod.start_haproxy();
    let deadline = Instant::now() + PATIENCE;
    while Connection::open(front(&first)).await.is_err() {
        assert!(Instant::now() < deadline, "{}", pod.log());
    }
    assert_eq!(pod.observe().await.current.unwrap().servers.len(), 2);
    pod.restart_following().await;
    pod.runs(&newest).await;
    (pod, newest)
}

#[tokio::test]
async fn a_haproxy_that_has_read_older_servers_catches_up() {
    let elsewhere = "127.0.0.9".parse().unwrap();
    let (pod, newest) = behind(|first| first.without("a").with("c", elsewhere)).await;
    let current = pod.observe().await.current.unwrap();
    let names = current.servers.keys().map(|server| server.name.to_string());
    assert!(names.eq(newest.members.keys().cloned()), "{current:#?}");
    assert_eq!(pod.metrics.reloads(), 0, "commands do");
}

#[tokio::test]
async fn a_haproxy_that_has_read_an_older_configuration_catches_up() {
    let (pod, newest) = behind(|first| first.without("a").noting("# newer")).await;
    let current = pod.observe().await.current.unwrap();
    assert_eq!(current.origin.unwrap().digest, newest.digest());
    assert_eq!(current.servers.len(), 1);
}

#[tokio::test]
async fn a_drain_continues_after_a_restart() {
    let drain = Duration::from_secs(5);
    let (mut pod, first) = Pod::of_two(drain).await;
    let a = format!("a@{}", first.members["a"]);
    let mut in_old_worker = Connection::to(front(&first), &a).await;
    let second = first.noting("# second");
    pod.want(&second);
    pod.runs(&second).await;
    let mut in_current = Connection::to(front(&second), &a).await;

    let without = second.without("a");
    pod.want(&without);
    while pod.admin("a").await != Admin::Drain {
        assert!(in_current.echoes().await);
    }
    pod.restart_following().await;
    let restarted = Instant::now();
    pod.until("its start is reported before the drain ends", |report| {
        report.started
    })
    .await;
    assert!(in_old_worker.echoes().await && in_current.echoes().await);
    in_old_worker.ended().await;
    in_current.ended().await;
    pod.runs(&without).await;
    assert!(
        restarted.elapsed() < drain + Duration::from_secs(8),
        "{:?}",
        restarted.elapsed()
    );
    assert_eq!(pod.metrics.reloads(), 1, "there was no need of another");
}

#[tokio::test]
async fn what_was_missed_while_nothing_followed_is_made_up_for() {
    let (mut pod, first) = Pod::of_two(LONG).await;
    let worker = pod.worker().await;
    pod.stop_following().await;
    let c = pod.addresses.get(3);
    pod.want(&first.clone().with("c", c));
    let newest = first.with("c", c).without("b");
    pod.want(&newest);
    pod.restart_following().await;
    pod.runs(&newest).await;
    assert_eq!(pod.worker().await, worker);
}

type Misheard = &'static [(&'static str, &'static str)];

/// Stands between what follows and haproxy's master, and lets others arrive instead of some orders.
fn mishear(pod: &Pod, commands: Misheard) -> JoinSet<()> {
    let behind = pod.directory.path().join("real.sock");
    let listener = UnixListener::bind(pod.socket()).unwrap();
    let mut proxy = JoinSet::new();
    proxy.spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut asked = String::new();
            if near.read_to_string(&mut asked).await.is_err() {
                continue;
            }
            for (order, misheard) in commands {
                asked = asked.replace(order, misheard);
            }
            let Ok(mut far) = UnixStream::connect(&behind).await else {
                continue;
            };
            let mut said = Vec::new();
            let _ = far.write_all(asked.as_bytes()).await;
            let _ = far.shutdown().await;
            let _ = far.read_to_end(&mut said).await;
            let _ = near.write_all(&said).await;
        }
    });
    proxy
}

async fn follows_by_reloads_alone(unknown: Misheard) {
    let drain = Duration::from_secs(1);
    let mut pod = Pod::empty(drain);
    let _proxy = mishear(&pod, unknown);
    let [at_front, a, b] = [0, 1, 2].map(|which| pod.addresses.get(which));
    pod.member("a", a).await;
    pod.member("b", b).await;
    let one = Configuration::new(at_front).with("a", a);
    pod.want(&one);
    pod.until("it is written", |report| report.started).await;
    pod.start_haproxy_with("real.sock", "haproxy.cfg");
    pod.runs(&one).await;
    let mut kept = Connection::open(front(&one)).await.unwrap();
    let traffic = Traffic::start(front(&one), 5);

    let two = one.clone().with("b", b);
    pod.want(&two);
    pod.runs(&two).await;
    Connection::to(front(&two), &format!("b@{b}")).await;
    let mut to_b = Connection::to(front(&two), &format!("b@{b}")).await;
    assert!(kept.echoes().await);

    pod.want(&one);
    to_b.ended().await;
    pod.runs(&one).await;
    assert!(pod.metrics.reloads() > 0);
    assert!(kept.echoes().await, "who stays is not cut");
    let seen = traffic.end().await;
    assert_eq!(seen.refused, [""; 0], "{seen:?}");
}

#[tokio::test]
async fn a_haproxy_that_cannot_add_servers_is_reloaded() {
    follows_by_reloads_alone(&[("add server", "add-server")]).await;
}

#[tokio::test]
async fn an_haproxy_without_dynamic_servers_is_reloaded() {
    follows_by_reloads_alone(&[("add server", "add-server"), ("del server", "del-server")]).await;
}

#[tokio::test]
async fn a_haproxy_that_cannot_drain_servers_is_reloaded() {
    follows_by_reloads_alone(&[("set server", "set-server")]).await;
}

#[tokio::test]
async fn connections_in_an_old_worker_are_counted_by_sessions() {
    let drain = Duration::from_secs(1);
    let mut pod = Pod::empty(drain);
    let _proxy = mishear(&pod, &[("show stat -1 4 -1", "show stat 99999 4 -1")]);
    let [at_front, a, b] = [0, 1, 2].map(|which| pod.addresses.get(which));
    pod.member("a", a).await;
    pod.member("b", b).await;
    let both = Configuration::new(at_front).with("a", a).with("b", b);
    pod.want(&both);
    pod.until("it is written", |report| report.started).await;
    pod.start_haproxy_with("real.sock", "haproxy.cfg");
    pod.runs(&both).await;
    let mut to_a = Connection::to(front(&both), &format!("a@{a}")).await;
    let mut to_b = Connection::to(front(&both), &format!("b@{b}")).await;

    let without = both.without("a").noting("# newer");
    let started = Instant::now();
    pod.want(&without);
    while started.elapsed() < drain.mul_f32(0.8) {
        assert!(to_a.echoes().await);
        assert_ne!(pod.report().running.running, Some(without.digest()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    to_a.ended().await;
    pod.runs(&without).await;
    assert!(to_b.echoes().await);
}

#[tokio::test]
async fn what_could_be_an_order_is_refused_and_nothing_changes() {
    let (pod, first) = Pod::of_two(LONG).await;
    let names = [
        "a; shutdown sessions server b7000/b",
        "a\n@1 quit",
        "a b",
        "a\\",
        "",
        "a/b",
        "\u{e4}",
    ];
    for name in names {
        let mut membership = first.membership();
        name.clone_into(&mut membership.servers[0].name);
        pod.put(&config_map(
            "global\n".to_owned(),
            Some(serde_json::to_string(&membership).unwrap()),
        ));
        let report = pod
            .until("the failure is reported", |report| {
                let failed = report.running.failed.as_ref();
                failed.is_some_and(|failed| failed.contains(&format!("{name:?}")))
            })
            .await;
        assert_eq!(report.running.running, Some(first.digest()), "what runs goes on");
    }
    pod.want(&first);
    pod.until("it is good again", |report| report.running.failed.is_none())
        .await;
    pod.runs(&first).await;
}
