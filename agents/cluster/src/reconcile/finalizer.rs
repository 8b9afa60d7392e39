//! The finalizer: set before the first claim, removed when nothing is left. Users' manifests contain it too, and others have
//! finalizers of their own: the list is written only to the object as it was observed, and never by apply.

use api::{FINALIZER, SIPCluster};
use kit::apply;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::{context::MANAGER, error::Error};

/// Puts the finalizer on.
///
/// # Errors
/// What the API server answers.
pub(super) async fn add(client: &Client, object: &SIPCluster) -> Result<(), Error> {
    let mut next = finalizers(client, object).await?;
    next.push(FINALIZER.to_owned());
    replace(client, object, "set the finalizer", &next).await
}

/// Takes the finalizer off, if it is there: the object ends.
///
/// # Errors
/// What the API server answers.
pub(super) async fn remove(client: &Client, object: &SIPCluster) -> Result<(), Error> {
    if !object.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(());
    }
    let mut next = match finalizers(client, object).await {
        Err(Error::Gone) => return Ok(()),
        other => other?,
    };
    next.retain(|finalizer| finalizer != FINALIZER);
    match replace(client, object, "remove the finalizer", &next).await {
        // Another writer has removed it, and the object has been deleted.
        Err(Error::Gone) => Ok(()),
        other => other,
    }
}

/// All finalizers of an object. Of one with very many the store has some.
async fn finalizers(client: &Client, object: &SIPCluster) -> Result<Vec<String>, Error> {
    if !object.spec.left_out.finalizers {
        return Ok(object.finalizers().to_vec());
    }
    let api: Api<SIPCluster> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let found = api.get_metadata(&object.name_any()).await;
    let found = found.map_err(Error::conditional("read the finalizers"))?;
    // Another object, or a newer version of this one, is not written: the patch names uid and version of what was observed.
    Ok(found.metadata.finalizers.unwrap_or_default())
}

/// Replaces the finalizers of the object as it was observed; of an object that has changed since, nothing.
async fn replace(
    client: &Client,
    object: &SIPCluster,
    action: &'static str,
    next: &[String],
) -> Result<(), Error> {
    let api: Api<SIPCluster> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let uid = object.uid().unwrap_or_default();
    let observed = object.resource_version().unwrap_or_default();
    let change = json!({ "finalizers": next });
    let name = object.name_any();
    let replaced = apply::merge_metadata(&api, MANAGER, &name, (&uid, &observed), change).await;
    replaced.map(drop).map_err(Error::conditional(action))
}
