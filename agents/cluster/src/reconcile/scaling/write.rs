//! Sets the replicas of an object, and nothing else of it.

use kit::apply;
use kube::Client;
use serde_json::json;

use super::{
    object::{MANAGER, ObjectId},
    steps::Scale,
};

/// Sets the replicas of exactly the object that was read: consent holds for that one. The API server answers 409 to an object that has
/// changed since, and to one that is gone, in whose place an apply would make another.
///
/// # Errors
/// What the API server answers.
pub(in crate::reconcile) async fn set(client: &Client, scale: &Scale) -> kube::Result<()> {
    let ObjectId {
        kind,
        key,
        api_version,
        uid,
        resource_version,
    } = scale.object();
    let condition = (uid.as_str(), resource_version.as_str());
    let spec = json!({ "replicas": scale.to() });
    apply::apply_spec_of(
        client,
        MANAGER,
        (api_version, kind.as_str()),
        key,
        condition,
        &spec,
    )
    .await
}
