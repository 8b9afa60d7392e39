//! What a jump host consists of on a real API server, and how it follows its spec. KWOK plays the nodes; sshd itself is tested in
//! `agents/jump-host/sidecar/tests/`.

mod keys;
mod new_members;
mod objects;
mod orphaned;
mod power_ca;
mod restarted;
mod revoked;
mod scheduler_away;
mod several;
mod taken_over;

use std::{
    collections::BTreeMap,
    ops::AsyncFnOnce,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU16, Ordering},
};

use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Secret, Service},
    },
};
use kube::{Api, Resource, core::NamespaceResourceScope};
use sandbox::{inventory::NETWORK, region::Agent};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::fixtures::{Cluster, RUNTIME, Role, Stage, cluster, host};

/// The key of somebody.
const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHkYbTUdYkDv2VvVb4rB1V9s9yq8VxC0xZ7Tq9m2QyZq ana@shop.example";
/// The key of somebody else.
const BEN: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJKuhnhOSnAF5+TvB6nYmKFUOvOF6q0+BoFUFJ3ABHG9 ben@shop.example";
const CONDITION: &str = "JumpHostReady";

static SITE: OnceCell<Stage> = OnceCell::const_new();

/// The node port of the next jump host without one: an API server would choose any, also one that another scenario names.
static NEXT_PORT: AtomicU16 = AtomicU16::new(32_100);

/// Plays a scenario on a site with a jump-host agent, in a namespace of its own with two hosts.
fn on_site(scenario: &str, play: impl AsyncFnOnce(&Stage)) {
    RUNTIME.block_on(async {
        let stage = SITE
            .get_or_init(async || {
                let mut stage = Stage::start("jump-hosts", &[]).await;
                for agent in [Agent::Cluster, Agent::JumpHost] {
                    stage
                        .start_agent_where(agent, |config| {
                            config.not_installed = vec!["loadBalancer".to_owned(), "auth".to_owned()];
                        })
                        .await;
                }
                stage.agents_are_ready().await;
                stage
            })
            .await;
        stage.site.create_tenant_namespace(scenario).await.unwrap();
        let hosts = [
            host(scenario, "cp", "r1", "one"),
            host(scenario, "worker", "r2", "two"),
        ];
        stage.load(&hosts).await;
        play(stage).await;
        let forbidden = stage.site.audit_log().unwrap();
        let user = crate::fixtures::user(Agent::JumpHost);
        let forbidden: Vec<_> = forbidden
            .into_iter()
            .filter(|entry| entry.user.username == user && entry.is_forbidden())
            .collect();
        assert!(forbidden.is_empty(), "{forbidden:#?}");
    });
}

/// A cluster with both hosts of its scenario and this jump host.
fn with_jump_host(scenario: &str, entry: &Value) -> Cluster {
    let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
    let mut complete = json!({
        "image": "jump-host:1", "nodeInterfaceId": NETWORK, "nodePort": port, "sshAuthorizedKeys": [KEY],
    });
    complete
        .as_object_mut()
        .unwrap()
        .extend(entry.as_object().unwrap().clone());
    with_jump_hosts(scenario, &[complete])
}

/// A cluster with both hosts of its scenario and these jump hosts.
fn with_jump_hosts(scenario: &str, entries: &[Value]) -> Cluster {
    cluster(scenario, "shop")
        .role(Role::ControlPlane, 1)
        .role(Role::Worker, 1)
        .with("/services/jumpHost", json!(entries))
}

const NAME: &str = "jumphost-shop";

fn api<K>(stage: &Stage, scenario: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(stage.site.client(), scenario)
}

async fn secret(stage: &Stage, scenario: &str) -> BTreeMap<String, ByteString> {
    let secret = api::<Secret>(stage, scenario).get(NAME).await.unwrap();
    secret.data.unwrap()
}

async fn files(stage: &Stage, scenario: &str) -> BTreeMap<String, String> {
    let map = api::<ConfigMap>(stage, scenario).get(NAME).await.unwrap();
    map.data.unwrap()
}

async fn deployment(stage: &Stage, scenario: &str) -> Deployment {
    api(stage, scenario).get(NAME).await.unwrap()
}

/// A new private key, and its fingerprint as ssh shows it.
pub(crate) fn key(kind: &str) -> (Vec<u8>, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", kind, "-N", "", "-f"])
        .arg(&file)
        .status();
    assert!(made.unwrap().success());
    (std::fs::read(&file).unwrap(), fingerprint(&file))
}

fn fingerprint(file: &Path) -> String {
    let listed = Command::new("ssh-keygen").arg("-lf").arg(file).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.split(' ').nth(1).unwrap().to_owned()
}

/// That of a private key in a Secret.
fn fingerprint_of(private: &ByteString) -> String {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, &private.0).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    fingerprint(&file)
}

/// The Service of a scenario.
async fn service(stage: &Stage, scenario: &str) -> Service {
    api(stage, scenario).get(NAME).await.unwrap()
}
