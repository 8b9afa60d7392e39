mod entries;
mod former;

use std::collections::BTreeMap;

use api::HttpsUrl;
use futures::StreamExt as _;
use render::dex::GroupBindings;

use super::{slots::MAX_NAMESPACE_CHECKS, *};
use crate::{directory::Bind, storage::StoragePart, tenant::Tenant};

fn key(namespace: &str, name: &str) -> Key {
    Key {
        namespace: namespace.to_owned(),
        uid: format!("uid-{name}"),
        name: name.to_owned(),
        former: None,
    }
}

fn named(tenant: Tenant) -> Tenants {
    Tenants {
        named: Some(Ok(tenant)),
        ..Tenants::none(String::new())
    }
}

fn target(host: &str, bundle: &str) -> Target {
    Target {
        provider: Some(Provider {
            part: StoragePart {
                uid: "uid".to_owned(),
                name: host.to_owned(),
            },
            issuer: HttpsUrl::from_parts(host, 443, "/dex").unwrap(),
            at: None,
            bundle: bundle.to_owned(),
            binds: Vec::new(),
        }),
        tenant: None,
    }
}

fn applied(checks: &Checks, key: &Key, target: Target) {
    let cluster = ObjectRef::new(&key.name).within(&key.namespace);
    checks.propose(key.clone(), (cluster, 1), target);
    checks.confirm(key);
}

#[tokio::test]
async fn a_check_that_hangs_or_panics_delays_no_other() {
    let checks = Checks::default();
    for host in ["hangs", "panics", "works"] {
        applied(&checks, &key("tenants", host), target(host, "CA"));
    }
    let (sender, mut receiver) = mpsc::channel(8);
    let check = |target: Arc<Target>, _| async move {
        match target.issuer().unwrap().host() {
            "hangs" => std::future::pending().await,
            "panics" => panic!("by a hostile answer"),
            _ => Ok(()),
        }
    };
    let running = tokio::spawn(checks.clone().run_by(sender, check));
    for _ in 0..2 {
        receiver.next().await.unwrap();
    }
    assert_eq!(checks.last_result(&key("tenants", "works")), Some(Ok(())));
    let failed = checks
        .last_result(&key("tenants", "panics"))
        .unwrap()
        .unwrap_err();
    assert_eq!(failed.0, ISSUER_UNREACHABLE);
    assert_eq!(checks.last_result(&key("tenants", "hangs")), None);
    assert!(!running.is_finished());
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn the_check_of_a_removed_entry_ends() {
    let checks = Checks::default();
    let (removed, stays) = (key("a", "removed"), key("b", "stays"));
    for key in [&removed, &stays] {
        applied(&checks, key, target(&key.name, ""));
    }
    let (sender, _receiver) = mpsc::channel(8);
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let check = move |_, _| {
        // It is dropped with the check.
        let begun = begun.clone();
        async move {
            begun.send(()).unwrap();
            begun.closed().await;
            Ok(())
        }
    };
    let running = tokio::spawn(checks.clone().run_by(sender, check));
    begins.recv().await.unwrap();
    begins.recv().await.unwrap();
    assert_eq!(begins.sender_strong_count(), 3);
    checks.retain_entries(&removed.namespace, &removed.uid, &BTreeSet::new());
    time::sleep(2 * POLL_INTERVAL).await;
    assert_eq!(begins.sender_strong_count(), 2);
    running.abort();
}

#[test]
fn a_namespace_has_a_share_of_the_checks() {
    let checks = Checks::default();
    for number in 0..10 {
        applied(&checks, &key("greedy", &format!("a{number}")), target("a", "CA"));
    }
    applied(&checks, &key("modest", "b"), target("b", "CA"));
    let due = checks.due(Instant::now(), &Running::new());
    let of = |namespace: &str| due.iter().filter(|(key, _)| key.namespace == namespace).count();
    assert_eq!((of("greedy"), of("modest")), (MAX_NAMESPACE_CHECKS, 1));
}

#[tokio::test]
async fn checks_that_hang_leave_slots_to_others() {
    let checks = Checks::default();
    for namespace in 0..2 * MAX_CONCURRENT_CHECKS / MAX_NAMESPACE_CHECKS {
        for number in 0..10 {
            let name = format!("a{namespace}-{number}");
            applied(
                &checks,
                &key(&format!("greedy-{namespace}"), &name),
                target("a", "CA"),
            );
        }
    }
    let begun = checks.due(Instant::now(), &Running::new());
    assert_eq!(begun.len(), MAX_CONCURRENT_CHECKS);
    // All slots are taken; one is free again, and somebody has come who waits for less long than all others.
    applied(&checks, &key("modest", "b"), target("b", "CA"));
    let mut hanging = JoinSet::<()>::new();
    let running = begun.into_iter().skip(1);
    let running: Running = running
        .map(|begun| (hanging.spawn(std::future::pending()).id(), begun))
        .collect();
    let next = checks.due(Instant::now(), &running);
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].0.namespace, "modest");
}

#[test]
fn a_cluster_leaves_slots_to_its_neighbours() {
    let checks = Checks::default();
    let of = |uid: &str, name: &str| Key {
        uid: uid.to_owned(),
        ..key("tenants", name)
    };
    for number in 0..10 {
        applied(&checks, &of("greedy", &format!("a{number}")), target("a", "CA"));
    }
    applied(&checks, &of("modest", "b"), target("b", "CA"));
    let due = checks.due(Instant::now(), &Running::new());
    assert!(due.iter().any(|(key, _)| key.uid == "modest"), "{}", due.len());
}

#[test]
fn bindings_do_not_wait_for_a_provider_to_be_prepared() {
    let tenant = || Tenant::new(b"{}".to_vec(), GroupBindings::default());
    let checks = Checks::default();
    let (new, old) = (key("tenants", "new"), key("tenants", "old"));
    let bind = |key: &Key| {
        let cluster = ObjectRef::new(&key.name).within(&key.namespace);
        checks.reconcile_bindings(key, &(cluster, 1), &named(tenant()));
    };
    applied(&checks, &old, target("sso", "CA"));
    let (_, first) = checks.due(Instant::now(), &Running::new()).remove(0);
    checks.record(&old, &first, Ok(()));
    bind(&new);
    bind(&old);
    let due = checks.due(Instant::now(), &Running::new());
    let due: BTreeMap<&Key, &Arc<Target>> = due.iter().map(|(key, target)| (key, target)).collect();
    assert!(due.values().all(|target| target.tenant.is_some()));
    assert!(due[&new].provider.is_none() && due[&old].provider == first.provider);
    // Nothing is known of a provider that was never checked, nor of one that had no bindings before.
    assert!(checks.record(&new, due[&new], Ok(())).is_some());
    assert_eq!((checks.last_result(&new), checks.last_result(&old)), (None, None));
    bind(&new);
    assert!(
        !checks
            .due(Instant::now(), &Running::new())
            .iter()
            .any(|(key, _)| *key == new)
    );
}

#[test]
fn a_result_holds_while_the_issuer_is_the_same() {
    let checks = Checks::default();
    let key = key("tenants", "shop");
    applied(&checks, &key, target("sso", "CA"));
    assert_eq!(checks.last_result(&key), None);
    let (_, first) = checks.due(Instant::now(), &Running::new()).remove(0);
    assert!(checks.record(&key, &first, Ok(())).is_some());
    assert!(checks.due(Instant::now(), &Running::new()).is_empty());

    applied(&checks, &key, target("sso", "next CA"));
    assert_eq!(checks.last_result(&key), Some(Ok(())));
    assert_eq!(checks.due(Instant::now(), &Running::new()).len(), 1);
    // A late result of what was checked before tells nothing.
    let late = Err((ISSUER_UNREACHABLE, "late".to_owned()));
    assert!(checks.record(&key, &first, late).is_none());
    assert_eq!(checks.last_result(&key), Some(Ok(())));

    applied(&checks, &key, target("other", "next CA"));
    assert_eq!(checks.last_result(&key), None);
}

#[test]
fn only_what_is_applied_and_named_again_is_checked() {
    let checks = Checks::default();
    let (shop, heir) = (
        key("tenants", "shop"),
        Key {
            uid: "heir".to_owned(),
            ..key("tenants", "shop")
        },
    );
    let cluster = ObjectRef::new("shop").within("tenants");
    checks.propose(shop.clone(), (cluster, 1), target("sso", "CA"));
    assert!(checks.due(Instant::now(), &Running::new()).is_empty());
    checks.confirm(&shop);
    let (_, first) = checks.due(Instant::now(), &Running::new()).remove(0);
    checks.record(&shop, &first, Ok(()));
    assert_eq!(checks.last_result(&heir), None);
    checks.due(Instant::now() + ENTRY_TTL, &Running::new());
    assert_eq!(checks.last_result(&shop), None);
    applied(&checks, &heir, target("sso", "CA"));
    checks.forget(&shop);
    assert_eq!(
        checks.due(Instant::now(), &Running::new()).len(),
        1,
        "another cluster's of this name stays"
    );
    checks.forget(&heir);
    assert!(checks.due(Instant::now(), &Running::new()).is_empty());
}

/// However often entries are renamed, made again, or share an account.
#[tokio::test]
async fn refusals_are_shared_in_a_namespace() {
    let checks = Checks::default();
    let (shop, bank) = (key("tenants", "shop"), key("tenants", "bank"));
    let first = checks.refusals(&shop);
    applied(&checks, &shop, target("sso", "CA"));
    checks.forget(&shop);
    checks.due(Instant::now(), &Running::new());
    assert!(first.is_same(&checks.refusals(&bank)));
    assert!(!first.is_same(&checks.refusals(&key("others", "shop"))));
    // Of a namespace in which nothing is known nothing stays.
    drop(first);
    checks.due(Instant::now(), &Running::new());
    assert!(checks.providers().refusals.is_empty());
}

#[test]
fn a_result_does_not_hold_for_another_spec() {
    let checks = Checks::default();
    let key = key("tenants", "shop");
    let bound = |bindings: GroupBindings| Target {
        tenant: Some(Tenant::new(b"{}".to_vec(), bindings)),
        ..target("sso", "CA")
    };
    applied(&checks, &key, target("sso", "CA"));
    let (_, first) = checks.due(Instant::now(), &Running::new()).remove(0);
    checks.record(&key, &first, Ok(()));
    let changed = |generation: i64, target: Target| {
        let cluster = ObjectRef::new(&key.name).within(&key.namespace);
        checks.propose(key.clone(), (cluster, generation), target);
        checks.confirm(&key);
        checks.last_result(&key)
    };
    // Another client, say: what is checked is the same.
    assert_eq!(changed(2, target("sso", "CA")), Some(Ok(())));
    // A Secret is another.
    assert_eq!(changed(2, target("sso", "next CA")), Some(Ok(())));
    assert_eq!(changed(3, bound(GroupBindings::default())), None);
}

#[test]
fn a_result_does_not_hold_for_a_provider_to_come() {
    let checks = Checks::default();
    let key = key("tenants", "shop");
    let requester = |generation| (ObjectRef::new(&key.name).within(&key.namespace), generation);
    let tenant = |selector: &str| {
        let bindings = GroupBindings {
            selector: selector.to_owned(),
            ..GroupBindings::default()
        };
        Tenant::new(b"{}".to_vec(), bindings)
    };
    let provider = |password: &str, tenant: Tenant| {
        let mut target = target("sso", "CA");
        target.provider.as_mut().unwrap().binds = vec![Bind::with_password(password)];
        target.tenant = Some(tenant);
        target
    };
    let is_checked = || {
        let (_, target) = checks.due(Instant::now(), &Running::new()).remove(0);
        checks.record(&key, &target, Ok(()));
    };
    // A pass reconciles the bindings before its provider is applied.
    let passes = |generation: i64, password: &str, selector: &str, meanwhile: &dyn Fn()| {
        checks.reconcile_bindings(&key, &requester(generation), &named(tenant(selector)));
        checks.propose(
            key.clone(),
            requester(generation),
            provider(password, tenant(selector)),
        );
        meanwhile();
        checks.confirm(&key);
        checks.last_result(&key)
    };
    assert_eq!(passes(1, "first", "a", &|| {}), None);
    is_checked();
    assert_eq!(passes(1, "first", "a", &|| {}), Some(Ok(())));
    // Another bind of the directory, then other groups, then both, of which the old provider is checked meanwhile.
    assert_eq!(passes(2, "second", "a", &|| {}), None);
    is_checked();
    assert_eq!(passes(3, "second", "b", &|| {}), None);
    is_checked();
    assert_eq!(passes(4, "third", "c", &is_checked), None);
    is_checked();
    // A renewed certificate is of the same spec.
    assert_eq!(passes(4, "third", "c", &|| {}), Some(Ok(())));
}

#[test]
fn an_earlier_kubeconfig_and_name_are_not_used_any_more() {
    let checks = Checks::default();
    let (shop, bank) = (key("tenants", "shop"), key("tenants", "bank"));
    let requester = || (ObjectRef::new("shop").within("tenants"), 1);
    let tenant = || named(Tenant::new(b"{}".to_vec(), GroupBindings::default()));
    let due = || checks.due(Instant::now(), &Running::new());
    checks.reconcile_bindings(&shop, &requester(), &tenant());
    checks.reconcile_bindings(&shop, &requester(), &Tenants::none(String::new()));
    assert!(due().is_empty());
    // The provider is checked on.
    applied(&checks, &bank, target("sso", "CA"));
    checks.reconcile_bindings(&bank, &requester(), &tenant());
    checks.reconcile_bindings(&bank, &requester(), &Tenants::none(String::new()));
    let (_, checked) = due().remove(0);
    assert!(checked.provider.is_some() && checked.tenant.is_none());
    // An entry is renamed of which nothing was made.
    checks.reconcile_bindings(&shop, &requester(), &tenant());
    checks.retain_entries("tenants", &shop.uid, &["renamed"].into());
    let left: Vec<Key> = due().into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, [bank]);
}

#[test]
fn only_dropped_entries_of_the_cluster_are_forgotten() {
    let key = |namespace: &str, uid: &str, name: &str| Key {
        namespace: namespace.to_owned(),
        uid: uid.to_owned(),
        name: name.to_owned(),
        former: None,
    };
    let checks = Checks::default();
    let mut kept = BTreeSet::new();
    for (namespace, uid) in [("a", "9"), ("b", "1"), ("b", "2"), ("b", "21"), ("c", "2")] {
        for name in ["auth-one", "auth-two"] {
            let key = key(namespace, uid, name);
            applied(&checks, &key, target("sso", "CA"));
            checks.propose(key.clone(), (ObjectRef::new("shop"), 2), target("sso", "CA"));
            kept.insert(key);
        }
    }
    checks.retain_entries("b", "2", &["auth-two", "auth-three"].into());
    kept.remove(&key("b", "2", "auth-one"));
    let Providers {
        proposed,
        checked,
        refusals: _,
    } = &*checks.providers();
    assert!(proposed.keys().eq(&kept) && checked.keys().eq(&kept));
}

#[test]
fn a_long_error_is_truncated() {
    let checks = Checks::default();
    let key = key("tenants", "shop");
    applied(&checks, &key, target("sso", "CA"));
    let (_, target) = checks.due(Instant::now(), &Running::new()).remove(0);
    let quoted = "certificate valid for ".to_owned() + &"a.example.org, ".repeat(20_000);
    checks.record(&key, &target, Err((ISSUER_UNREACHABLE, quoted)));
    let (_, why) = checks.last_result(&key).unwrap().unwrap_err();
    assert!(
        why.starts_with("certificate valid for a.") && why.len() <= MAX_RESULT_BYTES,
        "{}",
        why.len()
    );
}
