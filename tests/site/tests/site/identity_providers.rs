//! Identity providers of clusters: the agent's objects on a real API server, what they hold run by a real Dex beside it (the site's
//! nodes are fake), and a tenant's API server that takes its tokens.

pub(crate) mod browser;
mod changed;
mod refused;
mod searched;
mod several;

use std::{collections::BTreeMap, fs, sync::Arc};

use api::conditions::AUTH_READY;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret, Service},
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use sandbox::{
    dex::Dex,
    etcd::Etcd,
    inventory::NETWORK,
    login::{Login, Provider, REDIRECT, Token},
    process::Group,
    region::{Agent, AgentProcess, HOSTS_NAMESPACE, Region},
    site::{Answer, Nodes, Site},
    slapd::{BIND_DN, Directory, Person, SUFFIX},
    wait,
};
use serde_json::{Value, json};

use crate::fixtures::{
    Cluster, PATIENCE, Role, Stage, authenticating, bind_groups, claim_port, cluster, published_outputs,
};

const NAMESPACE: &str = "sign-in";
const BIND_PASSWORD: &str = "p$HOME\"\\x";
const ADA: Person<'_> = Person {
    uid: "ada",
    password: "correct horse",
    groups: &["admins"],
};
/// Somebody without rights.
pub(crate) const BOB: Person<'_> = Person {
    uid: "bob",
    password: "battery staple",
    groups: &["readers"],
};

/// A site with the Dex agent, and what providers need.
struct Scene {
    stage: Stage,
    agent: AgentProcess,
    group: Group,
    directory: Directory,
    _etcd: Etcd,
}

impl Scene {
    async fn start() -> Self {
        Self::start_with(BIND_PASSWORD, "info", &[]).await
    }

    /// With this password of the account that searches the directory, programs that log what this filter says, and these agents besides.
    async fn start_with(bind_password: &str, log: &str, others: &[Agent]) -> Self {
        let group = Group::new("sign-in").unwrap();
        let directory = Directory::start(&group, &[ADA, BOB], bind_password)
            .await
            .unwrap();
        let etcd = Etcd::start(&group, 1).await.unwrap();
        let password = group.directory().join("storage-password");
        fs::write(&password, "password of the storage").unwrap();
        let logging = ("RUST_LOG", log.to_owned());
        let region = Region::start_with("north", std::slice::from_ref(&logging));
        let region = Arc::new(region.await.unwrap());
        let mut stage = Stage::start_in(region, "sign-in", &[HOSTS_NAMESPACE], &[]).await;
        stage.site.create_tenant_namespace(NAMESPACE).await.unwrap();
        let mut config = stage.config(&[HOSTS_NAMESPACE]);
        let variables = [
            logging.clone(),
            ("SIP_DEX_STORAGE_ENDPOINTS", etcd.endpoints().join(",")),
            ("SIP_DEX_STORAGE_PASSWORD_FILE", password.display().to_string()),
        ];
        let agent = stage
            .region
            .start_agent_with(&stage.site, Agent::Dex, &config, &variables);
        let mut agent = agent.await.unwrap();
        let sections = [
            (Agent::JumpHost, "jumpHost"),
            (Agent::LoadBalancer, "loadBalancer"),
        ];
        let absent = sections.iter().filter(|(agent, _)| !others.contains(agent));
        config.not_installed = absent.map(|(_, section)| (*section).to_owned()).collect();
        for agent in [&[Agent::Cluster], others].concat() {
            let mut variables = vec![logging.clone()];
            if agent == Agent::JumpHost {
                variables.extend(stage.region.power_port(&stage.site).unwrap().variables(None));
            }
            let started = stage
                .region
                .start_agent_with(&stage.site, agent, &config, &variables);
            let started = started.await.unwrap();
            stage.agents.insert(agent, started);
        }
        stage.agents_are_ready().await;
        agent.is_ready().await.unwrap();
        Self {
            stage,
            agent,
            group,
            directory,
            _etcd: etcd,
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.stage.site.client(), NAMESPACE)
    }

    /// A cluster without hosts, whose provider is on this port of loopback.
    fn cluster(&self, name: &str, port: u16) -> Cluster {
        claim_port(port);
        let entry = json!({
            "image": "dex:2", "nodeInterfaceId": NETWORK, "nodePort": port, "clusterIP": "127.0.0.1",
            "connectors": [{"id": "ldap", "name": "Directory", "ldap": {
                "host": self.directory.address(), "rootCA": {"name": "directory", "key": "ca.crt"},
                "bindDN": BIND_DN, "bindPassword": {"name": "directory", "key": "password"},
                "userSearch": {"baseDN": format!("ou=people,{SUFFIX}"), "username": "uid", "nameAttr": "cn"},
                "groupSearch": {"baseDN": format!("ou=groups,{SUFFIX}")},
            }}],
            "groups": [{"group": "admins", "clusterRole": "view"}],
        });
        cluster(NAMESPACE, name)
            .role(Role::Worker, 0)
            .with("/services/auth", json!([entry]))
    }

    async fn set_bind_password(&self, password: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "directory"},
            "stringData": {"ca.crt": self.directory.authority().unwrap(), "password": password},
        });
        let secrets: Api<Secret> = self.api();
        let apply = PatchParams::apply("test").force();
        secrets
            .patch("directory", &apply, &Patch::Apply(secret))
            .await
            .unwrap();
    }

    /// What a pod of a provider would read, run by Dex.
    async fn run(&self, instance: &str, port: u16) -> Dex {
        let secrets: Api<Secret> = self.api();
        let files = secrets.get(instance).await.unwrap().data.unwrap();
        let files: BTreeMap<String, Vec<u8>> = files.into_iter().map(|(name, file)| (name, file.0)).collect();
        let deployments: Api<Deployment> = self.api();
        let pod = deployments
            .get(instance)
            .await
            .unwrap()
            .spec
            .template
            .spec
            .unwrap();
        let environment = pod.containers[0].env.iter().flatten();
        let environment: Vec<_> = environment
            .map(|variable| (variable.name.clone(), variable.value.clone().unwrap()))
            .collect();
        Dex::start(&self.group, instance, port, &files, &environment).unwrap()
    }
}

fn endpoint(object: &kube::api::DynamicObject) -> Value {
    let endpoint = object.data.pointer("/status/endpoints/0").cloned();
    endpoint.unwrap_or_default()
}

async fn token(provider: &Provider, person: Person<'_>) -> Token {
    let typed = (person.uid, person.password);
    let login = provider
        .log_in("kubernetes", (REDIRECT, &[]), typed)
        .await
        .unwrap();
    let Login::Code(code) = login else {
        panic!("{login:?}");
    };
    let token = provider.redeem("kubernetes", REDIRECT, &code, &[]).await.unwrap();
    token.unwrap()
}

/// What kubectl gets from a tenant's API server with this token.
async fn request(tenant: &Site, token: &str, arguments: &[&str]) -> Answer {
    let token = format!("--token={token}");
    // Without the administrator's certificate.
    let mut all = vec![
        "--kubeconfig=/dev/null",
        "--insecure-skip-tls-verify",
        "--server",
        tenant.server(),
        &token,
    ];
    all.extend(arguments);
    tenant.kubectl(&all).await.unwrap()
}

#[tokio::test]
async fn a_tenants_api_server_takes_the_tokens_of_its_provider() {
    let scene = Scene::start().await;
    let stage = &scene.stage;
    let condition = AUTH_READY.as_str();
    let (secrets, maps, services): (Api<Secret>, Api<ConfigMap>, Api<Service>) =
        (scene.api(), scene.api(), scene.api());

    // Nothing is made of an entry whose Secret is missing; it comes, and heals.
    let shop = scene.cluster("shop", 31_600);
    stage.create(&shop).await;
    let why = stage
        .condition_is(&shop, condition, "False", "SecretMissing")
        .await;
    assert_eq!(why, "auth-shop: Secret directory does not exist");
    assert!(services.get_opt("auth-shop").await.unwrap().is_none());
    scene.set_bind_password("wrong").await;
    let why = stage
        .condition_is(&shop, condition, "False", "DirectoryRefusesBind")
        .await;
    assert!(why.contains(BIND_DN) && !why.contains("wrong"), "{why}");
    scene.set_bind_password(BIND_PASSWORD).await;
    stage
        .condition_is(&shop, condition, "False", "IssuerUnreachable")
        .await;

    // Ready is what answers at the published address with the published CA.
    let _of_shop = scene.run("auth-shop", 31_600).await;
    let object = stage.ready(&shop).await;
    let published = endpoint(&object);
    assert_eq!(published["issuer"], "https://127.0.0.1:31600/dex");
    assert_eq!(published["clientID"], "kubernetes");
    assert_eq!(
        (&published["address"], &published["port"]),
        (&json!("127.0.0.1"), &json!(31_600))
    );
    let bundle = published["caBundle"].as_str().unwrap();
    for object in [
        secrets.get("auth-shop").await.unwrap(),
        secrets.get("auth-shop.keys").await.unwrap(),
    ] {
        assert_eq!(object.owner_references()[0].name, "shop");
    }
    stage.deleted_comes_back(&maps, "auth-shop-oidc").await;
    stage
        .deleted_comes_back(&scene.api::<Deployment>(), "auth-shop")
        .await;

    // No object but its Secrets has a secret.
    let object =
        object.data.to_string() + &serde_json::to_string(&maps.get("auth-shop-oidc").await.unwrap()).unwrap();
    for text in ["PRIVATE KEY", "HOME"] {
        assert!(!object.contains(text), "{text}");
    }

    // Another tenant in the same namespace shares nothing.
    let bank = scene.cluster("bank", 31_601);
    stage.create(&bank).await;
    stage
        .condition_is(&bank, condition, "False", "IssuerUnreachable")
        .await;
    let _of_bank = scene.run("auth-bank", 31_601).await;
    let of_bank = endpoint(&stage.ready(&bank).await);
    assert_ne!(of_bank["caBundle"], published["caBundle"]);
    let storage = async |instance: &str| {
        let files = secrets.get(instance).await.unwrap().data.unwrap();
        let config: Value = serde_json::from_slice(&files["dex.json"].0).unwrap();
        config["storage"]["config"].clone()
    };
    let (of_one, of_other) = (storage("auth-shop").await, storage("auth-bank").await);
    for field in ["namespace", "username", "password"] {
        assert_ne!(of_one[field], of_other[field], "{field}");
    }

    the_tenant_takes_tokens(&scene, (&published, bundle), &of_bank).await;

    // What is no longer asked for is gone, with everything that was made for it.
    stage.edit(&shop, json!({"services": {"auth": null}})).await;
    for name in ["auth-shop", "auth-shop.keys"] {
        wait::until_gone(secrets.clone(), name, PATIENCE).await.unwrap();
    }
    wait::until_gone(maps, "auth-shop-oidc", PATIENCE).await.unwrap();
    wait::until_gone(services, "auth-shop", PATIENCE).await.unwrap();
    stage.delete(&bank).await;
    stage.gone(&bank).await;
    stage.nothing_was_forbidden();
}

/// A tenant's API server with the configuration of its provider.
async fn the_tenant_takes_tokens(scene: &Scene, (published, bundle): (&Value, &str), of_bank: &Value) {
    let outputs = published_outputs(&scene.api()).await;
    let tenant = authenticating(&outputs, scene.group.directory(), Nodes::None).await;
    bind_groups(&tenant, &outputs).await;

    let issuer = published["issuer"].as_str().unwrap();
    let shop = Provider::new(issuer, bundle).unwrap();
    let ada = token(&shop, ADA).await;
    let request_by = async |token: &Token, arguments: &[&str]| request(&tenant, &token.text, arguments).await;
    let whoami = request_by(&ada, &["auth", "whoami", "--output", "json"]).await;
    assert!(whoami.success, "{}", whoami.stderr);
    let whoami: Value = serde_json::from_str(&whoami.stdout).unwrap();
    assert_eq!(whoami["status"]["userInfo"]["username"], "oidc:ada@example.org");
    assert_eq!(
        whoami["status"]["userInfo"]["groups"],
        json!(["oidc:admins", "system:authenticated"])
    );
    let listed = request_by(&ada, &["get", "configmaps", "--all-namespaces"]).await;
    assert!(listed.success, "{}", listed.stderr);

    // Bob has no binding; Ada's token of another tenant is nobody's here.
    let bob = token(&shop, BOB).await;
    let refused = request_by(&bob, &["get", "configmaps", "--all-namespaces"]).await;
    assert!(
        !refused.success && refused.stderr.contains("Forbidden"),
        "{}",
        refused.stderr
    );
    let bank = Provider::new(
        of_bank["issuer"].as_str().unwrap(),
        of_bank["caBundle"].as_str().unwrap(),
    );
    let foreign = token(&bank.unwrap(), ADA).await;
    let refused = request_by(&foreign, &["auth", "whoami"]).await;
    assert!(
        !refused.success && refused.stderr.contains("Unauthorized"),
        "{}",
        refused.stderr
    );
}

#[tokio::test]
async fn an_entry_that_cannot_be_served_says_why() {
    let scene = Scene::start().await;
    let stage = &scene.stage;
    let condition = AUTH_READY.as_str();
    scene.set_bind_password(BIND_PASSWORD).await;

    // As SIP's users wrote it.
    let old = cluster(NAMESPACE, "old").role(Role::Worker, 0).with(
        "/services/auth",
        json!([{"image": "dex:2", "nodeInterfaceId": NETWORK, "nodePort": 31_610}]),
    );
    stage.create(&old).await;
    stage
        .condition_is(&old, condition, "False", "ConnectorMissing")
        .await;
    let nowhere = scene.cluster("nowhere", 31_611);
    let mut entry = nowhere.spec()["services"]["auth"][0].clone();
    entry["clusterIP"] = Value::Null;
    let nowhere = nowhere.with("/services/auth", json!([entry]));
    stage.create(&nowhere).await;
    stage
        .condition_is(&nowhere, condition, "False", "IssuerUnknown")
        .await;
    let foreign = scene.cluster("foreign", 31_612);
    let mut entry = foreign.spec()["services"]["auth"][0].clone();
    entry["caSecret"] = json!("directory");
    let foreign = foreign.with("/services/auth", json!([entry]));
    stage.create(&foreign).await;
    let why = stage
        .condition_is(&foreign, condition, "False", "CertificateInvalid")
        .await;
    assert_eq!(
        why,
        "auth-foreign: Secret directory must have the keys tls.crt and tls.key, in PEM"
    );

    // A Service of somebody else stays as it is.
    let services: Api<Service> = scene.api();
    let other =
        json!({"metadata": {"name": "auth-taken", "namespace": NAMESPACE}, "spec": {"ports": [{"port": 1}]}});
    let other: Service = serde_json::from_value(other).unwrap();
    services.create(&PostParams::default(), &other).await.unwrap();
    let taken = scene.cluster("taken", 31_613);
    stage.create(&taken).await;
    stage
        .condition_is(&taken, condition, "False", "NameConflict")
        .await;
    let secrets: Api<Secret> = scene.api();
    assert!(secrets.get_opt("auth-taken").await.unwrap().is_none());

    // A port that another tenant's provider has.
    let (first, late) = (scene.cluster("first", 31_614), scene.cluster("late", 31_614));
    stage.create(&first).await;
    stage
        .condition_is(&first, condition, "False", "IssuerUnreachable")
        .await;
    stage.create(&late).await;
    let why = stage
        .condition_is(&late, condition, "False", "PortConflict")
        .await;
    assert!(why.contains("31614"), "{why}");
    assert!(services.get_opt("auth-late").await.unwrap().is_none());

    // A provider stays until the one that takes its place can be made.
    let before = services.get("auth-first").await.unwrap().uid();
    let renamed = |changes: Value| {
        let mut entry = first.spec()["services"]["auth"][0].clone();
        entry["name"] = json!("next");
        entry
            .as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        json!({"services": {"auth": [entry]}})
    };
    stage
        .edit(&first, renamed(json!({"caSecret": "directory"})))
        .await;
    stage
        .condition_is(&first, condition, "False", "CertificateInvalid")
        .await;
    assert_eq!(services.get("auth-first").await.unwrap().uid(), before);
    stage.edit(&first, renamed(json!({}))).await;
    stage
        .condition_is(&first, condition, "False", "IssuerUnreachable")
        .await;
    services.get("auth-first-next").await.unwrap();
    assert!(services.get_opt("auth-first").await.unwrap().is_none());
}
