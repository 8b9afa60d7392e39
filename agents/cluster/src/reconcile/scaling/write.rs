//! Sets the replicas of an object, and nothing else of it.

use kit::apply;
use kube::Client;
use serde_json::json;

use super::{
    object::{MANAGER, ObjectId},
    scale::Scale,
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
    let spec = json!({ "replicas": scale.replicas() });
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

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use kube::client::Body;
    use serde_json::Value;

    use super::{super::fixtures::object_id, *};

    #[tokio::test]
    async fn one_field_of_the_object_that_was_read_is_applied() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let (parts, body) = request.into_parts();
                let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
                seen.lock()
                    .unwrap()
                    .push((parts.method, parts.uri.to_string(), body.clone()));
                Ok::<_, Infallible>(http::Response::new(Body::from(
                    serde_json::to_vec(&body).unwrap(),
                )))
            }
        });
        let scale = Scale::new(object_id(), (5, 3), "Worker");
        set(&Client::new(service, "tenant"), &scale).await.unwrap();
        let asked = asked.lock().unwrap();
        let [(method, uri, body)] = &asked[..] else {
            panic!("{asked:?}")
        };
        assert_eq!(method, http::Method::PATCH);
        let path = "/apis/cluster.x-k8s.io/v1beta2/namespaces/metal/machinedeployments/md?";
        assert!(
            uri.starts_with(path) && uri.contains("fieldManager=sip-cluster-agent-replicas"),
            "{uri}"
        );
        let expected = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {"name": "md", "uid": "u", "resourceVersion": "7"},
            "spec": {"replicas": 3},
        });
        assert_eq!(*body, expected);
    }
}
