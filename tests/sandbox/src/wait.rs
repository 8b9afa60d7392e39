//! Waiting for what objects say, by watching them: no sleeps, and the last state seen in every error.

use std::{collections::BTreeMap, fmt::Debug, pin::pin, time::Duration};

use futures::TryStreamExt as _;
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::watcher::{self, Event},
};
use serde::{Serialize, de::DeserializeOwned};

/// Why the wait was in vain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It did not become true in time.
    #[error("after {} s still waiting for {what}; last seen:\n{last}", deadline.as_secs())]
    Late {
        /// What was waited for.
        what: String,
        /// For how long.
        deadline: Duration,
        /// The objects as they were last seen: names and status.
        last: String,
    },
    /// The watch stopped, which the API server's watches never do for good.
    #[error("the watch for {what} ended")]
    Ended {
        /// What was waited for.
        what: String,
    },
}

/// Watches the objects that `config` selects until `true_now` holds for them together, ordered by namespace and name.
///
/// Failing watches are retried until the deadline: waiting for an API server to come back is a use of this.
///
/// # Errors
/// When it does not hold in time.
pub async fn until_all<K>(
    api: Api<K>,
    config: watcher::Config,
    what: &str,
    deadline: Duration,
    true_now: impl Fn(&[&K]) -> bool,
) -> Result<Vec<K>, Error>
where
    K: Clone + Debug + Send + Serialize + DeserializeOwned + Resource + 'static,
{
    let mut seen: BTreeMap<(String, String), K> = BTreeMap::new();
    let mut failure = None;
    let watched = async {
        let mut events = pin!(watcher::watcher(api, config));
        let mut listed = false;
        let mut listing = BTreeMap::new();
        loop {
            match events.try_next().await {
                Ok(Some(Event::Init)) => listing.clear(),
                Ok(Some(Event::InitApply(object))) => {
                    listing.insert(key(&object), object);
                }
                Ok(Some(Event::InitDone)) => {
                    seen = std::mem::take(&mut listing);
                    listed = true;
                }
                Ok(Some(Event::Apply(object))) => {
                    seen.insert(key(&object), object);
                }
                Ok(Some(Event::Delete(object))) => {
                    seen.remove(&key(&object));
                }
                Ok(None) => {
                    return Err(Error::Ended {
                        what: what.to_owned(),
                    });
                }
                Err(error) => {
                    failure = Some(error.to_string());
                    // The watcher connects again as soon as it is polled; the server needs a moment.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            }
            failure = None;
            if listed && true_now(&seen.values().collect::<Vec<_>>()) {
                return Ok(());
            }
        }
    };
    match tokio::time::timeout(deadline, watched).await {
        Ok(outcome) => outcome.map(|()| seen.into_values().collect()),
        Err(_) => Err(Error::Late {
            what: what.to_owned(),
            deadline,
            last: describe(&seen, failure.as_deref()),
        }),
    }
}

/// Watches one object until `true_now` holds for it; an object that does not exist (yet) holds for nothing.
///
/// # Errors
/// When it does not hold in time.
pub async fn until<K>(
    api: Api<K>,
    name: &str,
    what: &str,
    deadline: Duration,
    true_now: impl Fn(&K) -> bool,
) -> Result<K, Error>
where
    K: Clone + Debug + Send + Serialize + DeserializeOwned + Resource + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let found = until_all(api, config, what, deadline, |objects| {
        objects.iter().any(|object| true_now(object))
    })
    .await?;
    found.into_iter().find(true_now).ok_or_else(|| Error::Ended {
        what: what.to_owned(),
    })
}

/// Watches until an object of this name is gone.
///
/// # Errors
/// When it is still there after the deadline.
pub async fn until_gone<K>(api: Api<K>, name: &str, deadline: Duration) -> Result<(), Error>
where
    K: Clone + Debug + Send + Serialize + DeserializeOwned + Resource + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    until_all(api, config, &format!("{name} to be gone"), deadline, |objects| {
        objects.is_empty()
    })
    .await
    .map(|_| ())
}

fn key<K: Resource>(object: &K) -> (String, String) {
    (
        object.meta().namespace.clone().unwrap_or_default(),
        object.meta().name.clone().unwrap_or_default(),
    )
}

fn describe<K: Serialize + Resource>(seen: &BTreeMap<(String, String), K>, failure: Option<&str>) -> String {
    // An error on a thousand objects must stay readable.
    const SHOWN: usize = 10;
    let mut lines: Vec<String> = seen
        .values()
        .take(SHOWN)
        .map(|object| {
            let status = serde_json::to_value(object)
                .ok()
                .and_then(|mut value| Some(value.get_mut("status")?.take()));
            let name = object.meta().name.clone().unwrap_or_default();
            format!(
                "{}/{name}: {}",
                object.meta().namespace.as_deref().unwrap_or("-"),
                status.unwrap_or_default()
            )
        })
        .collect();
    if seen.is_empty() {
        lines.push("no object".to_owned());
    }
    if seen.len() > SHOWN {
        lines.push(format!("and {} more", seen.len() - SHOWN));
    }
    lines.extend(failure.map(|failure| format!("the watch fails: {failure}")));
    lines.join("\n")
}

/// The condition of a type in an object's status, as `(status, reason, message)`.
#[must_use]
pub fn condition<'a>(
    object: &'a kube::api::DynamicObject,
    kind: &str,
) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = object.data.get("status")?.get("conditions")?.as_array()?;
    let condition = conditions
        .iter()
        .find(|condition| condition.get("type").is_some_and(|found| found == kind))?;
    let text = |field: &str| {
        condition
            .get(field)
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
    };
    Some((text("status"), text("reason"), text("message")))
}

/// Whether a condition is `True` for the object's present generation.
#[must_use]
pub fn is_true(object: &kube::api::DynamicObject, kind: &str) -> bool {
    let current = object.meta().generation;
    object
        .data
        .pointer("/status/conditions")
        .and_then(serde_json::Value::as_array)
        .is_some_and(|conditions| {
            conditions.iter().any(|condition| {
                condition.get("type").is_some_and(|found| found == kind)
                    && condition.get("status").is_some_and(|status| status == "True")
                    && condition
                        .get("observedGeneration")
                        .is_none_or(|seen| seen.as_i64() == current)
            })
        })
}

/// `NAMESPACE/NAME` for messages.
#[must_use]
pub fn full_name(object: &kube::api::DynamicObject) -> String {
    format!(
        "{}/{}",
        object.namespace().as_deref().unwrap_or("-"),
        object.name_any()
    )
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::json;

    use super::*;

    fn object(observed: Option<i64>, status: &str) -> DynamicObject {
        let mut condition = json!({"type": "Ready", "status": status, "reason": "R", "message": "M"});
        if let Some(observed) = observed {
            condition["observedGeneration"] = observed.into();
        }
        serde_json::from_value(json!({
            "apiVersion": "example/v1", "kind": "Thing",
            "metadata": {"name": "a", "namespace": "n", "generation": 2},
            "status": {"conditions": [condition]},
        }))
        .unwrap()
    }

    #[test]
    fn a_condition_is_true_only_for_the_present_generation() {
        let cases = [
            (Some(2), "True", true),
            (None, "True", true),
            (Some(1), "True", false),
            (Some(2), "False", false),
        ];

        for (observed, status, expected) in cases {
            assert_eq!(
                is_true(&object(observed, status), "Ready"),
                expected,
                "{observed:?} {status}"
            );
        }
        assert!(!is_true(&object(None, "True"), "Scheduled"));
    }

    #[test]
    fn a_condition_shows_its_status_reason_and_message() {
        assert_eq!(
            condition(&object(None, "False"), "Ready"),
            Some(("False", "R", "M"))
        );
        assert_eq!(condition(&object(None, "False"), "Scheduled"), None);
    }
}
