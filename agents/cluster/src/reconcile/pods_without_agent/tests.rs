use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// The lists in the order in which they are made; those of Deployments by name first.
const LISTS: [&str; 6] = [
    "configmaps",
    "deployments by name",
    "deployments by name",
    "deployments",
    "replicasets",
    "pods",
];

/// Which list a request asks for.
fn list(request: &http::Request<Body>) -> String {
    let uri = request.uri();
    let plural = uri.path().rsplit('/').next().unwrap_or_default();
    let by_name = uri.query().unwrap_or_default().contains("fieldSelector=");
    if by_name {
        format!("{plural} by name")
    } else {
        plural.to_owned()
    }
}

/// An API server that has this object in one list, and refuses another one; and the lists that it was asked for.
fn server(
    object: Option<(&'static str, Value)>,
    refused: Option<&'static str>,
) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let list = list(&request);
        // What a tenant writes into ConfigMaps and Deployments is not read.
        let accepted = request.headers().get(http::header::ACCEPT);
        let is_metadata = accepted.is_some_and(|accepted| {
            let accepted = accepted.to_str().unwrap();
            accepted.contains("as=PartialObjectMetadataList")
        });
        assert_eq!(
            is_metadata,
            ["configmaps", "deployments"].contains(&&*list),
            "{list}"
        );
        log.lock().unwrap().push(list.clone());
        let (code, body) = if refused.is_some_and(|refused| refused == list) {
            (
                403_u16,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"}),
            )
        } else {
            let items = object.iter().filter(|(of, _)| *of == list);
            let items: Vec<&Value> = items.map(|(_, object)| object).collect();
            (
                200,
                json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}),
            )
        };
        let response = http::Response::builder().status(code);
        let response = response.body(Body::from(body.to_string().into_bytes()));
        std::future::ready(Ok::<_, Infallible>(response.unwrap()))
    });
    (Client::new(service, "tenant"), asked)
}

fn shop() -> ObjectKey {
    ObjectKey {
        namespace: "tenant".to_owned(),
        name: "shop".to_owned(),
    }
}

/// An object with the labels of a load balancer of this cluster.
fn labelled(cluster: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": "lb", "labels": {(labels::CLUSTER_NAME): cluster}}, "spec": spec})
}

/// A Deployment without labels whose pods have this instance.
fn of_sip(instance: &str) -> Value {
    let template = json!({"metadata": {"labels": {(labels::INSTANCE): instance}}});
    json!({"metadata": {"name": instance}, "spec": {"replicas": 0, "selector": {}, "template": template}})
}

#[tokio::test]
async fn whatever_may_start_a_pod_of_a_gone_cluster_is_found() {
    let workers = "loadbalancer-worker-shop";
    let mut check = labelled("shop", &Value::Null);
    check["metadata"]["labels"][labels::TEMPLATE_CHECK] = json!("0");
    for (list, object, expected) in [
        (
            "configmaps",
            labelled("shop", &Value::Null),
            Some("ConfigMap tenant/lb"),
        ),
        ("configmaps", check, None),
        ("configmaps", labelled("bank", &Value::Null), None),
        (
            "deployments by name",
            of_sip(workers),
            Some("Deployment tenant/loadbalancer-worker-shop of the Airship SIP operator"),
        ),
        ("deployments by name", of_sip("theirs"), None),
        (
            "deployments",
            labelled("shop", &Value::Null),
            Some("Deployment tenant/lb"),
        ),
        (
            "replicasets",
            labelled("shop", &json!({"replicas": 1, "selector": {}})),
            Some("ReplicaSet tenant/lb"),
        ),
        (
            "replicasets",
            labelled("shop", &json!({"replicas": 0, "selector": {}})),
            None,
        ),
        (
            "pods",
            labelled("shop", &json!({"containers": []})),
            Some("pod tenant/lb"),
        ),
    ] {
        let (client, _) = server(Some((list, object.clone())), None);
        let found = find_of_gone(&client, &shop()).await.unwrap();
        assert_eq!(found.as_deref(), expected, "{list} {object}");
        let without_rights = find(&client, &shop()).await.unwrap();
        let expected = expected.filter(|_| list != "configmaps");
        assert_eq!(without_rights.as_deref(), expected, "{list} {object}");
    }
}

#[tokio::test]
async fn configurations_are_listed_before_what_reads_them() {
    let (client, asked) = server(None, None);
    assert_eq!(find_of_gone(&client, &shop()).await.unwrap(), None);
    assert_eq!(*asked.lock().unwrap(), LISTS);
}

#[tokio::test]
async fn a_list_that_fails_does_not_count_as_none() {
    for refused in LISTS {
        let (client, _) = server(None, Some(refused));
        let found = find_of_gone(&client, &shop()).await;
        assert!(found.is_err(), "{refused}: {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_ends_does_not_count_as_none() {
    let service = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, Infallible>>()
    });
    let client = Client::new(service, "tenant");
    for found in [find_of_gone(&client, &shop()).await, find(&client, &shop()).await] {
        let found = found.unwrap().unwrap_or_default();
        assert!(
            found.contains("in tenant that was not listed within 10 s"),
            "{found}"
        );
    }
}

#[tokio::test]
async fn a_later_page_that_fails_does_not_count_as_none() {
    let service = tower::service_fn(|request: http::Request<Body>| {
        let is_later = request.uri().query().unwrap_or_default().contains("continue=");
        let (code, body) = if is_later {
            (
                410,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "no"}),
            )
        } else {
            (
                200,
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"continue": "next"}, "items": []}),
            )
        };
        let response = http::Response::builder().status(code);
        let response = response.body(Body::from(body.to_string().into_bytes()));
        std::future::ready(Ok::<_, Infallible>(response.unwrap()))
    });
    let found = find_of_gone(&Client::new(service, "tenant"), &shop()).await;
    assert!(found.is_err(), "{found:?}");
}
