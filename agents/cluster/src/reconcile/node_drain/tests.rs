use api::MemberState::{self, Bound, Releasing};
use kit::placement::ObjectKey;
use serde_json::{Value, json};

use super::*;
use crate::{
    fixtures::{answer, cluster, host, labelled, with},
    reconcile::{fixtures::holding, members::assess_all},
};

const DRAIN_FOR: Duration = Duration::from_mins(10);

/// A cluster that names a kubeconfig, and of which the status has a worker that has been leaving since this second.
fn object(since: i64) -> SIPCluster {
    let since = Timestamp::from_second(since).unwrap().to_string();
    let member = |name: &str, state: &str| {
        json!({
            "namespace": "metal", "name": name, "uid": format!("uid-{name}"), "role": "Worker", "state": state,
            "revision": 5, "since": since,
        })
    };
    let mut object = cluster(&json!({
        "placement": {
            "epoch": 1, "revision": 5, "generation": 3,
            "members": [member("h1", "Releasing"), member("h2", "Bound")],
        },
        "tenantNodes": {"notPreferred": [
            {"namespace": "metal", "name": "h2", "uid": "uid-h2", "node": "w-2", "reason": "KubeletNotReady"},
        ]},
    }));
    let services = object.spec.services.iter_mut();
    for jump_host in services.flat_map(|services| &mut services.jump_host).flatten() {
        jump_host.kubeconfig_secret = Some("one-kubeconfig".to_owned());
    }
    object
}

/// What a poll has shown of the Node of `h1`.
fn report(drain: Option<Drain>, problem: Option<bool>) -> Report {
    let drains = drain.into_iter().map(|drain| ("uid-h1".to_owned(), drain));
    Report {
        is_polled: true,
        problem: problem.map(|passes| Problem {
            passes,
            message: "so not".to_owned(),
        }),
        drains: drains.collect(),
        ..Report::default()
    }
}

/// The same where the host waits so many seconds more for the deletion of its Node.
fn deleted(left: u64, report: Report) -> Report {
    Report {
        deletions: [("uid-h1".to_owned(), Duration::from_secs(left))].into(),
        ..report
    }
}

fn leaving(host: Value) -> Vec<Value> {
    vec![host, labelled(crate::fixtures::host("h2"), "one", "Worker")]
}

struct Outcome {
    action: Action,
    /// What the host waits for.
    waits: Option<String>,
    requeue: Option<Duration>,
    /// How many hosts go without their Node.
    left: usize,
}

/// The worker `h1` on this host leaves, has done so for these seconds, and no pod routes to it if it is `drained`.
fn after(seconds: i64, hosts: Vec<Value>, drained: bool, report: Report) -> Outcome {
    let object = object(1_000);
    let parsed = Cluster::parse(&object).unwrap();
    let mut holding = holding(vec![answer("h1", Releasing), answer("h2", Bound)], false, hosts);
    holding.nodes = Nodes {
        report,
        drain_for: DRAIN_FOR,
    };
    let mut members = assess_all(&holding, |_| drained);
    let now = Timestamp::from_second(1_000 + seconds).unwrap();
    let planned = plan(&object, &parsed, (&holding, &mut members), now);
    let wanted = planned.wanted.unwrap();
    assert_eq!(wanted.members[1].action, Action::Keep);
    assert_eq!(
        (wanted.members[0].is_balanced, wanted.members[1].is_balanced),
        (false, true)
    );
    Outcome {
        action: wanted.members[0].action,
        waits: members.iter().find_map(|member| match &member.assessment {
            Assessment::NodeDrains(why) => Some(why.clone()),
            _ => None,
        }),
        requeue: planned.requeue,
        left: planned.left.len(),
    }
}

fn draining() -> Drain {
    Drain::Draining {
        node: "w-1".to_owned(),
        left: "pods left: 2".to_owned(),
    }
}

fn drained() -> Drain {
    Drain::Drained {
        node: "w-1".to_owned(),
    }
}

/// What is done to the Node, what the host waits for, for how many seconds, and whether an Event states that it goes without.
type Row = (
    &'static str,
    i64,
    Option<Drain>,
    Option<bool>,
    Action,
    Option<&'static str>,
    Option<u64>,
    usize,
);

fn check(rows: impl IntoIterator<Item = Row>) {
    for (what, seconds, drain, problem, action, waits, requeue, event) in rows {
        let hosts = leaving(labelled(host("h1"), "one", "Worker"));
        let outcome = after(seconds, hosts, true, report(drain, problem));
        assert_eq!(outcome.action, action, "{what}");
        match waits {
            Some(part) => {
                let found = outcome.waits.unwrap_or_default();
                assert!(found.contains(part), "{what}: {found}");
            }
            None => assert_eq!(outcome.waits, None, "{what}"),
        }
        assert_eq!(outcome.requeue, requeue.map(Duration::from_secs), "{what}");
        assert_eq!(outcome.left, event, "{what}");
    }
}

#[test]
fn a_host_waits_for_its_node() {
    let refused = || {
        Some(Drain::Refused {
            node: "w-1".to_owned(),
            why: "no".to_owned(),
        })
    };
    check([
        (
            "it is not known yet",
            1,
            None,
            None,
            Action::Drain,
            Some("its Node is to be drained"),
            Some(599),
            0,
        ),
        (
            "pods left",
            10,
            Some(draining()),
            None,
            Action::Drain,
            Some("its Node w-1 is being drained: pods left: 2"),
            Some(590),
            0,
        ),
        (
            "no pod is left",
            10,
            Some(drained()),
            None,
            Action::Delete,
            Some("not deleted yet"),
            Some(590),
            0,
        ),
        (
            "it is gone",
            10,
            Some(Drain::NoNode),
            None,
            Action::Drain,
            None,
            None,
            0,
        ),
        (
            "it is Cluster API's",
            10,
            Some(Drain::ClusterApi),
            None,
            Action::Drain,
            None,
            None,
            0,
        ),
        ("it is refused", 10, refused(), None, Action::Drain, None, None, 1),
        (
            "there is no kubeconfig",
            10,
            None,
            Some(false),
            Action::Drain,
            None,
            None,
            0,
        ),
    ]);
}

#[test]
fn a_deletion_is_tried_however_long_the_host_was_leaving() {
    check([
        (
            "no pod is left",
            599,
            Some(drained()),
            None,
            Action::Delete,
            Some("its Node w-1 is drained and not deleted yet"),
            Some(180),
            0,
        ),
        (
            "finalizers hold it",
            599,
            Some(Drain::Deleting {
                node: "w-1".to_owned(),
            }),
            None,
            Action::Delete,
            Some("the deletion of its Node w-1 is not complete"),
            Some(180),
            0,
        ),
        (
            "it was in use for longer than the whole wait",
            10_000,
            Some(drained()),
            None,
            Action::Delete,
            Some("its Node w-1 is drained and not deleted yet"),
            Some(180),
            0,
        ),
        (
            "pods were left for the whole time",
            600,
            Some(draining()),
            None,
            Action::Delete,
            Some("drained for 600 s, and is not deleted yet: pods left: 2"),
            Some(180),
            0,
        ),
        (
            "the server is silent",
            599,
            None,
            Some(true),
            Action::Drain,
            Some("cannot be drained now: so not"),
            Some(1),
            0,
        ),
        (
            "it was silent for the whole time",
            600,
            None,
            Some(true),
            Action::Delete,
            Some("cannot be deleted now: so not"),
            Some(180),
            0,
        ),
    ]);
    // The agent starts again.
    let hosts = leaving(labelled(host("h1"), "one", "Worker"));
    let outcome = after(700, hosts, true, Report::default());
    assert_eq!((outcome.action, outcome.left), (Action::Delete, 0));
    assert_eq!(outcome.waits.as_deref(), Some("its Node is to be deleted"));
}

#[test]
fn the_wait_for_a_node_ends_after_the_stated_time() {
    // For how long it is leaving, for how long it waits for the deletion, and what is left of the whole wait.
    for (seconds, deletion, expected) in [
        (10, 30, Some(590)),
        (10, 0, Some(590)),
        (590, 30, Some(30)),
        (599, 0, Some(1)),
        (600, 0, None),
        (10_000, 1, Some(1)),
        (10_000, 0, None),
    ] {
        let hosts = leaving(labelled(host("h1"), "one", "Worker"));
        let report = deleted(deletion, report(Some(drained()), None));
        let outcome = after(seconds, hosts, true, report);
        let what = format!("after {seconds} s, {deletion} s for the deletion");
        assert_eq!(outcome.action, Action::Delete, "{what}");
        assert_eq!(outcome.requeue, expected.map(Duration::from_secs), "{what}");
        assert_eq!(outcome.waits.is_some(), expected.is_some(), "{what}");
        assert_eq!(outcome.left, usize::from(expected.is_none()), "{what}");
    }
    for known in [
        report(Some(draining()), None),
        report(None, Some(true)),
        report(None, None),
    ] {
        let hosts = leaving(labelled(host("h1"), "one", "Worker"));
        let outcome = after(600, hosts, true, deleted(0, known));
        assert_eq!(
            (outcome.action, outcome.waits, outcome.left),
            (Action::Delete, None, 1)
        );
    }
}

#[test]
fn time_releases_no_host() {
    let own = |object: Value| labelled(object, "one", "Worker");
    let other = json!({"apiVersion": "example.org/v1", "kind": "Server", "namespace": "x", "name": "s"});
    // Much later than every wait: the host is in use, or a pod routes to it.
    for (what, object, drained) in [
        ("in use", with(own(host("h1")), "/spec/consumerRef", other), true),
        ("routed to", own(host("h1")), false),
    ] {
        let outcome = after(100_000, leaving(object), drained, report(Some(draining()), None));
        assert_eq!((outcome.action, outcome.waits), (Action::Drain, None), "{what}");
        assert_eq!(outcome.left, 0, "{what}");
    }
}

#[test]
fn a_node_of_cluster_api_is_left_to_it() {
    let own = labelled(host("h1"), "one", "Worker");
    for (version, kind) in [
        ("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3Machine"),
        ("metal3.io/v1alpha1", "HostClaim"),
    ] {
        let consumer = json!({"apiVersion": version, "kind": kind, "namespace": "metal", "name": "m-0"});
        let used = with(own.clone(), "/spec/consumerRef", consumer);
        let outcome = after(10, leaving(used), true, report(Some(draining()), None));
        assert_eq!((outcome.action, outcome.waits), (Action::Leave, None), "{kind}");
    }
}

#[test]
fn what_was_never_given_waits_for_no_node() {
    let outcome = after(0, leaving(host("h1")), true, report(None, Some(true)));
    assert_eq!((outcome.action, outcome.waits), (Action::Leave, None));
}

#[test]
fn a_host_that_is_gone_waits_for_its_node() {
    let outcome = after(10, leaving(host("h3")), true, report(Some(drained()), None));
    assert_eq!(outcome.action, Action::Delete);
    assert!(outcome.waits.is_some());
}

#[test]
fn without_a_time_nodes_are_left_alone() {
    let object = object(1_000);
    let parsed = Cluster::parse(&object).unwrap();
    let hosts = leaving(labelled(host("h1"), "one", "Worker"));
    let holding = holding(vec![answer("h1", Releasing), answer("h2", Bound)], false, hosts);
    let mut members = assess_all(&holding, |_| true);
    let planned = plan(&object, &parsed, (&holding, &mut members), Timestamp::now());
    assert_eq!(planned.wanted.unwrap().members[0].action, Action::Leave);
    assert!(
        members
            .iter()
            .all(|member| !matches!(member.assessment, Assessment::NodeDrains(_)))
    );
}

#[test]
fn without_a_kubeconfig_nothing_is_wanted() {
    let object = cluster(&json!({}));
    let parsed = Cluster::parse(&object).unwrap();
    let holding = holding(vec![answer("h1", MemberState::Bound)], false, vec![]);
    let mut members = assess_all(&holding, |_| true);
    let planned = plan(&object, &parsed, (&holding, &mut members), Timestamp::now());
    assert!(planned.wanted.is_none());
    assert_eq!(tenant_nodes(&object, None, &report(None, None)), None);
}

#[test]
fn without_members_nothing_is_wanted() {
    let object = object(1_000);
    let parsed = Cluster::parse(&object).unwrap();
    let holding = holding(vec![], true, vec![]);
    let planned = plan(&object, &parsed, (&holding, &mut []), Timestamp::now());
    assert!(planned.wanted.is_none());
}

#[test]
fn the_status_stays_until_a_poll_has_ended() {
    let object = object(0);
    let parsed = Cluster::parse(&object).unwrap();
    let holding = holding(vec![answer("h2", Bound)], false, vec![]);
    let mut members = assess_all(&holding, |_| true);
    let wanted = plan(&object, &parsed, (&holding, &mut members), Timestamp::now())
        .wanted
        .unwrap();
    let known = wanted.known.not_preferred.clone();
    assert_eq!(known[0].node, "w-2");
    let key = ObjectKey::for_object(&object);
    assert_eq!((&*key.namespace, &*wanted.secret), ("tenant", "one-kubeconfig"));
    let status = |report: &Report| tenant_nodes(&object, Some(&wanted), report).unwrap();
    assert_eq!(status(&Report::default()).not_preferred, known);
    assert!(status(&report(None, None)).not_preferred.is_empty());
}
