use super::{
    cluster::{MAX_BACKOFF, POLL_INTERVAL},
    *,
};
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

fn missing() -> Problem {
    Problem {
        passes: false,
        message: "it does not exist".to_owned(),
    }
}

fn found(drains: &[(&str, Drain)]) -> Observation {
    let drains = drains.iter();
    Observation {
        nodes: vec![node("a", "", &["192.0.2.1"])],
        drains: drains
            .map(|(uid, drain)| ((*uid).to_owned(), drain.clone()))
            .collect(),
    }
}

/// Polls at given seconds.
struct Scene {
    nodes: TenantNodes,
    start: Instant,
}

impl Scene {
    fn new() -> Self {
        Self {
            nodes: TenantNodes::default(),
            start: Instant::now(),
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn set_wanted(&self, seconds: u64, key: &ObjectKey, wanted: Wanted) {
        self.nodes.set_wanted(key, Some(wanted), self.at(seconds));
    }

    /// Polls begin, of 8 places and 2 for a namespace. Returns them, and after how many seconds the next is due.
    fn begin(&self, seconds: u64) -> (Vec<Begun>, Option<Duration>) {
        let (begun, next) = self.nodes.begin(self.at(seconds), 8, 2);
        (begun, next.map(|next| next - self.at(seconds)))
    }

    /// One poll begins.
    fn one(&self, seconds: u64) -> Begun {
        let (mut begun, _) = self.begin(seconds);
        assert_eq!(begun.len(), 1, "after {seconds} s");
        begun.remove(0)
    }

    fn end(&self, begun: &Begun, (from, to): (u64, u64), found: Result<Observation, Problem>) -> bool {
        self.nodes.end(begun, (self.at(from), self.at(to)), found)
    }

    /// A poll that takes no time.
    fn poll(&self, seconds: u64, found: Result<Observation, Problem>) -> bool {
        self.end(&self.one(seconds), (seconds, seconds), found)
    }

    fn report(&self, seconds: u64, key: &ObjectKey) -> Report {
        self.nodes.report(key, self.at(seconds))
    }
}

fn names(begun: &[Begun]) -> Vec<&str> {
    begun.iter().map(|begun| &*begun.cluster.name).collect()
}

#[test]
fn slow_clusters_take_their_own_share() {
    let scene = Scene::new();
    for name in ["a", "b", "c", "d"] {
        scene.set_wanted(0, &key("slow", name), wanted(&["h1"]));
    }
    scene.set_wanted(0, &key("zoo", "quick"), wanted(&["h1"]));
    let (first, next) = scene.begin(0);
    assert_eq!((names(&first), next), (vec!["a", "b", "quick"], None));
    let end = |begun: &Begun, from, to| scene.end(begun, (from, to), Err(silent("x")));
    end(&first[2], 0, 1);
    end(&first[0], 0, 8);
    let (second, next) = scene.begin(8);
    assert_eq!((names(&second), next), (vec!["c"], Some(Duration::from_secs(3))));
    // It took 8 s, and so it waits 72 s, whatever is wanted.
    scene.set_wanted(8, &key("slow", "a"), wanted(&["h1", "h2"]));
    scene.set_wanted(8, &key("zoo", "quick"), wanted(&["h1", "h2"]));
    end(&first[1], 0, 8);
    end(&second[0], 8, 9);
    let (third, _) = scene.begin(10);
    assert_eq!(names(&third), ["d", "quick"], "something else is wanted of one");
}

#[test]
fn what_is_forgotten_keeps_its_share_and_its_rest() {
    let scene = Scene::new();
    let cluster = key("slow", "a");
    scene.set_wanted(0, &cluster, wanted(&["h1"]));
    let first = scene.one(0);
    // Its poll runs: another one begins neither beside it, nor for another Secret.
    for second in 1..5 {
        scene.nodes.set_wanted(&cluster, None, scene.at(second));
        assert_eq!(scene.begin(second), (vec![], None));
        let other = Wanted {
            secret: format!("other-{second}"),
            ..wanted(&["h1"])
        };
        scene.set_wanted(second, &cluster, other);
        assert_eq!(scene.begin(second), (vec![], None));
    }
    // What the first Secret gave says nothing of another one.
    assert!(!scene.end(&first, (0, 15), Ok(found(&[("uid-h1", Drain::NoNode)]))));
    assert_eq!(scene.report(15, &cluster), Report::default());
    // It took 15 s, and so it rests for 135 s.
    scene.nodes.set_wanted(&cluster, None, scene.at(16));
    assert_eq!(scene.begin(20), (vec![], None));
    scene.set_wanted(21, &cluster, wanted(&["h1"]));
    assert_eq!(scene.begin(149), (vec![], Some(Duration::from_secs(1))));
    assert_eq!(scene.begin(150).0.len(), 1);
}

#[test]
fn what_no_cluster_is_any_more_is_not_kept() {
    let scene = Scene::new();
    let cluster = key("tenant", "one");
    scene.set_wanted(0, &cluster, wanted(&["h1"]));
    scene.nodes.is_gone(&scene.one(0));
    assert_eq!(scene.begin(1), (vec![], None));
    scene.set_wanted(2, &cluster, wanted(&["h1"]));
    scene.poll(2, Ok(found(&[])));
}

#[test]
fn the_same_wish_is_polled_after_the_usual_pause() {
    let scene = Scene::new();
    let cluster = key("tenant", "one");
    scene.set_wanted(0, &cluster, wanted(&["h1"]));
    scene.poll(0, Err(silent("x")));
    scene.set_wanted(0, &cluster, wanted(&["h1"]));
    assert_eq!(
        scene.begin(1),
        (vec![], POLL_INTERVAL.checked_sub(Duration::from_secs(1)))
    );
    scene.nodes.set_wanted(&cluster, None, scene.at(1));
    assert_eq!(scene.begin(10), (vec![], None));
}

#[test]
fn what_somebody_has_to_change_is_polled_more_rarely() {
    let scene = Scene::new();
    let cluster = key("tenant", "one");
    scene.set_wanted(0, &cluster, wanted(&["h1"]));
    let mut now = 0;
    for pause in [10, 20, 40, 80, 120, 120] {
        scene.poll(now, Err(missing()));
        assert_eq!(scene.begin(now), (vec![], Some(Duration::from_secs(pause))));
        now += pause;
    }
    assert_eq!(MAX_BACKOFF, Duration::from_mins(2));
    // Another Secret is read at once, and what passes is tried again after the usual pause.
    scene.poll(now, Err(missing()));
    let other = Wanted {
        secret: "other".to_owned(),
        ..wanted(&["h1"])
    };
    scene.set_wanted(now, &cluster, other);
    scene.poll(now + 1, Err(silent("x")));
    assert_eq!(scene.begin(now + 1), (vec![], Some(POLL_INTERVAL)));
}

#[test]
fn a_drain_to_which_no_poll_came_is_as_it_was() {
    let scene = Scene::new();
    let (cluster, mut wanted) = (key("tenant", "one"), wanted(&["h1", "h2"]));
    for member in &mut wanted.members {
        member.action = Action::Drain;
    }
    scene.set_wanted(0, &cluster, wanted);
    let drained = Drain::Drained { node: "a".to_owned() };
    scene.poll(
        0,
        Ok(found(&[("uid-h1", drained.clone()), ("uid-h3", Drain::NoNode)])),
    );
    scene.poll(10, Ok(found(&[("uid-h2", Drain::NoNode)])));
    let expected = [
        ("uid-h1".to_owned(), drained),
        ("uid-h2".to_owned(), Drain::NoNode),
    ];
    assert_eq!(scene.report(10, &cluster).drains, expected.into());
    scene.poll(20, Err(silent("x")));
    assert!(
        scene.report(20, &cluster).drains.is_empty(),
        "nothing is known any more"
    );
}

#[test]
fn a_deletion_has_its_time_from_when_it_is_tried() {
    let scene = Scene::new();
    let cluster = key("tenant", "one");
    let wanted = |action| {
        let mut wanted = wanted(&["h1", "h2"]);
        for member in &mut wanted.members {
            member.action = action;
        }
        wanted
    };
    let left = |seconds| {
        let left = scene.report(seconds, &cluster).deletions;
        let of = |uid: &str| left.get(uid).map(Duration::as_secs);
        (of("uid-h1"), of("uid-h2"))
    };
    scene.set_wanted(0, &cluster, wanted(Action::Drain));
    let begun = scene.one(0);
    assert_eq!(left(1), (None, None));
    scene.set_wanted(1, &cluster, wanted(Action::Delete));
    assert_eq!(left(1), (Some(180), Some(180)));
    // That poll was to drain it.
    scene.end(&begun, (0, 2), Ok(found(&[("uid-h1", Drain::NoNode)])));
    assert_eq!(left(2), (Some(179), Some(179)));
    // This poll tried one of the two deletions, which is reported at once.
    let begun = scene.one(20);
    let drained = Drain::Drained { node: "a".to_owned() };
    assert!(scene.end(&begun, (20, 21), Ok(found(&[("uid-h1", drained.clone())]))));
    assert_eq!(left(21), (Some(29), Some(160)));
    scene.set_wanted(25, &cluster, wanted(Action::Delete));
    // Whatever fails, the deletion was tried.
    scene.poll(35, Err(silent("x")));
    assert_eq!(left(40), (Some(10), Some(25)));
    assert_eq!(left(50), (Some(0), Some(15)));
    // Another Secret does not prolong it.
    let other = Wanted {
        secret: "other".to_owned(),
        ..wanted(Action::Delete)
    };
    scene.set_wanted(50, &cluster, other);
    assert_eq!(left(50), (Some(0), Some(15)));
    // It was in use meanwhile.
    scene.set_wanted(60, &cluster, wanted(Action::Drain));
    scene.set_wanted(70, &cluster, wanted(Action::Delete));
    assert_eq!(left(70), (Some(180), Some(180)));
    assert_eq!(left(249), (Some(1), Some(1)), "no poll came");
}

#[test]
fn a_report_changes_only_when_something_has_changed() {
    let scene = Scene::new();
    let cluster = key("tenant", "one");
    scene.set_wanted(0, &cluster, wanted(&["h1"]));
    assert!(scene.poll(0, Ok(found(&[]))) && !scene.poll(10, Ok(found(&[]))));
    let lasting = |seconds| scene.report(seconds, &cluster).lasting_problem;
    // It answers in turns.
    for now in [20, 40, 60] {
        assert!(scene.poll(now, Err(missing())));
        assert_eq!(lasting(now), None);
        scene.poll(now + 10, Ok(found(&[])));
    }
    for now in (80..140).step_by(10) {
        scene.poll(now, Err(silent("first")));
        assert_eq!(lasting(now), None);
    }
    scene.poll(140, Err(silent("second")));
    assert_eq!(lasting(140).as_deref(), Some("second"));
    scene.poll(150, Err(silent("third")));
    scene.poll(160, Ok(found(&[])));
    assert_eq!(lasting(160).as_deref(), Some("second"), "it is not told anew");
    for now in (170..230).step_by(10) {
        scene.poll(now, Ok(found(&[])));
    }
    assert_eq!(lasting(220), None);
}

#[test]
fn what_the_status_has_counts_until_polls_show_more() {
    let scene = Scene::new();
    let cluster = key("tenant", "one");
    let known = api::NotPreferred {
        namespace: "metal".to_owned(),
        name: "h2".to_owned(),
        uid: "uid-h2".to_owned(),
        node: "w-2".to_owned(),
        reason: "KubeletNotReady".to_owned(),
    };
    let known = api::TenantNodes {
        problem: Some("it was silent".to_owned()),
        not_preferred: vec![known],
    };
    let wanted = Wanted {
        known: known.clone(),
        ..wanted(&["h1", "h2"])
    };
    scene.set_wanted(0, &cluster, wanted);
    let has = |seconds| {
        let report = scene.report(seconds, &cluster);
        let status = api::TenantNodes {
            problem: report.lasting_problem,
            not_preferred: report.not_preferred,
        };
        (report.is_polled, status)
    };
    assert_eq!(has(0), (false, known.clone()));
    scene.poll(0, Err(silent("x")));
    assert_eq!(has(0), (true, known.clone()));
    scene.poll(10, Ok(found(&[])));
    assert_eq!(has(10), (true, known), "it is not steady yet");
}

#[test]
fn a_problem_is_as_long_as_a_status_may_have_it() {
    let scene = Scene::new();
    let cluster = key("tenant", "one");
    scene.set_wanted(0, &cluster, wanted(&["h1"]));
    let long = format!("{}\u{1b}[2J", "a".repeat(70_000));
    for now in (0..=60).step_by(10) {
        scene.poll(now, Err(silent(&long)));
    }
    let report = scene.report(60, &cluster);
    let problem = report.problem.unwrap().message;
    assert_eq!(problem.len(), api::TenantNodes::MAX_PROBLEM_BYTES);
    assert_eq!(report.lasting_problem, Some(problem));
}

#[test]
fn only_a_refusal_that_lasts_does_not_pass() {
    let scene = Scene::new();
    let cluster = key("tenant", "one");
    scene.set_wanted(0, &cluster, wanted(&["h1"]));
    for (at, found, passes) in [
        (0, Err(missing()), Some(true)),
        (10, Err(missing()), Some(false)),
        (30, Err(missing()), Some(false)),
        (70, Ok(found(&[])), None),
        (80, Err(missing()), Some(true)),
        (90, Err(silent("x")), Some(true)),
        (100, Err(missing()), Some(true)),
        (110, Err(missing()), Some(false)),
    ] {
        scene.poll(at, found);
        let problem = scene.report(at, &cluster).problem;
        assert_eq!(problem.map(|problem| problem.passes), passes, "{at}");
    }
}

#[test]
fn a_step_that_is_refused_once_is_tried_again() {
    let scene = Scene::new();
    let cluster = key("tenant", "one");
    let node = || "a".to_owned();
    let refused = Drain::Refused {
        node: node(),
        why: "no".to_owned(),
    };
    let draining = Drain::Draining {
        node: node(),
        left: "no".to_owned(),
    };
    let drained = Drain::Drained { node: node() };
    let deleting = Drain::Deleting { node: node() };
    let mut now = 0;
    for (action, shown, expected) in [
        (Action::Drain, Some(&refused), &draining),
        (Action::Drain, Some(&drained), &drained),
        (Action::Delete, Some(&refused), &deleting),
        // The poll did not come to it.
        (Action::Delete, None, &deleting),
        (Action::Delete, Some(&refused), &refused),
        (Action::Delete, Some(&refused), &refused),
    ] {
        let mut wanted = wanted(&["h1"]);
        wanted.members[0].action = action;
        scene.set_wanted(now, &cluster, wanted);
        let shown: Vec<(&str, Drain)> = shown.map(|drain| ("uid-h1", drain.clone())).into_iter().collect();
        scene.poll(now, Ok(found(&shown)));
        assert_eq!(
            scene.report(now, &cluster).drains.get("uid-h1"),
            Some(expected),
            "{now}"
        );
        now += 10;
    }
}
