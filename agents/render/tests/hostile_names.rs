//! Hostile names of hosts in the configuration of a load balancer: the fuzzer's seeds, and everything that it once found.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

use std::{fs, path::Path};

use proptest::prelude::*;

#[expect(unreachable_pub, reason = "the fuzzer's binary is its other user")]
#[path = "../fuzz/haproxy.rs"]
mod haproxy;

#[test]
fn the_seeds_of_haproxy_config_break_nothing() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/haproxy_config");
    let mut replayed = 0;
    for seed in fs::read_dir(seeds).unwrap() {
        haproxy::haproxy_config(&fs::read(seed.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed > 3, "{replayed}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_name_adds_more_than_a_server(
        members in prop::collection::vec(("[^\n]{0,40}", "[^\n]{0,400}", any::<std::net::IpAddr>()), 0..8)
    ) {
        let lines = members.iter().map(|(namespace, name, address)| format!("{namespace}\n{name}\n{address}\n"));
        haproxy::haproxy_config(lines.collect::<String>().as_bytes());
    }
}
