//! The placements for which the configurations on the API server were rendered. A pod that starts reads the configuration that is there: one that
//! is older than a release may still contain the host, even if no pod runs at present.

use api::{Drained, Placement, annotations, labels};
use k8s_openapi::api::core::v1::ConfigMap;
use kit::service::revision;
use kube::{ResourceExt as _, core::PartialObjectMeta};

/// Value of the annotation [`annotations::PLACEMENT`] for a placement.
pub(crate) fn placement_annotation(held: &Placement) -> String {
    format!("{}.{}", held.epoch, revision(held))
}

/// The first configuration of a cluster that may contain hosts which are released up to `goal`, for messages. One that names no placement may.
pub(crate) fn find_older(
    maps: &[PartialObjectMeta<ConfigMap>],
    is_own: impl Fn(&PartialObjectMeta<ConfigMap>) -> bool,
    goal: Drained,
) -> Option<String> {
    let mut own = maps
        .iter()
        .filter(|map| is_own(map) && !map.labels().contains_key(labels::TEMPLATE_CHECK));
    let older = own.find(|map| !is_current(map, goal))?;
    let name = older.name_any();
    Some(format!(
        "ConfigMap {name} still has an earlier configuration, with which a new pod would start: the spec no longer has an entry for {name}, or \
         the agent cannot apply its change (another message of this condition has the cause)"
    ))
}

fn is_current(map: &PartialObjectMeta<ConfigMap>, goal: Drained) -> bool {
    let rendered_for = map.annotations().get(annotations::PLACEMENT);
    let rendered_for = rendered_for.and_then(|text| {
        let (epoch, revision) = text.split_once('.')?;
        Some((epoch.parse::<u64>().ok()?, revision.parse::<u64>().ok()?))
    });
    rendered_for.is_some_and(|position| has_no_released(position, goal))
}

/// Whether a configuration that was rendered for a placement of this epoch, with this newest revision, contains no host that is released up to
/// `goal`.
#[must_use]
pub fn has_no_released(rendered_for: (u64, u64), goal: Drained) -> bool {
    let Drained { epoch, revision } = goal;
    rendered_for >= (epoch, revision)
}

#[cfg(test)]
mod tests {
    use kit::load_balancers::belongs_to;
    use serde_json::{Value, json};

    use super::*;

    fn map(labels: &Value, rendered_for: Option<&str>) -> PartialObjectMeta<ConfigMap> {
        let owner = json!({
            "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": "shop", "uid": "u",
        });
        let map = json!({"metadata": {
            "name": "lb", "labels": labels, "ownerReferences": [owner],
            "annotations": rendered_for.map(|position| json!({(annotations::PLACEMENT): position})),
        }});
        serde_json::from_value(map).unwrap()
    }

    #[test]
    fn only_a_configuration_as_new_as_the_release_is_current() {
        let goal = Drained {
            epoch: 2,
            revision: 7,
        };
        let none = json!({});
        for (what, map, is_older) in [
            ("of the release", map(&none, Some("2.7")), false),
            ("of a later one", map(&none, Some("2.10")), false),
            ("of a later epoch", map(&none, Some("3.1")), false),
            ("of an earlier one", map(&none, Some("2.6")), true),
            ("of an earlier epoch", map(&none, Some("1.9")), true),
            ("it does not say of which", map(&none, None), true),
            ("it says something else", map(&none, Some("2")), true),
            (
                "a template is checked",
                map(&json!({(labels::TEMPLATE_CHECK): "0"}), None),
                false,
            ),
            (
                "of another cluster",
                map(&json!({(labels::CLUSTER_NAME): "bank"}), None),
                false,
            ),
        ] {
            let is_own = |map: &PartialObjectMeta<ConfigMap>| belongs_to(map, "shop");
            assert_eq!(find_older(&[map], is_own, goal).is_some(), is_older, "{what}");
        }
    }

    #[test]
    fn what_is_rendered_for_a_release_is_current() {
        let member = json!({
            "namespace": "metal", "name": "h1", "uid": "u", "role": "Worker", "state": "Releasing", "revision": 5,
        });
        let held = json!({"epoch": 1, "revision": 9, "generation": 1, "members": [member]});
        let held: Placement = serde_json::from_value(held).unwrap();
        let goal = |revision| Drained { epoch: 1, revision };
        let map = map(&json!({}), Some(&placement_annotation(&held)));
        assert!(is_current(&map, goal(5)) && !is_current(&map, goal(6)));
    }
}
