//! The decision: which releases are confirmed now, and when the others are judged again. No clock, no I/O.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kit::placement::{ObjectKey, Release};

use super::evidence::{Evidence, Released};

/// Time for which a policy must have been observed before it counts: every API server of the site has loaded it by then. An API server loads policies
/// about once a second.
pub(super) const POLICY_LOAD_TIME: Duration = Duration::from_secs(10);

/// What the agent does with a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Confirm it to the scheduler.
    Confirm,
    /// Confirm it to the scheduler if the API server, read again, still shows the host as free.
    ReadAgain,
    /// Wait: a claim may be in flight.
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The host has had no consumer since this time; the release waits.
    Waits { since: Instant },
    /// The wait is over: the cluster was triggered, or the host is read again each time the cluster is judged.
    Triggered { since: Instant },
    /// The agent has confirmed it; the scheduler may not have answered yet.
    Passed,
}

/// The releases that are not complete, by cluster.
#[derive(Debug)]
pub(super) struct Releases {
    in_flight: Duration,
    in_force_since: Option<Instant>,
    /// Whether a log line has announced that the policy is in effect.
    announced: bool,
    clusters: BTreeMap<ObjectKey, BTreeMap<Release, State>>,
}

impl Releases {
    pub(super) fn new(in_flight: Duration) -> Self {
        Self {
            in_flight,
            in_force_since: None,
            announced: false,
            clusters: BTreeMap::new(),
        }
    }

    pub(super) fn policy_is(&mut self, in_force: bool, now: Instant) {
        self.in_force_since = match (in_force, self.in_force_since) {
            (true, Some(since)) => Some(since),
            (true, None) => Some(now),
            (false, _) => None,
        };
        self.announced &= in_force;
    }

    /// Whether the policy is in effect now, and was not at the last call.
    pub(super) fn counts_now(&mut self, now: Instant) -> bool {
        let new = !self.announced && self.refuses_claims(now);
        self.announced |= new;
        new
    }

    fn refuses_claims(&self, at: Instant) -> bool {
        self.in_force_since
            .is_some_and(|since| since + POLICY_LOAD_TIME <= at)
    }

    /// Judges all releases of a cluster, and forgets those that are no longer among `released`: their hosts have a consumer, have their labels
    /// again, or are free.
    pub(super) fn judge(
        &mut self,
        cluster: &ObjectKey,
        released: Vec<Released>,
        now: Instant,
    ) -> Vec<(Release, Verdict)> {
        let before = self.clusters.remove(cluster).unwrap_or_default();
        let mut after = BTreeMap::new();
        let mut verdicts = Vec::new();
        for Released { release, evidence } in released {
            let state = before.get(&release).copied();
            let (verdict, state) = self.judge_one(evidence, state, now);
            if let Some(state) = state {
                after.insert(release.clone(), state);
            }
            verdicts.push((release, verdict));
        }
        if !after.is_empty() {
            self.clusters.insert(cluster.clone(), after);
        }
        verdicts
    }

    fn judge_one(&self, evidence: Evidence, state: Option<State>, now: Instant) -> (Verdict, Option<State>) {
        let since = match (evidence, state) {
            (Evidence::Gone, _) => return (Verdict::Confirm, None),
            (_, Some(State::Passed)) => return (Verdict::Confirm, Some(State::Passed)),
            (Evidence::Written { before }, _) if self.refuses_claims(before) => {
                return (Verdict::Confirm, Some(State::Passed));
            }
            (
                Evidence::Written { .. } | Evidence::Seen,
                Some(State::Waits { since } | State::Triggered { since }),
            ) => since,
            (Evidence::Written { .. } | Evidence::Seen, None) => now,
        };
        if self.refuses_claims(now) || now >= since + self.in_flight {
            (Verdict::ReadAgain, Some(State::Triggered { since }))
        } else {
            (Verdict::Wait, Some(State::Waits { since }))
        }
    }

    /// Forgets a cluster that no longer holds anything.
    pub(super) fn forget(&mut self, cluster: &ObjectKey) {
        self.clusters.remove(cluster);
    }

    /// A release was confirmed.
    pub(super) fn passed(&mut self, cluster: &ObjectKey, release: &Release) {
        let state = self.clusters.get_mut(cluster);
        if let Some(state) = state.and_then(|releases| releases.get_mut(release)) {
            *state = State::Passed;
        }
    }

    fn time_of(&self, state: State) -> Option<Instant> {
        let State::Waits { since } = state else {
            return None;
        };
        let over = since + self.in_flight;
        Some(
            self.in_force_since
                .map_or(over, |loaded| over.min(loaded + POLICY_LOAD_TIME)),
        )
    }

    /// When the next release is to be judged again, or the policy begins to count.
    pub(super) fn next(&self) -> Option<Instant> {
        let states = self.clusters.values().flat_map(BTreeMap::values);
        let counts = self.in_force_since.filter(|_| !self.announced);
        let counts = counts.map(|since| since + POLICY_LOAD_TIME);
        states
            .filter_map(|state| self.time_of(*state))
            .chain(counts)
            .min()
    }

    /// The clusters with a release that is due. Each is returned once until it is judged again.
    pub(super) fn due(&mut self, now: Instant) -> Vec<ObjectKey> {
        let is_due = |state: &State| self.time_of(*state).is_some_and(|time| time <= now);
        let due = self
            .clusters
            .iter()
            .filter(|(_, releases)| releases.values().any(is_due));
        let due: Vec<ObjectKey> = due.map(|(cluster, _)| cluster.clone()).collect();
        for cluster in &due {
            for state in self
                .clusters
                .get_mut(cluster)
                .into_iter()
                .flat_map(BTreeMap::values_mut)
            {
                if let State::Waits { since } = *state {
                    *state = State::Triggered { since };
                }
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{key, member};
    use api::MemberState;

    const IN_FLIGHT: Duration = Duration::from_mins(1);

    fn released(evidence: Evidence) -> Vec<Released> {
        vec![Released {
            release: member("h1", MemberState::Releasing).release(),
            evidence,
        }]
    }

    struct Case {
        releases: Releases,
        start: Instant,
    }

    impl Case {
        fn new() -> Self {
            Self {
                releases: Releases::new(IN_FLIGHT),
                start: Instant::now(),
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn judge(&mut self, seconds: u64, evidence: Evidence) -> Verdict {
            let now = self.at(seconds);
            self.releases.judge(&key("one"), released(evidence), now)[0].1
        }

        fn due(&mut self, seconds: u64) -> usize {
            let now = self.at(seconds);
            self.releases.due(now).len()
        }
    }

    #[test]
    fn without_policy_a_release_waits_for_claims_in_flight() {
        let mut case = Case::new();
        let before = case.at(1);
        assert_eq!(case.judge(1, Evidence::Written { before }), Verdict::Wait);
        assert_eq!(case.judge(60, Evidence::Seen), Verdict::Wait);
        assert_eq!(case.releases.next(), Some(case.at(61)));
        assert_eq!((case.due(60), case.due(61), case.due(61)), (0, 1, 0));
        assert_eq!(case.judge(61, Evidence::Seen), Verdict::ReadAgain);
        case.releases
            .passed(&key("one"), &released(Evidence::Seen)[0].release);
        assert_eq!(case.judge(62, Evidence::Seen), Verdict::Confirm);
        assert_eq!(case.releases.next(), None);
    }

    #[test]
    fn a_host_that_is_read_again_is_not_due_at_once() {
        let mut case = Case::new();
        assert_eq!(case.judge(0, Evidence::Seen), Verdict::Wait);
        assert_eq!(case.judge(60, Evidence::Seen), Verdict::ReadAgain);
        // The API server did not answer, or shows more than the watch: the backoff or the watch brings about the next pass.
        assert_eq!((case.releases.next(), case.due(61)), (None, 0));
        assert_eq!(case.judge(62, Evidence::Seen), Verdict::ReadAgain);
    }

    #[test]
    fn a_consumer_in_between_starts_the_wait_again() {
        let mut case = Case::new();
        assert_eq!(case.judge(0, Evidence::Seen), Verdict::Wait);
        let now = case.at(30);
        // Its host needs its labels back: it is not among the released ones.
        assert!(case.releases.judge(&key("one"), Vec::new(), now).is_empty());
        assert_eq!(case.judge(40, Evidence::Seen), Verdict::Wait);
        assert_eq!(case.judge(61, Evidence::Seen), Verdict::Wait);
        assert_eq!(case.judge(100, Evidence::Seen), Verdict::ReadAgain);
    }

    #[test]
    fn with_policy_a_release_is_confirmed_at_once() {
        let mut case = Case::new();
        case.releases.policy_is(true, case.start);
        assert_eq!(case.releases.next(), Some(case.at(10)));
        let (early, counts) = (case.at(9), case.at(10));
        let announced = [early, counts, counts].map(|now| case.releases.counts_now(now));
        assert_eq!(announced, [false, true, false]);
        let before = case.at(10);
        assert_eq!(case.judge(11, Evidence::Written { before }), Verdict::Confirm);
        assert_eq!(case.releases.next(), None);
    }

    #[test]
    fn a_policy_counts_when_it_is_loaded() {
        let mut case = Case::new();
        let before = case.at(1);
        case.releases.policy_is(true, case.at(2));
        assert_eq!(case.judge(3, Evidence::Written { before }), Verdict::Wait);
        assert_eq!(case.releases.next(), Some(case.at(12)));
        assert_eq!(
            case.judge(12, Evidence::Seen),
            Verdict::ReadAgain,
            "written before it was in force"
        );
        case.releases.policy_is(false, case.at(13));
        assert_eq!(case.judge(14, Evidence::Seen), Verdict::Wait);
        case.releases.policy_is(true, case.at(15));
        assert_eq!(
            case.judge(16, Evidence::Seen),
            Verdict::Wait,
            "it may have been changed meanwhile"
        );
    }

    #[test]
    fn nothing_is_kept_of_a_cluster_that_holds_nothing() {
        let mut case = Case::new();
        case.releases.policy_is(true, case.start);
        let before = case.at(10);
        assert_eq!(case.judge(11, Evidence::Written { before }), Verdict::Confirm);
        assert_eq!(case.releases.clusters.len(), 1);
        case.releases.forget(&key("one"));
        assert!(case.releases.clusters.is_empty());
    }

    #[test]
    fn a_host_that_is_gone_needs_no_wait() {
        assert_eq!(Case::new().judge(0, Evidence::Gone), Verdict::Confirm);
    }
}
