//! More members and ports than most sites have.

use std::collections::{BTreeMap, BTreeSet};

use super::haproxy::{check, servers};
use super::{cluster, fixtures, member};
use crate::load_balancer::{Member, worker};

/// Names as long as a label of DNS, and addresses as long as they get.
pub(super) fn many(hosts: u16, name: impl Fn(u16) -> String) -> Vec<Member> {
    (0..hosts)
        .map(|index| {
            let address = format!("2001:db8:1111:2222:3333:4444:5555:{:x}", 0x1000 + index);
            member("tenant-hosts", &name(index), &address)
        })
        .collect()
}

fn config(ports: u16, members: &[Member]) -> String {
    let site = fixtures::SITE
        .replace("start: 30002", "start: 31000")
        .replace("end: 30003", &format!("end: {}", 31_000 + ports - 1));
    let cluster = cluster(&site);
    worker(&cluster, &cluster.load_balancers_worker()[0], members).config
}

#[test]
fn five_hundred_workers_with_twenty_ports_fit() {
    let members = many(500, |index| format!("{index:0>63}"));
    let config = config(20, &members);
    assert!(config.len() < 900_000, "{} bytes", config.len());
    let names: BTreeMap<&str, &str> = config
        .lines()
        .filter_map(|line| line.strip_prefix("# ")?.split_once(" is "))
        .collect();
    let found = servers(&config);
    assert_eq!(found.len(), 10_000);
    for (index, (backend, name, address)) in found.iter().enumerate() {
        let member = &members[index % 500];
        assert_eq!(names[&**name], format!("tenant-hosts.{}", member.name));
        assert_eq!(address.ip(), member.address);
        assert_eq!(*backend, format!("port-{}-backend", address.port()));
    }
    assert_eq!(check(&config), Ok(()));
}

#[test]
fn the_longest_names_fit_too() {
    let config = config(20, &many(500, |index| format!("{index:0>253}")));
    assert!(config.len() < 900_000, "{} bytes", config.len());
}

#[test]
fn a_short_name_stays_with_its_member() {
    let members = many(500, |index| format!("{index:0>63}"));
    let named = |members: &[Member]| -> BTreeSet<_> {
        let found = servers(&config(20, members)).into_iter();
        found.map(|(_, name, address)| (name, address)).collect()
    };
    let (all, fewer) = (named(&members), named(&members[100..]));
    assert!(fewer.is_subset(&all));
    assert_eq!(fewer.len(), 8_000);
}

#[test]
fn names_are_full_if_they_fit() {
    let config = config(20, &many(100, |index| format!("{index:0>63}")));
    assert!(
        servers(&config)
            .iter()
            .all(|(_, name, _)| name.starts_with("tenant-hosts.0"))
    );
}
