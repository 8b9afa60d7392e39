//! The status of a cluster with as many members as the scheduler lets it have.

use kube::api::{Patch, PatchParams};
use sandbox::{inventory::NETWORK, sip_clusters};
use serde_json::{Value, json};

use crate::fixtures::{AGENTS, Role, Stage, cluster, fleet};

/// So many fit with names of this length; the scheduler lets no cluster have more, see its `status_size.rs`.
const MEMBERS: u32 = 2_000;
/// What the scheduler counts for each.
const BYTES: usize = 655;

/// One that is released while a Machine is on it: a member has no more fields than this.
fn member(number: u32) -> Value {
    json!({
        "namespace": "metal",
        "name": format!("host-{number:05}"),
        "uid": format!("00000000-0000-4000-8000-{number:012}"),
        "role": "Worker",
        "ordinal": number,
        "domain": format!("rack-{number:03}"),
        "state": "Releasing",
        "revision": i64::MAX,
        "since": "2026-11-23T14:20:00Z",
        "failedSince": "2026-11-23T14:20:00Z",
        "releaseReason": "orphaned",
        "machine": format!("tenant/machine-{number:05}"),
    })
}

#[tokio::test]
async fn an_api_server_stores_the_largest_status() {
    let stage = Stage::start("large", &[]).await;
    stage.site.create_tenant_namespace("large").await.unwrap();
    let shop = cluster("large", "shop").role(Role::Worker, MEMBERS);
    stage.create(&shop).await;
    let resource = sip_clusters::resource();
    let status = json!({
        "apiVersion": format!("{}/{}", resource.group, resource.version),
        "kind": resource.kind,
        "status": {"placement": {
            "epoch": 1, "revision": i64::MAX, "generation": 1,
            "members": (0..MEMBERS).map(member).collect::<Vec<_>>(),
        }},
    });

    let stored = stage
        .clusters("large")
        .patch_status(
            "shop",
            &PatchParams::apply("sip-cluster-agent"),
            &Patch::Apply(&status),
        )
        .await
        .unwrap();

    let members = &stored.data["status"]["placement"]["members"];
    assert_eq!(members.as_array().map(Vec::len), Some(MEMBERS as usize));
    let managed = stored.metadata.managed_fields.unwrap();
    let bytes = members.to_string().len() + serde_json::to_string(&managed).unwrap().len();
    let most = MEMBERS as usize * BYTES;
    assert!(bytes <= most, "{bytes} bytes are more than {most}");
    // A count that is far too high would keep clusters small for nothing.
    assert!(bytes * 5 > most * 4, "{bytes} bytes are far less than {most}");
}

/// Entries with so many keys of so many bytes come close to what etcd takes, and leave too little for the status.
const KEYS: usize = 1_000;
const KEY: usize = 772;

fn jump_host(name: &str) -> Value {
    let key = |number: usize| format!("ssh-rsa {number:0width$}", width = KEY - "ssh-rsa ".len());
    json!({
        "name": name,
        "image": "jump:1",
        "nodeInterfaceId": NETWORK,
        "sshAuthorizedKeys": (0..KEYS).map(key).collect::<Vec<_>>(),
    })
}

#[tokio::test]
async fn a_spec_that_leaves_no_room_claims_nothing() {
    let stage = Stage::start("keys", &AGENTS).await;
    stage.load(&fleet("keys", 60, 0, 1)).await;
    stage.site.create_tenant_namespace("keys").await.unwrap();
    let shop = cluster("keys", "shop")
        .role(Role::Worker, 60)
        .with("/services/jumpHost", json!([jump_host("a"), jump_host("b")]));
    stage.create(&shop).await;
    let why = "spec.services.jumpHost[1].sshAuthorizedKeys is 775001 bytes";
    stage
        .condition_mentions(&shop, "Scheduled", "False", "InvalidSpec", why)
        .await;
    assert!(stage.labelled("keys", &shop).await.is_empty());

    // As many keys as one entry may have leave room for these hosts.
    let one = json!({"services": {"jumpHost": [jump_host("a")]}});
    stage.edit(&shop, one).await;
    stage.condition_is(&shop, "HostsLabeled", "True", "Labeled").await;
    assert_eq!(stage.labelled("keys", &shop).await.len(), 60);
    stage.nothing_was_forbidden();
}

/// A status with every endpoint of the spec, and with conditions as long as agents write them, by an agent of its own each.
fn of_others(ports: u32) -> Vec<(&'static str, Value)> {
    let endpoint = |port: u32| {
        json!({
            "name": format!("loadbalancer-worker-shop:{port}"),
            "address": "h".repeat(253),
            "port": port,
            "nodePort": port,
            "protocol": "tcp",
        })
    };
    let condition = |kind: &str| {
        json!({
            "type": kind,
            "status": "False",
            "reason": "Progressing",
            "message": "m".repeat(8_192),
            "observedGeneration": 1,
            "lastTransitionTime": "2026-11-23T14:20:00Z",
        })
    };
    let applied =
        json!({"service": "loadbalancer-worker-shop", "epoch": 1, "revision": i64::MAX, "generation": 1});
    vec![
        (
            "sip-load-balancer-agent",
            json!({
                "endpoints": (31_000..31_000 + ports).map(endpoint).collect::<Vec<_>>(),
                "applied": [applied],
                "conditions": [condition("LoadBalancerReady")],
            }),
        ),
        (
            "sip-jump-host-agent",
            json!({"conditions": [condition("JumpHostReady")]}),
        ),
        ("sip-dex-agent", json!({"conditions": [condition("AuthReady")]})),
    ]
}

#[tokio::test]
async fn what_a_spec_causes_takes_no_more_than_is_counted() {
    const PORTS: u32 = 1_000;
    let stage = Stage::start("caused", &[]).await;
    stage.site.create_tenant_namespace("caused").await.unwrap();
    let shop = cluster("caused", "shop").role(Role::Worker, 1).with(
        "/services/loadBalancerWorker",
        json!([{
            "image": "haproxy:2.8",
            "nodeInterfaceId": NETWORK,
            "nodePortRange": {"start": 31_000, "end": 31_000 + PORTS - 1},
            "override": {"service": {"spec": {"type": "LoadBalancer"}}},
        }]),
    );
    let shop = shop.with(
        "/services/jumpHost",
        json!([jump_host("a").as_object().map(|entry| {
            let mut entry = entry.clone();
            if let Some(keys) = entry["sshAuthorizedKeys"].as_array_mut() {
                keys.truncate(300);
            }
            entry
        })]),
    );
    stage.create(&shop).await;
    let clusters = stage.clusters("caused");
    let created = serde_json::to_value(clusters.get("shop").await.unwrap()).unwrap();
    let counted = api::Cluster::parse(&serde_json::from_value(created).unwrap()).unwrap();
    let counted = usize::try_from(counted.other_bytes()).unwrap();

    let room = ((1_536 - 4) << 10) - counted;
    let members: Vec<Value> = (0..).map(member).take(room / BYTES).collect();
    let placement = json!({"epoch": 1, "revision": i64::MAX, "generation": 1, "members": members});
    let mut statuses = of_others(PORTS);
    statuses.push(("sip-cluster-agent", json!({"placement": placement})));
    let resource = sip_clusters::resource();
    let mut stored = None;
    for (manager, status) in statuses {
        let status = json!({
            "apiVersion": format!("{}/{}", resource.group, resource.version),
            "kind": resource.kind,
            "status": status,
        });
        let (params, patch) = (PatchParams::apply(manager), Patch::Apply(&status));
        stored = Some(clusters.patch_status("shop", &params, &patch).await.unwrap());
    }

    let stored = serde_json::to_value(stored).unwrap();
    let own = |field: &Value| field["manager"] == "sip-cluster-agent";
    let managed = stored["metadata"]["managedFields"].as_array().unwrap().iter();
    let of_members: usize = managed
        .filter(|field| own(field))
        .map(|field| field.to_string().len())
        .sum();
    let of_members = of_members + stored["status"]["placement"].to_string().len();
    let bytes = stored.to_string().len() - of_members;
    assert!(bytes <= counted, "{bytes} bytes are more than {counted}");
    assert!(
        bytes * 4 > counted * 3,
        "{bytes} bytes are far less than {counted}"
    );
}
