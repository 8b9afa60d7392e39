//! The health of a machine as the baremetal-operator v0.13.2 shows it on a host: the end of `computeConditions` in
//! `internal/controller/metal3.io/baremetalhost_controller.go`.

use k8s_openapi::jiff::Timestamp;
use kube::{
    Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::provider::hosts;

/// The condition that has it.
pub const HEALTHY: &str = "Healthy";

/// Status and reason of the condition, by the health that the BMC reports: `OK`, `Warning` or `Critical`; empty where it reports none, which
/// changes no condition that is there.
#[must_use]
pub fn condition(health: &str, is_there: bool) -> Option<(&'static str, &'static str)> {
    match health {
        "" if is_there => None,
        "OK" => Some(("True", "Healthy")),
        "Warning" => Some(("False", "Warning")),
        "Critical" => Some(("False", "CriticalError")),
        _ => Some(("Unknown", "Unknown")),
    }
}

/// Writes what the BMC of a host reports.
///
/// # Errors
/// What the API server answers.
pub async fn report(client: Client, namespace: &str, host: &str, health: &str) -> kube::Result<()> {
    let all = hosts(client, namespace);
    let found = all.get(host).await?;
    let others = others(&found);
    let is_there = others.len() < conditions(&found).count();
    let Some((status, reason)) = condition(health, is_there) else {
        return Ok(());
    };
    let mut written = others;
    // The baremetal-operator sets no message.
    written.push(json!({
        "type": HEALTHY, "status": status, "reason": reason, "message": "",
        "lastTransitionTime": Timestamp::now().to_string(),
    }));
    let patch = Patch::Merge(json!({"status": {"conditions": written}}));
    let written = all.patch_status(host, &PatchParams::default(), &patch).await;
    written.map(drop)
}

fn conditions(host: &DynamicObject) -> impl Iterator<Item = &Value> {
    host.data["status"]["conditions"].as_array().into_iter().flatten()
}

fn others(host: &DynamicObject) -> Vec<Value> {
    let others = conditions(host).filter(|condition| condition["type"] != HEALTHY);
    others.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_and_a_critical_error_are_unhealthy() {
        for (health, is_there, expected) in [
            ("OK", false, Some(("True", "Healthy"))),
            ("Warning", false, Some(("False", "Warning"))),
            ("Critical", true, Some(("False", "CriticalError"))),
            ("", false, Some(("Unknown", "Unknown"))),
            ("", true, None),
            ("Strange", true, Some(("Unknown", "Unknown"))),
        ] {
            assert_eq!(condition(health, is_there), expected, "{health} {is_there}");
        }
    }
}
