//! Objects and configuration as snapshots, and the configuration through a real haproxy.

mod fixtures;
mod haproxy;
mod large;
mod names;
mod read_back;
mod running;
mod sidecar;
mod takeover;
mod templates;

use fixtures::{cluster, member, members};
use insta::{assert_snapshot, assert_yaml_snapshot};

use super::{Member, Objects, control_plane, worker};

fn api_servers(members: &[Member]) -> Objects {
    let cluster = cluster(fixtures::SITE);
    control_plane(&cluster, &cluster.load_balancers_control_plane()[0], members)
}

fn workers(members: &[Member]) -> Objects {
    let cluster = cluster(fixtures::SITE);
    worker(&cluster, &cluster.load_balancers_worker()[0], members)
}

#[test]
fn the_objects_in_front_of_the_api_servers() {
    let Objects {
        mut config_map,
        deployment,
        service,
        budget,
        policy,
        access,
        config,
    } = api_servers(&members());
    let data = std::mem::take(config_map.data.as_mut().unwrap());
    assert_eq!(data, [("haproxy.cfg".to_owned(), config.clone())].into());
    assert_snapshot!(config);
    assert_eq!(access, None);
    assert_yaml_snapshot!((config_map, deployment, service, budget, policy));
}

#[test]
fn the_objects_in_front_of_the_workers() {
    let Objects {
        config_map: _,
        deployment,
        service,
        budget,
        policy,
        access: _,
        config,
    } = workers(&members());
    assert_snapshot!(config);
    assert_yaml_snapshot!((deployment, service, budget, policy));
}

#[test]
fn without_members_there_are_listeners_and_no_servers() {
    let config = api_servers(&[]).config;
    assert!(config.contains("bind :::6443 v4v6"));
    assert!(
        !config
            .lines()
            .any(|line| line.trim_start().starts_with("server "))
    );
}

#[test]
fn the_order_of_members_does_not_matter() {
    let mut turned = members();
    turned.reverse();
    assert_eq!(api_servers(&turned), api_servers(&members()));
}

#[test]
fn a_host_named_twice_is_one_server() {
    let [first, ..] = &members()[..] else {
        panic!("there are members")
    };
    let twice = api_servers(&[first.clone(), first.clone()]);
    assert_eq!(twice, api_servers(std::slice::from_ref(first)));
}

#[test]
fn a_change_of_members_rolls_the_pods() {
    let hash = |objects: &Objects| {
        let template = &objects.deployment.spec.template;
        template.metadata.clone().unwrap().annotations.unwrap()[api::annotations::CONFIG_HASH].clone()
    };
    let all = members();
    assert_ne!(hash(&api_servers(&all)), hash(&api_servers(&all[1..])));
    let mut moved = all.clone();
    moved[0].address = "192.0.2.99".parse().unwrap();
    assert_ne!(hash(&api_servers(&all)), hash(&api_servers(&moved)));
}

#[test]
fn node_labels_select_nodes_and_no_labels_select_every_node() {
    let selector = |objects: Objects| objects.deployment.spec.template.spec.unwrap().node_selector;
    assert_eq!(selector(workers(&[])), None);
    let expected = [("kubernetes.io/os".to_owned(), "linux".to_owned())];
    assert_eq!(selector(api_servers(&[])), Some(expected.into()));
}

#[test]
fn without_a_node_port_the_api_server_picks_one() {
    let cluster = cluster(&fixtures::SITE.replace("nodePort: 30001", ""));
    let objects = control_plane(&cluster, &cluster.load_balancers_control_plane()[0], &members());
    let ports = objects.service.spec.unwrap().ports.unwrap();
    assert_eq!(ports[0].node_port, None);
    assert_eq!(ports[0].port, 6443);
}

#[test]
fn the_internal_listener_avoids_balanced_ports() {
    let cluster = cluster(
        &fixtures::SITE
            .replace("start: 30002", "start: 8404")
            .replace("end: 30003", "end: 8406"),
    );
    let objects = worker(&cluster, &cluster.load_balancers_worker()[0], &members());
    let container = &objects.deployment.spec.template.spec.unwrap().containers[0];
    let internal = container
        .ports
        .iter()
        .flatten()
        .find(|port| port.name.as_deref() == Some("metrics"));
    assert_eq!(internal.unwrap().container_port, 8407);
    assert!(
        objects
            .config
            .contains("frontend internal\n  mode http\n  bind :::8407 v4v6\n")
    );
}

#[test]
fn low_ports_need_no_capability() {
    let sysctls = |objects: Objects| {
        objects
            .deployment
            .spec
            .template
            .spec
            .unwrap()
            .security_context
            .unwrap()
            .sysctls
    };
    assert_eq!(sysctls(workers(&[])), None);
    let cluster = cluster(
        &fixtures::SITE
            .replace("start: 30002", "start: 80")
            .replace("end: 30003", "end: 81"),
    );
    let low = sysctls(worker(
        &cluster,
        &cluster.load_balancers_worker()[0],
        &[member("lab", "a", "192.0.2.1")],
    ));
    assert_eq!(low.unwrap()[0].name, "net.ipv4.ip_unprivileged_port_start");
}

#[test]
fn a_budget_exists_only_with_two_or_more_pods() {
    for (replicas, expected) in [(0, false), (1, false), (2, true), (32, true)] {
        let site = fixtures::SITE.replace("replicas: 3", &format!("replicas: {replicas}"));
        let cluster = cluster(&site);
        let objects = worker(&cluster, &cluster.load_balancers_worker()[0], &[]);
        assert_eq!(objects.budget.is_some(), expected, "{replicas}");
        assert_eq!(objects.deployment.spec.replicas, Some(replicas));
    }
}

#[test]
fn the_resources_of_the_spec_replace_our_own() {
    let own = api_servers(&[]).deployment;
    let asked = fixtures::SITE.replace(
        "nodePort: 30001",
        "nodePort: 30001\n      resources: {limits: {cpu: 2, memory: 256Mi, example.org/nic: '1'}}",
    );
    let cluster = cluster(&asked);
    let asked = control_plane(&cluster, &cluster.load_balancers_control_plane()[0], &[]).deployment;
    let resources = |deployment: &k8s_openapi::api::apps::v1::Deployment| {
        let pod = deployment.spec.template.spec.clone().unwrap();
        serde_json::to_value(pod.containers[0].resources.clone()).unwrap()
    };
    assert_eq!(
        resources(&own),
        serde_json::json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}})
    );
    assert_eq!(
        resources(&asked),
        serde_json::json!({"limits": {"cpu": "2", "memory": "256Mi", "example.org/nic": "1"}})
    );
}

#[test]
fn least_connections_and_proxy_header_are_rendered() {
    let cluster = cluster(&fixtures::otherwise());
    let api_servers = control_plane(&cluster, &cluster.load_balancers_control_plane()[0], &members()).config;
    let workers = worker(&cluster, &cluster.load_balancers_worker()[0], &members()).config;
    for (config, told) in [(&api_servers, false), (&workers, true)] {
        assert!(config.contains("  balance leastconn\n"), "{config}");
        assert_eq!(config.contains(" send-proxy-v2\n"), told, "{config}");
        assert_eq!(haproxy::check(config), Ok(()));
    }
}

#[test]
fn service_overrides_leave_selector_and_owner_alone() {
    let changed = fixtures::SITE.replace(
        "replicas: 3",
        "replicas: 3
      networkAttachments: [storage, backup]
      override:
        service:
          metadata:
            labels: {team: blue}
            annotations: {metallb.universe.tf/loadBalancerIPs: 192.0.2.7}
          spec: {type: LoadBalancer, loadBalancerClass: example.org/metallb, allocateLoadBalancerNodePorts: false, externalTrafficPolicy: Local}",
    );
    let cluster = cluster(&changed);
    let objects = worker(&cluster, &cluster.load_balancers_worker()[0], &[]);
    assert_yaml_snapshot!(objects.service);
    let template = objects.deployment.spec.template.metadata.unwrap();
    assert_eq!(
        template.annotations.unwrap()["k8s.v1.cni.cncf.io/networks"],
        r#"[{"name":"storage","namespace":"tenants"},{"name":"backup","namespace":"tenants"}]"#
    );
    let plain = workers(&[]).deployment.spec;
    assert_eq!(objects.deployment.spec.selector, plain.selector);
}
