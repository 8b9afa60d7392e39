//! A person whose kubectl and browser reach pods: the whole way of a login.

use std::fs;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use sandbox::{
    node,
    site::{Nodes, Site},
    slapd::Person,
};
use serde_json::{Value, json};

use super::Scene;
use crate::identity_providers::browser::Desk;

/// Somebody without rights.
pub(super) const STRANGER: Person<'_> = Person {
    uid: "bob",
    password: "battery staple",
    groups: &["readers"],
};

/// A tenant's API server with the configuration of its provider, and the bindings of its groups.
async fn tenant(scene: &Scene) -> Site {
    let maps: Api<ConfigMap> = scene.api();
    let outputs = maps.get("auth-shop-oidc").await.unwrap().data.unwrap();
    let file = scene.group.directory().join("authentication.json");
    fs::write(&file, &outputs["authentication-configuration.json"]).unwrap();
    let tenant = Site::builder("tenant")
        .nodes(Nodes::Kwok(1))
        .authentication(&file)
        .start()
        .await
        .unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_logs_in_by_a_browser_at_pods() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let scene = Box::pin(Scene::start(1)).await;
    let stage = &scene.stage;
    let groups = json!([{"group": "admins", "clusterRole": "node-reader"}]);
    let shop = scene.shop().with("/services/auth/0/groups", groups);
    stage.create(&shop).await;
    let ready = stage.ready(&shop).await;
    let issuer = ready.data.pointer("/status/endpoints/0/issuer").unwrap();
    let tenant = tenant(&scene).await;
    let desk = Desk::new(
        (&stage.site, &scene.group),
        &shop,
        issuer.as_str().unwrap(),
        &tenant,
    )
    .await;

    let (uid, password) = scene.people.names(0);
    let admin = Person {
        uid: &uid,
        password: &password,
        groups: &["admins"],
    };
    let (succeeded, answer) = desk.log_in(admin, &["auth", "whoami", "--output", "json"]).await;
    assert!(succeeded, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let user = &answer["status"]["userInfo"];
    assert_eq!(user["username"], format!("oidc:{uid}@example.org"));
    assert_eq!(user["groups"], json!(["oidc:admins", "system:authenticated"]));
    let nodes = desk.kubectl(&["get", "nodes", "--output", "name"]).await;
    assert!(nodes.starts_with("node/"), "{nodes}");

    println!("{}", desk.kubectl(&["oidc-login", "clean"]).await);
    let (succeeded, refused) = desk.log_in(STRANGER, &["get", "nodes", "--output", "name"]).await;
    let why = "User \"oidc:bob@example.org\" cannot list resource \"nodes\"";
    assert!(!succeeded && refused.contains(why), "{refused}");
    stage.nothing_was_forbidden();
}
