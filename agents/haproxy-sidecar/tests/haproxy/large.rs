//! Many servers.

use std::time::{Duration, Instant};

use crate::configuration::Configuration;
use crate::rig::Pod;

#[tokio::test]
async fn ten_members_join_five_hundred_within_seconds() {
    let mut pod = Pod::empty(Duration::from_mins(10));
    let mut first = Configuration::new(pod.addresses.get(0));
    first.ports = 20;
    // Nobody answers, and nobody is asked often: this is about the number of servers.
    first.keywords = "check inter 60s fastinter 60s downinter 60s fall 3 rise 2".to_owned();
    for member in 1..=500_u16 {
        first = first.with(
            &format!("tenant-namespace.worker-host-{member:03}"),
            pod.addresses.get(member),
        );
    }
    pod.want(&first);
    pod.until("it is written", |report| report.started).await;
    pod.start_haproxy();
    pod.runs(&first).await;

    let mut more = first.clone();
    for member in 501..=510_u16 {
        more = more.with(
            &format!("tenant-namespace.worker-host-{member:03}"),
            pod.addresses.get(member),
        );
    }
    let took = async |configuration: &Configuration| {
        let started = Instant::now();
        pod.want(configuration);
        pod.runs(configuration).await;
        started.elapsed()
    };
    let ten_more = took(&more).await;
    let ten_less = took(&first).await;
    let mut none = first.clone();
    none.members.clear();
    let all_gone = took(&none).await;
    let all_back = took(&first).await;
    println!(
        "of 500 servers in 20 backends: 10 more {ten_more:?}, 10 less {ten_less:?}, none {all_gone:?}, all {all_back:?}"
    );
    assert_eq!(pod.metrics.reloads(), 0);
    // One to two seconds, five on a machine that has other things to do.
    for took in [ten_more, ten_less] {
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
}
