//! A person with kubectl and a browser. Of all that takes part in the login only kubelogin is not the original.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use api::conditions::AUTH_READY;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use sandbox::{
    browser::Browser,
    kubelogin::{DONE, PROMPT},
    process::{Process, Program},
    programs,
    site::{Builder, Nodes, Site},
    slapd::Person,
    tools,
};
use serde_json::{Value, json};

use super::{ADA, BIND_PASSWORD, BOB, Scene};
use crate::fixtures::{Cluster, PATIENCE};

const PORT: u16 = 31_620;
const ISSUER: &str = "https://127.0.0.1:31620/dex";

/// A person's machine.
struct Desk<'a> {
    scene: &'a Scene,
    browser: Browser,
    kubeconfig: PathBuf,
}

impl<'a> Desk<'a> {
    /// With the kubeconfig that sipctl writes for a cluster, and a browser that trusts its provider.
    async fn new(scene: &'a Scene, cluster: &Cluster, tenant: &Site) -> Self {
        let secrets: Api<Secret> = scene.api();
        let served = secrets.get(&format!("auth-{}", cluster.name)).await.unwrap();
        let certificate = String::from_utf8(served.data.unwrap()["tls.crt"].0.clone()).unwrap();
        let written = Command::new(programs::path("sipctl").unwrap())
            .env("KUBECONFIG", scene.stage.site.admin_kubeconfig())
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
        let kubeconfig = scene.group.directory().join("tenant.kubeconfig");
        fs::write(&kubeconfig, written.stdout).unwrap();
        Self {
            scene,
            browser: Browser::start(&scene.group, &certificate).await.unwrap(),
            kubeconfig,
        }
    }

    /// Runs kubectl, and logs in as it asks. Returns whether it succeeds, and what it writes after the login.
    async fn kubectl(&self, person: Person<'_>, arguments: &[&str]) -> (bool, String) {
        let mut kubectl = self.start(&[person.uid, arguments[0]].join("-"), arguments);
        let address = prompted(&mut kubectl).await;
        self.browser.open(&address).await.unwrap();
        assert!(self.browser.url().await.unwrap().starts_with(ISSUER));
        self.submit(person.uid, "wrong").await;
        self.browser.shows("#login-error").await.unwrap();
        self.submit(person.uid, person.password).await;
        self.browser.shows(DONE).await.unwrap();
        assert!(self.browser.url().await.unwrap().starts_with(&address));
        let status = kubectl.ended().await.unwrap().unwrap();
        let log = fs::read_to_string(kubectl.log_path()).unwrap();
        let (_, after) = log.rsplit_once(PROMPT).unwrap();
        let written = after.split_once('\n').unwrap().1;
        (status.success(), written.to_owned())
    }

    fn start(&self, name: &str, arguments: &[&str]) -> Process {
        let kubectl = tools::path("kubectl").unwrap();
        let plugin = programs::path("kubectl-oidc_login").unwrap();
        let directories = [&kubectl, &plugin].map(|program| program.parent().unwrap().display().to_string());
        let program = Program::new(&format!("kubectl-of-{name}"), &kubectl)
            .env("PATH", directories.join(":"))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", self.scene.group.directory().join("kubectl-cache"))
            .args(arguments.iter().copied());
        self.scene.group.spawn(program).unwrap()
    }

    async fn submit(&self, name: &str, password: &str) {
        for (field, text) in [("#login", name), ("#password", password)] {
            self.browser.clear(field).await.unwrap();
            self.browser.fill(field, text).await.unwrap();
        }
        self.browser.click("#submit-login").await.unwrap();
    }
}

/// Waits until kubectl asks for a login, and returns the address.
async fn prompted(kubectl: &mut Process) -> String {
    let asked = async {
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        loop {
            pace.tick().await;
            let log = fs::read_to_string(kubectl.log_path()).unwrap();
            if let Some((_, after)) = log.rsplit_once(PROMPT)
                && let Some((address, _)) = after.split_once('\n')
            {
                return address.trim().to_owned();
            }
            kubectl.check().unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap()
}

/// A tenant's API server with the flags of the `ConfigMap`.
async fn tenant(scene: &Scene) -> Site {
    let maps: Api<ConfigMap> = scene.api();
    let outputs = maps.get("auth-shop-oidc").await.unwrap().data.unwrap();
    let authority = scene.group.directory().join("oidc-ca.crt");
    fs::write(&authority, &outputs["ca.crt"]).unwrap();
    let flags = outputs["kube-apiserver-flags"].replace(
        "/etc/kubernetes/pki/oidc-ca.crt",
        &authority.display().to_string(),
    );
    let builder = Site::builder("tenant").nodes(Nodes::Kwok(1));
    let tenant = flags.lines().fold(builder, Builder::api_server_flag);
    let tenant = tenant.start().await.unwrap();
    let role = [
        "create",
        "clusterrole",
        "node-reader",
        "--verb=get,list",
        "--resource=nodes",
    ];
    tenant.kubectl_ok(&role).await.unwrap();
    let bindings = tenant.kubectl_with(&["apply", "--filename", "-"], &outputs["group-bindings.json"]);
    let bindings = bindings.await.unwrap();
    assert!(bindings.success, "{}", bindings.stderr);
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
    let desk = Desk::new(&scene, &shop, &tenant).await;

    let (succeeded, whoami) = desk.kubectl(ADA, &["auth", "whoami", "--output", "json"]).await;
    assert!(succeeded, "{whoami}");
    println!("kubectl auth whoami: {whoami}");
    let whoami: Value = serde_json::from_str(&whoami).unwrap();
    let user = &whoami["status"]["userInfo"];
    assert_eq!(user["username"], "oidc:ada@example.org");
    assert_eq!(user["groups"], json!(["oidc:admins", "system:authenticated"]));
    let (succeeded, nodes) = desk.kubectl(ADA, &["get", "nodes", "--output", "name"]).await;
    println!("kubectl get nodes, as ada: {nodes}");
    assert!(succeeded && nodes.starts_with("node/"), "{nodes}");

    // Bob logs in as well, and may do nothing.
    let (succeeded, refused) = desk.kubectl(BOB, &["get", "nodes", "--output", "name"]).await;
    println!("kubectl get nodes, as bob: {refused}");
    let why = "User \"oidc:bob@example.org\" cannot list resource \"nodes\"";
    assert!(!succeeded && refused.contains(why), "{refused}");
}
