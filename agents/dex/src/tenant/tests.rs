use std::{
    convert::Infallible,
    future,
    sync::{Mutex, PoisonError},
};

use http::Method;
use k8s_openapi::api::core::v1::Secret;
use kit::{shares::OfNamespaces, tenant::Tenant as Connected};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::*;

mod former;

const OWN: &str = "identity-provider=p";
const STALE: &str = "identity-provider=q";
const CLUSTER: &str = "clusterrolebindings";
const NAMESPACED: &str = "rolebindings";

fn binding(name: &str, kind: &str) -> Value {
    let namespace = (kind == NAMESPACED).then_some("apps");
    json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{kind}-{name}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "oidc:people"}],
    })
}

/// How the API server answers a change, by method, kind and name; `None`: never.
type Answers = fn(&Method, &str, &str) -> Option<u16>;
/// After how many milliseconds, by method, and kind or name.
type Late = fn(&Method, &str, &str) -> u64;

/// An API server with these bindings of each kind.
#[derive(Clone)]
struct Server {
    own: Vec<&'static str>,
    stale: Vec<&'static str>,
    answers: Answers,
    late: Late,
    /// What its lists say of a next page.
    next: &'static str,
    /// Whether its lists have no items, as an answer of something else.
    bare: bool,
    /// Where it is.
    name: &'static str,
    /// What was asked for beside lists, by when it came.
    done: Arc<Mutex<Vec<String>>>,
    /// What is deleted.
    deleted: Arc<Mutex<Vec<String>>>,
    /// The lists of the provider's bindings, with the name of their server.
    listed: Arc<Mutex<Vec<String>>>,
}

fn texts(of: &Mutex<Vec<String>>) -> Vec<String> {
    of.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn add(of: &Mutex<Vec<String>>, text: String) {
    of.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

impl Server {
    fn new(own: &[&'static str], stale: &[&'static str], answers: Answers) -> Self {
        Self {
            own: own.to_vec(),
            stale: stale.to_vec(),
            answers,
            late: |_, _, _| 0,
            next: "",
            bare: false,
            name: "https://tenant",
            done: Arc::default(),
            deleted: Arc::default(),
            listed: Arc::default(),
        }
    }

    fn done(&self) -> Vec<String> {
        texts(&self.done)
    }

    fn answer(&self, request: &http::Request<Body>) -> Option<(u16, Value)> {
        let path = request.uri().path().to_owned();
        let kind = if path.contains(CLUSTER) {
            CLUSTER
        } else {
            NAMESPACED
        };
        let method = request.method();
        if *method == Method::GET && self.bare {
            return Some((200, json!({})));
        }
        if *method == Method::GET {
            let query = request.uri().query().unwrap_or_default();
            let names = if query.contains("provider%3Dp") {
                add(&self.listed, format!("{} {kind}", self.name));
                &self.own
            } else {
                &self.stale
            };
            let deleted = texts(&self.deleted);
            let is_there = |name: &&&str| !deleted.contains(&format!("{kind} {name}"));
            let items = names.iter().filter(is_there).map(|name| binding(name, kind));
            let items: Vec<Value> = items.collect();
            return Some((200, json!({"metadata": {"continue": self.next}, "items": items})));
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        add(&self.done, format!("{method} {kind} {name}"));
        let code = (self.answers)(method, kind, name)?;
        Some((
            code,
            json!({"kind": "Status", "code": code, "message": "said no"}),
        ))
    }

    fn calls(&self) -> Calls {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let answer = server.answer(&request);
            let path = request.uri().path();
            let kind = if path.contains(CLUSTER) {
                CLUSTER
            } else {
                NAMESPACED
            };
            let name = path.rsplit('/').next().unwrap_or_default();
            let late = Duration::from_millis((server.late)(request.method(), kind, name));
            let deletes = (*request.method() == Method::DELETE).then(|| format!("{kind} {name}"));
            let deleted = Arc::clone(&server.deleted);
            async move {
                time::sleep(late).await;
                let (code, answer) = match answer {
                    Some(answer) => answer,
                    None => future::pending().await,
                };
                if let Some(deletes) = deletes.filter(|_| code == 200) {
                    add(&deleted, deletes);
                }
                let response = http::Response::builder().status(code);
                let response = response.body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        let client = Client::new(service, "default");
        Calls::new(
            Connected::connected(self.name.to_owned(), client),
            Instant::now() + RECONCILE_TIMEOUT,
        )
    }
}

/// These bindings of each kind are asked for.
fn desired(names: &[&str]) -> GroupBindings {
    let of = |kind: &'static str| names.iter().map(move |name| binding(name, kind));
    GroupBindings {
        selector: OWN.to_owned(),
        stale: STALE.to_owned(),
        cluster: of(CLUSTER)
            .map(|found| serde_json::from_value(found).unwrap())
            .collect(),
        namespaced: of(NAMESPACED)
            .map(|found| serde_json::from_value(found).unwrap())
            .collect(),
    }
}

#[tokio::test]
async fn rights_are_deleted_before_others_are_given() {
    // One that is not there any more, or that may not be deleted, is listed once more.
    let answers: [(Answers, bool); 4] = [
        (|_, _, _| Some(200), true),
        (
            |method, _, _| Some(if *method == Method::DELETE { 404 } else { 200 }),
            false,
        ),
        (
            |method, _, _| Some(if *method == Method::DELETE { 403 } else { 200 }),
            false,
        ),
        (
            |method, _, _| Some(if *method == Method::DELETE { 500 } else { 200 }),
            false,
        ),
    ];
    for (answers, succeeds) in answers {
        let server = Server::new(&["before"], &["stale"], answers);
        let applied = server
            .calls()
            .reconcile(&desired(&["now"]), DesiredAction::Apply)
            .await;
        assert_eq!(applied.is_ok(), succeeds, "{applied:?}");
        let mut done = server.done();
        let applied = done.split_off(4);
        assert!(done.iter().all(|done| done.starts_with("DELETE")), "{done:?}");
        assert_eq!(
            applied,
            ["PATCH clusterrolebindings now", "PATCH rolebindings now"]
        );
    }
}

/// What was asked for beside lists, and the result.
async fn in_time(server: &Server, desired: &GroupBindings) -> (Vec<String>, Result<(), Error>) {
    let applied = time::timeout(
        RECONCILE_TIMEOUT,
        server.calls().reconcile(desired, DesiredAction::Apply),
    )
    .await;
    (server.done(), applied.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_delays_no_other() {
    // More than are deleted concurrently.
    const MANY: [&str; 40] = ["before"; 40];
    let cases: [(&[&'static str], Answers, &str); 3] = [
        (
            &["before"],
            |method, kind, _| (*method != Method::PATCH || kind != CLUSTER).then_some(200),
            "apply ClusterRoleBindings",
        ),
        (
            &["hangs", "before"],
            |_, _, name| (name != "hangs").then_some(200),
            "delete ClusterRoleBindings",
        ),
        (
            &MANY,
            |method, kind, _| (*method != Method::DELETE || kind != CLUSTER).then_some(200),
            "delete ClusterRoleBindings",
        ),
    ];
    for (own, answers, call) in cases {
        let server = Server::new(own, &[], answers);
        let (done, result) = in_time(&server, &desired(&["first", "second"])).await;
        let why = result.unwrap_err().to_string();
        assert!(
            why.ends_with(&format!("no answer within 4 s to: {call}")),
            "{why}"
        );
        for kind in [CLUSTER, NAMESPACED] {
            for change in ["DELETE {} before", "PATCH {} first", "PATCH {} second"] {
                let change = change.replace("{}", kind);
                assert!(done.contains(&change), "{call}, {change}: {done:?}");
            }
        }
    }
}

/// More bindings of a kind hang than are deleted concurrently.
#[tokio::test(start_paused = true)]
async fn calls_that_hang_leave_time_for_the_others() {
    const MANY: [&str; 20] = ["hangs"; 20];
    let own = [&MANY[..], &["before"]].concat();
    let server = Server::new(&own, &[], |_, _, name| (name != "hangs").then_some(200));
    // The order is another one in each check.
    for _ in 0..100 {
        let (done, _) = in_time(&server, &desired(&[])).await;
        if done.contains(&format!("DELETE {CLUSTER} before")) {
            return;
        }
    }
    panic!("it is never deleted");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_listed_delays_no_other() {
    for (hangs, other) in [(CLUSTER, NAMESPACED), (NAMESPACED, CLUSTER)] {
        let late: Late = match hangs {
            CLUSTER => |method, kind, _| u64::from(*method == Method::GET && kind == CLUSTER) * 60_000,
            _ => |method, kind, _| u64::from(*method == Method::GET && kind == NAMESPACED) * 60_000,
        };
        let server = Server {
            late,
            ..Server::new(&["before"], &[], |_, _, _| Some(200))
        };
        let calls = server.calls();
        let bindings = desired(&["now"]);
        let soon = time::timeout(
            Duration::from_secs(1),
            calls.reconcile(&bindings, DesiredAction::Apply),
        )
        .await;
        soon.unwrap_err();
        assert_eq!(server.done(), [format!("DELETE {other} before")]);
        for past in [&server.done, &server.deleted] {
            past.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        let (done, result) = in_time(&server, &bindings).await;
        let why = result.unwrap_err().to_string();
        assert!(why.contains("no answer within 4 s to: list"), "{why}");
        assert_eq!(
            done,
            [format!("DELETE {other} before"), format!("PATCH {other} now")]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn slow_answers_within_the_limit_succeed() {
    let server = Server {
        late: |method, _, _| u64::from(*method != Method::GET) * 3500,
        ..Server::new(&["before"], &[], |_, _, _| Some(200))
    };
    let (done, result) = in_time(&server, &desired(&["now"])).await;
    result.unwrap();
    assert_eq!(done.len(), 4);
}

/// Also where it is by chance which calls there is time for.
#[tokio::test(start_paused = true)]
async fn calls_that_hang_are_reported_before_refused_ones() {
    const MANY: [&str; 20] = ["hangs"; 20];
    let own = [&["refused"], &MANY[..]].concat();
    for _ in 0..50 {
        let answers: Answers = |_, _, name| (name != "hangs").then_some(403);
        let server = Server::new(&own, &[], answers);
        let (_, result) = in_time(&server, &desired(&[])).await;
        let why = result.unwrap_err().to_string();
        assert!(
            why.ends_with("no answer within 4 s to: delete ClusterRoleBindings"),
            "{why}"
        );
    }
}

/// Otherwise the status would change from check to check.
#[tokio::test(start_paused = true)]
async fn the_first_error_is_the_same_whichever_call_ends_first() {
    let each: [Late; 2] = [
        |_, _, name| if name == "a" { 10 } else { 0 },
        |_, _, name| if name == "a" { 0 } else { 10 },
    ];
    for late in each {
        let server = Server {
            late,
            ..Server::new(&["a", "b"], &[], |_, _, _| Some(403))
        };
        let (_, result) = in_time(&server, &desired(&[])).await;
        let why = result.unwrap_err().to_string();
        assert!(why.contains("refuses to delete ClusterRoleBinding a:"), "{why}");
    }
}

#[tokio::test]
async fn a_former_kubeconfig_is_used_only_as_it_was_found() {
    let stored = StoredKubeconfig::new("tenants", "first", b"found");
    for (code, value, expected) in [
        (200, &b"found"[..], Ok(&b"found"[..])),
        (
            200,
            b"changed",
            Err("the Secret first has changed; the agent reads it again within 30 s"),
        ),
        (
            404,
            b"",
            Err("the Secret first has changed; the agent reads it again within 30 s"),
        ),
        (403, b"", Err("reading the Secret first: said no")),
    ] {
        let secret = Secret {
            data: Some([("value".to_owned(), k8s_openapi::ByteString(value.to_vec()))].into()),
            ..Secret::default()
        };
        let answer = match code {
            200 => serde_json::to_value(secret).unwrap(),
            code => json!({"kind": "Status", "status": "Failure", "code": code, "message": "said no",
                "reason": if code == 404 { "NotFound" } else { "Forbidden" }}),
        };
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let response = http::Response::builder().status(code);
            let response = response.body(Body::from(answer.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(response.unwrap()) }
        });
        let secrets = SecretReader::new(Client::new(service, "default"), Arc::new(OfNamespaces::new(1)));
        let read = stored.read(&secrets).await;
        let read = read.as_deref().map_err(ToString::to_string);
        assert_eq!(read, expected.map_err(str::to_owned), "{code}");
    }
}
