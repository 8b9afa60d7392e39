//! Objects as snapshots, and configuration read as Dex reads it.

use api::{Cluster, HttpsUrl, SIPCluster, SecretKey};
use insta::{assert_snapshot, assert_yaml_snapshot};
use serde_json::{Value, json};

use super::*;

fn cluster(entry: &Value) -> Cluster {
    let object = json!({
        "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
        "metadata": {"namespace": "tenants", "name": "shop", "uid": "5a1e"},
        "spec": {"services": {"auth": [entry]}},
    });
    let object: SIPCluster = serde_json::from_value(object).unwrap();
    Cluster::parse(&object).unwrap()
}

fn storage() -> Storage {
    Storage {
        endpoints: vec!["https://etcd.example.org:2379".to_owned()],
        authority: Some("CA of the storage".to_owned()),
        prefix: "sip-dex/5a1e/auth-shop/".to_owned(),
        user: "sip-dex.5a1e.auth-shop".to_owned(),
        password: "storage$password".to_owned(),
    }
}

fn certificate() -> Certificate {
    Certificate {
        chain: "chain".to_owned(),
        key: "key".to_owned(),
        bundle: "bundle\n".to_owned(),
    }
}

/// Every key of a Secret has the same text.
fn secrets(cluster: &Cluster, text: &str) -> Secrets {
    let provider = cluster.auth()[0].provider();
    let values = provider.secret_keys().into_iter().map(|key: &SecretKey| {
        let value = match key.key() {
            "ca.crt" => "-----BEGIN CERTIFICATE-----",
            "connector" => "{type: gitlab, config: {clientSecret: 'x$HOME', groups: ['$1', a]}}",
            "typed" => {
                "{type: oidc, config: {scopes: [], issuer: 'https://a', clientID: a, clientSecret: 'x$HOME', \
                 redirectURI: 'https://b', insecureEnableGroups: false}}"
            }
            "users" => "ada@example.org:$2y$10$aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
            _ => text,
        };
        (key.clone(), value.as_bytes().to_vec())
    });
    Secrets::read(provider, &values.collect()).unwrap_or_else(|bad| panic!("{bad:?}"))
}

fn everything() -> Value {
    let key = |key: &str| json!({"name": "sign-in", "key": key});
    json!({
        "image": "example.org/dex:2.13", "nodeInterfaceId": "oam", "nodePort": 30_556, "hostname": "sso.example.org",
        "connectors": [
            {"id": "ldap", "name": "Directory", "ldap": {
                "host": "ldap.example.org", "rootCA": key("ca.crt"), "bindDN": "cn=search,dc=example", "bindPassword": key("password"),
                "userSearch": {"baseDN": "ou=people", "filter": "(objectClass=person)", "username": "uid", "nameAttr": "cn"},
                "groupSearch": {"baseDN": "ou=groups", "scope": "one"}}},
            {"id": "up", "oidc": {"issuer": "https://up.example.org", "clientID": "dex", "clientSecret": key("up")}},
            {"id": "github", "github": {"clientID": "dex", "clientSecret": key("github"), "orgs": [{"name": "o", "teams": ["t"]}]}},
            {"id": "other", "raw": key("connector")},
        ],
        "clients": [
            {"id": "kubernetes"},
            {"id": "console", "secret": key("console"), "redirectURIs": ["https://console.example.org/back"]},
        ],
        "expiry": {"idTokens": "1h"},
        "groups": [
            {"group": "admins", "clusterRole": "cluster-admin"},
            {"group": "ops", "clusterRole": "edit", "namespace": "shop"},
            {"group": "dev", "role": "deploy", "namespace": "shop"},
        ],
        "staticPasswords": key("users"),
    })
}

#[test]
fn the_objects_of_a_provider() {
    let cluster = cluster(&everything());
    let issuer = HttpsUrl::from_parts("sso.example.org", 30_556, ISSUER_PATH).unwrap();
    let secrets = secrets(&cluster, "secret$value");
    let plan = Plan {
        site: "north/site-a",
        cluster: &cluster,
        entry: &cluster.auth()[0],
        issuer: Some(&issuer),
        secrets: &secrets,
        storage: &storage(),
        certificate: &certificate(),
    };
    let mut rendered = objects(&plan);
    let data = std::mem::take(rendered.secret.data.as_mut().unwrap());
    let names: Vec<_> = data.keys().map(String::as_str).collect();
    assert_eq!(names, ["dex.json", "storage-ca.crt", "tls.crt", "tls.key"]);
    let config: Value = serde_json::from_slice(&data[CONFIG_FILE].0).unwrap();
    assert_snapshot!("config", format!("{config:#}"));
    let Objects {
        service,
        secret,
        account,
        deployment,
        policy,
        budget,
        digest: _,
    } = rendered;
    assert_yaml_snapshot!("objects", (service, secret, account, deployment, policy, budget));
    assert_yaml_snapshot!("outputs", outputs(&plan));
}

#[test]
fn an_entry_changes_its_service_networks_and_resources() {
    let issuer = HttpsUrl::from_parts("sso.example.org", 30_556, ISSUER_PATH).unwrap();
    let of = |entry: &Value| {
        let cluster = cluster(entry);
        objects(&Plan {
            site: "north/site-a",
            cluster: &cluster,
            entry: &cluster.auth()[0],
            issuer: Some(&issuer),
            secrets: &secrets(&cluster, "secret"),
            storage: &storage(),
            certificate: &certificate(),
        })
    };
    let mut entry = everything();
    let plain = of(&entry);
    entry["networkAttachments"] = json!(["oam", "backup"]);
    entry["resources"] = json!({"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}});
    entry["override"] = json!({"service": {
        "metadata": {
            "labels": {"team": "blue"},
            "annotations": {"metallb.universe.tf/address-pool": "tenants"},
        },
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
    }});
    let changed = of(&entry);

    let (template, before) = (changed.deployment.spec.template, plain.deployment.spec.template);
    let (annotations, of_before) = (
        template.metadata.unwrap().annotations.unwrap(),
        before.metadata.unwrap().annotations.unwrap(),
    );
    assert_eq!(
        annotations[api::annotations::NETWORKS],
        r#"[{"name":"oam","namespace":"tenants"},{"name":"backup","namespace":"tenants"}]"#
    );
    // The configuration is the same.
    let hash = api::annotations::CONFIG_HASH;
    assert_eq!(annotations[hash], of_before[hash]);
    let container = template.spec.unwrap().containers.remove(0);
    let resources = serde_json::to_value(container.resources).unwrap();
    assert_eq!(resources, entry["resources"]);
    let metadata = changed.service.metadata;
    let labels = metadata.labels.unwrap();
    assert_eq!(
        (&*labels["team"], &*labels["app.kubernetes.io/name"]),
        ("blue", "dex")
    );
    let pool = &metadata.annotations.unwrap()["metallb.universe.tf/address-pool"];
    assert_eq!(pool, "tenants");
    let (spec, before) = (changed.service.spec.unwrap(), plain.service.spec.unwrap());
    assert_eq!(spec.type_.as_deref(), Some("LoadBalancer"));
    assert_eq!(spec.external_traffic_policy.as_deref(), Some("Local"));
    assert_eq!((spec.selector, spec.ports), (before.selector, before.ports));
}

#[test]
fn nothing_runs_before_the_issuer_is_known() {
    let cluster = cluster(&everything());
    let plan = Plan {
        site: "north/site-a",
        cluster: &cluster,
        entry: &cluster.auth()[0],
        issuer: None,
        secrets: &secrets(&cluster, "secret"),
        storage: &storage(),
        certificate: &certificate(),
    };
    let rendered = objects(&plan);
    assert_eq!(rendered.deployment.spec.replicas, Some(0));
    assert!(!rendered.secret.data.unwrap().contains_key(CONFIG_FILE));
    assert_eq!(outputs(&plan), None);
}

#[test]
fn pkce_is_required_where_every_client_is_public() {
    for (clients, required) in [
        (json!([]), true),
        (json!([{"id": "kubernetes"}, {"id": "another"}]), true),
        (everything()["clients"].clone(), false),
    ] {
        let mut entry = everything();
        entry["clients"] = clients;
        let cluster = cluster(&entry);
        let provider = cluster.auth()[0].provider();
        let issuer = HttpsUrl::from_parts("sso.example.org", 30_556, ISSUER_PATH).unwrap();
        let config = Config::new(provider, &issuer, &secrets(&cluster, "secret"), &storage())
            .to_text()
            .unwrap();
        let config: Value = serde_json::from_str(&config).unwrap();
        let pkce = json!({"enforce": required, "codeChallengeMethodsSupported": ["S256"]});
        assert_eq!(config["oauth2"]["pkce"], pkce);
    }
}

#[test]
fn groups_of_another_provider_are_asked_for() {
    let cluster = cluster(&everything());
    let provider = cluster.auth()[0].provider();
    let issuer = HttpsUrl::from_parts("sso.example.org", 30_556, ISSUER_PATH).unwrap();
    let config = Config::new(provider, &issuer, &secrets(&cluster, "secret"), &storage());
    let config: Value = serde_json::from_str(&config.to_text().unwrap()).unwrap();
    // Without this Dex drops the claim `groups` of an oidc connector.
    assert_eq!(config["connectors"][1]["config"]["insecureEnableGroups"], true);
}

#[test]
fn a_text_that_is_read_as_something_else_is_not_written() {
    let mut entry = everything();
    // The other connector in the Secret has a type that is also typed, with the same fields.
    entry["connectors"][3] = json!({"id": "other", "raw": {"name": "sign-in", "key": "typed"}});
    for entry in [everything(), entry] {
        let cluster = cluster(&entry);
        let provider = cluster.auth()[0].provider();
        let issuer = HttpsUrl::from_parts("sso.example.org", 30_556, ISSUER_PATH).unwrap();
        let config = Config::new(provider, &issuer, &secrets(&cluster, "hid$den"), &storage());
        let text = config.to_text().unwrap();
        for wrong in [
            String::new(),
            text[..text.len() - 1].to_owned(),
            text.replace("ldap.example.org", "other.example.org"),
            text.replace("hid${DEX_DOLLAR}den", "hid$den"),
            text.replace("\"issuer\":", "\"issuers\":"),
            text.replace("\"enablePasswordDB\":true", "\"enablePasswordDB\":false"),
        ] {
            if wrong == text {
                continue;
            }
            let error = config.verify(&wrong).unwrap_err().to_string();
            assert!(!error.contains("hid"), "{error}");
        }
    }
}

#[test]
fn no_printed_type_shows_a_secret() {
    let cluster = cluster(&everything());
    let secrets = secrets(&cluster, "hidden");
    assert!(!format!("{secrets:?}").contains("hidden"));
}
