//! The record that pods of an instance have been available since it was last to have none: an annotation of its Service, so that restarts of the
//! agent do not lose it. The agent writes `false`, too, so that a value of somebody else does not outlast the pods. `false` does not state that the
//! instance never served: pods may have been available only while the agent did not apply it.

use std::collections::BTreeMap;

use api::annotations::SERVED;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::ResourceExt as _;

use super::{last_applied::Outdated, readiness};

const HAS_SERVED: &str = "true";
const HAS_NOT_SERVED: &str = "false";

/// Writes the record to a rendered Service.
pub(super) fn record(service: &mut Service, has_served: bool) {
    let annotations = service.metadata.annotations.get_or_insert_default();
    annotations.insert(
        SERVED.to_owned(),
        if has_served { HAS_SERVED } else { HAS_NOT_SERVED }.to_owned(),
    );
}

/// Removes everything else from the annotations of a Service: a tenant may write much.
pub(super) fn trim(annotations: &mut Option<BTreeMap<String, String>>) {
    if let Some(annotations) = annotations {
        annotations.retain(|key, value| key == SERVED && value == HAS_SERVED);
    }
}

/// Whether an instance with these objects has served since it was last to have no pods. The record counts only beside the Deployment that
/// served, as far as this process knows it: a deletion that ends early leaves the Service, and somebody may make the Deployment anew.
pub(super) fn has_served(service: &Service, deployment: &Deployment, outdated: Option<Outdated>) -> bool {
    let deleted = [&service.metadata, &deployment.metadata];
    let are_deleted = deleted
        .iter()
        .any(|metadata| metadata.deletion_timestamp.is_some());
    let is_recorded = service
        .annotations()
        .get(SERVED)
        .is_some_and(|value| value == HAS_SERVED);
    !are_deleted
        && deployment.spec.replicas != Some(0)
        && outdated != Some(Outdated::Object)
        && (is_recorded || outdated.is_none() && readiness::serves_as_specified(deployment))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(metadata: &Value) -> Service {
        let mut service: Service = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        trim(&mut service.metadata.annotations);
        service
    }

    fn deployment(replicas: u8, available: u8, deletion: Option<&str>) -> Deployment {
        let status = if available > 0 { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"generation": 1, "deletionTimestamp": deletion},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
            "status": {
                "observedGeneration": 1, "availableReplicas": available,
                "conditions": [{"type": "Available", "status": status}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_record_counts_beside_a_deployment_with_replicas() {
        const ENDS: Option<&str> = Some("2026-01-01T00:00:00Z");
        let yes = json!({"annotations": {SERVED: "true"}});
        let ending = json!({"annotations": {SERVED: "true"}, "deletionTimestamp": ENDS});
        let no = json!({"annotations": {SERVED: "false"}});
        let (older, another) = (Some(Outdated::Generation), Some(Outdated::Object));
        for (metadata, (replicas, available, deletion), outdated, expected) in [
            (&json!({}), (1, 1, None), None, true),
            (&json!({}), (1, 1, None), older, false),
            (&json!({}), (1, 1, None), another, false),
            (&json!({}), (1, 0, None), None, false),
            (&yes, (1, 0, None), None, true),
            (&yes, (1, 0, None), older, true),
            (&yes, (1, 1, None), another, false),
            (&yes, (0, 0, None), None, false),
            (&yes, (1, 1, ENDS), None, false),
            (&ending, (1, 1, None), None, false),
            (&no, (1, 0, None), None, false),
        ] {
            let (service, behind) = (service(metadata), deployment(replicas, available, deletion));
            let found = has_served(&service, &behind, outdated);
            assert_eq!(found, expected, "{metadata} {replicas} {available} {deletion:?}");
        }
    }

    #[test]
    fn nothing_but_the_record_is_kept() {
        let large = "x".repeat(1_000);
        for (annotations, kept) in [
            (json!({SERVED: "true", "example.org/large": large}), 1),
            (json!({SERVED: large}), 0),
        ] {
            assert_eq!(
                service(&json!({"annotations": annotations})).annotations().len(),
                kept
            );
        }
    }

    #[test]
    fn the_agent_writes_either_value() {
        let mut rendered = service(&json!({"annotations": {SERVED: "true"}}));
        record(&mut rendered, false);
        assert_eq!(rendered.annotations()[SERVED], "false");
        assert!(!has_served(&rendered, &deployment(1, 0, None), None));
        record(&mut rendered, true);
        assert!(has_served(&rendered, &deployment(1, 0, None), None));
    }
}
