//! A person with kubectl, its plugin kubelogin and a browser.

use std::{fs, path::PathBuf, process::Command};

use api::conditions::AUTH_READY;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, config::Kubeconfig};
use sandbox::{
    browser::Browser,
    kubelogin,
    process::{Group, Process, Program},
    programs,
    site::{Builder, Nodes, Site},
    slapd::Person,
    tools,
};
use serde_json::{Value, json};

use super::{ADA, BIND_PASSWORD, BOB, Scene};
use crate::fixtures::{Cluster, Outputs, bind_groups, published_outputs};

const PORT: u16 = 31_620;
const ISSUER: &str = "https://127.0.0.1:31620/dex";
/// What only the page has that kubelogin shows after a login.
const DONE: &str = ".placeholder";

/// A person's machine.
pub(crate) struct Desk<'a> {
    group: &'a Group,
    issuer: String,
    browser: Browser,
    kubeconfig: PathBuf,
}

impl<'a> Desk<'a> {
    /// With the kubeconfig that sipctl writes for a cluster of a site, and a browser that trusts its provider.
    pub(crate) async fn new(
        (site, group): (&Site, &'a Group),
        cluster: &Cluster,
        issuer: &str,
        tenant: &Site,
    ) -> Self {
        let secrets: Api<Secret> = Api::namespaced(site.client(), &cluster.namespace);
        let served = secrets.get(&format!("auth-{}", cluster.name)).await.unwrap();
        let certificate = String::from_utf8(served.data.unwrap()["tls.crt"].0.clone()).unwrap();
        let written = Command::new(programs::path("sipctl").unwrap())
            .env("KUBECONFIG", site.admin_kubeconfig())
            .arg("kubeconfig")
            .arg(format!("{}/{}", cluster.namespace, cluster.name))
            .args(["--server", tenant.server(), "--certificate-authority"])
            .arg(tenant.directory().join("pki/ca.crt"))
            .output()
            .unwrap();
        assert!(
            written.status.success(),
            "{}",
            String::from_utf8_lossy(&written.stderr)
        );
        let kubeconfig = group.directory().join("tenant.kubeconfig");
        fs::write(&kubeconfig, written.stdout).unwrap();
        Self {
            group,
            issuer: issuer.to_owned(),
            browser: Browser::start(group, &certificate).await.unwrap(),
            kubeconfig,
        }
    }

    /// Runs kubectl, and logs in as it asks. Returns whether it succeeds, and what it writes after the login.
    pub(crate) async fn log_in(&self, person: Person<'_>, arguments: &[&str]) -> (bool, String) {
        let mut kubectl = self.start(person.uid, arguments);
        let address = kubelogin::prompted(&mut kubectl).await.unwrap();
        self.browser.open(&address).await.unwrap();
        assert!(self.browser.url().await.unwrap().starts_with(&self.issuer));
        self.submit(person.uid, "wrong").await;
        self.browser.shows("#login-error").await.unwrap();
        self.submit(person.uid, person.password).await;
        self.browser.shows(DONE).await.unwrap();
        assert!(self.browser.url().await.unwrap().starts_with(&address));
        let status = kubectl.ended().await.unwrap().unwrap();
        let log = fs::read_to_string(kubectl.log_path()).unwrap();
        let (_, after) = log.rsplit_once(kubelogin::PROMPT).unwrap();
        let written = after.split_once('\n').unwrap().1;
        (status.success(), written.to_owned())
    }

    /// Runs kubectl for somebody who has logged in. Returns what it writes.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        let mut kubectl = self.start("again", arguments);
        let status = kubectl.ended().await.unwrap().unwrap();
        let log = fs::read_to_string(kubectl.log_path()).unwrap();
        assert!(status.success() && !log.contains(kubelogin::PROMPT), "{log}");
        log
    }

    /// Logs in a person of the group `admins`, who then lists nodes without another login.
    pub(crate) async fn admin_lists_nodes(&self, admin: Person<'_>) {
        let whoami = ["auth", "whoami", "--output", "json"];
        let (succeeded, answer) = self.log_in(admin, &whoami).await;
        assert!(succeeded, "{answer}");
        println!("kubectl auth whoami: {answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let user = &answer["status"]["userInfo"];
        assert_eq!(user["username"], format!("oidc:{}@example.org", admin.uid));
        assert_eq!(user["groups"], json!(["oidc:admins", "system:authenticated"]));
        let nodes = self.kubectl(&["get", "nodes", "--output", "name"]).await;
        println!("kubectl get nodes, as {}: {nodes}", admin.uid);
        assert!(nodes.starts_with("node/"), "{nodes}");
    }

    /// Logs out the present user. A person without permissions logs in there as well, and may list no nodes.
    pub(crate) async fn stranger_lists_none(&self, stranger: Person<'_>) {
        println!("{}", self.kubectl(&["oidc-login", "clean"]).await);
        let list = ["get", "nodes", "--output", "name"];
        let (succeeded, refused) = self.log_in(stranger, &list).await;
        println!("kubectl get nodes, as {}: {refused}", stranger.uid);
        let why = format!(
            "User \"oidc:{}@example.org\" cannot list resource \"nodes\"",
            stranger.uid
        );
        assert!(!succeeded && refused.contains(&why), "{refused}");
    }

    fn start(&self, name: &str, arguments: &[&str]) -> Process {
        let name = format!("kubectl-{name}-{}", arguments[..2].join("-"));
        let program = Program::new(&name, tools::path("kubectl").unwrap())
            .env("PATH", kubelogin::path().unwrap())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", self.group.directory().join("kubectl-cache"))
            .args(arguments.iter().copied());
        self.group.spawn(program).unwrap()
    }

    /// How the kubeconfig calls the plugin.
    fn plugin(&self) -> Vec<String> {
        let mut kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let login = kubeconfig.auth_infos.remove(0).auth_info.unwrap();
        login.exec.unwrap().args.unwrap()
    }

    async fn submit(&self, name: &str, password: &str) {
        for (field, text) in [("#login", name), ("#password", password)] {
            self.browser.clear(field).await.unwrap();
            self.browser.fill(field, text).await.unwrap();
        }
        self.browser.click("#submit-login").await.unwrap();
    }
}

/// Gives the groups of a provider their roles in a tenant's cluster, where `node-reader` may list nodes.
pub(crate) async fn bind_node_readers(tenant: &Site, outputs: &Outputs) {
    let role = [
        "create",
        "clusterrole",
        "node-reader",
        "--verb=get,list",
        "--resource=nodes",
    ];
    tenant.kubectl_ok(&role).await.unwrap();
    bind_groups(tenant, outputs).await;
}

/// A tenant's API server with the flags of the `ConfigMap`.
async fn tenant(scene: &Scene) -> Site {
    let outputs = published_outputs(&scene.api()).await;
    let authority = scene.group.directory().join("oidc-ca.crt");
    fs::write(&authority, &outputs["ca.crt"]).unwrap();
    let flags = outputs["kube-apiserver-flags"].replace(
        "/etc/kubernetes/pki/oidc-ca.crt",
        &authority.display().to_string(),
    );
    let builder = Site::builder("tenant").nodes(Nodes::Kwok(1));
    let tenant = flags.lines().fold(builder, Builder::api_server_flag);
    let tenant = tenant.start().await.unwrap();
    bind_node_readers(&tenant, &outputs).await;
    tenant
}

#[tokio::test]
async fn an_admin_lists_nodes_after_a_login_in_the_browser() {
    let scene = Scene::start().await;
    let stage = &scene.stage;
    scene.set_bind_password(BIND_PASSWORD).await;
    let groups = json!([{"group": "admins", "clusterRole": "node-reader"}]);
    let shop = scene
        .cluster("shop", PORT)
        .with("/services/auth/0/groups", groups);
    stage.create(&shop).await;
    stage
        .condition_is(&shop, AUTH_READY.as_str(), "False", "IssuerUnreachable")
        .await;
    let _dex = scene.run("auth-shop", PORT).await;
    stage.ready(&shop).await;
    let tenant = tenant(&scene).await;
    let desk = Desk::new((&stage.site, &scene.group), &shop, ISSUER, &tenant).await;

    desk.admin_lists_nodes(ADA).await;

    // She does not have to log in again when her token has expired.
    let plugin = desk.plugin();
    let plugin: Vec<&str> = plugin.iter().map(String::as_str).collect();
    let token = async |more: &[&str]| {
        let log = desk.kubectl(&[&plugin, more].concat()).await;
        let credential: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        credential["status"]["token"].as_str().unwrap().to_owned()
    };
    let (first, next) = (token(&[]).await, token(&["--force-refresh"]).await);
    assert_ne!(first, next);
    assert_eq!(token(&[]).await, next);

    desk.stranger_lists_none(BOB).await;
}
