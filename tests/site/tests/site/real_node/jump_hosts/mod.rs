//! Jump hosts that really run: sshd in restricted pods on a real node, with the agent's power control and an emulator of BMCs.

mod bmcs;
mod changes;
mod client;
mod left;
mod machine;
mod page;
mod replicas;
mod search;
mod secrets;
mod tokens;

use std::{
    net::Ipv4Addr,
    ops::AsyncFnOnce,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use sandbox::{
    inventory::{Host, NETWORK},
    jump_host,
    node::{self, Account, Image, Program},
    process::Group,
    redfish_emulator::{PASSWORD, RedfishEmulator, USER},
    region::{HOSTS_NAMESPACE, Region},
    site::{Nodes, Site},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::{
    client::{Key, Login},
    machine::Machine,
};
use crate::fixtures::{Cluster, RUNTIME, Role, Stage, cluster};

/// What `make images` makes.
const OURS: &str = "localhost/sip-jump-host:1";
/// As SIP's users have one: sshd, a shell, and the account.
const STOCK: &str = "airshipit/jump-host:1";
/// What load balancers run.
const BALANCER: &str = "haproxy:2.8";
/// The Secret with the credentials of the emulator.
const CREDENTIALS: &str = "emulated-bmc";
const NAME: &str = "jumphost-shop";

/// A site that all these tests share.
struct Scene {
    stage: Stage,
    emulator: RedfishEmulator,
    /// The last octet of the address that the next host gets.
    next_address: AtomicU8,
    _group: Group,
}

static SCENE: OnceCell<Scene> = OnceCell::const_new();

/// Systems behind the one port of the emulator. Hosts are named after them.
const SYSTEMS: [&str; 8] = [
    "jump-left-a",
    "jump-left-b",
    "jump-power-a",
    "jump-power-b",
    "jump-replicas-a",
    "jump-search-a",
    "jump-stock-a",
    "r2-h1",
];

fn stock_image() -> Image {
    let programs = ["/usr/sbin/sshd", "/bin/sh"].map(Program::system);
    let account = Account {
        name: "ubuntu",
        id: 1_000,
        home: "/home/ubuntu",
        shell: "/bin/sh",
    };
    jump_host::with_libraries(Image::with_programs(STOCK, programs).account(account)).unwrap()
}

impl Scene {
    async fn start() -> Self {
        let site = Site::builder("jump-pods")
            .nodes(Nodes::Real)
            .image(jump_host::image(OURS).unwrap())
            .image(Image::new(BALANCER, node::system_program("haproxy").unwrap()))
            .image(stock_image());
        let region = Arc::new(Region::start("north").await.unwrap());
        let mut stage = Stage::start_with(region, site, &[HOSTS_NAMESPACE], &[]).await;
        let group = Group::new("bmcs").unwrap();
        let here = stage.site.node().unwrap().host_address();
        let emulator = RedfishEmulator::start_at(&group, "bmc", here, &SYSTEMS)
            .await
            .unwrap();
        let credentials = json!({
            "metadata": {"name": CREDENTIALS}, "stringData": {"username": USER, "password": PASSWORD},
        });
        create_secret(&stage, HOSTS_NAMESPACE, credentials).await;
        let power = stage.region.power_port(&stage.site).unwrap();
        stage.start_jump_hosts(&power, Some(emulator.authority())).await;
        Self {
            stage,
            emulator,
            next_address: AtomicU8::new(1),
            _group: group,
        }
    }

    /// A host of a scenario, behind the emulator if that has a system of its name. Nothing answers at its address, which
    /// no other host shows: a host that shows an address of a cluster's member is eligible to that cluster only.
    fn host(&self, scenario: &str, name: &str, flavor: &str) -> Host {
        let last = self.next_address.fetch_add(1, Ordering::Relaxed);
        self.host_at(scenario, name, flavor, Ipv4Addr::new(192, 0, 2, last))
    }

    /// The same, at the address of a machine that answers.
    fn host_at(&self, scenario: &str, name: &str, flavor: &str, address: Ipv4Addr) -> Host {
        let name = format!("{scenario}-{name}");
        let host = Host::new(&name, &format!("{scenario}-{flavor}"), &name, address);
        if SYSTEMS.contains(&&*name) {
            host.behind(&self.emulator.bmc_address(&name), CREDENTIALS)
        } else {
            host
        }
    }

    /// A cluster with a jump host that is Ready, and how its user logs in.
    async fn jump_host(&self, wanted: &Cluster, key: &Key) -> Login {
        self.stage.create(wanted).await;
        self.login(wanted, key).await
    }

    /// How the user of a cluster's jump host logs in, once the cluster is Ready.
    async fn login(&self, wanted: &Cluster, key: &Key) -> Login {
        let ready = self.stage.ready(wanted).await;
        let node = self.stage.site.node().unwrap().address();
        Login::new(node, &ready.data["status"]["endpoints"], key).await
    }

    /// The running pod of a scenario's jump host.
    async fn pod(&self, scenario: &str) -> Pod {
        let pods: Api<Pod> = Api::namespaced(self.stage.site.client(), scenario);
        let own = ListParams::default().labels("app.kubernetes.io/name=jumphost");
        let mut found = pods.list(&own).await.unwrap().items;
        assert_eq!(found.len(), 1);
        found.remove(0)
    }
}

async fn create_secret(stage: &Stage, namespace: &str, secret: Value) {
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let secrets: Api<Secret> = Api::namespaced(stage.site.client(), namespace);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

/// Plays a scenario in a namespace of its own, which enforces restricted pods.
fn on_site(scenario: &str, play: impl AsyncFnOnce(&Scene)) {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    RUNTIME.block_on(async {
        let scene = SCENE.get_or_init(Scene::start).await;
        let restricted = "pod-security.kubernetes.io/enforce=restricted";
        scene.stage.site.create_tenant_namespace(scenario).await.unwrap();
        scene
            .stage
            .kubectl(&["label", "namespace", scenario, restricted])
            .await;
        play(scene).await;
    });
}

/// A cluster with this jump host, for holders of a key.
fn shop(scenario: &str, key: &Key, entry: &Value) -> Cluster {
    let mut complete = json!({
        "image": OURS, "nodeInterfaceId": NETWORK, "sshAuthorizedKeys": [key.public()],
    });
    complete
        .as_object_mut()
        .unwrap()
        .extend(entry.as_object().unwrap().clone());
    cluster(scenario, "shop").with("/services/jumpHost", json!([complete]))
}

#[test]
fn ssh_in_the_pod_reaches_a_node_by_its_names() {
    on_site("jump-nodes", async |scene| {
        let (ana, node_key) = (Key::new("ana"), Key::new("nodes"));
        let [address, ..] = scene.stage.site.node().unwrap().machines();
        let machine = Machine::start(address, &node_key).await;
        let host = scene.host_at("jump-nodes", "w1.rack-a", "worker", address);
        scene.stage.load(&[host]).await;
        let keys = json!({
            "metadata": {"name": "node-keys"},
            "stringData": {
                "id_nodes": node_key.private(),
                "known_hosts": format!("{HOSTS_NAMESPACE}/jump-nodes-w1.rack-a {}\n", machine.host_key.public()),
            },
        });
        create_secret(&scene.stage, "jump-nodes", keys).await;
        let entry = json!({"nodePort": 31_520, "nodeSSHPrivateKeys": "node-keys"});
        let wanted = shop("jump-nodes", &ana, &entry).role(Role::Worker, 1);
        let login = scene.jump_host(&wanted, &ana).await;

        let pod = scene.pod("jump-nodes").await;
        let containers = pod.status.unwrap().container_statuses.unwrap();
        let id = containers[0].container_id.clone().unwrap();
        assert!(id.starts_with("containerd://"), "{id}");
        for name in ["jump-nodes-w1.rack-a", "jump-nodes-w1", "worker-0"] {
            let command =
                format!("ssh -o BatchMode=yes -o StrictHostKeyChecking=yes {name} 'echo $(id -un) $NODE'");
            assert_eq!(
                login.prints(&command).await,
                format!("ubuntu {address}"),
                "{name}"
            );
        }
        let terminal = login.on_terminal("test -t 0 && stat -c '%G' \"$SSH_TTY\"").await;
        assert_eq!(terminal, "tty");
        // From the user's own machine, through the jump host.
        let reached = login.through(address, &node_key, &machine.host_key).await;
        assert_eq!(reached, address.to_string());
        let stranger = login.as_holder_of(&Key::new("stranger")).run("true").await;
        assert!(
            !stranger.success && stranger.stderr.contains("Permission denied (publickey)"),
            "{stranger:?}"
        );
    });
}

#[test]
fn hosts_are_listed_and_restarted_from_the_pod() {
    on_site("jump-power", async |scene| {
        let ana = Key::new("ana");
        let hosts = [
            scene.host("jump-power", "a", "worker"),
            scene.host("jump-power", "b", "other"),
        ];
        scene.stage.load(&hosts).await;
        let wanted = shop("jump-power", &ana, &json!({"nodePort": 31_521})).role(Role::Worker, 1);
        let login = scene.jump_host(&wanted, &ana).await;

        let listed = login.prints("host list").await;
        let rows: Vec<Vec<&str>> = listed
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows.len(), 2, "{listed}");
        assert_eq!(
            rows[1],
            [
                "jump-power-a",
                HOSTS_NAMESPACE,
                "worker-0",
                "Worker",
                "on",
                "available"
            ],
            "{listed}"
        );
        let rebooted = login.prints("host reboot @worker-0").await;
        assert_eq!(
            rebooted,
            "metal/jump-power-a: GracefulRestart is done, the host is on"
        );
        let refused = login.run("host reboot jump-power-b").await;
        assert!(
            refused.stderr.contains("shop holds no host \"jump-power-b\""),
            "{refused:?}"
        );
        let restarted = scene.emulator.resets().unwrap();
        let restarted: Vec<&String> = restarted
            .iter()
            .filter(|name| name.starts_with("jump-power"))
            .collect();
        assert_eq!(restarted, ["jump-power-a"]);
    });
}

#[test]
fn kubectl_in_the_pod_goes_through_the_load_balancer() {
    on_site("jump-kubectl", async |scene| {
        let ana = Key::new("ana");
        let tenant = Site::builder("jump-tenant").start().await.unwrap();
        tenant.create_namespace("of-the-tenant").await.unwrap();
        let [_, address, _] = scene.stage.site.node().unwrap().machines();
        let api_server = tenant.server().trim_start_matches("https://").to_owned();
        let _machine = sandbox::proxy::Proxy::at((address, 6443).into(), api_server)
            .await
            .unwrap();
        let host = scene.host_at("jump-kubectl", "cp1", "cp", address);
        scene.stage.load(&[host]).await;
        // The API server picks the node port, and an address for the Service.
        let entry = json!({"nodePort": 31_522, "kubeconfigSecret": "shop-kubeconfig"});
        let balancer = json!([{"image": BALANCER, "nodeInterfaceId": NETWORK}]);
        let wanted = shop("jump-kubectl", &ana, &entry)
            .role(Role::ControlPlane, 1)
            .with("/services/loadBalancerControlPlane", balancer);
        let first = wanted.clone().with("/services/jumpHost", Value::Null);
        scene.stage.create(&first).await;
        scene.stage.ready(&first).await;
        let service = "loadbalancer-controlplane-shop";
        let service = [
            "get",
            "service",
            "-n",
            "jump-kubectl",
            service,
            "-o",
            "jsonpath={.spec.clusterIP}",
        ];
        let balancer = scene.stage.kubectl(&service).await;

        let flat = tenant
            .kubectl_ok(&["config", "view", "--raw", "--flatten", "-o", "json"])
            .await
            .unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&flat).unwrap();
        let cluster = &mut kubeconfig["clusters"][0]["cluster"];
        cluster["server"] = format!("https://{balancer}:6443").into();
        // The certificate is for the address at which the tenant's API server listens.
        cluster["tls-server-name"] = "127.0.0.1".into();
        let secret = json!({
            "metadata": {"name": "shop-kubeconfig"}, "stringData": {"value": kubeconfig.to_string()},
        });
        create_secret(&scene.stage, "jump-kubectl", secret).await;
        scene.stage.edit(&wanted, wanted.spec().clone()).await;
        let login = scene.login(&wanted, &ana).await;

        let found = login.prints("kubectl get namespace of-the-tenant -o name").await;
        assert_eq!(found, "namespace/of-the-tenant");
        // And for those who forward ports to it.
        let forwarded = login.run_with(&["-W", &format!("{balancer}:6443")], "").await;
        assert!(
            !forwarded.stderr.contains("administratively prohibited"),
            "{forwarded:?}"
        );
        let policy = ["get", "networkpolicy", "-n", "jump-kubectl", NAME, "-o", "json"];
        let policy: Value = serde_json::from_str(&scene.stage.kubectl(&policy).await).unwrap();
        let to_balancers = json!({"podSelector": {"matchLabels": {
            "app.kubernetes.io/component": "loadbalancer",
            "app.kubernetes.io/instance": "loadbalancer-controlplane-shop",
        }}});
        let mut rules = policy["spec"]["egress"].as_array().unwrap().iter();
        assert!(rules.any(|rule| rule["to"] == json!([to_balancers])), "{policy}");
    });
}

#[test]
fn a_stock_image_with_sshd_and_the_account_serves_too() {
    on_site("jump-stock", async |scene| {
        let ana = Key::new("ana");
        let host = scene.host("jump-stock", "a", "worker");
        scene.stage.load(&[host]).await;
        let entry = json!({"nodePort": 31_523, "image": STOCK});
        let wanted = shop("jump-stock", &ana, &entry).role(Role::Worker, 1);
        let login = scene.jump_host(&wanted, &ana).await;

        let listed = login.prints("host list").await;
        assert!(listed.contains("jump-stock-a"), "{listed}");
        let version = login.prints("kubectl version --client").await;
        assert!(version.contains("Client Version: v1."), "{version}");
        // The image itself has none of it.
        let absent = login.run("/usr/local/bin/host list").await;
        assert!(absent.stderr.contains("not found"), "{absent:?}");
    });
}
