//! The finalizer: set before the first claim, taken off when nothing is left. Users' manifests carry it too, so it is
//! changed by JSON patches that test what they change, never by apply.

use api::{FINALIZER, SIPCluster};
use json_patch::{
    AddOperation, Patch as Operations, PatchOperation, RemoveOperation, TestOperation, jsonptr::PointerBuf,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::Error;

/// Puts the finalizer on, if it is not there.
pub(super) async fn ensure(client: &Client, object: &SIPCluster) -> Result<(), Error> {
    let finalizers = object.finalizers();
    if finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(());
    }
    let mut next = finalizers.to_vec();
    next.push(FINALIZER.to_owned());
    patch(client, object, "set the finalizer", next).await
}

/// Takes the finalizer off, if it is there: the object ends.
pub(super) async fn remove(client: &Client, object: &SIPCluster) -> Result<(), Error> {
    let finalizers = object.finalizers();
    let next: Vec<String> = finalizers
        .iter()
        .filter(|finalizer| *finalizer != FINALIZER)
        .cloned()
        .collect();
    if next.len() == finalizers.len() {
        return Ok(());
    }
    patch(client, object, "remove the finalizer", next).await
}

/// Replaces the finalizers of exactly this incarnation, if nobody has changed them meanwhile.
async fn patch(
    client: &Client,
    object: &SIPCluster,
    action: &'static str,
    next: Vec<String>,
) -> Result<(), Error> {
    let path = || PointerBuf::from_tokens(["metadata", "finalizers"]);
    let before = object
        .metadata
        .finalizers
        .as_ref()
        .map_or(serde_json::Value::Null, |before| json!(before));
    let uid = PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(["metadata", "uid"]),
        value: json!(object.uid().unwrap_or_default()),
    });
    let test = PatchOperation::Test(TestOperation {
        path: path(),
        value: before,
    });
    let change = if next.is_empty() {
        PatchOperation::Remove(RemoveOperation { path: path() })
    } else {
        PatchOperation::Add(AddOperation {
            path: path(),
            value: json!(next),
        })
    };
    let absent = object.metadata.finalizers.is_none();
    let operations = [Some(uid), (!absent).then_some(test), Some(change)]
        .into_iter()
        .flatten()
        .collect();
    let api: Api<SIPCluster> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let patched = api
        .patch_metadata(
            &object.name_any(),
            &PatchParams::default(),
            &Patch::<()>::Json(Operations(operations)),
        )
        .await;
    match patched {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::kubernetes(action)(error)),
    }
}
