//! The configuration of HAProxy, apart from the fuzzer: a test tries random texts, and the seeds, on the same function.

use std::collections::BTreeSet;

use api::{Cluster, SIPCluster};
use render::load_balancer::{CONFIG_FILE, Member, Plan};
use serde_json::json;

/// Three lines a member: namespace, name, address. A member adds a server to each port and nothing else, under a name of one word.
pub fn haproxy_config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let lines: Vec<&str> = text.split('\n').collect();
    let members: Vec<Member> = lines
        .chunks_exact(3)
        .filter_map(|lines| {
            Some(Member {
                namespace: lines[0].to_owned(),
                name: lines[1].to_owned(),
                address: lines[2].parse().ok()?,
                is_backup: lines[1].len() % 2 == 1,
            })
        })
        .collect();
    let object = json!({
        "metadata": {"namespace": "tenants", "name": "shop", "uid": "5a1e"},
        "spec": {
            "nodes": {"Worker": {"labelSelector": {}, "count": {"active": 1}}},
            "services": {"loadBalancerWorker": [
                {"image": "haproxy:2.6", "nodeInterfaceId": "oam", "nodePortRange": {"start": 30_002, "end": 30_003}},
            ]},
        },
    });
    let object: SIPCluster = serde_json::from_value(object).expect("an object of this form");
    let cluster = Cluster::parse(&object).expect("a spec without faults");
    let config = |members: &[Member]| {
        let plan = Plan::worker(&cluster, &cluster.load_balancers_worker()[0]);
        let data = plan.objects(members).config_map.data.expect("a configuration");
        data[CONFIG_FILE].clone()
    };
    let (with, without) = (config(&members), config(&[]));
    let (servers, others): (Vec<&str>, Vec<&str>) =
        with.lines().partition(|line| line.starts_with("  server "));
    let others = others
        .iter()
        .copied()
        .filter(|line| *line != "  option allbackups");
    assert!(others.eq(without.lines()), "{with}");
    let hosts: BTreeSet<_> = members
        .iter()
        .map(|member| (&member.namespace, &member.name))
        .collect();
    assert_eq!(servers.len(), 2 * hosts.len(), "{with}");
    let mut names = BTreeSet::new();
    for server in servers {
        let words: Vec<&str> = server.split_ascii_whitespace().collect();
        let (["server", name, address] | ["server", name, address, "backup"]) = words[..] else {
            panic!("{server:?}");
        };
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)),
            "{server:?}"
        );
        let address: std::net::SocketAddr = address.parse().expect("an address");
        assert!(
            members.iter().any(|member| member.address == address.ip()),
            "{server:?}"
        );
        assert!(names.insert((name.to_owned(), address.port())), "{server:?}");
    }
}
