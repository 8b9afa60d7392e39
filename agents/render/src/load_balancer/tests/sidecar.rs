//! Load balancers whose members come and go without a restart.

use insta::assert_yaml_snapshot;

use super::{fixtures, fixtures::cluster, fixtures::members, haproxy::check, workers};
use crate::load_balancer::{
    Access, Member, Objects, Plan, Sidecar,
    server_list::{Backend, Server, ServerList},
};

fn rendered(site: &str, members: &[Member]) -> Objects {
    let sidecar = Sidecar {
        image: "registry.example/sip-haproxy-sidecar:1".parse().unwrap(),
    };
    let cluster = cluster(site);
    Plan::worker(&cluster, &cluster.load_balancers_worker()[0])
        .with_sidecar(Some(&sidecar))
        .objects(members)
}

fn membership(objects: &Objects) -> ServerList {
    let data = objects.config_map.data.as_ref().unwrap();
    serde_json::from_str(&data["membership.json"]).unwrap()
}

#[test]
fn the_objects_of_a_load_balancer_that_is_followed() {
    let Objects {
        config_map,
        deployment,
        service,
        budget: _,
        policy,
        access,
        config,
    } = rendered(fixtures::SITE, &members());
    let Access {
        account,
        role,
        binding,
    } = access.unwrap();
    assert_eq!(check(&config), Ok(()));
    assert_eq!(config_map.data.unwrap()["haproxy.cfg"], config);
    assert_eq!(service, workers(&members()).service);
    assert_yaml_snapshot!((deployment.spec.template, policy.spec, account, role, binding));
}

#[test]
fn a_change_of_members_changes_nothing_but_the_config_map() {
    let [all, fewer] = [&members()[..], &members()[1..]].map(|members| {
        let mut objects = rendered(fixtures::SITE, members);
        let data = objects.config_map.data.take();
        (
            Objects {
                config: String::new(),
                ..objects
            },
            data,
        )
    });
    assert_eq!(all.0, fewer.0);
    assert_ne!(all.1, fewer.1);
}

#[test]
fn the_membership_has_the_servers_of_the_configuration() {
    let objects = rendered(fixtures::SITE, &members());
    let ServerList {
        frame,
        keywords,
        backends,
        servers,
    } = membership(&objects);
    assert_eq!(servers.len(), members().len());
    assert_eq!(backends.len(), 2);
    for Backend { name, port } in &backends {
        let (_, behind) = objects.config.split_once(&format!("\nbackend {name}\n")).unwrap();
        let lines: Vec<&str> = behind
            .lines()
            .skip_while(|line| !line.starts_with("  server "))
            .take_while(|line| line.starts_with("  server "))
            .collect();
        let expected: Vec<String> = servers
            .iter()
            .map(|Server { name, address }| format!("  server {name} {address}:{port}"))
            .collect();
        assert_eq!(lines, expected);
    }
    assert!(objects.config.contains(&format!("  default-server {keywords}\n")));
    assert_eq!(membership(&rendered(fixtures::SITE, &[])).frame, frame);
    let other = fixtures::SITE.replace("end: 30003", "end: 30004");
    assert_ne!(membership(&rendered(&other, &members())).frame, frame);
}

#[test]
fn a_backup_is_loaded_and_other_members_are_as_before() {
    let mut with_backup = members();
    with_backup[1].is_backup = true;
    let [plain, backup] = [members(), with_backup].map(|members| rendered(fixtures::SITE, &members));
    assert_eq!(check(&backup.config), Ok(()));
    let of = |config: &str, ending: &str| config.lines().filter(|line| line.ends_with(ending)).count();
    // Both backends have it.
    for (ending, expected) in [(" backup", 2), ("  option allbackups", 2)] {
        assert_eq!(
            (of(&plain.config, ending), of(&backup.config, ending)),
            (0, expected)
        );
    }
    let (plain, backup) = (membership(&plain), membership(&backup));
    assert_ne!(plain.frame, backup.frame, "no command makes a server a backup");
    assert_eq!(plain.servers, backup.servers);
}

#[test]
fn statistics_ports_avoid_balanced_ports() {
    for (start, end, expected) in [(8404, 8406, (8407, 8408)), (8405, 8405, (8404, 8406))] {
        let site = fixtures::SITE
            .replace("start: 30002", &format!("start: {start}"))
            .replace("end: 30003", &format!("end: {end}"));
        let pod = rendered(&site, &[]).deployment.spec.template.spec.unwrap();
        let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
        let number = |name: &str| {
            let mut ports = containers
                .clone()
                .flat_map(|container| container.ports.iter().flatten());
            ports
                .find(|port| port.name.as_deref() == Some(name))
                .unwrap()
                .container_port
        };
        assert_eq!((number("metrics"), number("config")), expected);
    }
}
