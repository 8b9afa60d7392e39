//! Identity providers that really run: Dex in restricted pods on a real node, with people who log in while everything changes.

mod at_browser;
mod faults;
mod load;

use std::{collections::BTreeSet, fs, process::Command, sync::Arc, time::Duration};

use api::annotations::CONFIG_HASH;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::watcher,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};
use sandbox::{
    dex,
    etcd::Etcd,
    inventory::NETWORK,
    login::{Form, Login, Provider, REDIRECT, Token},
    node,
    process::Group,
    region::{Agent, AgentProcess, HOSTS_NAMESPACE, Region},
    site::{Nodes, Site},
    slapd::{BIND_DN, Directory, SUFFIX},
    wait,
};
use serde_json::{Value, json};

use self::load::{Load, People};
use crate::{
    fixtures::{Cluster, PATIENCE, Role, Stage, authenticating, cluster, published_outputs},
    identity_providers::BOB,
};

const NAMESPACE: &str = "sign-in";
const PORT: u16 = 31_560;
/// The account that searches has both, as in the time in which a password is changed.
const BIND_PASSWORDS: [&str; 2] = ["the first p$HOME", "the next p$HOME"];
const CLIENT: &str = "kubernetes";
/// Logins a second.
const LOGINS: u32 = 4;

/// A certificate authority of the tenant.
struct Authority {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        Self {
            certificate: params.self_signed(&key).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

/// A site with a real node and the Dex agent, and what providers need: where pods reach it.
struct Scene {
    stage: Stage,
    _agent: AgentProcess,
    group: Group,
    directory: Directory,
    _etcd: Etcd,
    authorities: [Authority; 2],
    people: People,
}

impl Scene {
    /// With so many people.
    async fn start(people: usize) -> Self {
        let people = People::new(people);
        let site = Site::builder("sign-in")
            .nodes(Nodes::Real)
            .image(dex::image("dex:2").unwrap());
        let region = Arc::new(Region::start("north").await.unwrap());
        let mut stage = Stage::start_with(region, site, &[HOSTS_NAMESPACE], &[]).await;
        stage.site.create_tenant_namespace(NAMESPACE).await.unwrap();
        let restricted = "pod-security.kubernetes.io/enforce=restricted";
        stage
            .kubectl(&["label", "namespace", NAMESPACE, restricted])
            .await;
        let here = stage.site.node().unwrap().host_address();
        let group = Group::new("sign-in").unwrap();
        let known: Vec<_> = people.all().into_iter().chain([BOB]).collect();
        let directory = Directory::start_at(&group, here, &known, &BIND_PASSWORDS);
        let directory = directory.await.unwrap();
        let etcd = Etcd::start_at(&group, 1, here).await.unwrap();
        let password = group.directory().join("storage-password");
        fs::write(&password, "password of the storage").unwrap();
        let sections = |config: &mut sandbox::region::SiteConfig| {
            config.not_installed = vec!["jumpHost".to_owned(), "loadBalancer".to_owned()];
        };
        stage.start_agent_where(Agent::Cluster, sections).await;
        let variables = [
            ("SIP_DEX_STORAGE_ENDPOINTS", etcd.endpoints().join(",")),
            ("SIP_DEX_STORAGE_PASSWORD_FILE", password.display().to_string()),
        ];
        let config = stage.config(&[HOSTS_NAMESPACE]);
        let agent = stage
            .region
            .start_agent_with(&stage.site, Agent::Dex, &config, &variables);
        let mut agent = agent.await.unwrap();
        stage.agents_are_ready().await;
        agent.is_ready().await.unwrap();
        let scene = Self {
            stage,
            _agent: agent,
            group,
            directory,
            _etcd: etcd,
            authorities: ["first", "next"].map(Authority::new),
            people,
        };
        scene.set_bind_password(BIND_PASSWORDS[0]).await;
        scene.issue_from(&scene.authorities[0]).await;
        scene
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.stage.site.client(), NAMESPACE)
    }

    /// A cluster without hosts, with a provider at the node's port.
    fn shop(&self) -> Cluster {
        let node = self.stage.site.node().unwrap();
        let entry = json!({
            "image": "dex:2", "nodeInterfaceId": NETWORK, "nodePort": PORT, "clusterIP": node.address(),
            "caSecret": "authority",
            "connectors": [{"id": "ldap", "name": "Directory", "ldap": {
                "host": self.directory.address(), "rootCA": {"name": "directory", "key": "ca.crt"},
                "bindDN": BIND_DN, "bindPassword": {"name": "directory", "key": "password"},
                "userSearch": {"baseDN": format!("ou=people,{SUFFIX}"), "username": "uid", "nameAttr": "cn"},
                "groupSearch": {"baseDN": format!("ou=groups,{SUFFIX}")},
            }}],
            "groups": [{"group": "admins", "clusterRole": "view"}],
        });
        cluster(NAMESPACE, "shop")
            .role(Role::Worker, 0)
            .with("/services/auth", json!([entry]))
    }

    async fn write_secret(&self, name: &str, values: &Value) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values,
        });
        let secrets: Api<Secret> = self.api();
        let apply = PatchParams::apply("test").force();
        secrets.patch(name, &apply, &Patch::Apply(secret)).await.unwrap();
    }

    async fn set_bind_password(&self, password: &str) {
        let authority = self.directory.authority().unwrap();
        self.write_secret("directory", &json!({"ca.crt": authority, "password": password}))
            .await;
    }

    /// Certificates come from this CA; both are published.
    async fn issue_from(&self, authority: &Authority) {
        let published = self
            .authorities
            .each_ref()
            .map(|authority| authority.certificate.as_str());
        let values = json!({
            "tls.crt": authority.certificate, "tls.key": authority.key, "ca.crt": published.concat(),
        });
        self.write_secret("authority", &values).await;
    }

    /// The provider as its status publishes it.
    async fn provider(&self, shop: &Cluster) -> Provider {
        let object = self.stage.ready(shop).await;
        let published = object.data.pointer("/status/endpoints/0").unwrap();
        let text = |field: &str| published[field].as_str().unwrap();
        let address = self.stage.site.node().unwrap().address();
        assert_eq!(text("issuer"), format!("https://{address}:{PORT}/dex"));
        Provider::new(text("issuer"), text("caBundle")).unwrap()
    }

    async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = self.api();
        pods.list(&ListParams::default()).await.unwrap().items
    }

    /// Waits until only pods with another configuration than these run, and all of them are ready.
    async fn rolled_out(&self, before: &BTreeSet<String>, what: &str) {
        let deployments: Api<Deployment> = self.api();
        let what = format!("new pods after a change of {what}");
        let complete = |deployment: &Deployment| {
            let status = deployment.status.as_ref();
            let counts = status.map(|status| {
                [
                    status.replicas,
                    status.updated_replicas,
                    status.available_replicas,
                ]
                .map(Option::unwrap_or_default)
            });
            counts == Some([2, 2, 2])
                && status.and_then(|status| status.observed_generation) == deployment.metadata.generation
        };
        let pods: Api<Pod> = self.api();
        let replaced = |pods: &[&Pod]| {
            pods.len() == 2
                && pods
                    .iter()
                    .all(|pod| !before.contains(&hash(pod)) && is_ready(pod))
        };
        wait::until_all(pods, watcher::Config::default(), &what, PATIENCE, replaced)
            .await
            .unwrap();
        wait::until(deployments, "auth-shop", &what, PATIENCE, complete)
            .await
            .unwrap();
    }

    /// Kills the process of a pod, as a fault of Dex would.
    fn kill(&self, pod: Pod) {
        let container = pod.status.unwrap().container_statuses.unwrap().remove(0);
        let id = container.container_id.unwrap();
        let killed = Command::new(node::system_program("ctr").unwrap())
            .arg("--address")
            .arg(self.stage.site.node().unwrap().containerd())
            .args(["--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL"])
            .arg(id.trim_start_matches("containerd://"))
            .output()
            .unwrap();
        assert!(
            killed.status.success(),
            "{}",
            String::from_utf8_lossy(&killed.stderr)
        );
    }

    async fn hashes(&self) -> BTreeSet<String> {
        self.pods().await.iter().map(hash).collect()
    }

    /// Every pod is ready, and there are two.
    async fn complete(&self, without: &str) {
        let pods: Api<Pod> = self.api();
        let complete = |pods: &[&Pod]| {
            pods.len() == 2 && pods.iter().all(|pod| pod.name_any() != without && is_ready(pod))
        };
        wait::until_all(
            pods,
            watcher::Config::default(),
            "two ready pods",
            PATIENCE,
            complete,
        )
        .await
        .unwrap();
    }
}

fn hash(pod: &Pod) -> String {
    pod.annotations()[CONFIG_HASH].clone()
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn form(provider: &Provider) -> Form {
    provider.form(CLIENT, (REDIRECT, &[])).await.unwrap().unwrap()
}

/// Ends a login that began earlier.
async fn finish(provider: &Provider, form: &Form, person: (&str, &str)) -> Token {
    let login = provider.submit(form, person).await.unwrap();
    let Login::Code(code) = login else {
        panic!("{login:?}");
    };
    let token = provider.redeem(CLIENT, REDIRECT, &code, &[]).await.unwrap();
    token.unwrap()
}

/// A tenant's API server with the configuration of its provider.
async fn tenant(scene: &Scene) -> Site {
    let outputs = published_outputs(&scene.api()).await;
    authenticating(&outputs, scene.group.directory(), Nodes::None).await
}

async fn is_accepted(tenant: &Site, token: &Token) {
    let token = format!("--token={}", token.text);
    let server = tenant.server();
    let anonymous = [
        "--kubeconfig=/dev/null",
        "--insecure-skip-tls-verify",
        "--server",
        server,
        &token,
    ];
    let answer = tenant
        .kubectl(&[&anonymous[..], &["auth", "whoami"]].concat())
        .await
        .unwrap();
    assert!(
        answer.success && answer.stdout.contains("oidc:admins"),
        "{}",
        answer.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn people_log_in_at_pods_of_a_restricted_namespace() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let scene = Box::pin(Scene::start(1)).await;
    let shop = scene.shop();
    scene.stage.create(&shop).await;
    let provider = scene.provider(&shop).await;
    let tenant = tenant(&scene).await;
    let person = scene.people.names(0);
    let person = (person.0.as_str(), person.1.as_str());
    let token = finish(&provider, &form(&provider).await, person).await;
    is_accepted(&tenant, &token).await;

    // A pod's process is killed while somebody types.
    let began = form(&provider).await;
    scene.kill(scene.pods().await.remove(0));
    // The node leads new connections to it until it has noticed, and a browser's user tries again.
    let tried = async {
        loop {
            match provider.submit(&began, person).await {
                Ok(Login::Code(code)) => return code,
                Ok(other) => panic!("{other:?}"),
                Err(error) => println!("tried again: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let code = tokio::time::timeout(PATIENCE, tried).await.unwrap();
    scene.complete("").await;
    let token = provider.redeem(CLIENT, REDIRECT, &code, &[]).await.unwrap();
    is_accepted(&tenant, &token.unwrap()).await;
    scene.stage.nothing_was_forbidden();
}

/// Logins a second that somebody wants to be shown.
fn requested_logins() -> Option<u32> {
    let requested = std::env::var("SOAK_LOGINS").ok();
    requested.map(|logins| logins.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_login_fails_while_everything_is_changed() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let requested = requested_logins();
    let logins = requested.unwrap_or(LOGINS);
    // A machine that is slower than what it is asked for shows nothing; in the ordinary tests any is good enough.
    let least = requested.map_or(1.0, |logins| 0.8 * f64::from(logins));
    // As many as log in concurrently at most: a slow machine has fewer logins a second, and none waits for long.
    let people = usize::try_from(logins).unwrap() * 2 + 1;
    let scene = Box::pin(Scene::start(people)).await;
    let stage = &scene.stage;
    let shop = scene.shop();
    stage.create(&shop).await;
    let provider = scene.provider(&shop).await;
    let tenant = tenant(&scene).await;
    let (name, password) = scene.people.names(0);
    let person = (name.as_str(), password.as_str());
    let first = finish(&provider, &form(&provider).await, person).await;
    let load = Load::start(&provider, &scene.people, logins, least);

    let more = json!([
        {"id": CLIENT, "redirectURIs": [REDIRECT]},
        {"id": "another", "redirectURIs": ["http://localhost:9000"]},
    ]);
    let with_client = scene.shop().with("/services/auth/0/clients", more);
    for what in ["a client", "the bind password", "the certificate", "the CA"] {
        let (before, began) = (scene.hashes().await, form(&provider).await);
        match what {
            "a client" => stage.edit(&shop, with_client.spec().clone()).await,
            "the bind password" => scene.set_bind_password(BIND_PASSWORDS[1]).await,
            "the certificate" => {
                let secrets: Api<Secret> = scene.api();
                let removed = Patch::Merge(json!({"data": {"tls.crt": null}}));
                let params = PatchParams::default();
                secrets.patch("auth-shop.keys", &params, &removed).await.unwrap();
            }
            _ => scene.issue_from(&scene.authorities[1]).await,
        }
        scene.rolled_out(&before, what).await;
        finish(&provider, &began, person).await;
        load.report(what);
    }
    let began = form(&provider).await;
    let (pods, pod) = (scene.api::<Pod>(), scene.pods().await.remove(0).name_any());
    pods.delete(&pod, &DeleteParams::default()).await.unwrap();
    scene.complete(&pod).await;
    finish(&provider, &began, person).await;
    load.report("a pod that is deleted");
    let failed = load.end().await;
    if !failed.is_empty() {
        let logs = [
            "logs",
            "--namespace",
            NAMESPACE,
            "--selector=app.kubernetes.io/name=dex",
            "--tail=1000",
        ];
        let logs = stage.kubectl(&logs).await;
        let errors = logs
            .lines()
            .filter(|line| line.contains("level=error") || line.contains("\"level\":\"error\""));
        println!("{}", errors.collect::<Vec<_>>().join("\n"));
    }
    assert!(failed.is_empty(), "{failed:#?}");

    // What was issued before is good until it expires.
    for token in [first, finish(&provider, &form(&provider).await, person).await] {
        is_accepted(&tenant, &token).await;
    }
    stage.nothing_was_forbidden();
}
