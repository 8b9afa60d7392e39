//! What guards a load balancer's pods, and what these may read, in watches: only which version there is of each.

use std::time::{Duration, Instant};

use k8s_openapi::api::{networking::v1::NetworkPolicy, policy::v1::PodDisruptionBudget};
use render::load_balancer::{Access, Objects};

use super::shown::{Shown, version};

/// A watch shows what was applied within this time, or it was changed.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// The watches. All objects have the name of their load balancer.
#[derive(Clone, Debug)]
pub struct Guards {
    /// That lets people who empty nodes take one pod at a time.
    pub budgets: Shown,
    /// Who may connect.
    pub policies: Shown,
    /// Whose rights the sidecars have.
    pub accounts: Shown,
    /// These rights.
    pub roles: Shown,
    /// That the accounts have them.
    pub bindings: Shown,
}

impl Guards {
    /// As the watches have them.
    pub(super) fn versions(&self, objects: &Objects) -> Versions {
        let named = &objects.service;
        // Without a sidecar nobody needs an account, and nobody looks what became of one.
        let access = |shown: &Shown| objects.access.as_ref().and_then(|_| shown.of(named));
        Versions {
            budget: self.budgets.of(named),
            policy: self.policies.of(named),
            account: access(&self.accounts),
            role: access(&self.roles),
            binding: access(&self.bindings),
        }
    }
}

/// Which version there is of each, and `None` of what is not there.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Versions {
    budget: Option<String>,
    policy: Option<String>,
    account: Option<String>,
    role: Option<String>,
    binding: Option<String>,
}

impl Versions {
    /// Of what the API server has answered.
    pub(super) fn of(
        budget: Option<&PodDisruptionBudget>,
        policy: &NetworkPolicy,
        access: Option<&Access>,
    ) -> Self {
        Self {
            budget: budget.and_then(version),
            policy: version(policy),
            account: access.and_then(|access| version(&access.account)),
            role: access.and_then(|access| version(&access.role)),
            binding: access.and_then(|access| version(&access.binding)),
        }
    }

    fn each(&self) -> [&Option<String>; 5] {
        let Self {
            budget,
            policy,
            account,
            role,
            binding,
        } = self;
        [budget, policy, account, role, binding]
    }
}

/// What was applied, and what there was before: what a watch shows for a while after.
#[derive(Debug)]
pub(super) struct Applied {
    before: Versions,
    now: Versions,
    at: Instant,
}

impl Applied {
    pub(super) fn new(before: Versions, now: Versions, at: Instant) -> Self {
        Self { before, now, at }
    }

    /// Whether what the watches show is what was applied, or what there was before as long as they may lag.
    pub(super) fn stands(&mut self, shown: &Versions, now: Instant) -> bool {
        if *shown == self.now {
            self.before = shown.clone();
            return true;
        }
        let lag = now.saturating_duration_since(self.at) < SHOWN_WITHIN;
        let each = shown
            .each()
            .into_iter()
            .zip(self.now.each())
            .zip(self.before.each());
        each.into_iter()
            .all(|((shown, now), before)| shown == now || (lag && shown == before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(budget: Option<&str>, policy: Option<&str>) -> Versions {
        Versions {
            budget: budget.map(str::to_owned),
            policy: policy.map(str::to_owned),
            ..Versions::default()
        }
    }

    #[test]
    fn what_was_applied_stands_until_a_watch_shows_something_else_and_not_only_late() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let before = versions(None, Some("1"));
        let now = versions(Some("1"), Some("2"));
        let applied = || Applied::new(before.clone(), now.clone(), start);

        assert!(applied().stands(&before, later(1)), "nothing is shown yet");
        assert!(
            applied().stands(&versions(Some("1"), Some("1")), later(1)),
            "a part is"
        );
        assert!(applied().stands(&now, later(60)));
        assert!(
            !applied().stands(&before, later(5)),
            "it would have been shown by now"
        );
        assert!(
            !applied().stands(&versions(Some("1"), Some("3")), later(1)),
            "somebody has changed it"
        );
        let mut shown = applied();
        assert!(shown.stands(&now, later(1)));
        assert!(
            !shown.stands(&versions(None, Some("2")), later(2)),
            "it was there, and somebody has deleted it"
        );
    }
}
