//! What runs an instance, since it was applied: its Deployment, and the versions of the other objects.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;

/// Within this time a watch shows what was applied. If it does not, somebody has changed the object since.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// A Deployment as the API server answered with it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    uid: Option<String>,
    generation: Option<i64>,
}

impl Generation {
    pub(super) fn of(deployment: &Deployment) -> Self {
        Self {
            uid: deployment.uid(),
            generation: deployment.metadata.generation,
        }
    }

    /// Whether the shown Deployment is older, or another one of the name.
    pub(super) fn is_newer_than(&self, shown: &Self) -> bool {
        self.uid != shown.uid || self.generation > shown.generation
    }
}

/// What runs an instance besides its Deployment, since all of it was applied.
#[derive(Debug)]
pub(super) struct Workload {
    digest: u64,
    versions: Changed,
}

impl Workload {
    /// Applied now. `digest`: of what was applied. `before`: the versions that the watches had shown until then; `now`: those after it.
    pub(super) fn applied(digest: u64, before: Vec<Option<String>>, now: Vec<Option<String>>) -> Self {
        let at = Instant::now();
        Self {
            digest,
            versions: Changed { before, now, at },
        }
    }

    /// Whether it stands. `shown`: the versions that the watches show.
    pub(super) fn stands(&mut self, digest: u64, shown: &[Option<String>]) -> bool {
        self.digest == digest && self.versions.stands(shown, Instant::now())
    }
}

/// The versions after an apply and those before it, which a watch may show for a while.
#[derive(Debug)]
struct Changed {
    before: Vec<Option<String>>,
    now: Vec<Option<String>>,
    at: Instant,
}

impl Changed {
    /// Whether the watches show the versions after the apply, or, while they may lag, those before.
    fn stands(&mut self, shown: &[Option<String>], now: Instant) -> bool {
        if shown == self.now {
            self.before = shown.to_vec();
            return true;
        }
        let lag = now.saturating_duration_since(self.at) < SHOWN_WITHIN;
        let each = shown.iter().zip(&self.now).zip(&self.before);
        shown.len() == self.now.len()
            && each
                .into_iter()
                .all(|((shown, now), before)| shown == now || (lag && shown == before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_outdated_until_its_generation_is_shown() {
        let generation = |uid: &str, generation: i64| Generation {
            uid: Some(uid.to_owned()),
            generation: Some(generation),
        };
        let last = generation("a", 5);
        for (shown, expected) in [
            (generation("a", 4), true),
            (generation("a", 5), false),
            (generation("a", 6), false),
            (generation("b", 5), true),
        ] {
            assert_eq!(last.is_newer_than(&shown), expected, "{shown:?}");
        }
    }

    fn versions(budget: Option<&str>, policy: Option<&str>) -> Vec<Option<String>> {
        [budget, policy]
            .map(|version| version.map(str::to_owned))
            .to_vec()
    }

    #[test]
    fn applied_versions_stand_until_a_watch_shows_others() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let before = versions(None, Some("1"));
        let now = versions(Some("1"), Some("2"));
        let applied = || Changed {
            before: before.clone(),
            now: now.clone(),
            at: start,
        };

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
