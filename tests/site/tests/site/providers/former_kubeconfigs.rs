//! Bindings of groups in the cluster of a kubeconfig that an entry does not name any more.

use std::{env, fs, time::Duration};

use api::conditions::AUTH_READY;
use k8s_openapi::api::{
    core::v1::Secret,
    rbac::v1::{ClusterRoleBinding, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use sandbox::{dex::Dex, region::Agent, repository, site::Site, tools, wait};
use serde_json::{Value, json};

use super::{NAMESPACE, Scene};
use crate::fixtures::{Cluster, PATIENCE, Policy, Stage, remove_policy, statuses_sent_by};

/// The policy that refuses writes to Secrets in which kubeconfigs are recorded.
const NO_RECORD: &str = "no-record";
/// Part of the message about a former cluster.
pub(super) const REMAIN: &str = "and bindings of groups may remain in that cluster: ";

pub(super) async fn kubeconfig(tenant: &Site) -> String {
    let view = ["config", "view", "--raw", "--flatten"];
    tenant.kubectl_ok(&view).await.unwrap()
}

/// The API servers of two tenants, with their kubeconfigs in the Secrets `first` and `second`.
pub(super) async fn two_tenants(scene: &Scene) -> (Site, Site) {
    let (one, two) = tokio::join!(Site::builder("one").start(), Site::builder("two").start());
    let (one, two) = (one.unwrap(), two.unwrap());
    for (name, tenant) in [("first", &one), ("second", &two)] {
        let file = kubeconfig(tenant).await;
        scene.write_secret(name, json!({ "value": file })).await;
    }
    (one, two)
}

/// The uids of the bindings that the agent has made in a tenant's cluster.
pub(super) async fn bound(tenant: &Site) -> Vec<Option<String>> {
    let ours = ListParams::default().labels("sip.airshipit.org/identity-provider");
    let in_cluster = Api::<ClusterRoleBinding>::all(tenant.client());
    let in_cluster = in_cluster.list(&ours).await.unwrap().items;
    let namespaced = Api::<RoleBinding>::all(tenant.client());
    let namespaced = namespaced.list(&ours).await.unwrap().items;
    let namespaced = namespaced.iter().map(ResourceExt::uid);
    in_cluster
        .iter()
        .map(ResourceExt::uid)
        .chain(namespaced)
        .collect()
}

/// Waits until a tenant's cluster has so many bindings.
pub(super) async fn until_bound(tenant: &Site, count: usize) {
    let reached = async {
        let mut pace = tokio::time::interval(Duration::from_millis(200));
        while bound(tenant).await.len() != count {
            pace.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap();
}

/// Names another kubeconfig in the entry, and these groups.
pub(super) async fn name(scene: &Scene, shop: &Cluster, secret: Option<&str>, groups: &Value) {
    let mut entry = shop.spec()["services"]["auth"][0].clone();
    entry["kubeconfigSecret"] = json!(secret);
    entry["groups"] = groups.clone();
    scene
        .stage
        .edit(shop, json!({"services": {"auth": [entry]}}))
        .await;
}

/// Waits until these kubeconfigs are recorded.
pub(super) async fn recorded(scene: &Scene, expected: &[&str]) {
    let what = format!("the kubeconfigs {expected:?}");
    wait::until(
        scene.api(),
        "auth-shop.keys",
        &what,
        PATIENCE,
        |secret: &Secret| {
            let data = secret
                .data
                .as_ref()
                .and_then(|data| data.get("kubeconfig-secrets"));
            let lines = data
                .map(|data| String::from_utf8(data.0.clone()).unwrap())
                .unwrap_or_default();
            let secrets = lines.lines().map(|line| line.split_once(' ').unwrap().0);
            secrets.eq(expected.iter().copied())
        },
    )
    .await
    .unwrap();
}

/// A cluster whose provider runs, and whose entry names the Secret `first`.
pub(super) async fn bound_by_first(scene: &Scene, port: u16, groups: &Value) -> (Cluster, Dex) {
    let fields = json!({"kubeconfigSecret": "first", "groups": groups});
    let shop = Scene::cluster("shop", port, &fields);
    scene.stage.create(&shop).await;
    recorded(scene, &["first"]).await;
    scene
        .stage
        .condition_is(&shop, AUTH_READY.as_str(), "False", "IssuerUnreachable")
        .await;
    let dex = scene.run("auth-shop", "dex", port).await;
    (shop, dex)
}

#[tokio::test]
async fn bindings_leave_the_cluster_of_a_former_kubeconfig() {
    let scene = Scene::start("left", |_| {}).await;
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let (one, two) = tokio::join!(Site::builder("one").start(), Site::builder("two").start());
    let (one, two) = (one.unwrap(), two.unwrap());
    let (first, second) = (kubeconfig(&one).await, kubeconfig(&two).await);
    // The same cluster under another address, as after the move of a load balancer.
    let moved = first.replace("https://127.0.0.1:", "https://localhost:");
    let moved = moved.replace("    server:", "    tls-server-name: 127.0.0.1\n    server:");
    assert_ne!(first, moved);
    for (name, file) in [("first", &first), ("moved", &moved), ("second", &second)] {
        scene.write_secret(name, json!({ "value": file })).await;
    }
    let groups = json!([
        {"group": "admins", "clusterRole": "view"}, {"group": "devs", "namespace": "default", "role": "edit"},
    ]);
    let (shop, _dex) = bound_by_first(&scene, 31_736, &groups).await;
    let is_ready = || stage.condition_is(&shop, condition, "True", "StaticPasswords");
    is_ready().await;
    let before = bound(&one).await;
    assert_eq!(before.len(), 2);

    name(&scene, &shop, Some("moved"), &groups).await;
    recorded(&scene, &["moved"]).await;
    is_ready().await;
    assert_eq!(bound(&one).await, before, "the same objects");

    // Where the next one leads is not known yet: what is still asked for stays.
    name(&scene, &shop, Some("to-come"), &json!([groups[0]])).await;
    until_bound(&one, 1).await;
    let why = stage
        .condition_is(&shop, condition, "False", "KubeconfigMissing")
        .await;
    assert!(
        why.contains(&format!("kubeconfigSecret was moved before, {REMAIN}")),
        "{why}"
    );

    name(&scene, &shop, Some("second"), &groups).await;
    recorded(&scene, &["second"]).await;
    is_ready().await;
    assert_eq!((bound(&one).await.len(), bound(&two).await.len()), (0, 2));

    // The cluster cannot be reached for a time, and the provider serves meanwhile.
    let away = second.replace(two.server(), "https://127.0.0.1:1");
    scene.write_secret("second", json!({ "value": away })).await;
    name(&scene, &shop, None, &groups).await;
    let why = stage
        .condition_is(&shop, condition, "True", "BindingsRemain")
        .await;
    let expected = format!("auth-shop: kubeconfigSecret was second before, {REMAIN}");
    assert!(
        why.starts_with(&expected) && why.contains("; auth-shop: staticPasswords is set"),
        "{why}"
    );
    scene.write_secret("second", json!({ "value": second })).await;
    recorded(&scene, &[]).await;
    is_ready().await;
    assert_eq!(bound(&two).await.len(), 0);

    // Another Secret leads to the same API server, and the former one is deleted at once.
    name(&scene, &shop, Some("first"), &groups).await;
    recorded(&scene, &["first"]).await;
    until_bound(&one, 2).await;
    let before = bound(&one).await;
    let secrets = scene.api::<Secret>();
    scene.write_secret("again", json!({ "value": first })).await;
    secrets.delete("first", &DeleteParams::default()).await.unwrap();
    name(&scene, &shop, Some("again"), &groups).await;
    recorded(&scene, &["again"]).await;
    is_ready().await;
    assert_eq!(bound(&one).await, before);

    // Without a Secret the agent can delete nothing, and states so until somebody has done it.
    secrets.delete("again", &DeleteParams::default()).await.unwrap();
    name(&scene, &shop, Some("second"), &groups).await;
    let why = stage
        .condition_is(&shop, condition, "True", "BindingsRemain")
        .await;
    let place = one.server().trim_start_matches("https://");
    assert!(
        why.contains(&format!(
            "the Secret again does not exist any more; its API server was {place}"
        )),
        "{why}"
    );
    assert_eq!(bound(&one).await, before);
    let output = forget(stage, "again").await;
    assert!(output.contains("secret/auth-shop.keys patched"), "{output}");
    recorded(&scene, &["second"]).await;
    is_ready().await;
    stage.nothing_was_forbidden();
}

/// Has the agent forget the kubeconfig of a Secret by the commands of `docs/auth.md`.
pub(super) async fn forget(stage: &Stage, secret: &str) -> String {
    let page = fs::read_to_string(repository::root().join("docs/auth.md")).unwrap();
    let (_, commands) = page.split_once("```bash\nrecorded=").unwrap();
    let (commands, _) = commands.split_once("```").unwrap();
    let commands = commands
        .replace("FORMER_SECRET", secret)
        .replace("-n shop", &format!("-n {NAMESPACE}"))
        .replace("auth-orders", "auth-shop");
    let kubectl = tools::path("kubectl").unwrap();
    let path = format!(
        "{}:{}",
        kubectl.parent().unwrap().display(),
        env::var("PATH").unwrap()
    );
    let output = tokio::process::Command::new("bash")
        .args(["-euo", "pipefail", "-c", &format!("recorded={commands}")])
        .env("PATH", path)
        .env("KUBECONFIG", stage.site.admin_kubeconfig())
        .env("KUBECACHEDIR", stage.site.directory().join("kubectl-cache"))
        .output()
        .await
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The API server refuses every write to the Secret in which kubeconfigs are recorded.
#[tokio::test]
async fn rights_end_and_none_begins_while_nothing_can_be_recorded() {
    let scene = Scene::start("unrecorded", |_| {}).await;
    let (stage, condition) = (&scene.stage, AUTH_READY.as_str());
    let (one, two) = two_tenants(&scene).await;
    let groups = json!([
        {"group": "admins", "clusterRole": "view"}, {"group": "devs", "namespace": "default", "role": "edit"},
    ]);
    let fewer = json!([groups[0]]);
    let (shop, _dex) = bound_by_first(&scene, 31_737, &groups).await;
    let is_ready = || stage.condition_is(&shop, condition, "True", "StaticPasswords");
    is_ready().await;
    refuse_records(&scene).await;

    // A right that the same kubeconfig gave.
    name(&scene, &shop, Some("first"), &fewer).await;
    until_bound(&one, 1).await;
    is_ready().await;
    // None begins at a cluster that would be forgotten.
    name(&scene, &shop, Some("second"), &fewer).await;
    let why = stage.condition_is(&shop, condition, "False", "Refused").await;
    assert!(why.contains("no record is written"), "{why}");
    until_bound(&one, 0).await;
    assert_eq!(bound(&two).await.len(), 0);
    name(&scene, &shop, None, &groups).await;
    stage.condition_is(&shop, condition, "False", "Refused").await;
    // Nor is anything written again and again: in this time each cluster is checked twice.
    let written = || statuses_sent_by(Agent::Dex, stage, &shop).len();
    let before = written();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert!(written() <= before + 2, "{} statuses", written() - before);

    remove_policy(&stage.site, NO_RECORD).await;
    recorded(&scene, &[]).await;
    is_ready().await;
    name(&scene, &shop, Some("second"), &groups).await;
    recorded(&scene, &["second"]).await;
    until_bound(&two, 2).await;
}

/// Installs a policy that refuses these writes, and waits until the API server applies it.
async fn refuse_records(scene: &Scene) {
    let probe = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let change = Patch::Merge(json!({"data": {"kubeconfig-secrets": "cHJvYmU="}}));
    let secrets = scene.api::<Secret>();
    let policy = Policy {
        name: NO_RECORD,
        matches: json!({"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["secrets"]},
        ]}),
        expression: "!object.metadata.name.endsWith('.keys')",
        message: "no record is written",
    };
    policy
        .install(&scene.stage.site, async || {
            secrets.patch("auth-shop.keys", &probe, &change).await.is_ok()
        })
        .await;
}
