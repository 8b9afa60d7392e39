//! Identity providers whose certificates cert-manager issues, and whose groups are bound at the tenant's API server.

mod bindings;
mod collisions;
mod former_kubeconfigs;
mod orphaned;
mod recorded_kubeconfigs;

use std::{collections::BTreeMap, fs};

use api::conditions::AUTH_READY;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Secret, Service},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use sandbox::{
    cert_manager::CertManager,
    dex::Dex,
    etcd::Etcd,
    inventory::NETWORK,
    process::Group,
    region::{Agent, AgentProcess, HOSTS_NAMESPACE, Region, SiteConfig},
    repository,
    site::{Nodes, Site},
    wait,
};
use serde_json::{Value, json};

use crate::fixtures::{Cluster, PATIENCE, Role, Stage, claim_port, cluster};

const NAMESPACE: &str = "providers";

/// A site with the Dex agent and its storage. Its providers have users of their own, so no directory is needed.
struct Scene {
    stage: Stage,
    agent: AgentProcess,
    group: Group,
    _etcd: Etcd,
}

impl Scene {
    async fn start(name: &str, change: impl FnOnce(&mut SiteConfig)) -> Self {
        let group = Group::new(name).unwrap();
        let etcd = Etcd::start(&group, 1).await.unwrap();
        let password = group.directory().join("storage-password");
        fs::write(&password, "password of the storage").unwrap();
        let region = Region::start("north").await.unwrap().into();
        let crds = repository::root().join("tests/site/samples/install/crds.yaml");
        let site = Site::builder(name).nodes(Nodes::Kwok(2)).crds([crds]);
        let mut stage = Stage::start_with(region, site, &[HOSTS_NAMESPACE], &[]).await;
        stage.site.create_tenant_namespace(NAMESPACE).await.unwrap();
        let not_installed = vec!["jumpHost".to_owned(), "loadBalancer".to_owned()];
        let sections = |config: &mut SiteConfig| config.not_installed.clone_from(&not_installed);
        stage.start_agent_where(Agent::Cluster, sections).await;
        let variables = [
            ("SIP_DEX_STORAGE_ENDPOINTS", etcd.endpoints().join(",")),
            ("SIP_DEX_STORAGE_PASSWORD_FILE", password.display().to_string()),
        ];
        let mut config = stage.config(&[HOSTS_NAMESPACE]);
        change(&mut config);
        let agent = stage
            .region
            .start_agent_with(&stage.site, Agent::Dex, &config, &variables);
        let mut agent = agent.await.unwrap();
        stage.agents_are_ready().await;
        agent.is_ready().await.unwrap();
        let scene = Self {
            stage,
            agent,
            group,
            _etcd: etcd,
        };
        let users = format!("ada@example.org:$2y$10${}", "a".repeat(53));
        scene.write_secret("users", json!({ "users": users })).await;
        scene
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.stage.site.client(), NAMESPACE)
    }

    async fn write_secret(&self, name: &str, data: Value) {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
        let apply = PatchParams::apply("test").force();
        self.api::<Secret>()
            .patch(name, &apply, &Patch::Apply(secret))
            .await
            .unwrap();
    }

    fn cluster(name: &str, port: u16, fields: &Value) -> Cluster {
        claim_port(port);
        let mut entry = json!({
            "image": "dex:2", "nodeInterfaceId": NETWORK, "nodePort": port, "clusterIP": "127.0.0.1",
            "staticPasswords": {"name": "users", "key": "users"},
        });
        let fields = fields.as_object().unwrap().clone();
        entry.as_object_mut().unwrap().extend(fields);
        cluster(NAMESPACE, name)
            .role(Role::Worker, 0)
            .with("/services/auth", json!([entry]))
    }

    /// What a pod of a provider would read, run by Dex.
    async fn run(&self, instance: &str, process: &str, port: u16) -> Dex {
        let files = self.api::<Secret>().get(instance).await.unwrap().data.unwrap();
        let files: BTreeMap<String, Vec<u8>> = files.into_iter().map(|(name, file)| (name, file.0)).collect();
        let environment = [("DEX_DOLLAR".to_owned(), "$".to_owned())];
        Dex::start(&self.group, process, port, &files, &environment).unwrap()
    }
}

async fn certificate(manager: &CertManager, is_right: impl Fn(&Value) -> bool) -> DynamicObject {
    let certificates = manager.certificates().clone();
    let what = "the Certificate as it should be";
    wait::until(
        certificates,
        "auth-shop.tls",
        what,
        PATIENCE,
        |found: &DynamicObject| is_right(&found.data["spec"]),
    )
    .await
    .unwrap()
}

#[tokio::test]
async fn cert_manager_issues_the_certificate_of_a_provider() {
    let scene = Scene::start("certified", |config| {
        config.identity_providers.cluster_issuer = Some("tenants".to_owned());
    })
    .await;
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let mut manager = CertManager::new(&stage.site.client(), NAMESPACE, scene.group.directory()).unwrap();
    let secrets: Api<Secret> = scene.api();

    // No pod runs without a certificate.
    let shop = Scene::cluster("shop", 31_720, &json!({}));
    stage.create(&shop).await;
    let why = stage
        .condition_is(&shop, condition, "False", "CertificateNotReady")
        .await;
    assert!(
        why.starts_with("auth-shop: cert-manager has not issued the certificate yet"),
        "{why}"
    );
    let asked = certificate(&manager, |_| true).await;
    let spec = &asked.data["spec"];
    assert_eq!(
        spec["issuerRef"],
        json!({"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "tenants"})
    );
    let named = |field: &str, name: &str| spec[field].as_array().unwrap().contains(&json!(name));
    assert!(
        named("ipAddresses", "127.0.0.1") && named("dnsNames", "auth-shop.providers.svc"),
        "{spec}"
    );
    let deployments: Api<Deployment> = scene.api();
    let waiting = deployments.get_opt("auth-shop").await.unwrap();
    assert!(waiting.is_none_or(|waiting| waiting.spec.replicas == Some(0)));

    // Its Secret has an owner before cert-manager writes it, so that it goes with the provider whenever that goes.
    let made = secrets.get("auth-shop.tls").await.unwrap();
    let services: Api<Service> = scene.api();
    let service = services.get("auth-shop").await.unwrap();
    assert_eq!(made.owner_references()[0].uid, service.uid().unwrap());

    // It is issued: the provider runs with it, and its CA is published.
    manager.issue("auth-shop.tls").await.unwrap();
    stage
        .condition_is(&shop, condition, "False", "IssuerUnreachable")
        .await;
    let replicas = deployments.get("auth-shop").await.unwrap().spec.replicas;
    assert_eq!(replicas, Some(2));
    let _dex = scene.run("auth-shop", "dex", 31_720).await;
    stage
        .condition_is(&shop, condition, "True", "StaticPasswords")
        .await;
    let object = stage.clusters(NAMESPACE).get("shop").await.unwrap();
    let published = object.data.pointer("/status/endpoints/0/caBundle").cloned();
    assert_eq!(published, Some(json!(manager.authority().unwrap())));

    a_deleted_service_stops_no_pod(&scene, &manager).await;
    stage
        .condition_is(&shop, condition, "True", "StaticPasswords")
        .await;

    // It is renewed: new pods start with the new one, while the old one is still valid.
    let before = secrets.get("auth-shop").await.unwrap().data.unwrap()["tls.crt"].clone();
    manager.issue("auth-shop.tls").await.unwrap();
    let what = "the renewed certificate";
    wait::until(secrets.clone(), "auth-shop", what, PATIENCE, |secret: &Secret| {
        secret.data.as_ref().is_some_and(|data| data["tls.crt"] != before)
    })
    .await
    .unwrap();

    another_authority_is_published_beside_the_one_before(&scene, &shop, &mut manager).await;

    // Another name is asked for; what runs is left as it is until it is issued.
    let mut entry = shop.spec()["services"]["auth"][0].clone();
    entry["hostname"] = json!("localhost");
    stage
        .edit(&shop, json!({"services": {"auth": [entry.clone()]}}))
        .await;
    certificate(&manager, |spec| {
        spec["dnsNames"]
            .as_array()
            .is_some_and(|names| names.contains(&json!("localhost")))
    })
    .await;
    let lacks = "has not issued the certificate for all names yet";
    stage
        .condition_mentions(&shop, condition, "False", "CertificateNotReady", lacks)
        .await;
    manager.issue("auth-shop.tls").await.unwrap();
    stage
        .condition_is(&shop, condition, "False", "IssuerUnreachable")
        .await;

    a_provider_stays_until_another_has_a_certificate(&scene, &shop, &entry).await;

    // With a CA of the tenant's own nobody needs cert-manager, and nothing of it is left; nor is it with the entry.
    entry["certificateIssuer"] = json!("of-the-namespace");
    stage.edit(&shop, json!({"services": {"auth": [entry]}})).await;
    certificate(&manager, |spec| spec["issuerRef"]["kind"] == "Issuer").await;
    stage.edit(&shop, json!({"services": {"auth": null}})).await;
    wait::until_gone(scene.api::<Service>(), "auth-shop", PATIENCE)
        .await
        .unwrap();
    for name in ["auth-shop", "auth-shop.keys", "auth-shop.tls"] {
        wait::until_gone(secrets.clone(), name, PATIENCE).await.unwrap();
    }
    let certificates = manager.certificates().clone();
    wait::until_gone(certificates, "auth-shop.tls", PATIENCE)
        .await
        .unwrap();
    stage.nothing_was_forbidden();
}

/// A provider of another name takes the port of the one before only once it has a certificate.
async fn a_provider_stays_until_another_has_a_certificate(scene: &Scene, shop: &Cluster, entry: &Value) {
    let (stage, services) = (&scene.stage, scene.api::<Service>());
    let before = services.get("auth-shop").await.unwrap().uid();
    let mut next = entry.clone();
    next["name"] = json!("next");
    stage.edit(shop, json!({"services": {"auth": [next]}})).await;
    let stays = "this stays: auth-shop";
    stage
        .condition_mentions(shop, AUTH_READY.as_str(), "False", "CertificateNotReady", stays)
        .await;
    assert_eq!(services.get("auth-shop").await.unwrap().uid(), before);
    stage.edit(shop, json!({"services": {"auth": [entry]}})).await;
    wait::until_gone(services, "auth-shop-next", PATIENCE)
        .await
        .unwrap();
}

/// The issuer of cert-manager has another CA. Pods serve a certificate of the one before until they are replaced.
async fn another_authority_is_published_beside_the_one_before(
    scene: &Scene,
    shop: &Cluster,
    manager: &mut CertManager,
) {
    let stage = &scene.stage;
    let deployments: Api<Deployment> = scene.api();
    let pause = async |paused: bool| {
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        let patched = deployments
            .patch("auth-shop", &PatchParams::default(), &patch)
            .await;
        patched.unwrap();
    };
    let published = async |what: &str, expected: String| {
        let is = |object: &DynamicObject| {
            object.data.pointer("/status/endpoints/0/caBundle") == Some(&json!(expected))
        };
        stage.until(shop, what, is).await;
    };
    let before = manager.authority().unwrap();
    pause(true).await;
    manager.replace_authority(scene.group.directory()).unwrap();
    manager.issue("auth-shop.tls").await.unwrap();
    let next = manager.authority().unwrap();
    published("publish both", format!("{next}{before}")).await;
    pause(false).await;
    published("publish the next one alone", next).await;
}

/// Somebody deletes the Service, to which the Certificate belongs: until both are there again, the pods run on as they are.
async fn a_deleted_service_stops_no_pod(scene: &Scene, manager: &CertManager) {
    let (services, deployments): (Api<Service>, Api<Deployment>) = (scene.api(), scene.api());
    let before = deployments.get("auth-shop").await.unwrap();
    let files = scene.api::<Secret>().get("auth-shop").await.unwrap().data;
    let deleted = services.get("auth-shop").await.unwrap().uid();
    let now = DeleteParams::default();
    services.delete("auth-shop", &now).await.unwrap();
    let what = "another Service";
    let is_other = |service: &Service| service.uid() != deleted;
    let service = wait::until(services, "auth-shop", what, PATIENCE, is_other)
        .await
        .unwrap();
    // A later pass asks for it than the one that has made the Service.
    let certificates = manager.certificates().clone();
    let what = "the Certificate of the new Service";
    let is_its = |found: &DynamicObject| {
        let owner = found.owner_references().first();
        owner.map(|owner| &owner.uid) == service.metadata.uid.as_ref()
    };
    wait::until(certificates, "auth-shop.tls", what, PATIENCE, is_its)
        .await
        .unwrap();
    let after = deployments.get("auth-shop").await.unwrap();
    assert_eq!(after.spec.replicas, Some(2));
    // Nor was it anything else meanwhile.
    assert_eq!(after.metadata.generation, before.metadata.generation);
    assert_eq!(scene.api::<Secret>().get("auth-shop").await.unwrap().data, files);
    manager.issue("auth-shop.tls").await.unwrap();
}

#[tokio::test]
async fn a_foreign_certificate_and_secret_of_the_name_are_kept() {
    let scene = Scene::start("foreign", |_| {}).await;
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let manager = CertManager::new(&stage.site.client(), NAMESPACE, scene.group.directory()).unwrap();
    let foreign = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "auth-shop.tls"},
        "spec": {"secretName": "auth-shop.tls", "issuerRef": {"name": "theirs"}, "dnsNames": ["shop.example.org"]},
    });
    let apply = PatchParams::apply("test");
    let patch = Patch::Apply(foreign);
    let certificates = manager.certificates();
    let certificate = certificates.patch("auth-shop.tls", &apply, &patch).await.unwrap();
    for name in ["auth-shop.tls", "auth-bank.tls"] {
        scene.write_secret(name, json!({"tls.key": "theirs"})).await;
    }
    let issued = json!({"certificateIssuer": "of-the-namespace"});
    let clusters = [
        Scene::cluster("shop", 31_740, &issued),
        Scene::cluster("bank", 31_741, &issued),
    ];
    for (cluster, kind) in clusters.iter().zip(["Certificate", "Secret"]) {
        stage.create(cluster).await;
        let why = stage
            .condition_is(cluster, condition, "False", "NameConflict")
            .await;
        assert!(
            why.contains(&format!("{kind} auth-{}.tls was not made for", cluster.name)),
            "{why}"
        );
    }

    // The agent issues the certificates, and withdraws nothing of others.
    for cluster in &clusters {
        let mut entry = cluster.spec()["services"]["auth"][0].clone();
        entry["certificateIssuer"] = Value::Null;
        stage.edit(cluster, json!({"services": {"auth": [entry]}})).await;
        stage
            .condition_is(cluster, condition, "False", "IssuerUnreachable")
            .await;
    }
    let found = certificates.get("auth-shop.tls").await.unwrap();
    assert_eq!(found.metadata.uid, certificate.metadata.uid);
    for name in ["auth-shop.tls", "auth-bank.tls"] {
        let secret = scene.api::<Secret>().get(name).await.unwrap();
        assert!(secret.metadata.owner_references.is_none() && secret.metadata.deletion_timestamp.is_none());
        assert_eq!(secret.data.unwrap()["tls.key"].0, b"theirs");
    }
    stage.nothing_was_forbidden();
}
