//! Entries of one SIPCluster, of which some were added or removed.

use super::*;

/// An entry of a SIPCluster, and what is bound for it where these are the entries.
fn entry(name: &str, entries: &str) -> (Key, Requester, Tenants) {
    let key = Key {
        uid: "uid".to_owned(),
        ..key("a", name)
    };
    let stale = format!("notin ({entries})");
    let bindings = GroupBindings {
        stale: stale.clone(),
        ..GroupBindings::default()
    };
    let tenants = Tenants {
        stale,
        ..named(Tenant::new(b"kubeconfig".to_vec(), bindings))
    };
    (key, (ObjectRef::new("shop").within("a"), 1), tenants)
}

/// It would delete the bindings of an entry that was added, also where the pass over its own entry fails.
#[tokio::test(start_paused = true)]
async fn the_check_of_another_entry_goes_by_the_entries_of_now() {
    let checks = Checks::default();
    let (sender, _receiver) = mpsc::channel(8);
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let check = move |target: Arc<Target>, _| {
        let begun = begun.clone();
        async move {
            begun.send(target.tenant.clone().unwrap()).unwrap();
            begun.closed().await;
            Ok(())
        }
    };
    let (before, requester, tenants) = entry("before", "before");
    checks.reconcile_bindings(&before, &requester, &tenants);
    let running = tokio::spawn(checks.clone().run_by(sender, check));
    begins.recv().await.unwrap();
    let (added, requester, tenants) = entry("added", "before, added");
    checks.reconcile_bindings(&added, &requester, &tenants);
    for _ in 0..2 {
        let begins = time::timeout(CHECK_TIMEOUT / 2, begins.recv()).await.unwrap();
        assert!(begins == tenants.named.clone().and_then(Result::ok));
    }
    running.abort();
}

/// An entry without `kubeconfigSecret` too: the tenant may apply its bindings by hand.
#[test]
fn an_entry_without_kubeconfig_is_no_former_one() {
    let checks = Checks::default();
    let (before, requester, tenants) = entry("before", "before");
    checks.reconcile_bindings(&before, &requester, &tenants);
    let (added, requester, tenants) = entry("added", "before, added");
    let by_hand = Tenants {
        named: None,
        ..tenants.clone()
    };
    checks.reconcile_bindings(&added, &requester, &by_hand);
    let (_, target) = checks.due(Instant::now(), &Running::new()).remove(0);
    assert!(target.tenant == tenants.named.and_then(Result::ok));
}

/// Its bindings are deleted by the next check of each other entry.
#[test]
fn a_removed_entry_resets_the_results_of_the_others() {
    let checks = Checks::default();
    let names = ["a", "b"];
    let found = |name: &str| {
        let providers = checks.providers();
        providers.checked[&entry(name, "").0].result.clone()
    };
    let bind = |name: &str, entries: &str, generation: i64| {
        let (key, (cluster, _), tenants) = entry(name, entries);
        checks.reconcile_bindings(&key, &(cluster, generation), &tenants);
    };
    for name in names {
        bind(name, "a, b, c", 1);
    }
    for (key, target) in checks.due(Instant::now(), &Running::new()) {
        checks.record(&key, &target, Ok(()));
    }
    assert_eq!(names.map(found), [Some(Ok(())), Some(Ok(()))]);
    for name in names {
        bind(name, "a, b", 2);
    }
    assert_eq!(names.map(found), [None, None]);
}

#[tokio::test]
async fn no_check_begins_beside_one_by_an_earlier_spec() {
    let checks = Checks::default();
    let (before, requester, tenants) = entry("before", "before");
    checks.reconcile_bindings(&before, &requester, &tenants);
    let mut hanging = JoinSet::<()>::new();
    let begun = checks.due(Instant::now(), &Running::new());
    let running: Running = begun
        .into_iter()
        .map(|begun| (hanging.spawn(std::future::pending()).id(), begun))
        .collect();
    assert_eq!(running.len(), 1);
    for name in ["added", "before"] {
        let (key, requester, tenants) = entry(name, "before, added");
        checks.reconcile_bindings(&key, &requester, &tenants);
        assert!(checks.due(Instant::now(), &running).is_empty(), "{name}");
    }
    applied(&checks, &key("a", "another"), target("a", "CA"));
    let due = checks.due(Instant::now(), &running);
    assert_eq!(
        due.iter().map(|(key, _)| &*key.name).collect::<Vec<_>>(),
        ["another"]
    );
    // The first one has ended.
    assert_eq!(checks.due(Instant::now(), &Running::new()).len(), 3);
}
