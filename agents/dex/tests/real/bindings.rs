//! Bindings of groups at a tenant's API server.

use std::time::{Duration, Instant};

use api::{
    Cluster, SIPCluster,
    conditions::auth::{KUBECONFIG_INVALID, TENANT_REFUSES, TENANT_UNREACHABLE},
};
use dex_agent::tenant::Tenant;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kit::tenant::destinations::Destinations;
use kube::{Api, ResourceExt as _, api::ListParams};
use render::dex::{GroupBindings, group_bindings};
use runtime::resolver::Resolver;
use sandbox::site::Site;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

use crate::stage::{no_secrets, on_loopback};

const SITE: &str = "north/site-a";

fn bindings(name: &str, groups: &Value) -> GroupBindings {
    bindings_from(SITE, name, groups)
}

fn bindings_from(site: &str, name: &str, groups: &Value) -> GroupBindings {
    bindings_of(site, name, &json!([{"groups": groups}])).remove(0)
}

/// Those of each entry.
fn bindings_of(site: &str, name: &str, entries: &Value) -> Vec<GroupBindings> {
    let entries = entries.as_array().unwrap().iter().cloned();
    let entries = entries.map(|mut entry| {
        entry["image"] = "dex:2".into();
        entry["nodeInterfaceId"] = "oam".into();
        entry
    });
    let object: SIPCluster = serde_json::from_value(json!({
        "metadata": {"namespace": "tenants", "name": name, "uid": name},
        "spec": {"services": {"auth": entries.collect::<Vec<_>>()}},
    }))
    .unwrap();
    let cluster = Cluster::parse(&object).unwrap();
    let entries = cluster.auth().iter();
    entries
        .map(|entry| group_bindings(site, &cluster, entry))
        .collect()
}

/// Kinds, namespaces, groups and roles of all bindings that an agent has made.
async fn bound(site: &Site) -> Vec<String> {
    let ours = ListParams::default().labels("sip.airshipit.org/identity-provider");
    let of_cluster = Api::<ClusterRoleBinding>::all(site.client())
        .list(&ours)
        .await
        .unwrap();
    let of_cluster = of_cluster.items.into_iter().map(|binding| {
        let subjects = binding.subjects.unwrap_or_default();
        format!("{} {}", subjects[0].name, binding.role_ref.name)
    });
    let namespaced = Api::<RoleBinding>::all(site.client()).list(&ours).await.unwrap();
    let namespaced = namespaced.items.into_iter().map(|binding| {
        let namespace = binding.namespace().unwrap_or_default();
        let subjects = binding.subjects.unwrap_or_default();
        format!("{} {} in {namespace}", subjects[0].name, binding.role_ref.name)
    });
    let mut all: Vec<String> = of_cluster.chain(namespaced).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn bindings_of_a_provider_that_is_gone_are_deleted() {
    let site = Site::builder("bindings-left").start().await.unwrap();
    let file = kubeconfig(&site).await;
    let here = on_loopback();
    let apply = async |bindings: GroupBindings| {
        let tenant = Tenant::new(file.clone().into_bytes(), bindings);
        tenant.apply(&no_secrets(), &here).await.unwrap();
    };
    let staff = json!({"name": "staff", "groups": [{"group": "admins", "clusterRole": "cluster-admin"}]});
    let partners = json!({"name": "partners", "groups": [{"group": "dev", "clusterRole": "view"}]});
    for bindings in bindings_of(SITE, "shop", &json!([staff, partners])) {
        apply(bindings).await;
    }
    apply(bindings(
        "bank",
        &json!([{"group": "tellers", "clusterRole": "view"}]),
    ))
    .await;
    let all = ["oidc:admins cluster-admin", "oidc:dev view", "oidc:tellers view"];
    assert_eq!(bound(&site).await, all);

    // As an earlier release made them.
    let cluster = "sip.airshipit.org/identity-provider-cluster";
    let unlabel = format!("{cluster}-");
    site.kubectl_ok(&["label", "clusterrolebindings", "--selector", cluster, &unlabel])
        .await
        .unwrap();
    for bindings in bindings_of(SITE, "shop", &json!([partners, staff])) {
        apply(bindings).await;
    }
    assert_eq!(bound(&site).await, all);

    // The same names in another site are others.
    for bindings in bindings_of("north/site-b", "shop", &json!([{"groups": []}])) {
        apply(bindings).await;
    }
    assert_eq!(bound(&site).await, all);
    for bindings in bindings_of(SITE, "shop", &json!([partners])) {
        apply(bindings).await;
    }
    assert_eq!(bound(&site).await, all[1..]);
}

async fn kubeconfig(site: &Site) -> String {
    site.kubectl_ok(&["config", "view", "--raw", "--flatten"])
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_the_bindings_of_its_spec_and_no_others() {
    let site = Site::builder("bindings").start().await.unwrap();
    site.create_namespace("apps").await.unwrap();
    let file = kubeconfig(&site).await;
    let here = on_loopback();
    let of = |name: &str, groups: Value| Tenant::new(file.clone().into_bytes(), bindings(name, &groups));

    let admins = json!({"group": "admins", "clusterRole": "cluster-admin"});
    let editors = json!({"group": "dev", "clusterRole": "edit", "namespace": "apps"});
    let shop = of("shop", json!([admins, editors, admins]));
    shop.apply(&no_secrets(), &here).await.unwrap();
    let both = ["oidc:admins cluster-admin", "oidc:dev edit in apps"];
    assert_eq!(bound(&site).await, both);

    // Nothing is written as long as everything stands; what somebody changes or deletes comes back.
    let written = |site: &Site| {
        let entries = site.audit_log().unwrap();
        let of_agent =
            |entry: &&sandbox::audit::Entry| entry.request_uri.contains("fieldManager=sip-dex-agent");
        entries.iter().filter(of_agent).count()
    };
    let before = written(&site);
    shop.apply(&no_secrets(), &here).await.unwrap();
    assert_eq!(written(&site), before);
    site.kubectl_ok(&[
        "delete",
        "clusterrolebindings",
        "--selector",
        "sip.airshipit.org/identity-provider",
    ])
    .await
    .unwrap();
    let stranger = r#"[{"op": "replace", "path": "/subjects/0/name", "value": "system:authenticated"}]"#;
    let name = format!(
        "rolebinding/{}",
        bindings("shop", &json!([editors])).namespaced[0].name_any()
    );
    site.kubectl_ok(&[
        "patch",
        &name,
        "--namespace",
        "apps",
        "--type",
        "json",
        "--patch",
        stranger,
    ])
    .await
    .unwrap();
    shop.apply(&no_secrets(), &here).await.unwrap();
    assert_eq!(bound(&site).await, both);

    // Another provider with the same API server keeps its own.
    of("bank", json!([{"group": "tellers", "clusterRole": "view"}]))
        .apply(&no_secrets(), &here)
        .await
        .unwrap();
    of("shop", json!([{"group": "admins", "clusterRole": "view"}]))
        .apply(&no_secrets(), &here)
        .await
        .unwrap();
    assert_eq!(bound(&site).await, ["oidc:admins view", "oidc:tellers view"]);
    of("shop", json!([])).apply(&no_secrets(), &here).await.unwrap();
    assert_eq!(bound(&site).await, ["oidc:tellers view"]);

    // So does one of the same name in another site.
    let elsewhere = bindings_from("north/site-b", "bank", &json!([]));
    let elsewhere = Tenant::new(file.clone().into_bytes(), elsewhere);
    elsewhere.apply(&no_secrets(), &here).await.unwrap();
    assert_eq!(bound(&site).await, ["oidc:tellers view"]);

    // A binding that is refused holds up no other.
    let error = of(
        "shop",
        json!([{"group": "dev", "clusterRole": "edit", "namespace": "nowhere"}, editors, admins]),
    )
    .apply(&no_secrets(), &here)
    .await
    .unwrap_err();
    assert_eq!(error.reason(), TENANT_REFUSES);
    assert!(
        error.to_string().contains("namespaces \"nowhere\" not found"),
        "{error}"
    );
    assert_eq!(bound(&site).await, [both[0], both[1], "oidc:tellers view"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_server_that_cannot_be_used_is_named() {
    let site = Site::builder("refusing").start().await.unwrap();
    let file: Value = serde_json::from_str(
        &site
            .kubectl_ok(&["config", "view", "--raw", "--flatten", "--output", "json"])
            .await
            .unwrap(),
    )
    .unwrap();
    let groups = bindings("shop", &json!([{"group": "admins", "clusterRole": "view"}]));
    let apply = async |file: &Value, destinations: &Destinations| {
        let tenant = Tenant::new(file.to_string().into_bytes(), groups.clone());
        tenant.apply(&no_secrets(), destinations).await.unwrap_err()
    };
    let with = |pointer: &str, value: Value| {
        let mut file = file.clone();
        *file.pointer_mut(pointer).unwrap() = value;
        file
    };
    let server = "/clusters/0/cluster/server";

    // Rights of nobody.
    let nobody = apply(&with("/users/0/user", json!({"token": "nobody"})), &on_loopback()).await;
    assert_eq!(nobody.reason(), TENANT_REFUSES, "{nobody}");
    // Another CA, nobody there, and an address that the agent does not connect to.
    let other = Site::builder("other").start().await.unwrap();
    let untrusted = apply(&with(server, other.server().into()), &on_loopback()).await;
    assert_eq!(untrusted.reason(), TENANT_UNREACHABLE, "{untrusted}");
    let absent = apply(&with(server, "https://127.0.0.1:1".into()), &on_loopback()).await;
    assert_eq!(absent.reason(), TENANT_UNREACHABLE, "{absent}");
    let own = apply(
        &file,
        &Destinations::new(Resolver::from_system().unwrap(), None, []),
    )
    .await;
    assert!(
        own.to_string()
            .contains("the agent does not connect to 127.0.0.1"),
        "{own}"
    );
    let program = with(
        "/users/0/user",
        json!({"exec": {"command": "/bin/true", "apiVersion": "v1"}}),
    );
    assert_eq!(apply(&program, &on_loopback()).await.reason(), KUBECONFIG_INVALID);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_answers_delays_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The begin of a TLS record that never ends.
            stream.write_all(&[0x16, 3, 3, 0x40, 0]).await.unwrap();
            open.push(stream);
        }
    });
    let site = Site::builder("hanging").start().await.unwrap();
    let file = kubeconfig(&site)
        .await
        .replace(site.server(), &format!("https://{address}"));
    let groups = bindings("shop", &json!([{"group": "admins", "clusterRole": "view"}]));
    let before = Instant::now();
    let error = Tenant::new(file.into_bytes(), groups)
        .apply(&no_secrets(), &on_loopback())
        .await
        .unwrap_err();
    assert_eq!(error.reason(), TENANT_UNREACHABLE);
    assert!(
        before.elapsed() < Duration::from_secs(12),
        "{:?}",
        before.elapsed()
    );
    serving.abort();
}
