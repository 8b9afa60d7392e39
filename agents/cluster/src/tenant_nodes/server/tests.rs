use serde_json::{Value, json};

use super::*;
use crate::tenant_nodes::fixtures::{node, server};

fn item(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")}})
}

fn page(items: &[Value], next: &str) -> String {
    json!({"metadata": {"continue": next}, "items": items}).to_string()
}

fn numbered(count: usize) -> Vec<Value> {
    (0..count).map(|n| item(&format!("n{n}"))).collect()
}

fn message(error: Error) -> String {
    match error {
        Error::Refused(message) => format!("refused: {message}"),
        Error::Failed(message) => message,
    }
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let (server, requests) = server(|request| {
        let is_first = !request.contains("continue");
        let (name, next) = if is_first { ("n0", "a/b=") } else { ("n1", "") };
        (200, page(&[item(name), item("a/b")], next))
    });
    let nodes = server.nodes().await.unwrap();
    let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["n0", "n1"], "what is no name is left out");
    let expected = [
        "GET /api/v1/nodes?limit=20",
        "GET /api/v1/nodes?limit=20&continue=a%2Fb%3D",
    ];
    assert_eq!(requests.take(), expected);
    assert_eq!(server.fates(&nodes[0]).await.unwrap().len(), 2);
    assert_eq!(
        requests.take()[0],
        "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn0&limit=20"
    );
}

#[tokio::test]
async fn a_list_of_too_many_bytes_is_not_read_to_its_end() {
    let mut large = item("n0");
    large["spec"] = json!({"providerID": "x".repeat(1_000_000)});
    let large = page(&[large], "more");
    let (server, requests) = server(move |_| (200, large.clone()));
    let error = message(server.nodes().await.unwrap_err());
    assert_eq!(error, "it has a list of more than 65536000 bytes");
    assert_eq!(requests.take().len(), 66);
}

#[tokio::test]
async fn a_list_of_too_many_objects_is_refused() {
    for (pages, each, is_ok) in [
        (1, MAX_OBJECTS, true),
        (1, MAX_OBJECTS + 1, false),
        (3, 700, false),
        (1, 10_000, false),
    ] {
        let items = numbered(each);
        let (server, requests) = server(move |request| {
            let number = request
                .split_once("continue=")
                .map_or(1, |(_, n)| n.parse().unwrap());
            let next = if number < pages {
                (number + 1).to_string()
            } else {
                String::new()
            };
            (200, page(&items, &next))
        });
        match server.nodes().await {
            Ok(nodes) => assert!(is_ok && nodes.len() == pages * each),
            Err(error) => {
                assert!(!is_ok);
                assert_eq!(message(error), "it has more than 2000 objects in a list");
            }
        }
        assert_eq!(requests.take().len(), pages);
    }
}

#[tokio::test]
async fn a_page_that_is_too_long_is_read_in_parts() {
    let large = "x".repeat(300_000);
    let answer = move |request: &str| {
        let (_, limit) = request.split_once("limit=").unwrap();
        let (limit, from) = limit.split_once("&continue=").unwrap_or((limit, "0"));
        let (limit, from): (usize, usize) = (limit.parse().unwrap(), from.parse().unwrap());
        let items: Vec<Value> = (from..9.min(from + limit))
            .map(|n| {
                let mut item = item(&format!("n{n}"));
                item["status"] = json!({"images": large});
                item
            })
            .collect();
        let next = from + limit;
        let next = if next < 9 { next.to_string() } else { String::new() };
        (200, page(&items, &next))
    };
    let (reads, requests) = server(answer);
    assert_eq!(reads.nodes().await.unwrap().len(), 9);
    let limits: Vec<String> = requests.take().into_iter().take(3).collect();
    let expected = [20, 5, 2].map(|limit| format!("GET /api/v1/nodes?limit={limit}"));
    assert_eq!(limits, expected);
    // One object alone is too long.
    let (reads, requests) = server(|_| (200, " ".repeat(2_000_000)));
    let error = message(reads.nodes().await.unwrap_err());
    assert!(error.contains("longer than 1024 KiB"), "{error}");
    assert_eq!(requests.take().len(), 4);
}

#[tokio::test]
async fn a_list_that_is_none_is_an_error() {
    let forbidden = r#"{"kind": "Status", "code": 200, "message": "no\nright"}"#;
    for (code, answer, expected) in [
        (401, forbidden, "refused: noright"),
        (403, forbidden, "refused: noright"),
        (410, forbidden, "noright"),
        (500, "a proxy", "a proxy"),
        (302, "", ""),
        (200, "a proxy", "expected value"),
        (200, r#"{"items": {}}"#, "expected a list"),
        (200, r#"{"items": [{"metadata": {"name": 7}}]}"#, "invalid type"),
    ] {
        let (server, _) = server(move |_| (code, answer.to_owned()));
        let error = message(server.nodes().await.unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
    let (server, _) = server(|_| (200, page(&[], &"x".repeat(100_000))));
    let error = message(server.nodes().await.unwrap_err());
    assert_eq!(error, "it answers with no token of a list");
}

fn status(status: &str, code: u16) -> String {
    json!({"kind": "Status", "status": status, "code": code, "message": "its words"}).to_string()
}

#[tokio::test]
async fn an_eviction_is_done_put_off_or_failed() {
    let failed = || Evicted::Failed("its words".to_owned());
    for (code, answer, expected) in [
        (201, status("Success", 201), Evicted::Done),
        (201, r#"{"kind": "Eviction"}"#.to_owned(), Evicted::Done),
        (404, status("Failure", 404), Evicted::Done),
        (409, status("Failure", 409), Evicted::Done),
        (429, status("Failure", 429), Evicted::NotNow),
        (403, status("Failure", 403), failed()),
        (500, status("Failure", 500), failed()),
        // As the API server answers where two PodDisruptionBudgets select a pod.
        (201, status("Failure", 500), failed()),
    ] {
        let (server, requests) = server(move |_| (code, answer.clone()));
        let pod = Pod {
            namespace: "shop".to_owned(),
            name: "web-0".to_owned(),
            uid: "u".to_owned(),
        };
        assert_eq!(server.evict(&pod).await, expected, "{code}");
        assert_eq!(
            requests.take(),
            ["POST /api/v1/namespaces/shop/pods/web-0/eviction"]
        );
    }
}

#[tokio::test]
async fn a_node_is_deleted_only_once_it_is_gone() {
    for (code, answer, expected) in [
        (200, status("Success", 0), Ok(Deleted::Now)),
        // Finalizers hold it.
        (
            200,
            json!({"kind": "Node", "metadata": {}, "status": {}}).to_string(),
            Ok(Deleted::Unknown),
        ),
        (
            202,
            json!({"kind": "Node", "metadata": {}}).to_string(),
            Ok(Deleted::Unknown),
        ),
        (404, status("Failure", 404), Ok(Deleted::Before)),
        (409, status("Failure", 409), Ok(Deleted::Unknown)),
        (403, status("Failure", 403), Err("refused: its words")),
        (200, status("Failure", 500), Err("its words")),
        (200, "a proxy".to_owned(), Err("expected value")),
    ] {
        let (server, requests) = server(move |_| (code, answer.clone()));
        match (
            server.delete(&node("a", "", &[])).await.map_err(message),
            expected,
        ) {
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            (deleted, expected) => assert_eq!(deleted, expected.map_err(str::to_owned)),
        }
        assert_eq!(requests.take(), ["DELETE /api/v1/nodes/a"]);
    }
}
