//! The status of a cluster with as many members as the scheduler lets it have.

use kube::api::{Patch, PatchParams};
use sandbox::sip_clusters;
use serde_json::{Value, json};

use crate::fixtures::{Role, Stage, cluster};

/// So many fit with names of this length; the scheduler lets no cluster have more, see its `status_size.rs`.
const MEMBERS: u32 = 2_000;
/// What the scheduler counts for each.
const BYTES: usize = 655;

/// One that is given back while a Machine is on it: a member has no more fields than this.
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
