//! 500 workers with long names and IPv6 addresses, 20 ports.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use api::{Cluster, SIPCluster};
use render::load_balancer::{Member, worker};

use crate::{goals::Goals, haproxy};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 77, 1, 1);
const RUNS: usize = 21;

/// A cluster whose workers are balanced on these ports.
pub(crate) fn cluster(first: u16, last: u16) -> Cluster {
    let yaml = format!(
        "{{apiVersion: airship.airshipit.org/v1, kind: SIPCluster, metadata: {{name: large, namespace: tenants, uid: u}}, \
         spec: {{services: {{loadBalancerWorker: [{{image: haproxy, nodeInterfaceId: oam, \
         nodePortRange: {{start: {first}, end: {last}}}}}]}}}}}}"
    );
    let object: SIPCluster = serde_saphyr::from_str(&yaml).expect("the manifest is of the form");
    Cluster::parse(&object).expect("the manifest is good")
}

pub(crate) fn run(goals: &mut Goals) {
    let cluster = cluster(31_000, 31_019);
    let balancer = &cluster.load_balancers_worker()[0];
    let members: Vec<Member> = (0..500_u16)
        .map(|index| Member {
            namespace: "tenant-hosts".to_owned(),
            name: format!("{index:0>63}"),
            address: format!("2001:db8:1111:2222:3333:4444:5555:{:x}", 0x1000 + index)
                .parse()
                .expect("an address"),
            is_backup: false,
        })
        .collect();
    let mut took: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let started = Instant::now();
            black_box(worker(&cluster, balancer, black_box(&members)));
            started.elapsed()
        })
        .collect();
    took.sort_unstable();
    let config = worker(&cluster, balancer, &members).config;
    let what = "500 workers × 20 ports, names of 63, IPv6";
    let median = took[RUNS / 2].as_secs_f64() * 1e3;
    println!(
        "{:<64} median {median:>7.2} ms          {}",
        format!("{what}: rendered"),
        goals.below(median, 10.0, "ms")
    );
    let size = config.len() as f64 / 1e3;
    println!(
        "{:<64} {size:>7.0} KB                 {}",
        format!("{what}: size"),
        goals.below(size, 900.0, "KB")
    );
    let config = haproxy::on(ADDRESS, &config);
    let mut starts: Vec<Duration> = (0..5)
        .map(|_| haproxy::start(&config, (ADDRESS, 8404).into()).1)
        .collect();
    starts.sort_unstable();
    let median = starts[2].as_secs_f64() * 1e3;
    println!(
        "{:<64} median {median:>7.0} ms          {}",
        format!("{what}: haproxy answers after"),
        goals.below(median, 500.0, "ms")
    );
}
