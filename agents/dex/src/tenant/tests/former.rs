//! What is deleted at a former API server, beside the one that is used now.

use super::{super::calls::MAX_LISTED_BINDINGS, *};

/// A former API server, and the one that the entry names now.
async fn delete_unused(former: &Server, used: &Server) -> Result<(), Error> {
    let used = async { Ok(used.calls()) };
    former
        .calls()
        .delete_unused(&desired(&["kept"]), &CurrentServer::new(used))
        .await
}

#[tokio::test(start_paused = true)]
async fn a_refused_deletion_delays_no_other() {
    let refuses: Answers = |_, _, name| Some(if name == "before" { 403 } else { 200 });
    let former = Server::new(&["before", "kept"], &[], refuses);
    let used = Server::new(&[], &[], |_, _, _| Some(200));
    let why = delete_unused(&former, &used).await.unwrap_err().to_string();
    assert!(
        why.contains("refuses to delete ClusterRoleBinding before"),
        "{why}"
    );
    for kind in [CLUSTER, NAMESPACED] {
        let expected = format!("DELETE {kind} kept");
        assert!(former.done().contains(&expected), "{:?}", former.done());
    }
}

#[tokio::test(start_paused = true)]
async fn bindings_in_use_stay() {
    let both = Server::new(&["before", "kept"], &[], |_, _, _| Some(200));
    delete_unused(&both, &both).await.unwrap();
    let mut done = both.done();
    done.sort();
    assert_eq!(
        done,
        ["DELETE clusterrolebindings before", "DELETE rolebindings before"]
    );

    // The one that is used is connected to late.
    let former = Server::new(&["before", "kept"], &[], |_, _, _| Some(200));
    let used = Server::new(&[], &[], |_, _, _| Some(200));
    let late = async {
        time::sleep(Duration::from_secs(5)).await;
        Ok(used.calls())
    };
    let calls = former.calls();
    calls
        .delete_unused(&desired(&["kept"]), &CurrentServer::new(late))
        .await
        .unwrap();
    assert_eq!(former.done().len(), 4);

    // The former one is slow, or a deletion hangs there: the other one has its time.
    let slow: [(Late, Answers); 2] = [
        (
            |method, _, _| u64::from(*method == Method::GET) * 1600,
            |_, _, _| Some(200),
        ),
        (
            |method, _, _| u64::from(*method == Method::GET) * 600,
            |_, _, name| (name != "before").then_some(200),
        ),
    ];
    for (late, answers) in slow {
        let former = Server {
            late,
            ..Server::new(&["before", "kept"], &[], answers)
        };
        let used = Server::new(&[], &[], |_, _, _| Some(200));
        let _ = delete_unused(&former, &used).await;
        for kind in [CLUSTER, NAMESPACED] {
            let expected = format!("DELETE {kind} kept");
            assert!(former.done().contains(&expected), "{:?}", former.done());
        }
    }

    // It is not known which are: it cannot be connected to, or does not list.
    let former = Server::new(&["before", "kept"], &[], |_, _, _| Some(200));
    let used = Server {
        late: |_, _, _| 60_000,
        ..Server::new(&[], &[], |_, _, _| Some(200))
    };
    let why = delete_unused(&former, &used).await.unwrap_err().to_string();
    assert!(
        why.starts_with("comparing with the bindings that are in use now: ")
            && why.contains("no answer within 4 s to: list"),
        "{why}"
    );
    assert_eq!(former.done().len(), 2, "{:?}", former.done());
    let former = Server::new(&["before", "kept"], &[], |_, _, _| Some(200));
    let unknown = async { future::pending::<Result<Calls, tenant::Error>>().await };
    let why = former
        .calls()
        .delete_unused(&desired(&["kept"]), &CurrentServer::new(unknown))
        .await
        .unwrap_err();
    assert!(
        why.to_string()
            .starts_with("comparing with the bindings that are in use now: "),
        "{why}"
    );
    let done = former.done();
    assert!(
        done.iter().all(|done| done.ends_with("before")) && done.len() == 2,
        "{done:?}"
    );
}

/// What is found in three checks of a former API server. `connecting`: how long it takes to connect to each of both.
async fn check_three_times(former: &Server, connecting: Duration, used: &Server) -> Result<(), String> {
    let mut found = Vec::new();
    for _ in 0..3 {
        let begun = Instant::now();
        // Reading the kubeconfig takes half of that, too.
        let (calls, used_calls) = (former.calls(), used.calls());
        time::advance(connecting + connecting / 2).await;
        let connecting = async {
            time::sleep(connecting).await;
            Ok(used_calls)
        };
        let left = calls
            .delete_unused(&desired(&["kept"]), &CurrentServer::new(connecting))
            .await;
        assert!(begun.elapsed() <= RECONCILE_TIMEOUT, "{:?}", begun.elapsed());
        found.push(left.map_err(|error| error.to_string()));
    }
    assert!(found.iter().all(|each| *each == found[0]), "{found:?}");
    found.remove(0)
}

/// How late lists are answered, up to nearly as late as they may be.
const LATE: [Late; 5] = [
    |_, _, _| 0,
    |method, _, _| u64::from(*method == Method::GET) * 1000,
    |method, _, _| u64::from(*method == Method::GET) * 1900,
    |method, _, _| u64::from(*method == Method::GET) * 2700,
    // Changes, too.
    |_, _, _| 3900,
];
const CONNECTING: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_secs(3),
    Duration::from_millis(5900),
];

/// Otherwise the status would change from check to check, or name the wrong API server.
#[tokio::test(start_paused = true)]
async fn the_error_of_a_slow_server_stays_the_same() {
    const HANGS: Late = |_, _, _| 60_000;
    let delete = "https://former does not answer: no answer within 4 s to: delete ClusterRoleBindings";
    let in_use = "comparing with the bindings that are in use now: the tenant's API server https://tenant does not answer: no answer \
        within 4 s to: list ClusterRoleBindings";
    let refuses = "https://former refuses to delete ClusterRoleBinding before: said no";
    for (late, connecting) in LATE
        .into_iter()
        .flat_map(|late| CONNECTING.map(|time| (late, time)))
    {
        let cases: [(&[_], Answers, Late, &str); 5] = [
            (
                &["before", "kept"],
                |_, _, name| (name != "before").then_some(200),
                late,
                delete,
            ),
            (
                &["before", "kept"],
                |_, _, name| (name != "before").then_some(200),
                HANGS,
                delete,
            ),
            (
                &["kept"],
                |_, _, name| (name != "kept").then_some(200),
                late,
                delete,
            ),
            (&["kept"], |_, _, _| Some(200), HANGS, in_use),
            // One kind is refused, and a finalizer holds the other.
            (
                &["before"],
                |_, kind, _| Some(if kind == CLUSTER { 403 } else { 202 }),
                late,
                refuses,
            ),
        ];
        for (own, answers, used, expected) in cases {
            let former = Server {
                late,
                name: "https://former",
                ..Server::new(own, &[], answers)
            };
            let used = Server {
                late: used,
                ..Server::new(&[], &[], |_, _, _| Some(200))
            };
            let why = check_three_times(&former, connecting, &used).await.unwrap_err();
            assert!(why.ends_with(expected), "{why}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rights_are_deleted_however_slow_the_servers_are() {
    for (late, connecting) in LATE
        .into_iter()
        .flat_map(|late| CONNECTING.map(|time| (late, time)))
    {
        let unused = Server {
            late,
            ..Server::new(&[], &[], |_, _, _| Some(200))
        };
        for stale in [&[][..], &["stale"]] {
            let former = Server {
                late,
                ..Server::new(&["before", "kept"], stale, |_, _, _| Some(200))
            };
            let (calls, unused_calls) = (former.calls(), unused.calls());
            time::advance(connecting + connecting / 2).await;
            let connected = async {
                time::sleep(connecting).await;
                Ok(unused_calls)
            };
            let left = calls
                .delete_unused(&desired(&["kept"]), &CurrentServer::new(connected))
                .await;
            left.unwrap();
            let mut deleted = texts(&former.deleted);
            deleted.sort();
            let names = ["before", "kept"].into_iter().chain(stale.iter().copied());
            let names = names.collect::<Vec<_>>();
            let expected =
                [CLUSTER, NAMESPACED].map(|kind| names.iter().map(move |name| format!("{kind} {name}")));
            assert_eq!(deleted, expected.into_iter().flatten().collect::<Vec<_>>());
        }

        // A finalizer holds one that nobody asks for: it is deleted once in each check, and nothing waits for it.
        let answers: Answers = |_, _, name| Some(if name == "before" { 202 } else { 200 });
        let former = Server {
            late,
            ..Server::new(&["before", "kept"], &[], answers)
        };
        let why = check_three_times(&former, connecting, &unused).await.unwrap_err();
        assert!(
            why.ends_with("still has bindings of groups that were deleted"),
            "{why}"
        );
        for kind in [CLUSTER, NAMESPACED] {
            let of = |name: &str| {
                let deletes = format!("DELETE {kind} {name}");
                former.done().iter().filter(|done| **done == deletes).count()
            };
            assert_eq!((of("before"), of("kept")), (3, 1));
        }
    }
}

/// A binding that the same cluster is given between the two lists is then among those in use.
#[tokio::test(start_paused = true)]
async fn what_is_in_use_is_listed_after_what_is_deleted() {
    let former = Server {
        name: "former",
        ..Server::new(&["kept"], &[], |_, _, _| Some(200))
    };
    let used = Server {
        name: "used",
        listed: Arc::clone(&former.listed),
        ..Server::new(&["kept"], &[], |_, _, _| Some(200))
    };
    delete_unused(&former, &used).await.unwrap();
    let mut listed = texts(&former.listed);
    listed.sort_by_key(|list| list.ends_with(CLUSTER));
    let expected =
        [NAMESPACED, CLUSTER].map(|kind| ["former", "used"].map(|server| format!("{server} {kind}")));
    assert_eq!(listed, expected.concat());
    assert!(former.done().is_empty(), "{:?}", former.done());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_while_it_is_not_known_what_is_in_use() {
    const MANY: [&str; MAX_LISTED_BINDINGS] = ["other"; MAX_LISTED_BINDINGS];
    let refuses: Answers = |_, _, name| Some(if name == "before" { 403 } else { 200 });
    // A gateway answers, or a list that is not complete.
    let bare = Server {
        bare: true,
        ..Server::new(&[], &[], |_, _, _| Some(200))
    };
    let many = Server::new(&MANY, &[], |_, _, _| Some(200));
    for (used, expected) in [
        (bare, "missing field `items`"),
        (many, "more bindings of groups than"),
    ] {
        let former = Server::new(&["kept"], &[], |_, _, _| Some(200));
        let why = check_three_times(&former, Duration::ZERO, &used)
            .await
            .unwrap_err();
        assert!(why.contains("in use now: ") && why.contains(expected), "{why}");
        assert!(former.done().is_empty(), "{:?}", former.done());
    }

    // A page without any is not the end of a list.
    let former = Server {
        next: "next",
        ..Server::new(&[], &[], |_, _, _| Some(200))
    };
    let used = Server::new(&[], &[], |_, _, _| Some(200));
    let why = check_three_times(&former, Duration::ZERO, &used)
        .await
        .unwrap_err();
    assert!(why.contains("more bindings of groups than"), "{why}");

    // It cannot be connected to: the fault is still that another deletion is refused.
    let former = Server::new(&["before", "kept"], &[], refuses);
    let used = async { Err(tenant::Error::Kubeconfig("none".to_owned())) };
    let left = former
        .calls()
        .delete_unused(&desired(&["kept"]), &CurrentServer::new(used))
        .await;
    let why = left.unwrap_err().to_string();
    assert!(
        why.contains("refuses to delete ClusterRoleBinding before"),
        "{why}"
    );
    assert_eq!(former.done().len(), 2, "{:?}", former.done());
}
