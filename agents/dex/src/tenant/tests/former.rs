//! What is deleted at a former API server, beside the one that is used now.

use super::{super::calls::LISTED, *};

/// A former API server, and the one that the entry names now.
async fn leave(former: &Server, used: &Server) -> Result<(), Error> {
    let used = async { Ok(used.calls()) };
    former
        .calls()
        .leave(&desired(&["kept"]), Instant::now(), used)
        .await
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_deleted_holds_up_no_other() {
    let refuses: Answers = |_, _, name| Some(if name == "before" { 403 } else { 200 });
    let former = Server::new(&["before", "kept"], &[], refuses);
    let used = Server::new(&[], &[], |_, _, _| Some(200));
    let why = leave(&former, &used).await.unwrap_err().to_string();
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
    leave(&both, &both).await.unwrap();
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
        .leave(&desired(&["kept"]), Instant::now(), late)
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
        let _ = time::timeout(ANSWER, leave(&former, &used)).await;
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
    let left = time::timeout(ANSWER, leave(&former, &used)).await;
    let why = left.unwrap().unwrap_err().to_string();
    assert!(
        why.starts_with("comparing with the bindings that are in use now: ")
            && why.contains("no answer within 6 s to: list"),
        "{why}"
    );
    assert_eq!(former.done().len(), 2, "{:?}", former.done());
    let former = Server::new(&["before", "kept"], &[], |_, _, _| Some(200));
    let unknown = async { future::pending::<Result<Calls, tenant::Error>>().await };
    let why = former
        .calls()
        .leave(&desired(&["kept"]), Instant::now(), unknown)
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

/// What is found in three checks of a former API server that lists so late, after connecting to it took that long.
async fn left_by(former: &Server, connecting: Duration, used: &Server) -> Result<(), String> {
    let mut found = Vec::new();
    for _ in 0..3 {
        let begin = Instant::now();
        time::advance(connecting).await;
        let used = async { Ok(used.calls()) };
        let calls = former.calls();
        let bindings = desired(&["kept"]);
        let left = time::timeout_at(begin + ANSWER, calls.leave(&bindings, begin, used)).await;
        let left = left.expect("it ends within the check");
        found.push(left.map_err(|error| error.to_string()));
    }
    assert!(found.iter().all(|each| *each == found[0]), "{found:?}");
    found.remove(0)
}

const LATE: [Late; 6] = [
    |method, _, _| u64::from(*method == Method::GET) * 500,
    |method, _, _| u64::from(*method == Method::GET) * 1000,
    |method, _, _| u64::from(*method == Method::GET) * 1900,
    |method, _, _| u64::from(*method == Method::GET) * 2300,
    |method, _, _| u64::from(*method == Method::GET) * 3500,
    |method, _, _| u64::from(*method == Method::GET) * 3900,
];

/// Otherwise the status would change from check to check, or name the wrong API server.
#[tokio::test(start_paused = true)]
async fn the_fault_of_a_slow_server_stays_the_same() {
    const HANGS: Late = |_, _, _| 60_000;
    const ANSWERS: Late = |_, _, _| 0;
    let deletes = "https://tenant does not answer: no answer within 4 s to: delete ClusterRoleBindings";
    let all = "https://tenant does not answer: no answer within 9 s to: compare and delete bindings";
    let in_use = "comparing with the bindings that are in use now: ";
    // How late the former one lists, after how many ms it is connected to, what hangs when it is deleted, and how late the one in use answers.
    let cases = [
        (LATE[0], 0, "before", ANSWERS, deletes),
        (LATE[2], 0, "before", ANSWERS, deletes),
        (LATE[3], 0, "before", ANSWERS, deletes),
        (LATE[4], 0, "before", ANSWERS, all),
        (LATE[2], 3200, "before", ANSWERS, all),
        (LATE[0], 0, "before", HANGS, deletes),
        (LATE[0], 0, "kept", ANSWERS, deletes),
        (LATE[4], 0, "kept", ANSWERS, deletes),
        (LATE[1], 0, "", HANGS, in_use),
        (LATE[2], 0, "", HANGS, in_use),
        (LATE[5], 0, "", HANGS, in_use),
        (LATE[1], 3200, "", HANGS, in_use),
        (LATE[5], 3200, "", HANGS, all),
    ];
    for (index, (late, connecting, hangs, used, expected)) in cases.into_iter().enumerate() {
        let (own, answers): (&[_], Answers) = match hangs {
            "before" => (&["before", "kept"], |_, _, name| {
                (name != "before").then_some(200)
            }),
            "kept" => (&["kept"], |_, _, name| (name != "kept").then_some(200)),
            _ => (&["kept"], |_, _, _| Some(200)),
        };
        let former = Server {
            late,
            ..Server::new(own, &[], answers)
        };
        let used = Server {
            late: used,
            ..Server::new(&[], &[], |_, _, _| Some(200))
        };
        let why = left_by(&former, Duration::from_millis(connecting), &used)
            .await
            .unwrap_err();
        assert!(why.contains(expected), "{index}: {why}");
    }
}

#[tokio::test(start_paused = true)]
async fn rights_end_at_a_former_server_however_slow_its_lists_are() {
    let unused = Server::new(&[], &[], |_, _, _| Some(200));
    for late in LATE {
        let former = Server {
            late,
            ..Server::new(&["kept"], &[], |_, _, _| Some(200))
        };
        left_by(&former, Duration::ZERO, &unused).await.unwrap();
        assert_eq!(former.done().len(), 2, "{:?}", former.done());

        // A finalizer holds one that nobody asks for: it is deleted once in each check, and nothing waits for it.
        let answers: Answers = |_, _, name| Some(if name == "before" { 202 } else { 200 });
        let former = Server {
            late,
            ..Server::new(&["before", "kept"], &[], answers)
        };
        left_by(&former, Duration::ZERO, &unused).await.unwrap_err();
        for kind in [CLUSTER, NAMESPACED] {
            let of = |name: &str| {
                let deletes = format!("DELETE {kind} {name}");
                former.done().iter().filter(|done| **done == deletes).count()
            };
            assert_eq!((of("before"), of("kept")), (3, 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_while_it_is_not_known_what_is_in_use() {
    const MANY: [&str; LISTED] = ["other"; LISTED];
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
        let why = left_by(&former, Duration::ZERO, &used).await.unwrap_err();
        assert!(why.contains("in use now: ") && why.contains(expected), "{why}");
        assert!(former.done().is_empty(), "{:?}", former.done());
    }

    // It cannot be connected to: the fault is still that another deletion is refused.
    let former = Server::new(&["before", "kept"], &[], refuses);
    let used = async { Err(tenant::Error::Kubeconfig("none".to_owned())) };
    let left = former
        .calls()
        .leave(&desired(&["kept"]), Instant::now(), used)
        .await;
    let why = left.unwrap_err().to_string();
    assert!(
        why.contains("refuses to delete ClusterRoleBinding before"),
        "{why}"
    );
    assert_eq!(former.done().len(), 2, "{:?}", former.done());
}
