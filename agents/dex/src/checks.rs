//! Checks whether providers answer as their issuers, directories accept the account that searches, and tenants' API servers have the bindings of
//! groups. Each check runs by itself, beside the reconciles: a server that does not answer delays no other check.

mod checked;
mod key;
mod refusals;
mod slots;
mod target;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use api::{
    SIPCluster,
    conditions::{Reason, auth::ISSUER_UNREACHABLE},
};
use futures::{SinkExt as _, channel::mpsc};
use kit::{message::readable, service::WAITING_RESYNC, tenant::destinations::Destinations};
use kube::runtime::reflector::ObjectRef;
use tokio::{
    sync::Notify,
    task::{AbortHandle, Id, JoinSet},
    time,
};

use self::{
    checked::{CheckedTarget, ProposedCheck, Providers, retain_of_cluster},
    slots::CheckSlots,
};
pub use self::{
    key::Key,
    refusals::Refusals,
    target::{Provider, Target, check},
};
use crate::{
    own_keys::OwnKeys,
    tenant::{self, stored::SecretReader},
    tenants::{FormerTenant, Tenants},
};

/// Pause between two checks of a provider.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum duration of a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(tenant::RECONCILE_TIMEOUT.as_secs() + 1);
/// How often the agent determines which checks are due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of concurrent checks.
const MAX_CONCURRENT_CHECKS: usize = 32;
/// How long an entry is checked after a pass has named it last.
const ENTRY_TTL: Duration = Duration::from_mins(2);
// While a spec waits for the scheduler, the agent still revokes rights, with time for a pass that fails.
const _: () = assert!(
    ENTRY_TTL.as_secs() > 2 * WAITING_RESYNC.as_secs(),
    "a pass names the entry before"
);

/// The result of a check: `Ok`, or why the provider does not work.
pub type CheckResult = Result<(), (Reason, String)>;

/// Whether bindings remain in a cluster in which none should be.
pub(crate) enum FormerBindings {
    /// Some may remain, for this reason.
    Remain(String),
    /// The agent found none in two checks in a row.
    Deleted,
}

/// The SIPCluster that asks for a check, and the generation of its spec.
pub type Requester = (ObjectRef<SIPCluster>, i64);

/// Maximum length, in bytes, of the text of a result: some TLS errors quote a whole certificate.
const MAX_RESULT_BYTES: usize = 1024;

/// What is checked, and the results of the last checks. Cheap to clone.
#[derive(Clone, Default)]
pub struct Checks {
    providers: Arc<Mutex<Providers>>,
    changed: Arc<Notify>,
}

type Running = HashMap<Id, (Key, Arc<Target>)>;

impl Checks {
    /// Proposes what to check of a provider that a pass is about to apply; it is not checked before [`Self::confirm`].
    pub fn propose(&self, key: Key, requester: Requester, target: Target) {
        let proposed = ProposedCheck {
            requester,
            target: Arc::new(target),
            at: Instant::now(),
        };
        self.providers().proposed.insert(key, proposed);
    }

    /// Begins to check what was proposed last for a provider, which is applied now; at once if it differs from what was checked before.
    pub fn confirm(&self, key: &Key) {
        let mut providers = self.providers();
        let Some(ProposedCheck {
            requester,
            target,
            at: _,
        }) = providers.proposed.remove(key)
        else {
            return;
        };
        if providers.check(key.clone(), requester, target, true) {
            self.changed.notify_one();
        }
    }

    /// Reconciles the bindings of an entry from now on, even if preparing its provider fails in this pass: no fault of the provider keeps a right
    /// that the spec no longer gives. A provider that runs is checked as before. Earlier kubeconfigs are used only to remove bindings.
    pub(crate) fn reconcile_bindings(&self, key: &Key, requester: &Requester, tenants: &Tenants) {
        let Tenants {
            stale,
            named,
            former,
            server: _,
            replaced: _,
        } = tenants;
        let tenant = named.as_ref().and_then(|named| named.as_ref().ok());
        let mut providers = self.providers();
        let mut changed = providers.share_entries(key, stale);
        let before = providers.checked.get(key);
        let target = Target {
            provider: before.and_then(|before| before.target.provider.clone()),
            tenant: tenant.cloned(),
        };
        if target.provider.is_none() && target.tenant.is_none() {
            providers.checked.remove(key);
        } else {
            changed |= providers.check(key.clone(), requester.clone(), Arc::new(target), false);
        }
        let of = (&*key.namespace, &*key.uid);
        retain_of_cluster(&mut providers.checked, of, |known| {
            let is_former = |secret: &String| former.iter().any(|former| former.secret == *secret);
            known.name != key.name || known.former.as_ref().is_none_or(is_former)
        });
        for FormerTenant { secret, tenant } in former {
            let Ok(tenant) = tenant else {
                providers.checked.remove(&key.former(secret));
                continue;
            };
            let target = Target {
                provider: None,
                tenant: Some(tenant.clone()),
            };
            changed |= providers.check(key.former(secret), requester.clone(), Arc::new(target), false);
        }
        if changed {
            self.changed.notify_one();
        }
    }

    /// Forgets the entries of a cluster that are not in `names`. An entry that was renamed before anything was made for it leaves no object by
    /// which the agent would find it.
    pub fn retain_entries(&self, namespace: &str, uid: &str, names: &BTreeSet<&str>) {
        let Providers {
            proposed,
            checked,
            refusals: _,
        } = &mut *self.providers();
        let stays = |key: &Key| names.contains(key.name.as_str());
        retain_of_cluster(proposed, (namespace, uid), stays);
        retain_of_cluster(checked, (namespace, uid), stays);
    }

    /// What the last check of a provider has found; `None`: it was not checked yet.
    #[must_use]
    pub fn last_result(&self, key: &Key) -> Option<CheckResult> {
        let providers = self.providers();
        let checked = providers.checked.get(key)?;
        checked.target.provider.as_ref()?;
        checked.result.clone()
    }

    /// Whether bindings remain in a cluster in which a provider should have none any more. A call that had begun before the first check may apply
    /// a binding after it, so only the second check in a row that finds none counts.
    pub(crate) fn former_bindings(&self, key: &Key, former: &FormerTenant) -> FormerBindings {
        let FormerTenant { secret, tenant } = former;
        let tenant = match tenant {
            Ok(tenant) => tenant,
            Err(problem) => return FormerBindings::Remain(problem.message.clone()),
        };
        let providers = self.providers();
        let checked = providers.checked.get(&key.former(secret));
        match checked.filter(|checked| checked.target.tenant.as_ref() == Some(tenant)) {
            Some(CheckedTarget {
                result: Some(Err((_, why))),
                ..
            }) => FormerBindings::Remain(why.clone()),
            Some(checked) if checked.successes > 1 => FormerBindings::Deleted,
            Some(_) | None => FormerBindings::Remain("the agent is deleting them".to_owned()),
        }
    }

    /// Forgets a deleted provider. Providers of this name that belong to another cluster stay.
    pub fn forget(&self, key: &Key) {
        let Providers {
            proposed,
            checked,
            refusals: _,
        } = &mut *self.providers();
        proposed.remove(key);
        let of = (&*key.namespace, &*key.uid);
        retain_of_cluster(checked, of, |known| known.name != key.name);
    }

    /// Runs the checks without end, and triggers a pass over a cluster when a result has changed. Ends when the receiver of `triggers` is gone.
    /// `own_keys`: the keys of the providers; `secrets`: reads former kubeconfigs; `destinations`: where checks may connect to.
    ///
    /// # Errors
    /// None.
    pub async fn run(
        self,
        triggers: mpsc::Sender<ObjectRef<SIPCluster>>,
        own_keys: Arc<OwnKeys>,
        secrets: SecretReader,
        destinations: Arc<Destinations>,
    ) -> Result<(), Infallible> {
        let check = |target: Arc<Target>, refusals: Refusals| {
            let (own_keys, destinations) = (Arc::clone(&own_keys), Arc::clone(&destinations));
            let secrets = secrets.clone();
            async move { check(&target, &refusals, &own_keys, &secrets, &destinations).await }
        };
        self.run_by(triggers, check).await
    }

    async fn run_by<F, Checking>(
        self,
        mut triggers: mpsc::Sender<ObjectRef<SIPCluster>>,
        check: F,
    ) -> Result<(), Infallible>
    where
        F: Fn(Arc<Target>, Refusals) -> Checking,
        Checking: Future<Output = CheckResult> + Send + 'static,
    {
        let mut tasks: JoinSet<CheckResult> = JoinSet::new();
        let mut handles: HashMap<Id, AbortHandle> = HashMap::new();
        let mut running = Running::new();
        loop {
            for id in self.outdated(&running) {
                // An outdated check is stopped: a right that the spec takes away does not wait for a server that hangs, and the check neither
                // gives it once more nor takes away one that the spec gives.
                handles.get(&id).inspect(|task| task.abort());
            }
            for (key, target) in self.due(Instant::now(), &running) {
                let checking = check(Arc::clone(&target), self.refusals(&key));
                let checking = time::timeout(CHECK_TIMEOUT, checking);
                let task = tasks.spawn(async move {
                    checking.await.unwrap_or_else(|_| {
                        let why = format!("the check did not complete within {} s", CHECK_TIMEOUT.as_secs());
                        Err((ISSUER_UNREACHABLE, why))
                    })
                });
                running.insert(task.id(), (key, target));
                handles.insert(task.id(), task);
            }
            let (id, result) = tokio::select! {
                Some(done) = tasks.join_next_with_id() => match done {
                    Ok(done) => done,
                    Err(error) if error.is_cancelled() => {
                        handles.remove(&error.id());
                        running.remove(&error.id());
                        continue;
                    }
                    Err(error) => {
                        tracing::error!(%error, "the check of an identity provider crashed");
                        (error.id(), Err((ISSUER_UNREACHABLE, "the check crashed in the agent".to_owned())))
                    }
                },
                () = time::sleep(POLL_INTERVAL) => continue,
                () = self.changed.notified() => continue,
            };
            handles.remove(&id);
            let Some((key, target)) = running.remove(&id) else {
                continue;
            };
            if let Some(cluster) = self.record(&key, &target, result)
                // A full queue is emptied by the controller; a closed one ends with the process.
                && triggers.send(cluster).await.is_err()
            {
                return Ok(());
            }
        }
    }

    /// Checks of entries that are not in their clusters any more, and those that reconcile bindings by an earlier spec.
    fn outdated(&self, running: &Running) -> Vec<Id> {
        let providers = self.providers();
        let outdated = running
            .iter()
            .filter(|(_, running)| providers.is_outdated(running));
        outdated.map(|(id, _)| *id).collect()
    }

    /// The providers whose check can begin now: first those of namespaces, and in a namespace of clusters, with the fewest checks under way,
    /// and of these those that wait longest. So checks that hang delay those of other tenants by no more than one check.
    fn due(&self, now: Instant, running: &Running) -> Vec<(Key, Arc<Target>)> {
        let mut providers = self.providers();
        let lasts = |since: Instant| now.saturating_duration_since(since) < ENTRY_TTL;
        providers.proposed.retain(|_, proposed| lasts(proposed.at));
        providers.checked.retain(|_, checked| lasts(checked.named_at));
        providers
            .refusals
            .retain(|_, refusals| !refusals.are_unused(now.into()));
        let under_way: BTreeSet<&Key> = running.values().map(|(key, _)| key).collect();
        // The check of a provider and those of its former clusters do not run at the same time. Nor does any check of a SIPCluster while one by
        // an earlier spec of it still runs.
        let ended = running.values().filter(|running| providers.is_outdated(running));
        let ended: BTreeSet<_> = ended.map(|(key, _)| (&*key.namespace, &*key.uid)).collect();
        let waits = |key: &Key| {
            !under_way.contains(key)
                && !under_way.contains(&key.provider())
                && !ended.contains(&(&*key.namespace, &*key.uid))
        };
        let due = providers.checked.iter();
        let due = due.filter(|(key, checked)| checked.due <= now && waits(key));
        let mut due: Vec<_> = due.collect();
        let mut slots = CheckSlots::default();
        for (key, _) in running.values() {
            slots.count(
                key,
                providers.checked.get(key).is_some_and(|checked| checked.failed),
            );
        }
        let mut chosen = Vec::new();
        for _ in running.len()..MAX_CONCURRENT_CHECKS {
            let free = due.iter().enumerate();
            let free = free.filter(|(_, (key, checked))| slots.has_free(key, checked.failed));
            // Checks that take rights away come before those of former clusters that are due at the same time, but do not delay them for ever.
            let since = |key: &Key, checked: &CheckedTarget| match key.former {
                Some(_) => checked.due + CHECK_INTERVAL,
                None => checked.due,
            };
            let next = free.min_by_key(|(_, (key, checked))| (slots.running(key), since(key, checked)));
            let Some((index, _)) = next else { break };
            let (key, checked) = due.swap_remove(index);
            slots.count(key, checked.failed);
            chosen.push((key.clone(), Arc::clone(&checked.target)));
        }
        chosen
    }

    /// Records the result of a check; returns the cluster if the result differs from the last one.
    fn record(&self, key: &Key, target: &Arc<Target>, result: CheckResult) -> Option<ObjectRef<SIPCluster>> {
        let mut providers = self.providers();
        let checked = providers.checked.get_mut(key)?;
        // The result is of an earlier target; the check of the current one is due already.
        if checked.target != *target {
            return None;
        }
        checked.due = Instant::now() + CHECK_INTERVAL;
        checked.successes = if result.is_ok() {
            checked.successes.saturating_add(1)
        } else {
            0
        };
        checked.failed = result.is_err();
        let are_deleted = key.former.is_some() && checked.successes == 2;
        let result = Some(result.map_err(|(reason, why)| (reason, readable(&why, MAX_RESULT_BYTES))));
        if checked.result == result && !are_deleted {
            return None;
        }
        checked.result = result;
        let (cluster, _) = &checked.requester;
        Some(cluster.clone())
    }

    /// The refusals of all providers of a namespace: several may use one account.
    fn refusals(&self, key: &Key) -> Refusals {
        let refusals = &mut self.providers().refusals;
        refusals.entry(key.namespace.clone()).or_default().clone()
    }

    fn providers(&self) -> MutexGuard<'_, Providers> {
        self.providers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
