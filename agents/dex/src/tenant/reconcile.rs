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

use super::{Binding, CONNECT_TIMEOUT, Error, calls::Calls, found::FoundBinding};

/// What to do with the bindings that the spec requests. The agent always deletes the others.
#[derive(Clone, Copy)]
pub(super) enum DesiredAction<'a, 'u> {
    /// Apply them.
    Apply,
    /// Leave them as they are.
    Keep,
    /// Delete them, except those that the API server in use has, too.
    Delete(Option<&'a CurrentServer<'u>>),
    /// Report an error if there are any: the agent does not know whether they are in use.
    FailIfPresent,
}

/// The API server in use, once the connection to it is made.
pub(super) struct CurrentServer<'a>(Shared<BoxFuture<'a, Result<Arc<Calls>, Error>>>);

impl<'a> CurrentServer<'a> {
    /// Connects when it is used first. `connecting`: makes the connection.
    pub(super) fn new(connecting: impl Future<Output = Result<Calls, tenant::Error>> + Send + 'a) -> Self {
        let connected = async {
            let connected = time::timeout(CONNECT_TIMEOUT, connecting).await;
            let connected = connected.map_err(|_| Error::NoConnection(CONNECT_TIMEOUT.as_secs()))?;
            Ok(Arc::new(connected?))
        };
        Self(connected.boxed().shared())
    }

    /// Lists the bindings of a kind at the API server in use.
    async fn bindings<K: Binding>(&self, selector: &str) -> Result<Vec<FoundBinding>, Error> {
        let listed = async {
            let listed = self.0.clone().await?.list::<K>(selector).await?;
            listed.complete?;
            Ok(listed.items)
        };
        listed.await.map_err(|error| Error::InUse(Box::new(error)))
    }
}

/// The bindings of a kind after the deletions, before any is applied.
struct DeletionResult {
    /// The bindings that the spec requests, whatever their content, unless they are to be deleted.
    present: Vec<FoundBinding>,
    /// The bindings that were to be deleted.
    surplus: Vec<FoundBinding>,
    /// The bindings that are in use elsewhere, so that they stay.
    in_use: Vec<FoundBinding>,
    /// The first error.
    result: Result<(), Error>,
}

impl Calls {
    /// Deletes the bindings that the spec does not request, and takes the action for the others.
    ///
    /// # Errors
    /// The first error by kind and order, whenever it occurred.
    pub(super) async fn reconcile(
        &self,
        bindings: &GroupBindings,
        action: DesiredAction<'_, '_>,
    ) -> Result<(), Error> {
        let GroupBindings {
            selector,
            stale,
            cluster,
            namespaced,
        } = bindings;
        let selectors = (&**selector, &**stale);
        let (in_cluster, in_namespaces) = tokio::join!(
            self.delete_surplus::<ClusterRoleBinding>(selectors, cluster, action),
            self.delete_surplus::<RoleBinding>(selectors, namespaced, action),
        );
        let (in_cluster, in_namespaces) = tokio::join!(
            self.apply_and_verify(selectors, cluster, action, in_cluster),
            self.apply_and_verify(selectors, namespaced, action, in_namespaces),
        );
        in_cluster.and(in_namespaces)
    }

    /// Deletes all bindings, except those that the API server in use has, too.
    pub(super) async fn delete_unused(
        &self,
        bindings: &GroupBindings,
        used: &CurrentServer<'_>,
    ) -> Result<(), Error> {
        // The connection is made meanwhile.
        let (left, _) = tokio::join!(
            self.reconcile(bindings, DesiredAction::Delete(Some(used))),
            used.0.clone()
        );
        left
    }

    /// Lists the bindings of a kind, and deletes the surplus ones. The selectors select the provider's bindings, and those of providers that
    /// the cluster does not have any more.
    ///
    /// # Errors
    /// When the provider's bindings cannot be listed: then nothing is done about any of the kind.
    async fn delete_surplus<K: Binding>(
        &self,
        (own, stale): (&str, &str),
        desired: &[K],
        action: DesiredAction<'_, '_>,
    ) -> Result<DeletionResult, Error> {
        let listed = self.list::<K>(own).await?;
        let is_desired = |found: &FoundBinding| desired.iter().any(|desired| found.is_for(desired));
        let (present, undesired) = listed.items.into_iter().partition(is_desired);
        let ((undesired, deleted), asked) = tokio::join!(
            self.delete_undesired::<K>(undesired, stale),
            self.delete_desired::<K>(own, present, action),
        );
        let DeletionResult {
            present,
            mut surplus,
            in_use,
            result,
        } = asked;
        surplus.extend(undesired);
        Ok(DeletionResult {
            present,
            surplus,
            in_use,
            result: deleted.and(result).and(listed.complete),
        })
    }

    /// Deletes bindings that the spec does not request: those of the provider (`undesired`), and those of providers that the cluster does not have
    /// any more. Returns all of them.
    async fn delete_undesired<K: Binding>(
        &self,
        mut undesired: Vec<FoundBinding>,
        stale: &str,
    ) -> (Vec<FoundBinding>, Result<(), Error>) {
        let (deleted, listed) = tokio::join!(self.delete_all::<K>(&undesired), self.list::<K>(stale));
        let stale = match listed {
            Ok(listed) => listed,
            Err(error) => return (undesired, deleted.and(Err(error))),
        };
        let also_deleted = self.delete_all::<K>(&stale.items).await;
        undesired.extend(stale.items);
        (undesired, deleted.and(also_deleted).and(stale.complete))
    }

    /// Deletes the bindings that the spec requests, if that is the action.
    async fn delete_desired<K: Binding>(
        &self,
        own: &str,
        present: Vec<FoundBinding>,
        action: DesiredAction<'_, '_>,
    ) -> DeletionResult {
        let kept = |present, result| DeletionResult {
            present,
            surplus: Vec::new(),
            in_use: Vec::new(),
            result,
        };
        let used = match action {
            DesiredAction::Delete(used) => used,
            DesiredAction::FailIfPresent if !present.is_empty() => {
                return kept(present, Err(Error::MayBeInUse));
            }
            DesiredAction::Apply | DesiredAction::Keep | DesiredAction::FailIfPresent => {
                return kept(present, Ok(()));
            }
        };
        let mut in_use = Vec::new();
        if let Some(used) = used.filter(|_| !present.is_empty()) {
            // Listed after the bindings to delete, so a binding that the same cluster gets meanwhile is not among those.
            in_use = match used.bindings::<K>(own).await {
                Ok(in_use) => in_use,
                Err(error) => return kept(present, Err(error)),
            };
        }
        let unused = |found: &FoundBinding| !contains_object(&in_use, found);
        let surplus: Vec<_> = present.into_iter().filter(unused).collect();
        let result = self.delete_all::<K>(&surplus).await;
        DeletionResult {
            present: Vec::new(),
            surplus,
            in_use,
            result,
        }
    }

    /// Applies the bindings that the spec requests, if that is the action, and lists once more what was deleted: finalizers may keep it.
    async fn apply_and_verify<K: Binding>(
        &self,
        (own, stale): (&str, &str),
        desired: &[K],
        action: DesiredAction<'_, '_>,
        deletions: Result<DeletionResult, Error>,
    ) -> Result<(), Error> {
        let DeletionResult {
            present,
            surplus,
            in_use,
            result,
        } = deletions?;
        let mut applied = Ok(());
        if matches!(action, DesiredAction::Apply) {
            let is_current = |binding: &K| present.iter().any(|found| found.is_current(binding));
            let missing = desired.iter().filter(|binding| !is_current(binding));
            applied = self.apply_all(missing).await;
        }
        result.and(applied)?;
        if surplus.is_empty() {
            return Ok(());
        }
        let (of_provider, of_removed) = tokio::join!(self.list::<K>(own), self.list::<K>(stale));
        let mut remaining = of_provider?.items;
        let is_deleted = |found: &FoundBinding| {
            matches!(action, DesiredAction::Delete(_)) || !desired.iter().any(|desired| found.is_for(desired))
        };
        remaining.retain(is_deleted);
        remaining.extend(of_removed?.items);
        if remaining.iter().all(|found| contains_object(&in_use, found)) {
            return Ok(());
        }
        Err(Error::Remain {
            server: self.server(),
        })
    }
}

/// Whether this very object is among others.
fn contains_object(objects: &[FoundBinding], found: &FoundBinding) -> bool {
    objects.iter().any(|object| object.is_same(found))
}
