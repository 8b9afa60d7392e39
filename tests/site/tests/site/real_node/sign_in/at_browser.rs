//! A person whose kubectl and browser reach pods: the whole way of a login.

use sandbox::{node, site::Nodes, slapd::Person};
use serde_json::json;

use super::Scene;
use crate::{
    fixtures::{authenticating, published_outputs},
    identity_providers::{
        BOB,
        browser::{Desk, bind_node_readers},
    },
};

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
    let outputs = published_outputs(&scene.api()).await;
    let tenant = authenticating(&outputs, scene.group.directory(), Nodes::Kwok(1)).await;
    bind_node_readers(&tenant, &outputs).await;
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
    desk.admin_lists_nodes(admin).await;
    desk.stranger_lists_none(BOB).await;
    stage.nothing_was_forbidden();
}
