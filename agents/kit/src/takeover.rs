//! Transfers fields that were written by updates or by a creation to an applier, so that it removes those that it does not apply.
//! What client-go calls `csaupgrade`; how ownership works:
//! <https://kubernetes.io/docs/reference/using-api/server-side-apply/>

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta};
use kube::Api;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::apply::{Manager, merge_metadata};

/// Makes the fields that `from` wrote to an object by updates the fields of `to`, as if `to` had applied them; finalizers and annotations only if
/// `from` is `to`. Returns the object's metadata after that; `None` if there were no such fields. The values of the fields do not change.
///
/// # Errors
/// What the API server answers: 409 when the object is another one by now, or has changed.
pub async fn take_over<K>(
    api: &Api<K>,
    object: &ObjectMeta,
    from: &str,
    to: Manager,
) -> kube::Result<Option<ObjectMeta>>
where
    K: DeserializeOwned + Clone + Debug,
{
    let before = object.managed_fields.as_deref().unwrap_or_default();
    let identity = (&object.name, &object.uid, &object.resource_version);
    let (Some(after), (Some(name), Some(uid), Some(version))) = (taken_over(before, from, to), identity)
    else {
        return Ok(None);
    };
    let change = json!({ "managedFields": after });
    let taken = merge_metadata(api, to, name, (uid, version), change).await?;
    Ok(Some(taken.metadata))
}

/// The entries after the change; `None` when nothing is to be changed.
fn taken_over(before: &[ManagedFieldsEntry], from: &str, to: Manager) -> Option<Vec<ManagedFieldsEntry>> {
    let (theirs, mut rest): (Vec<_>, Vec<_>) = before.iter().cloned().partition(|entry| {
        entry.manager.as_deref() == Some(from)
            && entry.operation.as_deref() == Some("Update")
            && entry.subresource.is_none()
    });
    let mut theirs = theirs.into_iter();
    let mut taken = theirs.next()?;
    for more in theirs {
        unite(&mut taken, more);
    }
    // Finalizers and annotations stay with the manager that acts on them: other operators write under this name, too.
    let is_foreign = from != to.0;
    let fields = taken.fields_v1.as_mut().filter(|_| is_foreign);
    let kept = fields.and_then(|fields| keep_foreign(&mut fields.0));
    if let Some(kept) = kept {
        rest.push(ManagedFieldsEntry {
            fields_v1: Some(FieldsV1(kept)),
            ..taken.clone()
        });
    }
    if taken
        .fields_v1
        .as_ref()
        .is_none_or(|fields| fields.0 == json!({}))
    {
        return None;
    }
    taken.manager = Some(to.0.to_owned());
    taken.operation = Some("Apply".to_owned());
    let own = rest.iter_mut().find(|entry| {
        entry.manager.as_deref() == Some(to.0)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.is_none()
    });
    match own {
        Some(own) => unite(own, taken),
        None => rest.push(taken),
    }
    Some(rest)
}

/// Takes finalizers and annotations out of a set of fields.
fn keep_foreign(fields: &mut Value) -> Option<Value> {
    let all = fields.as_object_mut()?;
    let metadata = all.get_mut("f:metadata")?.as_object_mut()?;
    let kept: Map<String, Value> = ["f:finalizers", "f:annotations"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), metadata.remove(name)?)))
        .collect();
    if metadata.is_empty() {
        all.remove("f:metadata");
    }
    (!kept.is_empty()).then(|| json!({ "f:metadata": kept }))
}

fn unite(into: &mut ManagedFieldsEntry, more: ManagedFieldsEntry) {
    let fields = into.fields_v1.get_or_insert_with(|| FieldsV1(json!({})));
    if let Some(FieldsV1(more)) = more.fields_v1 {
        merge(&mut fields.0, more);
    }
}

/// A set of fields is a tree of objects; a leaf is an empty object.
fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        for (name, below) in more {
            merge(into.entry(name).or_insert_with(|| json!({})), below);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Manager = Manager("ours");

    fn entry(manager: &str, operation: &str, subresource: Option<&str>, fields: Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            api_version: Some("apps/v1".to_owned()),
            fields_type: Some("FieldsV1".to_owned()),
            manager: Some(manager.to_owned()),
            operation: Some(operation.to_owned()),
            subresource: subresource.map(str::to_owned),
            fields_v1: Some(FieldsV1(fields)),
            time: None,
        }
    }

    #[test]
    fn finalizers_and_annotations_stay_with_who_wrote_them() {
        let foreign =
            json!({"f:annotations": {"f:example.org/x": {}}, "f:finalizers": {"v:\"example.org/x\"": {}}});
        let mut metadata = foreign.clone();
        metadata["f:labels"] = json!({"f:app": {}});
        let fields = json!({"f:metadata": metadata, "f:spec": {"f:a": {}}});
        let theirs = entry("manager", "Update", None, fields);
        let after = taken_over(std::slice::from_ref(&theirs), "manager", OURS).unwrap();
        let kept = entry("manager", "Update", None, json!({"f:metadata": foreign}));
        let ours = json!({"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:a": {}}});
        assert_eq!(after, [kept.clone(), entry("ours", "Apply", None, ours)]);
        assert_eq!(
            taken_over(&[kept], "manager", OURS),
            None,
            "there is nothing left"
        );
        let own = entry("ours", "Update", None, theirs.fields_v1.unwrap().0);
        let after = taken_over(&[own], "ours", OURS).unwrap();
        let [after] = &after[..] else { panic!("{after:?}") };
        assert_eq!(after.operation.as_deref(), Some("Apply"), "it is all its own");
    }

    #[test]
    fn ownership_moves_from_updates_to_apply_without_changes() {
        let status = entry("manager", "Update", Some("status"), json!({"f:status": {}}));
        let kubectl = entry(
            "kubectl-edit",
            "Update",
            None,
            json!({"f:spec": {"f:replicas": {}}}),
        );
        let theirs = entry(
            "manager",
            "Update",
            None,
            json!({"f:spec": {"f:a": {}, "f:b": {".": {}}}}),
        );
        let after = taken_over(
            &[status.clone(), theirs.clone(), kubectl.clone()],
            "manager",
            OURS,
        )
        .unwrap();
        let ours = entry(
            "ours",
            "Apply",
            None,
            json!({"f:spec": {"f:a": {}, "f:b": {".": {}}}}),
        );
        assert_eq!(after, [status, kubectl, ours]);

        let own = entry(
            "ours",
            "Apply",
            None,
            json!({"f:spec": {"f:b": {"f:c": {}}, "f:d": {}}}),
        );
        let both = taken_over(&[own, theirs], "manager", OURS).unwrap();
        let fields = json!({"f:spec": {"f:a": {}, "f:b": {".": {}, "f:c": {}}, "f:d": {}}});
        assert_eq!(both, [entry("ours", "Apply", None, fields)]);
    }

    #[test]
    fn where_the_other_wrote_nothing_nothing_is_done() {
        let own = entry("ours", "Apply", None, json!({}));
        let status = entry("manager", "Update", Some("status"), json!({}));
        let applied = entry("manager", "Apply", None, json!({}));
        assert_eq!(taken_over(&[own, status, applied], "manager", OURS), None);
        assert_eq!(taken_over(&[], "manager", OURS), None);
    }
}
