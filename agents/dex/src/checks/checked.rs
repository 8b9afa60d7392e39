//! What is checked, and the results of the last checks.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use super::{CheckResult, Key, Refusals, Requester, Target};

/// A check that begins once a pass has applied its provider.
pub(super) struct ProposedCheck {
    pub(super) requester: Requester,
    pub(super) target: Arc<Target>,
    pub(super) at: Instant,
}

/// A provider, and the result of its last check.
pub(super) struct CheckedTarget {
    pub(super) requester: Requester,
    pub(super) target: Arc<Target>,
    /// The generation of the spec that its provider was applied for last.
    pub(super) applied: Option<i64>,
    pub(super) result: Option<CheckResult>,
    /// Whether the last check has failed, whatever was checked then.
    pub(super) failed: bool,
    /// How many checks in a row have succeeded.
    pub(super) successes: u32,
    /// When a pass named it last.
    pub(super) named_at: Instant,
    /// When it is checked next.
    pub(super) due: Instant,
}

/// All providers, and the former clusters in which bindings should not be any more.
#[derive(Default)]
pub(super) struct Providers {
    pub(super) proposed: BTreeMap<Key, ProposedCheck>,
    pub(super) checked: BTreeMap<Key, CheckedTarget>,
    /// Directories that have refused their account, by namespace.
    pub(super) refusals: HashMap<String, Refusals>,
}

impl Providers {
    /// Whether a running check is of an entry that its cluster does not have any more, or reconciles bindings by an earlier spec. Such a check
    /// may apply what the spec no longer asks for, or delete what it asks for now.
    pub(super) fn is_outdated(&self, (key, target): &(Key, Arc<Target>)) -> bool {
        let checked = self.checked.get(key);
        checked.is_none_or(|checked| target.tenant.is_some() && checked.target.tenant != target.tenant)
    }

    /// Makes the checks of the cluster's other entries use its current entries (`stale`), so that none of them deletes the bindings of this entry
    /// even if their own passes fail. Returns whether any check changes by that.
    pub(super) fn share_entries(&mut self, of: &Key, stale: &str) -> bool {
        let others = of_cluster(&self.checked, (&of.namespace, &of.uid)).filter(|key| key.name != of.name);
        let others: Vec<_> = others.cloned().collect();
        let mut changed = false;
        for key in others {
            let Some(checked) = self.checked.get_mut(&key) else {
                continue;
            };
            let Some(sharing) = checked
                .target
                .tenant
                .as_ref()
                .and_then(|other| other.with_stale_selector(stale))
            else {
                continue;
            };
            checked.target = Arc::new(Target {
                provider: checked.target.provider.clone(),
                tenant: Some(sharing),
            });
            checked.due = Instant::now();
            checked.successes = 0;
            // The last result does not cover what the removed entries have left.
            checked.result = None;
            changed = true;
        }
        changed
    }

    /// Checks this from now on, at once if it differs from what was checked before; returns whether it does. `applied`: whether the provider of
    /// the requester's spec is applied.
    pub(super) fn check(
        &mut self,
        key: Key,
        requester: Requester,
        target: Arc<Target>,
        applied: bool,
    ) -> bool {
        let now = Instant::now();
        let before = self.checked.remove(&key);
        let same = before.as_ref().is_some_and(|before| before.target == target);
        // The last result for the same issuer stays until the next one, so that a renewed certificate does not look like an outage. It does not
        // hold for another spec, neither for its provider nor for its bindings.
        let generation = requester.1;
        let failed = before.as_ref().is_some_and(|before| before.failed);
        let was_applied = before.as_ref().and_then(|before| before.applied);
        let kept = before.filter(|before| {
            let of_this_spec =
                before.requester.1 == generation && (!applied || was_applied == Some(generation));
            let begins = target.tenant.as_ref();
            let begins =
                begins.is_some_and(|tenant| tenant.starts_applying_after(before.target.tenant.as_ref()));
            !begins
                && before.target.issuer() == target.issuer()
                && (same || of_this_spec && key.former.is_none())
        });
        let due = kept.as_ref().filter(|_| same).map_or(now, |before| before.due);
        let successes = kept.as_ref().map_or(0, |before| before.successes);
        let checked = CheckedTarget {
            requester,
            target,
            applied: if applied { Some(generation) } else { was_applied },
            result: kept.and_then(|before| before.result),
            failed,
            successes,
            named_at: now,
            due,
        };
        self.checked.insert(key, checked);
        !same
    }
}

/// The entries of one cluster. Those of others are not visited: this is done in each pass.
fn of_cluster<'a, T>(
    known: &'a BTreeMap<Key, T>,
    (namespace, uid): (&'a str, &'a str),
) -> impl Iterator<Item = &'a Key> {
    let first = Key {
        namespace: namespace.to_owned(),
        uid: uid.to_owned(),
        name: String::new(),
        former: None,
    };
    let keys = known.range(first..).map(|(key, _)| key);
    keys.take_while(move |key| key.namespace == namespace && key.uid == uid)
}

/// Removes entries of one cluster other than these. Those of other clusters are not visited: this is done in each pass.
pub(super) fn retain_of_cluster<T>(
    known: &mut BTreeMap<Key, T>,
    cluster: (&str, &str),
    stays: impl Fn(&Key) -> bool,
) {
    let others: Vec<_> = of_cluster(known, cluster)
        .filter(|key| !stays(key))
        .cloned()
        .collect();
    for key in others {
        known.remove(&key);
    }
}
