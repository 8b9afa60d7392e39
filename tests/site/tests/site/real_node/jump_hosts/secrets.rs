//! No credential of a BMC is in reach of a jump host: not in its pod, and in no object that its token can read.

use std::{
    collections::BTreeSet,
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceRule, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, PostParams},
    config::AuthInfo,
    core::ApiResource,
    discovery::{Discovery, verbs},
};
use sandbox::{
    redfish_emulator::{PASSWORD, USER},
    region::HOSTS_NAMESPACE,
    site::Site,
};
use serde_json::json;

use super::{
    CREDENTIALS, NAME,
    client::Key,
    create_secret, on_site,
    search::{Needles, Processes},
    shop,
};
use crate::fixtures::{PATIENCE, Role};

const SCENARIO: &str = "jump-search";
const TOKENS: [&str; 2] = [
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "/var/run/secrets/sip/power/token",
];
/// Requests at once.
const CONCURRENT: usize = 16;

/// An object by its resource, namespace and name.
type ObjectKey = (String, String, String);

/// What somebody with a token can read of the API server: objects, and lists.
struct Readable {
    objects: BTreeSet<ObjectKey>,
    texts: Vec<String>,
}

/// A client with a token and nothing else.
async fn client(site: &Site, token: &[u8]) -> Client {
    let mut config = kube::Config::from_custom_kubeconfig(
        kube::config::Kubeconfig::read_from(site.admin_kubeconfig()).unwrap(),
        &kube::config::KubeConfigOptions::default(),
    )
    .await
    .unwrap();
    config.proxy_url = None;
    config.auth_info = AuthInfo {
        token: Some(
            String::from_utf8(token.to_vec())
                .unwrap()
                .trim()
                .to_owned()
                .into(),
        ),
        ..AuthInfo::default()
    };
    Client::try_from(config).unwrap()
}

fn api(client: &Client, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
    if namespace.is_empty() {
        Api::all_with(client.clone(), resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, resource)
    }
}

/// Tries to read every object that there is, each by its name; and every list.
async fn readable(site: &Site, reader: &Client) -> Readable {
    let administrator = site.client();
    let discovery = Discovery::new(administrator.clone()).run().await.unwrap();
    let resources: Vec<ApiResource> = discovery
        .groups()
        .flat_map(kube::discovery::ApiGroup::recommended_resources)
        .filter(|(_, capabilities)| capabilities.supports_operation(verbs::LIST))
        .map(|(resource, _)| resource)
        .collect();
    let mut tried: Vec<(ApiResource, String, Option<String>)> = Vec::new();
    for resource in resources {
        let all = api(&administrator, &resource, "")
            .list(&ListParams::default())
            .await;
        tried.push((resource.clone(), String::new(), None));
        tried.push((resource.clone(), SCENARIO.to_owned(), None));
        tried.push((resource.clone(), HOSTS_NAMESPACE.to_owned(), None));
        for object in all.unwrap() {
            let namespace = object.namespace().unwrap_or_default();
            tried.push((resource.clone(), namespace, Some(object.name_any())));
        }
    }
    assert!(tried.len() > 200, "{}", tried.len());
    let answers = stream::iter(tried).map(|(resource, namespace, name)| async move {
        let api = api(reader, &resource, &namespace);
        let text = match &name {
            Some(name) => api.get(name).await.map(|object| json!(object).to_string()),
            None => api
                .list(&ListParams::default())
                .await
                .map(|list| json!(list.items).to_string()),
        };
        text.ok()
            .map(|text| ((resource.plural, namespace, name.unwrap_or_default()), text))
    });
    let answers: Vec<_> = answers.buffer_unordered(CONCURRENT).collect().await;
    let (objects, texts) = answers.into_iter().flatten().unzip();
    Readable { objects, texts }
}

/// What the API server says that a reader may do with objects in a namespace.
async fn rules(reader: &Client, namespace: &str) -> Vec<ResourceRule> {
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec {
            namespace: Some(namespace.to_owned()),
        },
        ..SelfSubjectRulesReview::default()
    };
    let reviews: Api<SelfSubjectRulesReview> = Api::all(reader.clone());
    let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
    answer.status.unwrap().resource_rules
}

/// Objects that rules name for reading. A rule for reading without names fails the test: it would be for all.
fn named(rules: &[ResourceRule], namespace: &str) -> BTreeSet<ObjectKey> {
    let reads = |rule: &&ResourceRule| {
        let mut verbs = rule.verbs.iter();
        verbs.any(|verb| ["*", "get", "list", "watch"].contains(&verb.as_str()))
    };
    let mut named = BTreeSet::new();
    for rule in rules.iter().filter(reads) {
        let names = rule.resource_names.clone().unwrap_or_default();
        assert!(!names.is_empty(), "in {namespace}: {rule:?}");
        for resource in rule.resources.iter().flatten() {
            named.extend(
                names
                    .iter()
                    .map(|name| (resource.clone(), namespace.to_owned(), name.clone())),
            );
        }
    }
    named
}

#[test]
fn no_bmc_credential_is_in_reach_of_the_pod() {
    on_site(SCENARIO, async |scene| {
        let (ana, node_key) = (Key::new("ana-at-the-shop"), Key::new("nodes"));
        let host = scene.host(SCENARIO, "a", "worker");
        scene.stage.load(&[host]).await;
        let keys = json!({"metadata": {"name": "node-keys"}, "stringData": {"id_nodes": node_key.private()}});
        create_secret(&scene.stage, SCENARIO, keys).await;
        let entry = json!({"nodePort": 31_524, "nodeSSHPrivateKeys": "node-keys"});
        let wanted = shop(SCENARIO, &ana, &entry).role(Role::Worker, 1);
        let login = scene.jump_host(&wanted, &ana).await;
        let uid = scene.pod(SCENARIO).await.uid().unwrap();
        let needles = Needles::credentials(USER, PASSWORD);

        // While an action is under way, and after it.
        let mut reboot = login.ssh();
        let reboot = reboot
            .arg("host -o json reboot jump-search-a; host -o json status jump-search-a; host -o json console jump-search-a")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let started = Instant::now();
        let processes = loop {
            let processes = Processes::of_pod(&uid);
            if processes.run(&["host", "-o", "json", "reboot"]) {
                break processes;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "the action does not begin: {processes:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert!(processes.count() > 4, "{processes:?}");
        assert_eq!(processes.find(&needles), BTreeSet::new());
        let output = reboot.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(
            scene
                .emulator
                .resets()
                .unwrap()
                .contains(&"jump-search-a".to_owned())
        );
        for printed in [&output.stdout, &output.stderr] {
            assert!(!needles.are_in(printed), "{output:?}");
        }
        let processes = Processes::of_pod(&uid);
        assert_eq!(processes.find(&needles), BTreeSet::new());
        // The search finds what is there.
        let there = processes.find(&Needles::text("ana-at-the-shop"));
        assert!(there.contains("etc/opt/sip/authorized_keys"), "{there:?}");
        let there = processes.find(&Needles::text(&format!("SIP_CLUSTER={SCENARIO}/shop")));
        assert!(there.contains("environ"), "{there:?}");

        let site = &scene.stage.site;
        for log in fs::read_dir(site.directory().join("logs")).unwrap() {
            let log = log.unwrap().path();
            assert!(!needles.are_in(&fs::read(&log).unwrap()), "{}", log.display());
        }
        let token = processes.file(TOKENS[0]).unwrap();
        let reader = client(site, &token).await;
        let readable = readable(site, &reader).await;
        assert!(readable.texts.iter().all(|text| !needles.are_in(text.as_bytes())));
        // By its rules it reads its own ConfigMap and the Secret that the spec names, and nothing anywhere else.
        let own = |resource: &str, name: &str| (resource.to_owned(), SCENARIO.to_owned(), name.to_owned());
        let expected = BTreeSet::from([own("configmaps", NAME), own("secrets", "node-keys")]);
        let mut allowed = BTreeSet::new();
        for namespace in [SCENARIO, HOSTS_NAMESPACE, "sip-system", "kube-system", "default"] {
            allowed.extend(named(&rules(&reader, namespace).await, namespace));
        }
        assert_eq!(allowed, expected);
        assert_eq!(
            readable.objects, expected,
            "what could be read is what the rules name"
        );

        // The administrator reads them, so they are found where they are.
        let secret = ["get", "secret", "-n", HOSTS_NAMESPACE, CREDENTIALS, "-o", "json"];
        assert!(needles.are_in(scene.stage.kubectl(&secret).await.as_bytes()));
        // The token for power control is none of the API server's.
        let power = client(site, &processes.file(TOKENS[1]).unwrap()).await;
        let refused = power.apiserver_version().await.unwrap_err().to_string();
        assert!(refused.contains("Unauthorized"), "{refused}");
    });
}
