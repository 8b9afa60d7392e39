//! What a namespace that is being deleted shows of its pods, to an agent that has lost its rights there.
//!
//! Deleting a namespace deletes the `RoleBinding`s of the agents at the same time as the `SIPCluster`s. The agent cannot list pods from then
//! on, and nobody can give it the right again: nothing can be created in such a namespace. No pod can be created there either, so once
//! the namespace controller reports that no pod remains, none routes to any host.

use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use kit::apply;
use kube::{Api, Client};

/// The phase of a namespace that is being deleted.
const TERMINATING: &str = "Terminating";
/// Conditions that must be False: otherwise the namespace controller does not know all that remains.
const FAILURES: [&str; 3] = [
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
];
/// The condition that lists what remains.
const REMAINING: &str = "NamespaceContentRemaining";
/// How its message begins: `RESOURCE.GROUP has COUNT resource instances` follow, separated by commas.
const LIST: &str = "Some resources are remaining: ";
const COUNT: &str = " resource instances";
/// Pods have no group.
const PODS: &str = "pods.";

/// Why pods may still run in a namespace in which the agent has no rights; `None` when none is left.
pub(crate) async fn blocker(client: &Client, name: &str) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.get_opt(name).await {
        Ok(Some(namespace)) => remaining_pods(&namespace).err(),
        Ok(None) => Some(format!("namespace {name} is not found")),
        Err(error) => Some(format!(
            "namespace {name} cannot be read: {}",
            apply::reason(&error)
        )),
    }
}

/// That no pod remains in the namespace. Whatever is not as the namespace controller writes it counts as pods that remain.
fn remaining_pods(namespace: &Namespace) -> Result<(), String> {
    let status = namespace.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    if namespace.metadata.deletion_timestamp.is_none() || phase != Some(TERMINATING) {
        return Err("the agent has no rights in the namespace, and it is not being deleted".to_owned());
    }
    let condition = |kind: &str| -> Option<&NamespaceCondition> {
        let conditions = status?.conditions.iter().flatten();
        conditions.into_iter().find(|condition| condition.type_ == kind)
    };
    let is = |kind: &str, value: &str| condition(kind).is_some_and(|condition| condition.status == value);
    if let Some(failure) = FAILURES.iter().find(|kind| !is(kind, "False")) {
        return Err(format!("{failure} of the namespace is not False"));
    }
    let remaining = condition(REMAINING).ok_or("the namespace does not report yet what remains in it")?;
    if remaining.status == "False" {
        return Ok(());
    }
    let message = remaining.message.as_deref().unwrap_or_default();
    let unreadable = || format!("{REMAINING} of the namespace is not readable: {message:?}");
    let list = message.strip_prefix(LIST).ok_or_else(unreadable)?;
    for entry in list.split(", ") {
        let counted = entry
            .strip_suffix(COUNT)
            .and_then(|entry| entry.split_once(" has "));
        let (resource, count) = counted.ok_or_else(unreadable)?;
        count.parse::<u64>().map_err(|_| unreadable())?;
        if resource == PODS {
            return Err(format!(
                "{count} pods remain in the namespace, which is being deleted"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A namespace as the namespace controller of Kubernetes 1.36 reports it.
    fn namespace(remaining: &str) -> Namespace {
        let condition = |kind: &str, status: &str, message: &str| json!({"type": kind, "status": status, "message": message});
        let failures = FAILURES.map(|kind| condition(kind, "False", ""));
        let conditions: Vec<_> = failures
            .into_iter()
            .chain([condition(REMAINING, "True", remaining)])
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "shop", "deletionTimestamp": "2026-11-25T01:49:23Z"},
            "status": {"phase": TERMINATING, "conditions": conditions},
        }))
        .unwrap()
    }

    const CLUSTER: &str = "sipclusters.airship.airshipit.org has 1 resource instances";

    #[test]
    fn only_a_complete_list_without_pods_shows_that_none_is_left() {
        let none = [
            format!("{LIST}{CLUSTER}"),
            format!("{LIST}podsets.example.com has 2 resource instances, {CLUSTER}"),
        ];
        for message in none {
            assert_eq!(remaining_pods(&namespace(&message)), Ok(()), "{message}");
        }
        let pods = format!("{LIST}pods. has 2 resource instances, {CLUSTER}");
        assert!(
            remaining_pods(&namespace(&pods))
                .unwrap_err()
                .starts_with("2 pods remain")
        );
        for message in [
            "",
            "Something else",
            "Some resources are remaining: ",
            "Some resources are remaining: pods",
            "Some resources are remaining: pods. has many resource instances",
        ] {
            let unknown = remaining_pods(&namespace(message)).unwrap_err();
            assert!(unknown.contains("not readable"), "{message:?}: {unknown}");
        }
    }

    #[test]
    fn a_namespace_that_stays_or_whose_deletion_fails_shows_nothing() {
        let ended = namespace(&format!("{LIST}{CLUSTER}"));
        let mut stays = ended.clone();
        stays.metadata.deletion_timestamp = None;
        assert!(remaining_pods(&stays).unwrap_err().contains("not being deleted"));
        for kind in FAILURES {
            let mut fails = ended.clone();
            let conditions = fails
                .status
                .as_mut()
                .and_then(|status| status.conditions.as_mut());
            let mut conditions = conditions.unwrap().iter_mut();
            conditions
                .find(|condition| condition.type_ == kind)
                .unwrap()
                .status = "True".to_owned();
            assert!(remaining_pods(&fails).unwrap_err().starts_with(kind));
        }
        let mut silent = ended;
        silent.status.as_mut().unwrap().conditions.as_mut().unwrap().pop();
        assert!(
            remaining_pods(&silent)
                .unwrap_err()
                .contains("does not report yet")
        );
    }
}
