//! A real haproxy reads what is rendered, and means by it what we mean.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::{api_servers, cluster, fixtures, members, workers};
use crate::load_balancer::{Member, worker};

/// What `haproxy -c` says of the configuration; warnings count as errors.
pub(super) fn check(config: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("haproxy.cfg");
    std::fs::write(&file, config).unwrap();
    let command = Command::new("haproxy")
        .args(["-c", "-dW", "-f"])
        .arg(&file)
        .stdin(Stdio::null())
        .output();
    let output = command.unwrap_or_else(|error| {
        panic!("these tests need haproxy 2.2 or later in PATH (Debian package haproxy; `make setup` installs it): {error}")
    });
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if output.status.success() {
        Ok(())
    } else {
        Err(said)
    }
}

#[test]
fn haproxy_accepts_every_configuration_without_a_warning() {
    for config in [
        api_servers(&[]).config,
        api_servers(&members()).config,
        workers(&[]).config,
        workers(&members()).config,
    ] {
        assert_eq!(check(&config), Ok(()), "{config}");
    }
}

#[test]
fn haproxy_refuses_a_broken_configuration() {
    let broken = api_servers(&members())
        .config
        .replace("roundrobin", "squarerobin");
    assert!(check(&broken).unwrap_err().contains("balance only supports"));
}

#[test]
fn haproxy_accepts_the_largest_range() {
    let site = fixtures::SITE
        .replace("start: 30002", "start: 20000")
        .replace("end: 30003", "end: 20999");
    let cluster = cluster(&site);
    let objects = worker(&cluster, &cluster.load_balancers_worker()[0], &members());
    assert_eq!(check(&objects.config), Ok(()));
    assert_eq!(servers(&objects.config).len(), 3_000);
}

/// Every `server` line: backend, name, address.
pub(super) fn servers(config: &str) -> Vec<(String, String, SocketAddr)> {
    let mut backend = String::new();
    let mut servers = Vec::new();
    for line in config.lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["backend", name] => name.clone_into(&mut backend),
            ["server", name, address] | ["server", name, address, "backup"] => {
                servers.push((backend.clone(), name.to_owned(), address.parse().unwrap()));
            }
            ["server", ..] => panic!("a server line has three words, and maybe `backup`: {line:?}"),
            _ => {}
        }
    }
    servers
}

pub(super) fn any_member() -> impl Strategy<Value = Member> {
    let namespace = prop_oneof!["[a-z0-9-]{1,63}", any::<String>(), "[ \n\t\"'#\\\\${}.]{0,20}"];
    let name = prop_oneof![
        "[a-z0-9.-]{1,253}",
        any::<String>(),
        "[ \n\t\"'#\\\\${}._]{0,20}",
        "x{300,3000}"
    ];
    let fields = (namespace, name, any::<IpAddr>(), any::<bool>());
    fields.prop_map(|(namespace, name, address, is_backup)| Member {
        namespace,
        name,
        address,
        is_backup,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_host_is_one_server_of_each_port(members in prop::collection::vec(any_member(), 0..12)) {
        let config = workers(&members).config;
        let hosts: BTreeSet<_> = members.iter().map(|member| (&member.namespace, &member.name)).collect();
        let found = servers(&config);
        for port in [30_002, 30_003] {
            let backend = format!("port-{port}-backend");
            let mine: Vec<_> = found.iter().filter(|(name, _, _)| *name == backend).collect();
            let names: BTreeSet<_> = mine.iter().map(|(_, name, _)| name).collect();
            prop_assert_eq!(names.len(), hosts.len(), "one server per host, no two with one name");
            for (_, name, address) in mine {
                prop_assert_eq!(address.port(), port);
                prop_assert!(members.iter().any(|member| member.address == address.ip()));
                prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
                prop_assert!(name.len() <= 384);
            }
        }
        prop_assert_eq!(found.len(), 2 * hosts.len());
        let empty = workers(&[]).config;
        prop_assert_eq!(without_servers(&config), without_servers(&empty));
    }
}

proptest! {
    // Each case starts a process.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn haproxy_accepts_hostile_names_and_any_address(members in prop::collection::vec(any_member(), 0..6)) {
        prop_assert_eq!(check(&workers(&members).config), Ok(()));
    }
}

/// A name may add servers and nothing else. A backup adds one more line to each backend.
fn without_servers(config: &str) -> Vec<&str> {
    config
        .lines()
        .filter(|line| !line.starts_with("  server ") && *line != "  option allbackups")
        .collect()
}
