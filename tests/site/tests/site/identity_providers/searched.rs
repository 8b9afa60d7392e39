//! Secrets are in the Secrets that are meant to have them, and nowhere else: not in another object, a log at any level, metrics, the audit log, an
//! argument or an environment.

use std::{collections::BTreeMap, fs, iter, path::Path};

use api::conditions::AUTH_READY;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use sandbox::{
    dex::Dex,
    inventory::NETWORK,
    login::{Login, Provider, REDIRECT},
    region::{Agent, HOSTS_NAMESPACE},
    site::Site,
};
use serde_json::{Value, json};

use super::{ADA, NAMESPACE, Scene};
use crate::{
    fixtures::{Cluster, Role, host, metrics_at},
    jump_host::key,
};

/// Of the provider. The two after it are those of the jump host and the load balancer.
const PORT: u16 = 31_640;
/// Each occurs nowhere by chance, and is the same however it is quoted.
const BIND_PASSWORD: &str = "bind-7c1e5d0a";
const WRONG_PASSWORD: &str = "wrong-93b2f4e8";
const CLIENT_SECRET: &str = "client-c4f09a67";
const BMC_USER: &str = "bmc-user-7a30cd15";
const BMC_PASSWORD: &str = "bmc-password-2f8d91b6";
const KUBECONFIG_TOKEN: &str = "kubeconfig-5d1e77a4";
/// bcrypt of some password.
const HASH: &str = "$2y$10$abcdefghijklmnopqrstuuSalted0123456789abcdefghijABCDE";

/// The Secret of all hosts of the sandbox.
const BMC_CREDENTIALS: &str = "sample-bmc-credentials";

async fn write(scene: &Scene, name: &str, values: &Value) {
    let secrets: Api<Secret> = scene.api();
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values});
    let apply = PatchParams::apply("test").force();
    secrets.patch(name, &apply, &Patch::Apply(secret)).await.unwrap();
}

/// What tenants and the site's administrator write besides: credentials of BMCs, a key for nodes, and the kubeconfig of the tenant's cluster.
/// Its server is the directory, which takes a connection and does not understand HTTP. Returns the key.
async fn write_others(scene: &Scene) -> String {
    let credentials = json!({"username": BMC_USER, "password": BMC_PASSWORD});
    let credentials = Patch::Merge(json!({"stringData": credentials}));
    let of_hosts: Api<Secret> = Api::namespaced(scene.stage.site.client(), HOSTS_NAMESPACE);
    of_hosts
        .patch(BMC_CREDENTIALS, &PatchParams::default(), &credentials)
        .await
        .unwrap();
    let key = String::from_utf8(key("ed25519").0).unwrap();
    write(scene, "node-keys", &json!({"id_nodes": key})).await;
    let authority = BASE64.encode(scene.directory.authority().unwrap());
    let server = format!("https://{}", scene.directory.address());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "shop",
        "clusters": [{"name": "shop", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "shop", "user": {"token": KUBECONFIG_TOKEN}}],
        "contexts": [{"name": "shop", "context": {"cluster": "shop", "user": "shop"}}],
    });
    write(scene, "kubeconfig", &json!({"value": kubeconfig.to_string()})).await;
    key
}

/// A line of a private key that has nothing of its public one: the last but one with text.
fn line_of(key: &str) -> String {
    key.lines().rev().nth(2).unwrap().to_owned()
}

/// Everything that must be hidden, by what it is: the values that people write, and those that agents make.
async fn secrets(scene: &Scene, node_key: &str) -> BTreeMap<String, String> {
    let people = [
        ("bind password", BIND_PASSWORD),
        ("wrong bind password", WRONG_PASSWORD),
        ("secret of a client", CLIENT_SECRET),
        ("hash of a password", HASH),
        ("Ada's password", ADA.password),
        ("user of BMCs", BMC_USER),
        ("password of BMCs", BMC_PASSWORD),
        ("token of a kubeconfig", KUBECONFIG_TOKEN),
    ];
    let mut hidden: BTreeMap<_, _> = people
        .map(|(what, text)| (what.to_owned(), text.to_owned()))
        .into();
    hidden.insert("key for nodes".to_owned(), line_of(node_key));
    let secrets: Api<Secret> = scene.api();
    let host_keys = secrets.get("jumphost-shop").await.unwrap().data.unwrap();
    let host_key = String::from_utf8(host_keys["ssh_host_ed25519_key"].0.clone()).unwrap();
    hidden.insert("host key".to_owned(), line_of(&host_key));
    let kept = secrets.get("auth-shop.keys").await.unwrap().data.unwrap();
    for (key, value) in kept {
        let text = String::from_utf8(value.0).unwrap();
        if key == "storage-password" {
            hidden.insert(key, text);
        } else if text.contains("PRIVATE KEY") {
            // The first line after BEGIN: a text of its own in whatever it is quoted.
            let line = text.lines().nth(1).unwrap();
            hidden.insert(format!("private key {key}"), line.to_owned());
        }
    }
    assert_eq!(hidden.len(), people.len() + 5, "{:?}", hidden.keys());
    hidden
}

/// Every object of the site, as an administrator reads it; of Secrets all but the values.
async fn objects(site: &Site) -> Vec<(String, String)> {
    let kinds = site
        .kubectl_ok(&["api-resources", "--verbs=list", "--output=name"])
        .await
        .unwrap();
    let kinds = kinds.lines().collect::<Vec<_>>().join(",");
    let listed = site
        .kubectl_ok(&[
            "get",
            &kinds,
            "--all-namespaces",
            "--output=json",
            "--show-managed-fields",
        ])
        .await
        .unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let objects = listed["items"].as_array().unwrap().iter().cloned();
    objects
        .map(|mut object| {
            if object["kind"] == "Secret" {
                object["data"].take();
            }
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = [text(&object["kind"]), text(&object["metadata"]["name"])].join(" ");
            (name, object.to_string())
        })
        .collect()
}

/// Every log below a directory.
fn logs(directory: &Path) -> Vec<(String, String)> {
    let files = fs::read_dir(directory.join("logs")).unwrap();
    files
        .map(|file| {
            let path = file.unwrap().path();
            let text = fs::read(&path).unwrap();
            (
                path.display().to_string(),
                String::from_utf8_lossy(&text).into_owned(),
            )
        })
        .collect()
}

fn found<'a>(hidden: &'a BTreeMap<String, String>, texts: &'a [(String, String)]) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    for (what, secret) in hidden {
        let encoded = BASE64.encode(secret);
        let encoded = encoded.trim_end_matches('=');
        for (place, text) in texts {
            if text.contains(secret) || text.contains(encoded) {
                found.push((what.as_str(), place.as_str()));
            }
        }
    }
    found
}

/// Command lines and environments of all processes that this one has started, and of those that they have.
fn processes() -> Vec<(String, String)> {
    let parents: BTreeMap<u32, u32> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let process = entry.ok()?.path();
            let pid = process.file_name()?.to_str()?.parse().ok()?;
            let stat = fs::read_to_string(process.join("stat")).ok()?;
            // Behind the name, which may have any character, come the state and the parent.
            let (_, fields) = stat.rsplit_once(')')?;
            Some((pid, fields.split_ascii_whitespace().nth(1)?.parse().ok()?))
        })
        .collect();
    let own = std::process::id();
    let is_ours =
        |pid: &u32| iter::successors(parents.get(pid), |pid| parents.get(*pid)).any(|pid| *pid == own);
    let ours = parents.keys().filter(|pid| is_ours(pid));
    let files = ours.flat_map(|pid| ["cmdline", "environ"].map(|file| format!("/proc/{pid}/{file}")));
    files
        .filter_map(|file| {
            let bytes = fs::read(&file).ok()?;
            Some((file, String::from_utf8_lossy(&bytes).replace('\0', "\n")))
        })
        .collect()
}

/// The metrics of the site and of the region.
async fn metrics(scene: &Scene) -> Vec<(String, String)> {
    let stage = &scene.stage;
    let ports = [
        ("the scheduler", stage.region.health_port()),
        ("the Dex agent", scene.agent.health_port()),
    ];
    let mut metrics = Vec::new();
    for (what, port) in ports {
        let text = metrics_at(&format!("127.0.0.1:{port}")).await;
        metrics.push((format!("metrics of {what}"), text));
    }
    for agent in stage.agents.keys() {
        let text = stage.metrics_of(*agent).await;
        metrics.push((format!("metrics of {agent:?}"), text));
    }
    let of_server = stage.kubectl(&["get", "--raw", "/metrics"]).await;
    metrics.push(("metrics of the API server".to_owned(), of_server));
    metrics
}

/// Every Secret of the site as `NAMESPACE/NAME`, with its values.
async fn values(site: &Site) -> Vec<(String, String)> {
    let all: Api<Secret> = Api::all(site.client());
    let listed = all.list(&ListParams::default()).await.unwrap();
    let values = listed.items.into_iter().map(|secret| {
        let name = format!("{}/{}", secret.namespace().unwrap(), secret.name_any());
        let data = secret.data.unwrap_or_default().into_values();
        let data: Vec<_> = data
            .map(|value| String::from_utf8_lossy(&value.0).into_owned())
            .collect();
        (name, data.join("\n"))
    });
    values.collect()
}

/// The cluster, with every service and one host.
async fn shop(scene: &Scene) -> Cluster {
    scene.stage.load(&[host(NAMESPACE, "worker", "r1", "w1")]).await;
    let clients = json!([
        {"id": "kubernetes", "redirectURIs": [REDIRECT]},
        {"id": "console", "secret": {"name": "console", "key": "secret"},
            "redirectURIs": ["https://console.example.org/callback"]},
    ]);
    let jump_host = json!([{
        "image": "jump-host:1", "nodeInterfaceId": NETWORK, "nodePort": PORT + 1,
        "nodeSSHPrivateKeys": "node-keys", "kubeconfigSecret": "kubeconfig",
    }]);
    let balancer = json!([{
        "image": "haproxy:2.8", "nodeInterfaceId": NETWORK,
        "nodePortRange": {"start": PORT + 2, "end": PORT + 2},
    }]);
    scene
        .cluster("shop", PORT)
        .role(Role::Worker, 1)
        .with("/services/auth/0/clients", clients)
        .with("/services/jumpHost", jump_host)
        .with("/services/loadBalancerWorker", balancer)
}

/// Somebody mistypes each Secret, and logs in once all is well. Everything runs then.
async fn play(scene: &Scene) -> (Dex, String) {
    let stage = &scene.stage;
    let condition = AUTH_READY.as_str();
    let authority = scene.directory.authority().unwrap();
    let directory = |password: &str| json!({"ca.crt": authority, "password": password});
    write(scene, "directory", &directory(WRONG_PASSWORD)).await;
    write(scene, "console", &json!({"secret": CLIENT_SECRET})).await;
    let users = json!({"users": format!("root@example.org:{HASH}\n")});
    write(scene, "emergency", &users).await;
    let shop = shop(scene).await;
    let node_key = write_others(scene).await;
    stage.create(&shop).await;
    stage
        .condition_is(&shop, condition, "False", "DirectoryRefusesBind")
        .await;
    write(scene, "directory", &directory(BIND_PASSWORD)).await;
    stage
        .condition_is(&shop, condition, "False", "IssuerUnreachable")
        .await;
    let dex = scene.run("auth-shop", PORT).await;
    let ready = stage.ready(&shop).await;
    let mut endpoints = ready.data["status"]["endpoints"].as_array().unwrap().iter();
    let published = endpoints.find(|endpoint| endpoint["issuer"].is_string()).unwrap();
    let text = |field: &str| published[field].as_str().unwrap();
    let provider = Provider::new(text("issuer"), text("caBundle")).unwrap();
    let login = provider.log_in("kubernetes", (REDIRECT, &[]), (ADA.uid, ADA.password));
    assert!(matches!(login.await.unwrap(), Login::Code(_)));
    let users = json!({"name": "emergency", "key": "users"});
    let shop = shop.with("/services/auth/0/staticPasswords", users);
    stage.edit(&shop, shop.spec().clone()).await;
    stage
        .condition_is(&shop, condition, "True", "StaticPasswords")
        .await;
    // A Secret that cannot be used is named, and not quoted.
    write(scene, "emergency", &json!({"users": format!("nobody:{HASH}\n")})).await;
    stage
        .condition_is(&shop, condition, "False", "SecretInvalid")
        .await;
    (dex, node_key)
}

/// The logs of every program of the project have all levels.
fn all_is_logged(logs: &[(String, String)]) {
    for program in [
        "sip-scheduler",
        "sip-cluster-agent",
        "sip-dex-agent",
        "sip-jump-host-agent",
        "sip-load-balancer-agent",
    ] {
        let name = format!("{program}.log");
        let (_, text) = logs.iter().find(|(log, _)| log.ends_with(&name)).unwrap();
        assert!(text.contains(" TRACE "), "{program}");
    }
}

#[tokio::test]
async fn no_object_but_its_secret_holds_a_secret() {
    let others = [Agent::JumpHost, Agent::LoadBalancer];
    let scene = Scene::start_with(BIND_PASSWORD, "trace", &others).await;
    let stage = &scene.stage;
    let (_dex, node_key) = play(&scene).await;

    let hidden = secrets(&scene, &node_key).await;
    let objects = objects(&stage.site).await;
    let processes = processes();
    let metrics = metrics(&scene).await;
    let mut texts = logs(stage.site.directory());
    texts.extend(logs(scene.group.directory()));
    texts.extend(logs(stage.region.directory()));
    all_is_logged(&texts);
    let audit = fs::read_to_string(stage.site.directory().join("audit.log")).unwrap();
    texts.push(("the audit log".to_owned(), audit));
    println!(
        "{} secrets, {} objects, {} logs, {} files of processes, {} metrics",
        hidden.len(),
        objects.len(),
        texts.len(),
        processes.len(),
        metrics.len(),
    );
    for name in [
        "ConfigMap auth-shop-oidc",
        "ConfigMap jumphost-shop",
        "ConfigMap loadbalancer-worker-shop",
        "Deployment auth-shop",
        "SIPCluster shop",
    ] {
        assert!(objects.iter().any(|(object, _)| object == name), "{name}");
    }
    for program in ["sip-scheduler", "sip-jump-host-agent", "kube-apiserver", "slapd"] {
        let runs = processes.iter().any(|(_, text)| text.contains(program));
        assert!(runs, "{program} is no process of this test");
    }
    texts.extend(objects);
    texts.extend(processes);
    texts.extend(metrics);
    assert_eq!(found(&hidden, &texts), [] as [(&str, &str); 0]);

    // The search finds what there is: each is in the Secret that is meant to have it.
    let values = values(&stage.site).await;
    let places = found(&hidden, &values);
    for (what, place) in [
        ("bind password", "sign-in/directory"),
        ("bind password", "sign-in/auth-shop"),
        ("secret of a client", "sign-in/console"),
        ("hash of a password", "sign-in/emergency"),
        ("private key ca.key", "sign-in/auth-shop.keys"),
        ("storage-password", "sign-in/auth-shop.keys"),
        ("token of a kubeconfig", "sign-in/kubeconfig"),
        ("key for nodes", "sign-in/node-keys"),
        ("host key", "sign-in/jumphost-shop"),
        ("user of BMCs", "metal/sample-bmc-credentials"),
        ("password of BMCs", "metal/sample-bmc-credentials"),
    ] {
        assert!(places.contains(&(what, place)), "{what}: {places:?}");
    }
    assert!(!places.iter().any(|(what, _)| what.contains("Ada")), "{places:?}");
    // No Secret of the site was forgotten. Addresses of hosts are in status and inventory, as they are meant to be.
    let forgotten = values.iter().map(|(name, _)| name).filter(|name| {
        let is_searched = places.iter().any(|(_, place)| place == name);
        !is_searched && !name.ends_with("-network-data")
    });
    assert_eq!(forgotten.collect::<Vec<_>>(), [""; 0]);
}
