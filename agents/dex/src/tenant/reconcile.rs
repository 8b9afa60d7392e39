//! In which order the bindings at one API server become as they should be. Whatever is deleted is deleted first, of every kind: a right that the
//! spec takes away does not wait for one that it gives, for another API server, nor for a call that hangs.

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

/// What is done about the bindings that are asked for. The others are deleted in any case.
#[derive(Clone, Copy)]
pub(super) enum Then<'a, 'u> {
    Apply,
    Keep,
    /// They are deleted, except those that another API server also has.
    Delete(Option<&'a Used<'u>>),
    /// If there are any, it is an error.
    MayDelete,
}

/// The API server that is used now, once it is connected to.
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

    /// The bindings of a kind that it has.
    async fn bindings<K: Binding>(&self, selector: &str) -> Result<Vec<Found>, Error> {
        let listed = async {
            let listed = self.0.clone().await?.list::<K>(selector).await?;
            listed.complete?;
            Ok(listed.items)
        };
        listed.await.map_err(|error| Error::InUse(Box::new(error)))
    }
}

/// What was done about the bindings of a kind, before any is applied.
struct Cleared {
    /// Those that are asked for, whatever is in them, unless they are to be deleted.
    present: Vec<Found>,
    /// Those that were to be deleted.
    surplus: Vec<Found>,
    /// Those that are in use elsewhere, so that they stay.
    in_use: Vec<Found>,
    /// The first fault.
    result: Result<(), Error>,
}

impl Calls {
    /// Deletes the bindings that nobody asks for, and does `then` about the others.
    ///
    /// # Errors
    /// The first fault by kind and order, whichever came first.
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

    /// Deletes all bindings, except those that the API server has which is used now.
    pub(super) async fn leave(&self, bindings: &GroupBindings, used: &Used<'_>) -> Result<(), Error> {
        // It is connected to meanwhile.
        let (left, _) = tokio::join!(self.reconcile(bindings, Then::Delete(Some(used))), used.0.clone());
        left
    }

    /// Lists a kind, and deletes what is to be deleted of it. The selectors are of the provider's bindings, and of those whose provider the
    /// cluster does not have any more.
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

    /// Deletes what nobody asks for: these of the provider's, and those whose provider the cluster does not have any more. Returns all of them.
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

    /// Deletes those that are asked for, if that is to be.
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
            // Listed later than what is deleted: a binding that the same cluster is given meanwhile is not among that.
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

    /// Applies what is asked for, if it is to be, and lists once more what was deleted: finalizers may hold it.
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
