//! Which containers of rendered pods have a token of their account: those of ours that ask for something with it, and no other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use api::{Cluster, HttpsUrl, Image, SIPCluster};
use k8s_openapi::api::core::v1::{PodSpec, Volume};
use render::{
    dex::{self, Certificate, Secrets, Storage},
    jump_host::{self, PowerService, host_keys::HostKeys},
    load_balancer::{self, Sidecar, template::Template},
};
use serde_json::json;

const TEMPLATE: &str = include_str!("../../../deploy/templates/loadBalancerWorker.cfg");

/// A cluster with every service.
fn cluster() -> Cluster {
    let object: SIPCluster = serde_json::from_value(json!({
        "metadata": {"namespace": "tenants", "name": "shop", "uid": "5a1e"},
        "spec": {
            "nodes": {"Worker": {"labelSelector": {}, "count": {"active": 1}}},
            "services": {
                "loadBalancerWorker": [
                    {"image": "haproxy:2.6", "nodeInterfaceId": "oam", "nodePortRange": {"start": 30_002, "end": 30_003}},
                ],
                "jumpHost": [{"image": "jump:1", "nodeInterfaceId": "oam", "nodePort": 30_101}],
                "auth": [{"image": "dex:2", "nodeInterfaceId": "oam", "nodePort": 30_556}],
            },
        },
    }))
    .unwrap();
    Cluster::parse(&object).unwrap()
}

fn image(text: &str) -> Image {
    text.parse().unwrap()
}

fn jump_host_pod(cluster: &Cluster) -> PodSpec {
    let power = PowerService {
        address: "power.sip-system.svc:8443".parse().unwrap(),
        ca: None,
        namespace: "sip-system".to_owned(),
        app: "sip-jump-host-agent".to_owned(),
    };
    let plan = jump_host::Plan {
        cluster,
        jump_host: &cluster.jump_hosts()[0],
        tools: &image("tools:1"),
        power: &power,
        keys: Vec::new(),
        authorities: Vec::new(),
        host_keys: &HostKeys::default(),
        nodes: Vec::new(),
        api_endpoints: Vec::new(),
        api_balancers: Vec::new(),
        site_api_servers: &[],
        name_servers: &[],
    };
    plan.objects().deployment.spec.template.spec.unwrap()
}

fn dex_pod(cluster: &Cluster) -> PodSpec {
    let issuer = HttpsUrl::from_parts("sso.example.org", 30_556, dex::ISSUER_PATH).unwrap();
    let objects = dex::objects(&dex::Plan {
        site: "north/site-a",
        cluster,
        entry: &cluster.auth()[0],
        issuer: Some(&issuer),
        secrets: &Secrets::default(),
        storage: &Storage {
            endpoints: vec!["https://etcd.example.org:2379".to_owned()],
            authority: None,
            prefix: "shop/".to_owned(),
            user: "shop".to_owned(),
            password: "of the storage".to_owned(),
        },
        certificate: &Certificate {
            chain: "chain".to_owned(),
            key: "key".to_owned(),
            bundle: "bundle".to_owned(),
        },
    });
    objects.deployment.spec.template.spec.unwrap()
}

/// Every kind of pod that agents make, by what it is.
fn pods(cluster: &Cluster) -> Vec<(&'static str, PodSpec)> {
    let sidecar = Sidecar {
        image: image("sidecar:1"),
    };
    let plan = || load_balancer::Plan::worker(cluster, &cluster.load_balancers_worker()[0]);
    let (alone, check) = (
        plan().objects(&[]).deployment,
        plan().check(&[], &Template::parse(TEMPLATE).unwrap()).unwrap(),
    );
    let followed = plan().with_sidecar(Some(&sidecar)).objects(&[]).deployment;
    vec![
        ("load balancer", alone.spec.template.spec.unwrap()),
        ("followed load balancer", followed.spec.template.spec.unwrap()),
        (
            "check of a template",
            check.job.spec.unwrap().template.spec.unwrap(),
        ),
        ("jump host", jump_host_pod(cluster)),
        ("identity provider", dex_pod(cluster)),
    ]
}

/// For whom the tokens in a volume are; an empty text is the API server.
fn audiences(volume: &Volume) -> Vec<&str> {
    let sources = volume
        .projected
        .iter()
        .flat_map(|projected| projected.sources.iter().flatten());
    let tokens = sources.filter_map(|source| source.service_account_token.as_ref());
    tokens
        .map(|token| token.audience.as_deref().unwrap_or_default())
        .collect()
}

/// The containers with a token, each with whom it is for.
fn with_token(pod: &PodSpec) -> Vec<(&str, &str)> {
    let volumes = || pod.volumes.iter().flatten();
    let containers = pod.init_containers.iter().flatten().chain(&pod.containers);
    containers
        .flat_map(|container| {
            let mounts = container.volume_mounts.iter().flatten();
            let mounted = mounts.filter_map(move |mount| volumes().find(|volume| volume.name == mount.name));
            let tokens = mounted.flat_map(audiences);
            tokens.map(move |audience| (container.name.as_str(), audience))
        })
        .collect()
}

#[test]
fn no_container_has_a_token_that_it_does_not_use() {
    let cluster = cluster();
    for (what, pod) in pods(&cluster) {
        let expected: &[(&str, &str)] = match what {
            // It reads the configuration.
            "followed load balancer" => &[("follow-config", "")],
            // The one reads keys and members; with the other, `host` calls power control.
            "jump host" => &[("follow-keys", ""), ("jumphost", "sip-power")],
            _ => &[],
        };
        assert_eq!(pod.automount_service_account_token, Some(false), "{what}");
        assert_eq!(with_token(&pod), expected, "{what}");
    }
}
