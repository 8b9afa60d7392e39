//! Reading of fields of which some cannot be read, since another version or another writer has written them: each is read by itself.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// The field; its default where it cannot be read.
pub(crate) fn field<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + DeserializeOwned,
{
    let value = Value::deserialize(deserializer)?;
    Ok(T::deserialize(value).unwrap_or_default())
}

/// The entries of a list that can be read; none where it is no list.
pub(crate) fn entries<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let all: Vec<Value> = field(deserializer)?;
    let all = all.into_iter();
    Ok(all.filter_map(|entry| T::deserialize(entry).ok()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{MemberState, SIPClusterStatus};

    #[test]
    fn one_field_of_a_status_makes_no_other_unreadable() {
        let member = json!({
            "namespace": "metal", "name": "h1", "uid": "u", "role": "Worker", "state": "Bound", "revision": 7,
        });
        let applied = |revision: i64| json!({"service": format!("lb-{revision}"), "epoch": 1, "revision": revision, "generation": 3});
        let good = json!({
            "observedGeneration": 3,
            "observedSince": "2026-01-01T00:00:00Z",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Fine", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "placement": {"epoch": 1, "revision": 7, "generation": 3, "members": [member]},
            "applied": [applied(5)],
            "drained": {"epoch": 1, "revision": 5},
            "endpoints": [{"name": "lb", "port": 6443}],
            "tenantNodes": {"problem": "words"},
            "counts": {"workers": "1/1"},
            "roles": [{"role": "Worker", "wanted": 1, "claimed": 0, "bound": 1, "releasing": 0}],
            "state": "Ready",
        });
        let read = |status: &Value| serde_json::from_value::<SIPClusterStatus>(status.clone());
        let written = |status: &Value| serde_json::to_value(read(status).unwrap()).unwrap();
        assert_eq!(written(&good), good);
        for field in good
            .as_object()
            .unwrap()
            .keys()
            .filter(|field| *field != "placement")
        {
            let mut status = good.clone();
            status[field] = json!("Unheard of");
            let mut expected = good.clone();
            expected.as_object_mut().unwrap().remove(field);
            assert_eq!(written(&status), expected, "{field}");
        }

        let mut status = good.clone();
        status["applied"] = json!([applied(-1), applied(5), 7]);
        assert_eq!(
            written(&status),
            good,
            "only the entries that cannot be read are absent"
        );

        assert_eq!(
            read(&good).unwrap().placement.unwrap().members[0].state,
            MemberState::Bound
        );
        status["placement"]["members"][0]["state"] = json!("Moving");
        assert!(read(&status).is_err(), "it is not the same as no placement");
    }
}
