//! What guards a load balancer's pods, and what these may read, in watches: only which version there is of each.

use std::time::{Duration, Instant};

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Resource, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::reflector::{ObjectRef, Store},
};
use render::load_balancer::{Access, Objects};

/// A watch shows what was applied within this time, or it was changed.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// What is known of an object without its content.
pub type Meta<K> = PartialObjectMeta<K>;

/// The watches. All objects have the name of their load balancer.
#[derive(Clone, Debug)]
pub struct Guards {
    /// That lets people who empty nodes take one pod at a time.
    pub budgets: Store<Meta<PodDisruptionBudget>>,
    /// Who may connect.
    pub policies: Store<Meta<NetworkPolicy>>,
    /// Whose rights the sidecars have.
    pub accounts: Store<Meta<ServiceAccount>>,
    /// These rights.
    pub roles: Store<Meta<Role>>,
    /// That the accounts have them.
    pub bindings: Store<Meta<RoleBinding>>,
}

impl Guards {
    /// As the watches have them.
    pub(super) fn versions(&self, objects: &Objects) -> Versions {
        let account = objects.access.as_ref().map(|access| &access.account);
        Versions {
            budget: seen(&self.budgets, objects),
            policy: seen(&self.policies, objects),
            // Without a sidecar nobody needs them, and nobody looks what became of them.
            account: account.and_then(|_| seen(&self.accounts, objects)),
            role: account.and_then(|_| seen(&self.roles, objects)),
            binding: account.and_then(|_| seen(&self.bindings, objects)),
        }
    }
}

fn seen<K>(store: &Store<Meta<K>>, objects: &Objects) -> Option<String>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + 'static,
{
    let (name, namespace) = (objects.service.name_any(), objects.service.namespace());
    let found = ObjectRef::new(&name).within(&namespace.unwrap_or_default());
    store.get(&found).and_then(|object| version(&*object))
}

/// What changes with everything in an object that we have set: where objects have a generation, their status does not count.
fn version(object: &impl Resource) -> Option<String> {
    let meta = object.meta();
    let generation = meta.generation.map(|generation| generation.to_string());
    generation.or_else(|| meta.resource_version.clone())
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
