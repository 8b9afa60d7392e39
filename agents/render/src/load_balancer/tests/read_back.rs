//! Hostile names of hosts and namespaces: what HAProxy's own parser has read is what was meant.
//!
//! `SOAK_HOSTILE` is the number of names; a process reads many at once.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::haproxy::{any_member, servers};
use super::running::{listening_on, own_addresses, start};
use super::workers;
use crate::load_balancer::Member;

/// Members of one configuration.
const MEMBERS_PER_CASE: usize = 500;

/// An answer of HAProxy's command line.
fn answer(socket: &Path, command: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "haproxy does not listen: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    writeln!(stream, "{command}").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// What a running HAProxy knows: its servers with their backends, and its listeners.
fn known(config: &str, front: Ipv4Addr) -> (BTreeSet<(String, String, SocketAddr)>, BTreeSet<String>) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let global = format!("global\n  stats socket {} level admin\n", socket.display());
    let config = listening_on(front, config).replacen("global\n", &global, 1);
    let (_running, _log) = start(&config, directory.path());
    let state = answer(&socket, "show servers state");
    let servers = state.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, backend, _, name, address, ..] = fields[..] else {
            return None;
        };
        // A comment explains the columns.
        let address: IpAddr = address.parse().ok()?;
        let port = fields[18].parse().unwrap();
        Some((backend.to_owned(), name.to_owned(), (address, port).into()))
    });
    let servers = servers.collect();
    let listeners = answer(&socket, "show stat -1 1 -1");
    let listeners = listeners.lines().filter_map(|line| line.split(',').next());
    (servers, listeners.map(str::to_owned).collect())
}

/// Addresses of this machine only, since HAProxy checks its servers.
fn local_member() -> impl Strategy<Value = Member> {
    let address = prop_oneof![
        any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::from([127, a, b, c])),
        Just(IpAddr::from(Ipv6Addr::LOCALHOST)),
    ];
    (any_member(), address).prop_map(|(member, address)| Member { address, ..member })
}

#[test]
fn haproxy_reads_hostile_names_as_single_words() {
    let names = std::env::var("SOAK_HOSTILE").ok();
    let names: usize = names.and_then(|names| names.parse().ok()).unwrap_or(1_000);
    let cases = u32::try_from(names.div_ceil(MEMBERS_PER_CASE)).unwrap();
    let [_, front] = own_addresses(5);
    let (none, listeners) = known(&workers(&[]).config, front);
    assert!(none.is_empty() && listeners.len() >= 2, "{none:?} {listeners:?}");
    let many = prop::collection::vec(local_member(), MEMBERS_PER_CASE);

    let config = Config {
        cases,
        max_shrink_iters: 64,
        ..Config::default()
    };
    let run = TestRunner::new(config).run(&many, |members| {
        let config = workers(&members).config;
        let hosts: BTreeSet<_> = members
            .iter()
            .map(|member| (&member.namespace, &member.name))
            .collect();
        let (read, read_listeners) = known(&config, front);
        prop_assert_eq!(read.len(), 2 * hosts.len(), "one server per host and port");
        prop_assert_eq!(&read, &servers(&config).into_iter().collect());
        prop_assert_eq!(
            &read_listeners,
            &listeners,
            "a name adds servers and nothing else"
        );
        Ok(())
    });

    run.unwrap();
    println!("{names} names, {cases} configurations");
}
