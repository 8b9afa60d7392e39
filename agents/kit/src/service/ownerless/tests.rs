use api::labels;
use serde_json::{Value, json};

use super::{
    super::{existing_ports::trimmed_service, identity::BALANCERS},
    *,
};

fn service(name: &str, labels: &Value, owners: &Value) -> Service {
    let mut labels = labels.clone();
    labels[labels::INSTANCE] = json!(name);
    let metadata = json!({"namespace": "tenant", "name": name, "labels": labels, "ownerReferences": owners});
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn labels_of(cluster: &str) -> Value {
    json!({"app.kubernetes.io/part-of": "sip", "sip.airshipit.org/cluster-name": cluster})
}

fn owner(cluster: &str, uid: &str) -> Value {
    json!({"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": cluster, "uid": uid})
}

fn maker(cluster: &str, uid: Option<&str>) -> Maker {
    Maker {
        name: cluster.to_owned(),
        uid: uid.map(str::to_owned),
    }
}

#[test]
fn only_what_was_made_for_a_cluster_that_is_gone_is_found() {
    let of = labels_of;
    let services = [
        service("loadbalancer-worker-gone-a", &of("gone"), &Value::Null),
        service("loadbalancer-worker-shop", &of("shop"), &Value::Null),
        // A cluster that exists owns it.
        service(
            "loadbalancer-worker-gone-b",
            &of("gone"),
            &json!([owner("gone", "live")]),
        ),
        // Another agent's, and one that the Airship SIP operator may have made.
        service("jumphost-gone", &of("gone"), &Value::Null),
        service(
            "loadbalancer-worker-gone",
            &json!({"app.kubernetes.io/part-of": "sip"}),
            &Value::Null,
        ),
    ];
    let may_take_over = |cluster: &ObjectRef<SIPCluster>, _: &str| cluster.name == "shop";
    let other = |name: &str, cluster: &str| ("tenant".to_owned(), name.to_owned(), maker(cluster, None));
    let others = BTreeSet::from([
        other("loadbalancer-worker-gone-a", "gone"),
        // Somebody has deleted its Service.
        other("loadbalancer-worker-gone-d", "gone"),
        other("loadbalancer-worker-shop-b", "shop"),
        other("jumphost-gone-b", "gone"),
    ]);
    let mut ending = service("loadbalancer-worker-gone-c", &of("gone"), &Value::Null);
    ending.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    // Somebody has copied the labels.
    let mut copied = service("loadbalancer-worker-gone-e", &of("gone"), &Value::Null);
    copied.metadata.name = Some("loadbalancer-worker-gone-stats".to_owned());
    let services = services.iter().chain([&ending, &copied]);
    let live = BTreeSet::from(["live".to_owned()]);
    let found = ownerless(services, &others, BALANCERS, &live, may_take_over);
    let names: Vec<_> = found.iter().map(|instance| &*instance.name).collect();
    assert_eq!(
        names,
        ["loadbalancer-worker-gone-a", "loadbalancer-worker-gone-d"]
    );
}

#[test]
fn what_a_cluster_that_is_gone_still_owns_is_found() {
    const NAME: &str = "loadbalancer-worker-shop";
    let shop = || labels_of("shop");
    for (name, labels, owners, is_left) in [
        // Of the cluster that has this name now, of a former one, and of one that was not made again.
        (NAME, shop(), json!([owner("shop", "live")]), false),
        (NAME, shop(), json!([owner("shop", "before")]), true),
        (
            "loadbalancer-worker-gone",
            labels_of("gone"),
            json!([owner("gone", "before")]),
            true,
        ),
        // The labels and the owner do not agree, or it has a second owner.
        (NAME, shop(), json!([owner("bank", "before")]), false),
        (NAME, shop(), json!([owner("bank", "live")]), false),
        (
            NAME,
            shop(),
            json!([owner("shop", "before"), owner("shop", "live")]),
            false,
        ),
        (
            NAME,
            shop(),
            json!([
                owner("shop", "before"),
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"},
            ]),
            false,
        ),
        // Somebody else's labels, and another agent's name.
        (NAME, json!({}), json!([owner("shop", "before")]), false),
        ("jumphost-shop", shop(), json!([owner("shop", "before")]), false),
    ] {
        // As the watch keeps it.
        let mut service = trimmed_service(service(name, &labels, &owners));
        let live = BTreeSet::from(["live".to_owned()]);
        // A cluster of the name takes none of these over, however valid its spec is.
        let found = |service: &Service| {
            ownerless(
                [service].into_iter(),
                &BTreeSet::new(),
                BALANCERS,
                &live,
                |_, _| true,
            )
        };
        let names: Vec<_> = found(&service).into_iter().map(|found| found.name).collect();
        assert_eq!(names == [name], is_left, "{labels} {owners}: {names:?}");
        service.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(found(&service), BTreeSet::new(), "it is being deleted");
    }
}

#[test]
fn what_is_left_beside_a_new_service_is_found() {
    let name = "loadbalancer-worker-shop";
    let service = service(name, &labels_of("shop"), &json!([owner("shop", "live")]));
    let live = BTreeSet::from(["live".to_owned()]);
    let other = |uid: &str| ("tenant".to_owned(), name.to_owned(), maker("shop", Some(uid)));
    let others = BTreeSet::from([other("before"), other("live")]);
    let found = ownerless([&service].into_iter(), &others, BALANCERS, &live, |_, _| true);
    let makers: Vec<_> = found.into_iter().map(|found| found.maker).collect();
    assert_eq!(makers, [maker("shop", Some("before"))]);
}

#[test]
fn what_has_an_owner_is_due_after_a_minute_at_most() {
    let of = |uid: Option<&str>| Instance {
        namespace: "tenant".to_owned(),
        name: "a".to_owned(),
        maker: maker("shop", uid),
        uid: None,
    };
    let both: BTreeSet<Instance> = [of(None), of(Some("before"))].into();
    let second = Duration::from_secs(1);
    for (ownerless_for, expected) in [(second * 1_200, second * 60), (second, second)] {
        let begun = Instant::now();
        let mut times = DeletionTimes::default();
        let nearly = begun + expected.saturating_sub(Duration::from_millis(1));
        assert_eq!(times.due(&both, begun, ownerless_for), []);
        assert_eq!(times.due(&both, nearly, ownerless_for), []);
        let due = times.due(&both, begun + expected, ownerless_for);
        assert!(due.contains(&of(Some("before"))), "{ownerless_for:?}");
        assert_eq!(due.contains(&of(None)), ownerless_for == expected);
        // Its deletion has failed.
        let again = times.due(&both, begun + expected * 2, ownerless_for);
        assert!(again.contains(&of(Some("before"))), "{ownerless_for:?}");
    }
}

#[test]
fn a_refused_cluster_keeps_nothing_of_a_former_one() {
    let cluster = |active: i64, status: &Value| -> SIPCluster {
        let workers = json!({"labelSelector": {}, "count": {"active": active}});
        let object = json!({
            "metadata": {"namespace": "tenant", "name": "shop", "uid": "u"},
            "spec": {"nodes": {"Worker": workers}}, "status": status,
        });
        serde_json::from_value(object).unwrap()
    };
    let applied = |instance: &str| {
        let applied = json!({"service": instance, "epoch": 1, "revision": 1, "generation": 1});
        json!({ "applied": [applied] })
    };
    let holds = |members: &Value| {
        let placement = json!({"epoch": 1, "revision": 7, "generation": 1, "members": members});
        json!({ "placement": placement })
    };
    let member = json!([{
        "namespace": "hosts", "name": "a", "uid": "u", "role": "Worker", "state": "Bound", "revision": 7,
    }]);
    for (active, status, expected) in [
        (1, Value::Null, true),
        (-1, Value::Null, false),
        (-1, applied("jumphost-shop-1"), false),
        (-1, holds(&json!([])), false),
        // The owner was removed from what it runs.
        (-1, applied("jumphost-shop"), true),
        (-1, holds(&member), true),
    ] {
        let cluster = cluster(active, &status);
        let is_valid = || Cluster::parse(&cluster).is_ok();
        let takes_over = may_take_over(&cluster, "jumphost-shop", is_valid);
        assert_eq!(takes_over, expected, "{active} {status}");
    }
}

#[test]
fn a_placement_that_cannot_be_read_keeps_what_may_serve() {
    let object = json!({
        "metadata": {"namespace": "tenant", "name": "shop", "uid": "u"}, "spec": {},
        "status": {"placement": {"epoch": 1, "revision": 7, "generation": 1, "members": [{"state": "Moving"}]}},
    });
    let object: TolerantCluster = serde_json::from_value(object).unwrap();
    let object = object.into_inner();
    let is_valid = || Cluster::parse(&object).is_ok();
    assert!(may_take_over(&object, "loadbalancer-worker-shop", is_valid));
}

#[test]
fn a_namespace_with_many_delays_no_other() {
    let of = |namespace: &str, number: usize| Instance {
        namespace: namespace.to_owned(),
        name: format!("{number:04}"),
        maker: maker("gone", None),
        uid: None,
    };
    let mut all: BTreeSet<Instance> = (0..100).map(|number| of("a", number)).collect();
    all.insert(of("b", 0));
    let (begun, ownerless_for) = (Instant::now(), Duration::from_mins(20));
    let mut times = DeletionTimes::default();
    assert_eq!(times.due(&all, begun, ownerless_for), []);
    let mut seen = BTreeSet::new();
    for tick in 0..13 {
        let due = times.due(
            &all,
            begun + ownerless_for + MAX_POLL_INTERVAL * tick,
            ownerless_for,
        );
        assert!(due.len() <= MAX_DELETIONS_PER_NAMESPACE + 1);
        assert_eq!(due.contains(&of("b", 0)), tick == 0 || tick == 10, "{tick}");
        seen.extend(due);
    }
    // None is tried again before each was tried.
    assert_eq!(seen.len(), 101);
}

#[test]
fn only_a_refused_read_ends_the_turn_of_a_namespace() {
    let failed = |code| {
        let status = kube::core::Status::failure("no", "no").with_code(code);
        kube::Error::Api(status.boxed())
    };
    assert!(Failure::reading(failed(403)).has_no_rights);
    for failure in [Failure::reading(failed(500)), Failure::deleting(failed(403))] {
        assert!(!failure.has_no_rights, "{}", failure.error);
    }
}

#[test]
fn a_404_without_its_reason_does_not_mean_that_it_is_gone() {
    let failed = |reason: &str| {
        let status = kube::core::Status::failure("404 page not found", reason).with_code(404);
        Err::<(), _>(kube::Error::Api(status.boxed()))
    };
    assert!(matches!(existing(failed("NotFound")), Ok(None)));
    assert!(existing(failed("Failed to parse error data")).is_err());
    assert!(matches!(existing(Ok(())), Ok(Some(()))));
}

#[test]
fn only_another_uid_shows_that_the_owner_is_gone() {
    for (found, expected) in [
        (json!({"uid": "before"}), true),
        (json!({"uid": "now"}), false),
        // As of a proxy that answers with any JSON.
        (json!({}), true),
    ] {
        let cluster: ObjectMeta = serde_json::from_value(found).unwrap();
        assert_eq!(may_have_uid(&cluster, "before"), expected, "{cluster:?}");
    }
}

#[test]
fn only_what_stays_so_long_enough_is_due() {
    let of = |name: &str, uid: &str| Instance {
        namespace: "tenant".to_owned(),
        name: name.to_owned(),
        maker: maker("gone", None),
        uid: Some(uid.to_owned()),
    };
    let instance = |name: &str| of(name, "u");
    let (both, one) = ([instance("a"), instance("b")].into(), [instance("a")].into());
    let (begun, ownerless_for) = (Instant::now(), Duration::from_mins(20));
    let mut times = DeletionTimes::default();
    assert_eq!(times.due(&both, begun, ownerless_for), []);
    assert_eq!(times.due(&one, begun + ownerless_for / 2, ownerless_for), []);
    // The other one was owned meanwhile.
    let at = begun + ownerless_for;
    assert_eq!(times.due(&both, at, ownerless_for), [instance("a")]);
    // Its deletion has failed.
    assert_eq!(times.due(&both, at + MAX_RETRY_DELAY / 2, ownerless_for), []);
    assert_eq!(
        times.due(&both, at + MAX_RETRY_DELAY, ownerless_for),
        [instance("a")]
    );
    assert_eq!(
        times.due(&both, at + ownerless_for, ownerless_for),
        [instance("a"), instance("b")]
    );
    // Another one of that name was restored.
    let restored = [of("a", "v")].into();
    assert_eq!(times.due(&restored, at + ownerless_for * 2, ownerless_for), []);
    assert_eq!(
        times.due(&restored, at + ownerless_for * 3, ownerless_for),
        [of("a", "v")]
    );
}

#[test]
fn only_what_was_made_for_the_cluster_is_deleted() {
    let found = |labels: Value, owner: Option<&str>| -> ObjectMeta {
        let owner = owner.map(|kind| json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u"}]));
        serde_json::from_value(json!({"name": "lb", "labels": labels, "ownerReferences": owner})).unwrap()
    };
    let ours = || json!({(labels::PART_OF): labels::PART_OF_SIP, (labels::CLUSTER_NAME): "shop"});
    let shop = maker("shop", None);
    assert!(is_left_by(&found(ours(), None), &shop));
    assert!(is_left_by(&found(ours(), Some("Job")), &shop));
    for other in [
        found(ours(), Some("SIPCluster")),
        found(json!(null), None),
        found(json!({(labels::CLUSTER_NAME): "shop"}), None),
        found(json!({(labels::PART_OF): labels::PART_OF_SIP}), None),
        found(
            json!({(labels::PART_OF): labels::PART_OF_SIP, (labels::CLUSTER_NAME): "bank"}),
            None,
        ),
    ] {
        assert!(!is_left_by(&other, &shop), "{other:?}");
    }
}

#[test]
fn only_what_the_former_cluster_still_owns_is_deleted() {
    let found = |owners: &Value, ending: Option<&str>| -> ObjectMeta {
        let metadata = json!({
            "name": "lb", "labels": labels_of("shop"), "ownerReferences": owners, "deletionTimestamp": ending,
        });
        serde_json::from_value(metadata).unwrap()
    };
    let former = maker("shop", Some("before"));
    let owned = json!([owner("shop", "before")]);
    assert!(is_left_by(&found(&owned, None), &former));
    for other in [
        found(&owned, Some("2026-01-01T00:00:00Z")),
        found(&json!([owner("shop", "live")]), None),
        found(&json!([owner("shop", "before"), owner("shop", "live")]), None),
        found(&json!([]), None),
        // The garbage collector would keep it for its other owner.
        found(
            &json!([
                owner("shop", "before"),
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"},
            ]),
            None,
        ),
    ] {
        assert!(!is_left_by(&other, &former), "{other:?}");
    }
}
