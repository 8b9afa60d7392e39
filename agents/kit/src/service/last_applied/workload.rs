//! What runs an instance, since it was applied: its Deployment, and the versions of the other objects.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;

/// Within this time a watch shows what was applied. If it does not, somebody has changed the object since.
const MAX_WATCH_LAG: Duration = Duration::from_secs(5);

/// Which Deployment of an instance it is, and which of its generations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeploymentVersion {
    uid: Option<String>,
    generation: Option<i64>,
}

/// Why what a watch shows of a Deployment is not what the API server answered to this process last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Outdated {
    /// It is of an earlier generation.
    Generation,
    /// It is another object of the name: the watch lags, or somebody has made it anew.
    Object,
}

impl From<&Deployment> for DeploymentVersion {
    fn from(deployment: &Deployment) -> Self {
        Self {
            uid: deployment.uid(),
            generation: deployment.metadata.generation,
        }
    }
}

impl DeploymentVersion {
    /// Compares this version, the last one that the API server answered, with the shown one. `None`: the shown one is as new.
    pub(super) fn outdated(&self, shown: &Self) -> Option<Outdated> {
        if self.uid != shown.uid {
            return Some(Outdated::Object);
        }
        (self.generation > shown.generation).then_some(Outdated::Generation)
    }
}

/// What runs an instance, since all of it was applied.
#[derive(Debug)]
pub(super) struct Workload {
    /// Of what was rendered, the Deployment included.
    digest: u64,
    deployment: DeploymentVersion,
    versions: Changed,
}

impl Workload {
    /// Applied now. `digest`: of what was rendered. `before`: the versions of the objects besides the Deployment that the watches had shown until
    /// then; `now`: those after it.
    pub(super) fn applied(
        digest: u64,
        deployment: &Deployment,
        before: Vec<Option<String>>,
        now: Vec<Option<String>>,
    ) -> Self {
        let at = Instant::now();
        Self {
            digest,
            deployment: DeploymentVersion::from(deployment),
            versions: Changed { before, now, at },
        }
    }

    /// Whether it stands. `shown`: the Deployment and the versions of the other objects that the watches show.
    pub(super) fn stands(&mut self, digest: u64, shown: (&Deployment, &[Option<String>])) -> bool {
        self.digest == digest
            && self.deployment == DeploymentVersion::from(shown.0)
            && self.versions.stands(shown.1, Instant::now())
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
        let lag = now.saturating_duration_since(self.at) < MAX_WATCH_LAG;
        let each = shown.iter().zip(&self.now).zip(&self.before);
        shown.len() == self.now.len()
            && each
                .into_iter()
                .all(|((shown, now), before)| shown == now || (lag && shown == before))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(uid: &str, generation: i64) -> Deployment {
        let metadata = json!({"uid": uid, "generation": generation});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"selector": {}, "template": {}}}))
            .unwrap()
    }

    #[test]
    fn a_deployment_is_outdated_until_its_generation_is_shown() {
        let last = DeploymentVersion::from(&deployment("a", 5));
        for (shown, expected) in [
            (deployment("a", 4), Some(Outdated::Generation)),
            (deployment("a", 5), None),
            (deployment("a", 6), None),
            (deployment("b", 5), Some(Outdated::Object)),
        ] {
            assert_eq!(
                last.outdated(&DeploymentVersion::from(&shown)),
                expected,
                "{shown:?}"
            );
        }
    }

    #[test]
    fn a_workload_stands_only_beside_its_own_deployment() {
        let now = versions(Some("1"), None);
        for (digest, shown, expected) in [
            (7, deployment("a", 5), true),
            (8, deployment("a", 5), false),
            (7, deployment("a", 4), false),
            // An edit whose other objects were refused, and that was taken back.
            (7, deployment("a", 6), false),
            (7, deployment("b", 5), false),
        ] {
            let mut workload = Workload::applied(7, &deployment("a", 5), now.clone(), now.clone());
            assert_eq!(
                workload.stands(digest, (&shown, &now)),
                expected,
                "{digest} {shown:?}"
            );
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
