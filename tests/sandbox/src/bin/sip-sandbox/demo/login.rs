//! A person logs in to bank/payments: Dex, its agent and its etcd run in pods of the real node, a directory beside it, and an API server of its
//! own plays the tenant's.

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use sandbox::{
    kubelogin,
    login::Provider,
    process::{Group, Program},
    programs,
    site::Site,
    slapd::{BIND_DN, Directory, Person, SUFFIX},
    tools, wait,
};
use serde_json::{Value, json};

use super::{PATIENCE, Stage, api};

/// What the entry asks for. On a real node it is made of the Dex that the set-up has built.
pub(super) const DEX: &str = "dex:2";
/// The cluster that people log in to.
const CLUSTER: (&str, &str) = ("bank", "payments");
const NODE_PORT: u16 = 30_556;
const BIND_PASSWORD: &str = "password of the account that searches";
const ADA: Person<'_> = Person {
    uid: "ada",
    password: "correct-horse",
    groups: &["admins"],
};

/// What a login needs. It ends with this.
pub(super) struct SignIn {
    // In the order in which it ends.
    _tenant: Site,
    _directory: Directory,
    kubeconfig: PathBuf,
    _group: Group,
}

impl SignIn {
    /// Starts a directory, asks for an identity provider that is reached at the node's `address`, and logs in. Pods reach this machine at
    /// `here`.
    pub(super) async fn start(stage: &Stage, (address, here): (Ipv4Addr, Ipv4Addr)) -> anyhow::Result<Self> {
        let group = Group::new("sign-in")?;
        let directory = Directory::start_at(&group, here, &[ADA], &[BIND_PASSWORD]).await?;
        request(stage, &directory, address).await?;
        let published = published(stage).await?;
        let tenant = start_tenant(&group, &published).await?;
        let kubeconfig = group.directory().join("payments.kubeconfig");
        write_kubeconfig(&kubeconfig, stage, &tenant).await?;
        let user = whoami(&group, &kubeconfig, &published).await?;
        ensure!(
            user["username"] == format!("oidc:{}", ADA.email()) && user["groups"][0] == "oidc:admins",
            "kubectl auth whoami: {user}"
        );
        Ok(Self {
            _tenant: tenant,
            _directory: directory,
            kubeconfig,
            _group: group,
        })
    }

    /// How a reader logs in.
    pub(super) fn lines(&self) -> Vec<String> {
        let path = kubelogin::path().unwrap_or_default();
        vec![
            format!(
                "  PATH={}:$PATH kubectl --kubeconfig {} auth whoami",
                path.display(),
                self.kubeconfig.display()
            ),
            format!(
                "  # then open the address that it prints, and log in as {} with the password {}",
                ADA.uid, ADA.password
            ),
        ]
    }
}

/// Asks for an identity provider, and waits until it answers.
async fn request(stage: &Stage, directory: &Directory, address: Ipv4Addr) -> anyhow::Result<()> {
    let (namespace, name) = CLUSTER;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "directory"},
        "stringData": {"ca.crt": directory.authority()?, "password": BIND_PASSWORD},
    });
    let secrets: Api<Secret> = Api::namespaced(stage.site.client(), namespace);
    let apply = PatchParams::apply("sandbox");
    secrets.patch("directory", &apply, &Patch::Apply(secret)).await?;
    let entry = json!({
        "image": DEX, "nodeInterfaceId": "oam-ipv4", "nodePort": NODE_PORT, "clusterIP": address,
        "connectors": [{"id": "ldap", "name": "Staff", "ldap": {
            "host": directory.address(), "rootCA": {"name": "directory", "key": "ca.crt"},
            "bindDN": BIND_DN, "bindPassword": {"name": "directory", "key": "password"},
            "userSearch": {"baseDN": format!("ou=people,{SUFFIX}"), "username": "uid", "nameAttr": "cn"},
            "groupSearch": {"baseDN": format!("ou=groups,{SUFFIX}")},
        }}],
        "groups": [{"group": "admins", "clusterRole": "cluster-admin"}],
    });
    let patch = Patch::Merge(json!({"spec": {"services": {"auth": [entry]}}}));
    let clusters = api(stage, namespace);
    clusters.patch(name, &PatchParams::default(), &patch).await?;
    let answers = |object: &DynamicObject| wait::is_true(object, "AuthReady");
    let what = "the identity provider of bank/payments to be ready";
    wait::until(clusters.clone(), name, what, PATIENCE, answers).await?;
    let ready = |object: &DynamicObject| wait::is_true(object, "Ready");
    wait::until(clusters, name, "bank/payments to be Ready", PATIENCE, ready).await?;
    Ok(())
}

/// What the agent publishes for the tenant's operators.
async fn published(stage: &Stage) -> anyhow::Result<BTreeMap<String, String>> {
    let (namespace, name) = CLUSTER;
    let maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), namespace);
    let map = maps.get(&format!("auth-{name}-oidc")).await?;
    Ok(map.data.unwrap_or_default())
}

fn text<'a>(published: &'a BTreeMap<String, String>, key: &str) -> anyhow::Result<&'a str> {
    let text = published.get(key).map(String::as_str);
    text.with_context(|| format!("the ConfigMap has no key {key}"))
}

/// Starts an API server that takes the provider's tokens, with the rights of its groups.
async fn start_tenant(group: &Group, published: &BTreeMap<String, String>) -> anyhow::Result<Site> {
    let file = group.directory().join("authentication.json");
    fs::write(&file, text(published, "authentication-configuration.json")?)?;
    let tenant = Site::builder("payments").authentication(&file).start().await?;
    tenant.apply_yaml(text(published, "group-bindings.json")?).await?;
    Ok(tenant)
}

async fn write_kubeconfig(file: &Path, stage: &Stage, tenant: &Site) -> anyhow::Result<()> {
    let (namespace, name) = CLUSTER;
    let written = tokio::process::Command::new(programs::path("sipctl")?)
        .env("KUBECONFIG", stage.site.admin_kubeconfig())
        .args(["kubeconfig", &format!("{namespace}/{name}")])
        .args(["--server", tenant.server(), "--certificate-authority"])
        .arg(tenant.directory().join("pki/ca.crt"))
        .output()
        .await?;
    let errors = String::from_utf8_lossy(&written.stderr);
    ensure!(written.status.success(), "sipctl kubeconfig: {errors}");
    Ok(fs::write(file, written.stdout)?)
}

/// Who kubectl is to the tenant's API server, after a login by the form.
async fn whoami(
    group: &Group,
    kubeconfig: &Path,
    published: &BTreeMap<String, String>,
) -> anyhow::Result<Value> {
    let provider = Provider::new(text(published, "issuer")?, text(published, "ca.crt")?)?;
    let kubectl = Program::new("kubectl", tools::path("kubectl")?)
        .env("PATH", kubelogin::path()?)
        .env("KUBECONFIG", kubeconfig)
        // The plugin keeps tokens there, and people who follow the demo are to log in themselves.
        .env("KUBECACHEDIR", group.directory().join("kubectl-cache"))
        .args(["auth", "whoami", "--output=json"]);
    let mut kubectl = group.spawn(kubectl)?;
    let address = kubelogin::prompted(&mut kubectl).await?;
    kubelogin::browse(&address, &provider, (ADA.uid, ADA.password)).await?;
    kubectl.ended().await?;
    let log = fs::read_to_string(kubectl.log_path())?;
    let answer = log
        .find('{')
        .and_then(|begin| log.get(begin..))
        .unwrap_or_default();
    let answer: Value =
        serde_json::from_str(answer).with_context(|| format!("kubectl auth whoami: {log}"))?;
    Ok(answer["status"]["userInfo"].clone())
}
