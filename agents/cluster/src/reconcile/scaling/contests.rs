//! Detects objects whose replicas another writer changes repeatedly: if the agent kept setting them, each change would delete and create
//! Machines.
//!
//! Kept in memory only: after a restart the agent sets the replicas of a contested object a few times more.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use kit::placement::ClusterId;

use super::{
    lookup::Lookup,
    object::{Object, OtherOwner},
};

/// The agent stops setting the replicas of an object after so many changes by others within [`CONTEST_WINDOW`], until the spec changes.
const MAX_FOREIGN_CHANGES: usize = 3;
/// See [`MAX_FOREIGN_CHANGES`].
const CONTEST_WINDOW: Duration = Duration::from_mins(10);
/// Objects that are recorded at most.
const MAX_OBJECTS: usize = 1_024;

/// The spec for which the agent sets replicas. Counting starts anew with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::reconcile) struct Spec {
    pub(in crate::reconcile) cluster: ClusterId,
    pub(in crate::reconcile) generation: Option<i64>,
}

/// The objects whose replicas this agent has set recently, by their uid.
#[derive(Debug, Default)]
pub struct Contests {
    objects: Mutex<BTreeMap<String, Contest>>,
}

#[derive(Debug)]
struct Contest {
    spec: Spec,
    /// What this agent has set; `None` once another writer has changed it.
    set: Option<u32>,
    /// When others have changed it, [`MAX_FOREIGN_CHANGES`] at most.
    changes: Vec<Instant>,
    /// When this agent has set it last.
    at: Instant,
}

impl Contests {
    /// Records that this agent has set the replicas of the object with this uid.
    pub(in crate::reconcile) fn set(&self, spec: &Spec, (uid, replicas): (&str, u32), now: Instant) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = objects.remove(uid).filter(|contest| contest.spec == *spec);
        let oldest = objects.iter().min_by_key(|(_, contest)| contest.at);
        let oldest = oldest.map(|(uid, _)| uid.clone());
        if let Some(oldest) = oldest.filter(|_| objects.len() >= MAX_OBJECTS) {
            objects.remove(&oldest);
        }
        let contest = Contest {
            spec: spec.clone(),
            set: Some(replicas),
            changes: changes.map(|contest| contest.changes).unwrap_or_default(),
            at: now,
        };
        objects.insert(uid.to_owned(), contest);
    }

    /// Adds to what was read of an object that another writer repeatedly changes its replicas, if one does.
    pub(in crate::reconcile) fn observe(&self, spec: &Spec, lookup: Lookup, now: Instant) -> Lookup {
        let Lookup::Found(mut object, template) = lookup else {
            return lookup;
        };
        if self.is_contested(spec, &object, now) {
            let who = object.set_by.as_deref().unwrap_or("another writer");
            let minutes = CONTEST_WINDOW.as_secs() / 60;
            let cause = format!(
                "{who} changed it {MAX_FOREIGN_CHANGES} times within {minutes} minutes, so this agent does not set it until the spec of the SIPCluster changes"
            );
            let owner = OtherOwner::applying(who, cause);
            object.other_owner.get_or_insert(owner);
        }
        Lookup::Found(object, template)
    }

    fn is_contested(&self, spec: &Spec, object: &Object, now: Instant) -> bool {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        // Another `SIPCluster` may name the object, too, and reaches this before it is known that the object is not its own.
        let contest = objects.get_mut(&object.id.uid);
        let Some(contest) = contest.filter(|contest| contest.spec == *spec) else {
            return false;
        };
        if contest.changes.len() < MAX_FOREIGN_CHANGES {
            contest
                .changes
                .retain(|at| now.duration_since(*at) < CONTEST_WINDOW);
            if contest.set.is_some_and(|set| set != object.replicas) {
                contest.set = None;
                contest.changes.push(now);
            }
        }
        contest.changes.len() >= MAX_FOREIGN_CHANGES
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::object_id, *};

    fn spec(generation: i64) -> Spec {
        Spec {
            cluster: crate::fixtures::reference(),
            generation: Some(generation),
        }
    }

    fn found(replicas: u32) -> Lookup {
        let object = Object {
            id: object_id(),
            replicas,
            cluster: None,
            template: None,
            is_paused: false,
            is_deleting: false,
            other_owner: None,
            set_by: Some("field manager hpa".to_owned()),
        };
        Lookup::Found(Box::new(object), None)
    }

    /// Who sets the replicas of the object, as it is read at this second.
    fn owner(contests: &Contests, spec: &Spec, replicas: u32, now: Instant) -> Option<String> {
        match contests.observe(spec, found(replicas), now) {
            Lookup::Found(object, _) => object.other_owner.map(|owner| owner.cause),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_number_that_is_changed_three_times_is_left_alone() {
        let begun = Instant::now();
        // Seconds between two turns, whether the object is read twice in each, and in which turn it is left.
        for (pause, reads, left_in) in [
            (60, 1, Some(3)),
            (60, 3, Some(3)),
            (10, 1, Some(3)),
            (400, 1, None),
        ] {
            let (contests, spec) = (Contests::default(), spec(1));
            let mut left = None;
            for turn in 1..=6 {
                let now = begun + Duration::from_secs(turn * pause);
                contests.set(&spec, ("u", 3), now);
                assert_eq!(owner(&contests, &spec, 3, now), None, "as it was set");
                let owners: Vec<_> = (0..reads).map(|_| owner(&contests, &spec, 2, now)).collect();
                if owners.iter().any(Option::is_some) {
                    left = Some(turn);
                    break;
                }
            }
            assert_eq!(left, left_in, "{pause} {reads}");
        }
    }

    #[test]
    fn it_is_left_until_the_spec_changes() {
        let (contests, begun) = (Contests::default(), Instant::now());
        let key = crate::fixtures::key("stranger");
        let stranger = Spec {
            cluster: ClusterId::new(key, "uid-stranger"),
            ..spec(1)
        };
        for _ in 0..MAX_FOREIGN_CHANGES {
            contests.set(&spec(1), ("u", 3), begun);
            assert_eq!(owner(&contests, &stranger, 2, begun), None);
            owner(&contests, &spec(1), 2, begun);
        }
        assert_eq!(owner(&contests, &stranger, 2, begun), None);
        let later = begun + 100 * CONTEST_WINDOW;
        let why = owner(&contests, &spec(1), 2, later).unwrap();
        assert!(
            why.starts_with("field manager hpa changed it 3 times within 10 minutes"),
            "{why}"
        );
        assert_eq!(owner(&contests, &spec(2), 2, later), None);
        contests.set(&spec(2), ("u", 3), later);
        assert_eq!(owner(&contests, &spec(2), 2, later), None, "it begins anew");
    }

    #[test]
    fn the_objects_that_are_remembered_are_bounded() {
        let (contests, begun) = (Contests::default(), Instant::now());
        for number in 0..=MAX_OBJECTS {
            let now = begun + Duration::from_millis(u64::try_from(number).unwrap());
            contests.set(&spec(1), (&format!("u{number}"), 3), now);
        }
        let objects = contests.objects.lock().unwrap();
        assert_eq!(objects.len(), MAX_OBJECTS);
        assert!(!objects.contains_key("u0"));
    }
}
