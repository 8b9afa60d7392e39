//! Where nothing changes, nothing is written.

use std::time::Duration;

use sandbox::audit::Entry;
use tokio::time::{Instant, interval, timeout};

use crate::fixtures::{AGENTS, PATIENCE, Role, Stage, cluster, fleet};

/// For how long nobody may write.
const WINDOW: Duration = Duration::from_secs(10);
/// What was under way when the last cluster became Ready is through when nobody has written for so long.
pub(crate) const SETTLED: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(100);

/// Everything that the agents have written so far. That they still hold their Leases they have to say.
pub(crate) fn writes(stage: &Stage) -> Vec<Entry> {
    const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
    let asked = stage.asked_by_agents().into_iter();
    asked
        .filter(|entry| WRITES.contains(&entry.verb.as_str()))
        .filter(|entry| {
            entry
                .object_ref
                .as_ref()
                .is_none_or(|object| object.resource != "leases")
        })
        .collect()
}

/// Looks at the audit log until nothing is added to the writes for so long. Returns them.
pub(crate) async fn quiet_for(stage: &Stage, long: Duration) -> Vec<Entry> {
    let mut ticks = interval(LOOK);
    let (mut seen, mut since) = (writes(stage), Instant::now());
    while since.elapsed() < long {
        ticks.tick().await;
        let now = writes(stage);
        if now.len() != seen.len() {
            (seen, since) = (now, Instant::now());
        }
    }
    seen
}

#[tokio::test]
async fn nothing_is_written_while_nothing_changes() {
    let stage = Stage::start("site-a", &AGENTS).await;
    stage.load(&fleet("steady", 4, 1, 2)).await;
    stage.site.create_tenant_namespace("steady").await.unwrap();
    let clusters = [("shop", 3, 30_460), ("bank", 1, 30_470)].map(|(name, control_plane, port)| {
        cluster("steady", name)
            .role(Role::ControlPlane, control_plane)
            .role(Role::Worker, 3)
            .balanced(port)
    });
    // One that waits for hosts, and one that cannot be read, are no reason to write either.
    let refused = cluster("steady", "refused").role(Role::ControlPlane, 3);
    let invalid = cluster("steady", "invalid")
        .role(Role::Worker, 1)
        .with("/nodes/Worker/count", serde_json::Value::Null);
    for cluster in &clusters {
        stage.create(cluster).await;
        stage.ready(cluster).await;
    }
    for (cluster, reason) in [(&refused, "Unschedulable"), (&invalid, "InvalidSpec")] {
        stage.create(cluster).await;
        stage.condition_is(cluster, "Scheduled", "False", reason).await;
    }
    let before = timeout(PATIENCE, quiet_for(&stage, SETTLED)).await.unwrap();
    assert!(
        !before.is_empty(),
        "the audit log does not show what the agents write"
    );

    let deadline = Instant::now() + WINDOW;
    let mut ticks = interval(LOOK);
    while Instant::now() < deadline {
        ticks.tick().await;
        let now = writes(&stage);
        assert_eq!(
            now.len(),
            before.len(),
            "{:#?}",
            &now[before.len().min(now.len())..]
        );
    }
    stage.nothing_was_forbidden();
}
