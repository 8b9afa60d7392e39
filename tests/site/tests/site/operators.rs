//! What operators override with `sipctl`: each command says first what will happen, and whoever may not is refused.

use std::process::Output;

use sandbox::{
    authority::{Caller, Identity, TRUST_DOMAIN},
    programs,
    region::{Agent, Region},
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
    wait,
};
use serde_json::json;

use crate::fixtures::{PATIENCE, Role, Stage, cluster, given_back, host, sip_labels};

const INVENTORY: &str = "sip.inventory.v1.InventoryService";
const PLACEMENT: &str = "sip.placement.v1.PlacementService";

/// Runs `sipctl` with somebody's certificate.
async fn sipctl(region: &Region, who: &Identity, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(programs::path("sipctl").unwrap());
    command
        .args(arguments)
        .args(["--scheduler", &region.endpoint(), "--region", region.name()])
        .args(["--trust-domain", TRUST_DOMAIN])
        .arg("--tls-cert")
        .arg(&who.certificate)
        .arg("--tls-key")
        .arg(&who.key)
        .arg("--tls-ca")
        .arg(&who.authority);
    command.output().await.unwrap()
}

/// Exit code, standard output, standard error.
fn printed(output: &Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[tokio::test]
async fn sipctl_releases_orphans_only() {
    let stage = Stage::start("left", &[Agent::Cluster]).await;
    stage.site.create_tenant_namespace("left").await.unwrap();
    let orphan = host("left", "worker", "r1", "orphan")
        .label(CLUSTER_NAMESPACE, "left")
        .label(CLUSTER_NAME, "never")
        .label(NODE_TYPE, "Worker");
    stage.load(&[orphan, host("left", "worker", "r2", "held")]).await;
    let shop = cluster("left", "shop").role(Role::Worker, 1);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let (region, operator) = (&*stage.region, stage.region.operator());
    let release = ["release-orphan", "--site", "left", "metal/left-orphan"];

    let dry = sipctl(region, operator, &[&release[..], &["--dry-run"]].concat()).await;
    let (code, text, _) = printed(&dry);
    assert_eq!(code, 0, "{dry:?}");
    assert!(
        text.contains("its labels name Worker of left/never, no cluster holds it"),
        "{text}"
    );
    assert!(text.contains("Nothing was changed"), "{text}");
    let host = stage.hosts().get("left-orphan").await.unwrap();
    assert_eq!(sip_labels(&host).len(), 3);

    let reader = region.authority().issue(&Caller::Reader("ann")).unwrap();
    let forbidden = printed(&sipctl(region, &reader, &release).await);
    assert_eq!(forbidden.0, 2, "{forbidden:?}");
    assert!(
        forbidden.2.contains("may not call ReleaseOrphan"),
        "{forbidden:?}"
    );

    let held = ["release-orphan", "--site", "left", "metal/left-held"];
    let refused = printed(&sipctl(region, operator, &held).await);
    assert_eq!(refused.0, 2, "{refused:?}");
    assert!(
        refused
            .1
            .contains("its labels name Worker of left/shop, left/shop holds it"),
        "{refused:?}"
    );
    let why = "refused: metal/left-held is not orphaned: left/shop holds it, which exists";
    assert!(refused.2.contains(why), "{refused:?}");

    for (arguments, code, words) in [
        (
            ["release-orphan", "--site", "left", "metal/nobody"],
            2,
            "is not known",
        ),
        (
            ["release-orphan", "--site", "elsewhere", "metal/left-held"],
            2,
            "is not known",
        ),
        (["release-orphan", "--site", "left", "left-held"], 1, "left-held"),
    ] {
        let refused = printed(&sipctl(region, operator, &arguments).await);
        assert_eq!(refused.0, code, "{refused:?}");
        assert!(refused.2.contains(words), "{refused:?}");
    }

    let done = printed(&sipctl(region, operator, &release).await);
    assert_eq!(done.0, 0, "{done:?}");
    assert!(
        done.1
            .contains("Done: its release from left/never has begun at 1."),
        "{done:?}"
    );
    wait::until(
        stage.hosts(),
        "left-orphan",
        "the host to be released",
        PATIENCE,
        given_back,
    )
    .await
    .unwrap();
    let asked = json!({"site": "left", "namespace": "metal", "name": "left-orphan"});
    stage
        .until_answer(&format!("{INVENTORY}/GetHost"), asked, |answer| {
            answer["host"].get("holder").is_none()
        })
        .await;
}

#[tokio::test]
async fn sipctl_resets_a_sites_fence_and_is_logged() {
    let mut stage = Stage::start("fenced", &[Agent::Cluster]).await;
    let operator = stage.region.operator().clone();
    let reset = ["site", "reset-fence", "fenced"];
    let decisions = format!("{PLACEMENT}/ListDecisions");

    let unknown = printed(&sipctl(&stage.region, &operator, &["site", "reset-fence", "elsewhere"]).await);
    assert_eq!(unknown.0, 2, "{unknown:?}");
    assert!(
        unknown.2.contains("site elsewhere is not known to https://"),
        "{unknown:?}"
    );
    stage
        .until_answer(&format!("{INVENTORY}/ListSites"), json!({}), |answer| {
            answer["sites"][0]["synced"] == true
        })
        .await;
    let dry = printed(&sipctl(&stage.region, &operator, &[&reset[..], &["--dry-run"]].concat()).await);
    assert_eq!(dry.0, 0, "{dry:?}");
    assert!(
        dry.1
            .contains("Site fenced: an agent reports it at present, and will be fenced."),
        "{dry:?}"
    );
    assert!(dry.1.contains("Nothing was changed"), "{dry:?}");
    let reader = stage.region.authority().issue(&Caller::Reader("ann")).unwrap();
    let forbidden = printed(&sipctl(&stage.region, &reader, &reset).await);
    assert_eq!(forbidden.0, 2, "{forbidden:?}");
    let log = stage.call(&decisions, json!({"site": "fenced"})).await;
    assert!(!log.to_string().contains("reset-fence"), "{log}");

    let done = printed(&sipctl(&stage.region, &operator, &reset).await);

    assert_eq!(done.0, 0, "{done:?}");
    assert!(done.1.contains("Done:"), "{done:?}");
    let log = stage.call(&decisions, json!({"site": "fenced"})).await;
    let entries = log["decisions"].as_array().unwrap();
    let entry = entries
        .iter()
        .find(|entry| entry["action"] == "reset-fence")
        .unwrap();
    let caller = entry["caller"].as_str().unwrap();
    assert!(caller.contains("operator/"), "{log}");
    stage
        .until_answer(&format!("{INVENTORY}/ListSites"), json!({}), |answer| {
            answer["sites"][0]["synced"] == true
        })
        .await;

    stage.region_mut().scheduler().kill9().await.unwrap();
    let away = printed(&sipctl(&stage.region, &operator, &reset).await);
    assert_eq!(away.0, 1, "{away:?}");
}
