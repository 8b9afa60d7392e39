use super::*;
use crate::tenant_nodes::fixtures::{node, wanted};

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn silent(text: &str) -> Problem {
    Problem {
        passes: true,
        message: text.to_owned(),
    }
}

#[test]
fn slow_clusters_take_their_own_share() {
    let nodes = TenantNodes::default();
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    for name in ["a", "b", "c", "d"] {
        nodes.want(&key("slow", name), Some(wanted(&["h1"])));
    }
    nodes.want(&key("zoo", "quick"), Some(wanted(&["h1"])));
    let (begun, next) = nodes.begin(at(0), 8, 2);
    let names: Vec<&str> = begun.iter().map(|begun| &*begun.cluster.name).collect();
    assert_eq!((names, next), (vec!["a", "b", "quick"], None));
    let end = |key: &ObjectKey, from, to| {
        nodes.end(key, &wanted(&["h1"]), (at(from), at(to)), Err(silent("x")));
    };
    end(&key("zoo", "quick"), 0, 1);
    end(&key("slow", "a"), 0, 8);
    let (begun, next) = nodes.begin(at(8), 8, 2);
    let names: Vec<&str> = begun.iter().map(|begun| &*begun.cluster.name).collect();
    assert_eq!((names, next), (vec!["c"], Some(at(11))));
    // It took 8 s, and so it waits 72 s, whatever is wanted.
    nodes.want(&key("slow", "a"), Some(wanted(&["h1", "h2"])));
    nodes.want(&key("zoo", "quick"), Some(wanted(&["h1", "h2"])));
    end(&key("slow", "b"), 0, 8);
    end(&key("slow", "c"), 8, 9);
    let (begun, _) = nodes.begin(at(10), 8, 2);
    let names: Vec<&str> = begun.iter().map(|begun| &*begun.cluster.name).collect();
    assert_eq!(names, ["d", "quick"], "something else is wanted of one");
}

#[test]
fn the_same_wish_is_polled_after_the_usual_pause() {
    let nodes = TenantNodes::default();
    let start = Instant::now();
    let cluster = key("tenant", "one");
    nodes.want(&cluster, Some(wanted(&["h1"])));
    assert_eq!(nodes.begin(start, 8, 2).0.len(), 1);
    nodes.end(&cluster, &wanted(&["h1"]), (start, start), Err(silent("x")));
    nodes.want(&cluster, Some(wanted(&["h1"])));
    assert_eq!(nodes.begin(start + SOON, 8, 2), (vec![], Some(start + PAUSE)));
    nodes.want(&cluster, None);
    assert_eq!(nodes.begin(start + PAUSE, 8, 2), (vec![], None));
}

#[test]
fn a_drain_to_which_no_poll_came_is_as_it_was() {
    let nodes = TenantNodes::default();
    let start = Instant::now();
    let (cluster, mut wanted) = (key("tenant", "one"), wanted(&["h1", "h2"]));
    for member in &mut wanted.members {
        member.action = Action::Drain;
    }
    nodes.want(&cluster, Some(wanted.clone()));
    let end = |drains: &[(&str, Drain)]| {
        let drains = drains.iter();
        let found = Found {
            nodes: Vec::new(),
            drains: drains
                .map(|(uid, drain)| ((*uid).to_owned(), drain.clone()))
                .collect(),
        };
        nodes.end(&cluster, &wanted, (start, start), Ok(found));
        nodes.report(&cluster).drains
    };
    let drained = Drain::Drained { node: "a".to_owned() };
    end(&[("uid-h1", drained.clone()), ("uid-h3", Drain::NoNode)]);
    let drains = end(&[("uid-h2", Drain::NoNode)]);
    let expected = [
        ("uid-h1".to_owned(), drained),
        ("uid-h2".to_owned(), Drain::NoNode),
    ];
    assert_eq!(drains, expected.into());
    nodes.end(&cluster, &wanted, (start, start), Err(silent("x")));
    assert!(
        nodes.report(&cluster).drains.is_empty(),
        "nothing is known any more"
    );
}

#[test]
fn a_report_changes_only_when_something_has_changed() {
    let nodes = TenantNodes::default();
    let start = Instant::now();
    let (cluster, wanted) = (key("tenant", "one"), wanted(&["h1"]));
    nodes.want(&cluster, Some(wanted.clone()));
    let end = |seconds, found| {
        let now = start + Duration::from_secs(seconds);
        nodes.end(&cluster, &wanted, (now, now), found)
    };
    let found = || {
        Ok(Found {
            nodes: vec![node("a", "", &["192.0.2.1"])],
            drains: BTreeMap::new(),
        })
    };
    assert!(end(0, found()) && !end(10, found()));
    assert!(end(20, Err(silent("first"))));
    assert_eq!(nodes.report(&cluster).lasting_problem, None);
    end(80, Err(silent("second")));
    let lasting = || nodes.report(&cluster).lasting_problem;
    assert_eq!(lasting().as_deref(), Some("second"));
    end(90, Err(silent("third")));
    assert_eq!(
        lasting().as_deref(),
        Some("second"),
        "it is not told anew each time"
    );
    let secret = Problem {
        passes: false,
        message: "it does not exist".to_owned(),
    };
    end(100, Err(secret.clone()));
    end(105, Err(secret));
    assert_eq!(lasting().as_deref(), Some("it does not exist"));
    end(110, found());
    assert_eq!(lasting(), None);
}

#[test]
fn only_a_refusal_that_lasts_does_not_pass() {
    let nodes = TenantNodes::default();
    let start = Instant::now();
    let (cluster, wanted) = (key("tenant", "one"), wanted(&["h1"]));
    nodes.want(&cluster, Some(wanted.clone()));
    let refused = || Problem {
        passes: false,
        message: "no".to_owned(),
    };
    let found = || Found {
        nodes: Vec::new(),
        drains: BTreeMap::new(),
    };
    for (at, found, passes) in [
        (0, Err(refused()), Some(true)),
        (10, Err(refused()), Some(false)),
        (20, Err(refused()), Some(false)),
        (30, Ok(found()), None),
        (40, Err(refused()), Some(true)),
        (50, Err(silent("x")), Some(true)),
        (60, Err(refused()), Some(true)),
        (70, Err(refused()), Some(false)),
    ] {
        let now = start + Duration::from_secs(at);
        nodes.end(&cluster, &wanted, (now, now), found);
        let problem = nodes.report(&cluster).problem;
        assert_eq!(problem.map(|problem| problem.passes), passes, "{at}");
    }
}
