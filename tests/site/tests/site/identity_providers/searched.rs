//! Secrets are in the Secrets that are meant to have them, and nowhere else: not in another object, not in a log at any level.

use std::{collections::BTreeMap, fs, path::Path};

use api::conditions::AUTH_READY;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use sandbox::{
    login::{Login, Provider, REDIRECT},
    site::Site,
};
use serde_json::{Value, json};

use super::{ADA, Scene, endpoint};

const PORT: u16 = 31_640;
/// Each occurs nowhere by chance, and is the same however it is quoted.
const BIND_PASSWORD: &str = "bind-7c1e5d0a";
const WRONG_PASSWORD: &str = "wrong-93b2f4e8";
const CLIENT_SECRET: &str = "client-c4f09a67";
/// bcrypt of some password.
const HASH: &str = "$2y$10$abcdefghijklmnopqrstuuSalted0123456789abcdefghijABCDE";

async fn write(scene: &Scene, name: &str, values: &Value) {
    let secrets: Api<Secret> = scene.api();
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values});
    let apply = PatchParams::apply("test").force();
    secrets.patch(name, &apply, &Patch::Apply(secret)).await.unwrap();
}

/// Everything that must be hidden, by what it is: the values that people write, and those that the agent makes.
async fn secrets(scene: &Scene) -> BTreeMap<String, String> {
    let people = [
        ("bind password", BIND_PASSWORD),
        ("wrong bind password", WRONG_PASSWORD),
        ("secret of a client", CLIENT_SECRET),
        ("hash of a password", HASH),
        ("Ada's password", ADA.password),
    ];
    let mut hidden: BTreeMap<_, _> = people
        .map(|(what, text)| (what.to_owned(), text.to_owned()))
        .into();
    let secrets: Api<Secret> = scene.api();
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
    assert_eq!(hidden.len(), people.len() + 3, "{:?}", hidden.keys());
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

#[tokio::test]
async fn no_object_but_its_secret_holds_a_secret() {
    let scene = Scene::start_with(BIND_PASSWORD, "trace").await;
    let stage = &scene.stage;
    let condition = AUTH_READY.as_str();
    let authority = scene.directory.authority().unwrap();
    let directory = |password: &str| json!({"ca.crt": authority, "password": password});
    write(&scene, "directory", &directory(WRONG_PASSWORD)).await;
    write(&scene, "console", &json!({"secret": CLIENT_SECRET})).await;
    write(
        &scene,
        "emergency",
        &json!({"users": format!("root@example.org:{HASH}\n")}),
    )
    .await;
    let clients = json!([
        {"id": "kubernetes", "redirectURIs": [REDIRECT]},
        {"id": "console", "secret": {"name": "console", "key": "secret"},
            "redirectURIs": ["https://console.example.org/callback"]},
    ]);
    let shop = scene
        .cluster("shop", PORT)
        .with("/services/auth/0/clients", clients);
    stage.create(&shop).await;
    stage
        .condition_is(&shop, condition, "False", "DirectoryRefusesBind")
        .await;
    write(&scene, "directory", &directory(BIND_PASSWORD)).await;
    stage
        .condition_is(&shop, condition, "False", "IssuerUnreachable")
        .await;
    let _dex = scene.run("auth-shop", PORT).await;
    let published = endpoint(&stage.ready(&shop).await);
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
    write(&scene, "emergency", &json!({"users": format!("nobody:{HASH}\n")})).await;
    stage
        .condition_is(&shop, condition, "False", "SecretInvalid")
        .await;

    let hidden = secrets(&scene).await;
    let objects = objects(&stage.site).await;
    let mut texts = logs(stage.site.directory());
    for agent in ["sip-dex-agent.log", "sip-cluster-agent.log"] {
        let (_, text) = texts.iter().find(|(log, _)| log.ends_with(agent)).unwrap();
        assert!(text.contains(" TRACE "), "{agent}");
    }
    texts.extend(logs(scene.group.directory()));
    texts.extend(logs(stage.region.directory()));
    let audit = fs::read_to_string(stage.site.directory().join("audit.log")).unwrap();
    texts.push(("the audit log".to_owned(), audit));
    println!(
        "{} secrets, {} objects, {} logs",
        hidden.len(),
        objects.len(),
        texts.len()
    );
    for name in [
        "ConfigMap auth-shop-oidc",
        "Deployment auth-shop",
        "SIPCluster shop",
    ] {
        assert!(objects.iter().any(|(object, _)| object == name), "{name}");
    }
    texts.extend(objects);
    assert_eq!(found(&hidden, &texts), [] as [(&str, &str); 0]);

    // The search finds what there is: each is in the Secret that is meant to have it.
    let all: Api<Secret> = scene.api();
    let listed = all.list(&kube::api::ListParams::default()).await.unwrap();
    let values: Vec<(String, String)> = listed
        .items
        .iter()
        .map(|secret| {
            let data = secret.data.clone().unwrap_or_default();
            let data: Vec<_> = data
                .values()
                .map(|value| String::from_utf8_lossy(&value.0).into_owned())
                .collect();
            (secret.metadata.name.clone().unwrap(), data.join("\n"))
        })
        .collect();
    let places = found(&hidden, &values);
    for (what, place) in [
        ("bind password", "directory"),
        ("bind password", "auth-shop"),
        ("secret of a client", "console"),
        ("hash of a password", "emergency"),
        ("private key ca.key", "auth-shop.keys"),
        ("storage-password", "auth-shop.keys"),
    ] {
        assert!(places.contains(&(what, place)), "{what}: {places:?}");
    }
    assert!(!places.iter().any(|(what, _)| what.contains("Ada")), "{places:?}");
}
