//! The order in which the bindings at one API server are reconciled. Deletions of every kind come first: a right that the spec takes away does
//! not wait for a right that it gives, for another API server, or for a call that hangs.

use std::sync::Arc;

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kit::tenant;
use render::dex::GroupBindings;
use tokio::time;

use super::{Binding, CONNECT, Error, calls::Calls, found::Found};

/// What to do with the bindings that are asked for. The others are deleted in any case.
#[derive(Clone, Copy)]
pub(super) enum Then<'a, 'u> {
    Apply,
    Keep,
    /// Delete them, except those that the API server in use has, too.
    Delete(Option<&'a Used<'u>>),
    /// Report an error if there are any: whether they are in use is not known.
    MayDelete,
}

/// The API server in use, once the connection to it is made.
pub(super) struct Used<'a>(Shared<BoxFuture<'a, Result<Arc<Calls>, Error>>>);

impl<'a> Used<'a> {
    /// `connecting`: connects to it.
    pub(super) fn new(connecting: impl Future<Output = Result<Calls, tenant::Error>> + Send + 'a) -> Self {
        let connected = async {
            let connected = time::timeout(CONNECT, connecting).await;
            let connected = connected.map_err(|_| Error::NoConnection(CONNECT.as_secs()))?;
            Ok(Arc::new(connected?))
        };
        Self(connected.boxed().shared())
    }

    /// Lists the bindings of a kind at the API server in use.
    async fn bindings<K: Binding>(&self, selector: &str) -> Result<Vec<Found>, Error> {
        let listed = async {
            let listed = self.0.clone().await?.list::<K>(selector).await?;
            listed.complete?;
            Ok(listed.items)
        };
        listed.await.map_err(|error| Error::InUse(Box::new(error)))
    }
}

/// The bindings of a kind after the deletions, before any is applied.
struct Cleared {
    /// The bindings that are asked for, whatever their content, unless they are to be deleted.
    present: Vec<Found>,
    /// The bindings that were to be deleted.
    surplus: Vec<Found>,
    /// The bindings that are in use elsewhere, so that they stay.
    in_use: Vec<Found>,
    /// The first fault.
    result: Result<(), Error>,
}

impl Calls {
    /// Deletes the bindings that are not asked for, and does `then` to the others.
    ///
    /// # Errors
    /// The first fault by kind and order, whenever it occurred.
    pub(super) async fn reconcile(&self, bindings: &GroupBindings, then: Then<'_, '_>) -> Result<(), Error> {
        let GroupBindings {
            selector,
            stale,
            cluster,
            namespaced,
        } = bindings;
        let selectors = (&**selector, &**stale);
        let (in_cluster, in_namespaces) = tokio::join!(
            self.clear::<ClusterRoleBinding>(selectors, cluster, then),
            self.clear::<RoleBinding>(selectors, namespaced, then),
        );
        let (in_cluster, in_namespaces) = tokio::join!(
            self.finish(selectors, cluster, then, in_cluster),
            self.finish(selectors, namespaced, then, in_namespaces),
        );
        in_cluster.and(in_namespaces)
    }

    /// Deletes all bindings, except those that the API server in use has, too.
    pub(super) async fn leave(&self, bindings: &GroupBindings, used: &Used<'_>) -> Result<(), Error> {
        // The connection is made meanwhile.
        let (left, _) = tokio::join!(self.reconcile(bindings, Then::Delete(Some(used))), used.0.clone());
        left
    }

    /// Lists the bindings of a kind, and deletes those that have to go. The selectors select the provider's bindings, and those of providers that
    /// the cluster does not have any more.
    ///
    /// # Errors
    /// When the provider's bindings cannot be listed: then nothing is done about any of the kind.
    async fn clear<K: Binding>(
        &self,
        (own, stale): (&str, &str),
        desired: &[K],
        then: Then<'_, '_>,
    ) -> Result<Cleared, Error> {
        let listed = self.list::<K>(own).await?;
        let is_desired = |found: &Found| desired.iter().any(|desired| found.is(desired));
        let (present, unasked) = listed.items.into_iter().partition(is_desired);
        let ((unasked, deleted), asked) = tokio::join!(
            self.clear_unasked::<K>(unasked, stale),
            self.clear_asked::<K>(own, present, then),
        );
        let Cleared {
            present,
            mut surplus,
            in_use,
            result,
        } = asked;
        surplus.extend(unasked);
        Ok(Cleared {
            present,
            surplus,
            in_use,
            result: deleted.and(result).and(listed.complete),
        })
    }

    /// Deletes bindings that are not asked for: those of the provider (`unasked`), and those of providers that the cluster does not have any
    /// more. Returns all of them.
    async fn clear_unasked<K: Binding>(
        &self,
        mut unasked: Vec<Found>,
        stale: &str,
    ) -> (Vec<Found>, Result<(), Error>) {
        let (deleted, listed) = tokio::join!(self.delete_all::<K>(&unasked), self.list::<K>(stale));
        let stale = match listed {
            Ok(listed) => listed,
            Err(error) => return (unasked, deleted.and(Err(error))),
        };
        let also_deleted = self.delete_all::<K>(&stale.items).await;
        unasked.extend(stale.items);
        (unasked, deleted.and(also_deleted).and(stale.complete))
    }

    /// Deletes the bindings that are asked for, if `then` says so.
    async fn clear_asked<K: Binding>(&self, own: &str, present: Vec<Found>, then: Then<'_, '_>) -> Cleared {
        let kept = |present, result| Cleared {
            present,
            surplus: Vec::new(),
            in_use: Vec::new(),
            result,
        };
        let used = match then {
            Then::Delete(used) => used,
            Then::MayDelete if !present.is_empty() => return kept(present, Err(Error::MayBeInUse)),
            Then::Apply | Then::Keep | Then::MayDelete => return kept(present, Ok(())),
        };
        let mut in_use = Vec::new();
        if let Some(used) = used.filter(|_| !present.is_empty()) {
            // Listed after the bindings to delete, so a binding that the same cluster gets meanwhile is not among those.
            in_use = match used.bindings::<K>(own).await {
                Ok(in_use) => in_use,
                Err(error) => return kept(present, Err(error)),
            };
        }
        let unused = |found: &Found| !is_among(&in_use, found);
        let surplus: Vec<_> = present.into_iter().filter(unused).collect();
        let result = self.delete_all::<K>(&surplus).await;
        Cleared {
            present: Vec::new(),
            surplus,
            in_use,
            result,
        }
    }

    /// Applies the bindings that are asked for, if `then` says so, and lists once more what was deleted: finalizers may keep it.
    async fn finish<K: Binding>(
        &self,
        (own, stale): (&str, &str),
        desired: &[K],
        then: Then<'_, '_>,
        cleared: Result<Cleared, Error>,
    ) -> Result<(), Error> {
        let Cleared {
            present,
            surplus,
            in_use,
            result,
        } = cleared?;
        let mut applied = Ok(());
        if matches!(then, Then::Apply) {
            let stands = |binding: &K| present.iter().any(|found| found.stands_as(binding));
            let missing = desired.iter().filter(|binding| !stands(binding));
            applied = self.apply_all(missing).await;
        }
        result.and(applied)?;
        if surplus.is_empty() {
            return Ok(());
        }
        let (of_provider, of_removed) = tokio::join!(self.list::<K>(own), self.list::<K>(stale));
        let mut remaining = of_provider?.items;
        let is_deleted = |found: &Found| {
            matches!(then, Then::Delete(_)) || !desired.iter().any(|desired| found.is(desired))
        };
        remaining.retain(is_deleted);
        remaining.extend(of_removed?.items);
        if remaining.iter().all(|found| is_among(&in_use, found)) {
            return Ok(());
        }
        Err(Error::Remain {
            server: self.server(),
        })
    }
}

/// Whether this very object is among others.
fn is_among(objects: &[Found], found: &Found) -> bool {
    objects.iter().any(|object| object.is_same(found))
}
