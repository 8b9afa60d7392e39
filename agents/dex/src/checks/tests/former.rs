//! Clusters in which bindings are not to be any more.

use super::*;
use crate::tenant::{InUse, stored::StoredKubeconfig};

/// A former cluster, by the kubeconfig in its Secret.
fn former_tenant(kubeconfig: &str) -> Tenant {
    let stored = StoredKubeconfig::new("tenants", "former", kubeconfig.as_bytes());
    Tenant::former(stored, GroupBindings::default(), InUse::None)
}

#[test]
fn a_former_cluster_is_checked_by_itself_until_it_is_left() {
    let checks = Checks::default();
    let shop = key("tenants", "shop");
    let requester = || (ObjectRef::new("shop").within("tenants"), 1);
    let tenant = |kubeconfig: &str| Tenant::new(kubeconfig.as_bytes().to_vec(), GroupBindings::default());
    let former = |secret: &str, kubeconfig: &str| FormerTenant {
        secret: secret.to_owned(),
        tenant: Ok(former_tenant(kubeconfig)),
    };
    let binds = |formers: Vec<FormerTenant>| {
        let tenants = Tenants {
            former: formers,
            ..named(tenant("new"))
        };
        checks.reconcile_bindings(&shop, &requester(), &tenants);
    };
    let due = || checks.due(Instant::now(), &Running::new());
    let is_gone = |secret, kubeconfig| {
        matches!(
            checks.former_bindings(&shop, &former(secret, kubeconfig)),
            FormerBindings::Deleted
        )
    };
    let mut tasks = JoinSet::<()>::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    let mut begun = |check| Running::from([(tasks.spawn(std::future::pending()).id(), check)]);

    // The provider's own check was begun by the former kubeconfig.
    checks.reconcile_bindings(&shop, &requester(), &named(tenant("old")));
    let own = begun(due().remove(0));
    binds(vec![former("a", "old")]);
    assert!(checks.due(Instant::now(), &own).is_empty());

    // One of them is checked at a time, after the provider, and each has results of its own.
    binds(vec![former("a", "old"), former("b", "older")]);
    for expected in ["a", "b"] {
        let chosen = due();
        assert!(chosen.iter().filter(|(key, _)| key.former.is_some()).count() == 1);
        let (key, target) = chosen.into_iter().find(|(key, _)| key.former.is_some()).unwrap();
        assert_eq!(key.former.as_deref(), Some(expected));
        let result = if expected == "a" {
            Ok(())
        } else {
            Err((ISSUER_UNREACHABLE, "away".to_owned()))
        };
        assert!(checks.record(&key, &target, result.clone()).is_some());
        assert!(!is_gone(expected, "old"));
        assert_eq!(
            checks.record(&key, &target, result).is_some(),
            expected == "a",
            "a pass follows"
        );
    }
    assert!(is_gone("a", "old") && !is_gone("b", "older"));
    assert!(
        matches!(checks.former_bindings(&shop, &former("b", "older")), FormerBindings::Remain(why) if why == "away")
    );

    // Another kubeconfig in the Secret is another cluster.
    binds(vec![former("a", "changed"), former("b", "older")]);
    assert!(!is_gone("a", "old") && !is_gone("a", "changed"));

    // The entry names a former one again while bindings are deleted there.
    let (key, target) = due().into_iter().find(|(key, _)| key.former.is_some()).unwrap();
    let deleting = begun((key, target));
    checks.reconcile_bindings(&shop, &requester(), &named(tenant("changed")));
    assert!(checks.due(Instant::now(), &deleting).is_empty());
    assert_eq!(due().len(), 1);

    // What a deleted provider had is forgotten.
    binds(vec![former("b", "older")]);
    checks.forget(&shop);
    assert!(due().is_empty());
}

/// Former clusters of one entry, and its provider.
fn bind_former(checks: &Checks, key: &Key, secrets: &[String], groups: &str) {
    let former = secrets.iter().map(|secret| FormerTenant {
        secret: secret.clone(),
        tenant: Ok(tenants_former(groups)),
    });
    let tenants = Tenants {
        former: former.collect(),
        ..Tenants::none(String::new())
    };
    let requester = (ObjectRef::new(&key.name).within(&key.namespace), 1);
    checks.reconcile_bindings(key, &requester, &tenants);
}

fn former_due(checks: &Checks, now: Instant, running: &Running) -> Vec<String> {
    let due = checks.due(now, running).into_iter();
    due.filter_map(|(key, _)| key.former).collect()
}

#[tokio::test]
async fn checks_that_hang_leave_slots_to_former_clusters() {
    let checks = Checks::default();
    let names: Vec<String> = (0..MAX_NAMESPACE_CHECKS)
        .map(|number| format!("a{number}"))
        .collect();
    for name in &names {
        applied(&checks, &key("tenants", name), target("a", "CA"));
    }
    bind_former(&checks, &key("tenants", "shop"), &["first".to_owned()], "a");
    let mut hanging = JoinSet::<()>::new();
    let begun = checks.due(Instant::now(), &Running::new());
    assert_eq!(begun.len(), MAX_NAMESPACE_CHECKS);
    let mut begun = begun.into_iter();
    let (key_of_first, first) = begun.next().unwrap();
    checks.record(
        &key_of_first,
        &first,
        Err((ISSUER_UNREACHABLE, "hangs".to_owned())),
    );
    let running: Running = begun
        .map(|begun| (hanging.spawn(std::future::pending()).id(), begun))
        .collect();
    // It is due again, and another one is due now.
    applied(&checks, &key("tenants", "another"), target("a", "another CA"));
    let later = Instant::now() + CHECK_INTERVAL * 2;
    let another = checks
        .providers()
        .checked
        .get_mut(&key("tenants", "another"))
        .map(|one| one.due = later);
    assert!(another.is_some());
    let next = checks.due(later, &running);
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].0.former.as_deref(), Some("first"));
}

#[test]
fn former_clusters_that_fail_delay_no_other() {
    let checks = Checks::default();
    let shop = key("tenants", "shop");
    let mut secrets: Vec<String> = (0..6).map(|number| format!("fails{number}")).collect();
    bind_former(&checks, &shop, &secrets, "a");
    let away = || Err((ISSUER_UNREACHABLE, "away".to_owned()));
    for _ in 0..secrets.len() {
        let (key, target) = checks.due(Instant::now(), &Running::new()).remove(0);
        checks.record(&key, &target, away());
    }
    // Also where the groups are others.
    secrets.push("works".to_owned());
    for groups in ["a", "b"] {
        bind_former(&checks, &shop, &secrets, groups);
        // The others have waited for longer.
        let later = Instant::now() + CHECK_INTERVAL * 5;
        let mut due = former_due(&checks, later, &Running::new());
        due.sort();
        assert_eq!(due, ["fails0", "works"], "{groups}");
    }
}

#[tokio::test]
async fn a_right_does_not_wait_for_a_former_cluster_that_hangs() {
    let checks = Checks::default();
    let shop = key("tenants", "shop");
    let requester = |generation| (ObjectRef::new("shop").within("tenants"), generation);
    let bindings = |selector: &str| GroupBindings {
        selector: selector.to_owned(),
        ..GroupBindings::default()
    };
    let tenants = |groups: &str| Tenants {
        former: vec![FormerTenant {
            secret: "first".to_owned(),
            tenant: Ok(tenants_former(groups)),
        }],
        ..named(Tenant::new(b"second".to_vec(), bindings(groups)))
    };
    let (sender, _receiver) = mpsc::channel(8);
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let check = move |target: Arc<Target>, _| {
        let begun = begun.clone();
        async move {
            let tenant = target.tenant.clone().unwrap();
            let hangs = tenant == tenants_former("a") || tenant == tenants_former("b");
            begun.send(tenant).unwrap();
            if hangs {
                std::future::pending().await
            } else {
                Ok(())
            }
        }
    };
    checks.reconcile_bindings(&shop, &requester(1), &tenants("a"));
    let running = tokio::spawn(checks.clone().run_by(sender, check));
    let mut seen = Vec::new();
    while !seen.contains(&tenants_former("a")) {
        seen.push(begins.recv().await.unwrap());
    }
    checks.reconcile_bindings(&shop, &requester(2), &tenants("b"));
    let begins_anew =
        async { while begins.recv().await.unwrap() != Tenant::new(b"second".to_vec(), bindings("b")) {} };
    time::timeout(CHECK_TIMEOUT / 2, begins_anew).await.unwrap();
    running.abort();
}

fn tenants_former(groups: &str) -> Tenant {
    let bindings = GroupBindings {
        selector: groups.to_owned(),
        ..GroupBindings::default()
    };
    Tenant::former(
        StoredKubeconfig::new("tenants", "first", b"first"),
        bindings,
        InUse::None,
    )
}
