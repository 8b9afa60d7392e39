use kit::tenant::secret::User;
use serde_json::json;

use super::*;
use crate::{
    fixtures::key,
    tenant_nodes::fixtures::{Requests, api_server, node, server, tenant, wanted},
};

/// A step of drains where all that is wanted still is.
async fn step(
    server: &Server,
    wanted: &Wanted,
    turn: usize,
    nodes: &[Node],
) -> (BTreeMap<String, Drain>, Vec<String>) {
    step_while(server, (wanted, wanted), turn, nodes).await
}

/// A step of drains of a poll that began with the first of both, while the second one is wanted. With the Events that it published.
async fn step_while(
    server: &Server,
    (began, stands): (&Wanted, &Wanted),
    turn: usize,
    nodes: &[Node],
) -> (BTreeMap<String, Drain>, Vec<String>) {
    let (cluster, tenant_nodes) = (key("one"), TenantNodes::default());
    tenant_nodes.set_wanted(&cluster, Some(stands.clone()), std::time::Instant::now());
    let (client, published) = api_server(|_| (201, "{}".to_owned()));
    let drain = Drains {
        cluster: &cluster,
        wanted: began,
        turn,
        tenant_nodes: &tenant_nodes,
        events: &Events::new(client, "test"),
    };
    let mut drains = BTreeMap::new();
    drain.step(server, nodes, &mut drains).await;
    (drains, published.take())
}

/// Members that have a Node each, named after their number, of which the last `count` are to have this done.
fn members(all: usize, action: Action, count: usize) -> (Wanted, Vec<Node>) {
    let hosts: Vec<String> = (0..all).map(|n| format!("h{n:03}")).collect();
    let mut wanted = wanted(&hosts.iter().map(String::as_str).collect::<Vec<_>>());
    for member in &mut wanted.members {
        member.addresses.clear();
    }
    for member in wanted.members.iter_mut().rev().take(count) {
        member.action = action;
    }
    let nodes = (0..all).map(|n| node(&format!("n{n:03}"), &format!("metal3://uid-h{n:03}"), &[]));
    (wanted, nodes.collect())
}

fn pods(count: usize) -> String {
    let pod = |n: usize| json!({"metadata": {"name": format!("p{n:02}"), "namespace": "shop", "uid": "u"}});
    json!({"items": (0..count).map(pod).collect::<Vec<_>>()}).to_string()
}

/// The names of the pods that were evicted.
fn evicted(requests: &Requests) -> Vec<String> {
    let all = requests.take().into_iter();
    let names = all.filter_map(|request| {
        let name = request.strip_prefix("POST /api/v1/namespaces/shop/pods/")?;
        Some(name.strip_suffix("/eviction")?.to_owned())
    });
    names.collect()
}

#[tokio::test]
async fn what_is_against_one_eviction_holds_up_no_other() {
    let (server, requests) = server(|request| {
        let failure = |code: u16| (code, json!({"message": "a webhook\n"}).to_string());
        match request {
            _ if request.starts_with("GET") => (200, pods(5)),
            _ if request.contains("p00") => failure(403),
            _ if request.contains("p01") => failure(500),
            _ if request.contains("p02") => failure(429),
            _ => (201, "{}".to_owned()),
        }
    });
    let (wanted, nodes) = members(1, Action::Drain, 1);
    let (drains, events) = step(&server, &wanted, 0, &nodes).await;
    assert_eq!(evicted(&requests), ["p00", "p01", "p02", "p03", "p04"]);
    let left = "pods left: 5, of which a PodDisruptionBudget protects shop/p02, of which shop/p00: a webhook";
    let expected = Drain::Draining {
        node: "n000".to_owned(),
        left: left.to_owned(),
    };
    assert_eq!((drains.get("uid-h000"), events.len()), (Some(&expected), 0));
}

#[tokio::test]
async fn pods_that_are_held_keep_no_other_from_its_turn() {
    // So many draining Nodes that each has its turn in every second poll.
    let (wanted, nodes) = members(16, Action::Drain, 16);
    let (server, requests) = server(|request| match request {
        _ if request.starts_with("GET") => (200, pods(if request.contains("n000") { 100 } else { 0 })),
        _ if request.starts_with("PATCH") => (200, "{}".to_owned()),
        _ => (429, "{}".to_owned()),
    });
    let mut all = Vec::new();
    for turn in 0..4 {
        step(&server, &wanted, turn, &nodes).await;
        let some = evicted(&requests);
        assert!(some.len() <= MAX_EVICTIONS);
        all.extend(some);
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 100);
}

#[tokio::test]
async fn nodes_are_drained_and_uncordoned_in_their_turn() {
    let (server, requests) = server(|request| {
        (
            200,
            if request.starts_with("GET") {
                pods(1)
            } else {
                "{}".to_owned()
            },
        )
    });
    for action in [Action::Drain, Action::Delete, Action::Keep] {
        let (wanted, mut nodes) = members(200, action, 20);
        for node in &mut nodes[180..] {
            node.is_cordoned_by_us = true;
        }
        let mut patched = Vec::new();
        for turn in 0..3 {
            step(&server, &wanted, turn, &nodes).await;
            let touched = requests.take().into_iter();
            let touched = touched.filter_map(|request| Some(request.split_once("nodes/")?.1.to_owned()));
            let before = patched.len();
            patched.extend(touched);
            assert_eq!(patched.len() - before, MAX_DRAINS);
        }
        patched.sort();
        patched.dedup();
        assert_eq!(patched.len(), 20, "{action:?}");
    }
}

#[tokio::test]
async fn a_node_that_finalizers_hold_is_not_told_as_deleted() {
    let (wanted, nodes) = members(1, Action::Delete, 1);
    for (answer, drain, published) in [
        (json!({"kind": "Status", "status": "Success"}), Drain::NoNode, 1),
        (
            json!({"kind": "Node", "metadata": {"finalizers": ["x"]}}),
            Drain::Deleting {
                node: nodes[0].name.clone(),
            },
            0,
        ),
    ] {
        let (server, _) = server(move |_| (200, answer.to_string()));
        let (drains, events) = step(&server, &wanted, 0, &nodes).await;
        assert_eq!((drains.get("uid-h000"), events.len()), (Some(&drain), published));
    }
}

#[tokio::test]
async fn a_wish_that_is_taken_back_meanwhile_is_not_done() {
    let (server, requests) = server(|_| (200, pods(1)));
    for action in [Action::Drain, Action::Delete] {
        let (began, nodes) = members(1, action, 1);
        let (stays, _) = members(1, Action::Keep, 1);
        let mut another = began.clone();
        another.object.uid = Some("made again".to_owned());
        let mut renamed = began.clone();
        "another-kubeconfig".clone_into(&mut renamed.secret);
        let mut serves = began.clone();
        serves.user = User::new("one", "another");
        for stands in [stays, members(0, action, 0).0, another, renamed, serves] {
            let (drains, events) = step_while(&server, (&began, &stands), 0, &nodes).await;
            assert!(drains.is_empty() && events.is_empty() && requests.take().is_empty());
        }
    }
}

#[tokio::test]
async fn what_fails_for_one_node_holds_up_no_other() {
    let (server, _) = server(|request| match request {
        _ if request.contains("n000") => (403, "no".to_owned()),
        _ if request.contains("n001") => (500, "not now".to_owned()),
        _ if request.starts_with("GET") => (200, pods(0)),
        _ => (200, "{}".to_owned()),
    });
    let (wanted, nodes) = members(3, Action::Drain, 3);
    let (drains, _) = step(&server, &wanted, 0, &nodes).await;
    let node = |n: usize| format!("n{n:03}");
    let (why, left) = ("no".to_owned(), "not now".to_owned());
    let expected = [
        Drain::Refused { node: node(0), why },
        Drain::Draining { node: node(1), left },
        Drain::Drained { node: node(2) },
    ];
    assert_eq!(drains.into_values().collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_poll_ends_whether_the_server_answers_or_not() {
    let (wanted, _) = members(3, Action::Drain, 3);
    let item = |n: usize| json!({"metadata": {"name": format!("n{n:03}"), "uid": "u"}, "spec": {"providerID": format!("metal3://uid-h{n:03}")}});
    let nodes = json!({"items": [item(0), item(1), item(2)]}).to_string();
    let (cluster, tenant_nodes) = (key("one"), TenantNodes::default());
    tenant_nodes.set_wanted(&cluster, Some(wanted.clone()), std::time::Instant::now());
    let (client, _) = api_server(|_| (201, "{}".to_owned()));
    let drains = Drains {
        cluster: &cluster,
        wanted: &wanted,
        turn: 0,
        tenant_nodes: &tenant_nodes,
        events: &Events::new(client, "test"),
    };
    for (silent, found) in [
        ("/api/v1/nodes?", None),
        ("/nodes/n001", Some(1)),
        ("pods?", Some(0)),
    ] {
        let nodes = nodes.clone();
        let (tenant, _) = tenant(move |request| match request {
            _ if request.contains(silent) => (0, String::new()),
            _ if request.contains("pods?") => (200, r#"{"items": []}"#.to_owned()),
            _ => (200, nodes.clone()),
        });
        let began = Instant::now();
        let result = list_and_drain(std::future::ready(Ok(tenant)), &drains).await;
        assert_eq!(began.elapsed().as_secs(), POLL_TIMEOUT.as_secs());
        match result {
            Ok(Observation { nodes, drains }) => assert_eq!((nodes.len(), Some(drains.len())), (3, found)),
            Err(problem) => {
                assert!(problem.passes && found.is_none(), "{problem}");
                assert!(problem.message.ends_with("does not answer within 15 s"));
            }
        }
    }
    let began = Instant::now();
    assert!(list_and_drain(std::future::pending(), &drains).await.is_err());
    assert_eq!(began.elapsed().as_secs(), POLL_TIMEOUT.as_secs());
}
