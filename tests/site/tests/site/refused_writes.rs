//! A host that the API server refuses to write is a condition, in the API server's words.

use sandbox::region::Agent;
use serde_json::json;

use crate::fixtures::{AGENTS, Policy, Role, Stage, cluster, fleet, remove_policy, user};

/// An admission policy of somebody who has other rules for labels than we.
const POLICY: &str = "no-labels";

#[tokio::test]
async fn a_refused_host_write_is_reported_in_the_servers_words() {
    let stage = Stage::start("refused", &AGENTS).await;
    stage.site.create_tenant_namespace("refused").await.unwrap();
    stage.load(&fleet("refused", 1, 0, 1)).await;
    forbid(&stage).await;

    let shop = cluster("refused", "shop").role(Role::Worker, 1);
    stage.create(&shop).await;
    for (kind, reason) in [("HostsLabeled", "Refused"), ("Ready", "UnableToApplyLabels")] {
        let why = stage.condition_is(&shop, kind, "False", reason).await;
        assert!(
            why.contains("metal/refused-r1-w1 cannot be written") && why.contains("frozen until Monday"),
            "{kind}: {why}"
        );
    }

    remove_policy(&stage.site, POLICY).await;
    stage.ready(&shop).await;

    forbid(&stage).await;
    stage.delete(&shop).await;
    let why = stage
        .condition_is(&shop, "Ready", "False", "UnableToDecommission")
        .await;
    assert!(
        why.contains("metal/refused-r1-w1 cannot be written") && why.contains("frozen until Monday"),
        "{why}"
    );

    remove_policy(&stage.site, POLICY).await;
    stage.gone(&shop).await;
}

/// Applies the policy to the agent, and waits until it counts.
async fn forbid(stage: &Stage) {
    let agent = user(Agent::Cluster);
    let policy = Policy {
        name: POLICY,
        matches: json!({"resourceRules": [{
            "apiGroups": ["metal3.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": ["baremetalhosts"],
        }]}),
        expression: &format!("request.userInfo.username != '{agent}'"),
        message: "hosts are frozen until Monday",
    };
    let as_agent = format!("--as={agent}");
    let try_it = [
        "annotate",
        "bmh",
        "-n",
        "metal",
        "refused-r1-w1",
        // The agent may write it where no other policy forbids that.
        "sip.airshipit.org/placement-revision=1",
        "--dry-run=server",
        "--overwrite",
        &as_agent,
    ];
    policy
        .install(&stage.site, async || stage.site.kubectl_ok(&try_it).await.is_ok())
        .await;
}
