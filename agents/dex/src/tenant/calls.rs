//! The calls by which the bindings at one API server become as they should be. Whatever is deleted is deleted first, of every kind: a right
//! that the spec takes away does not wait for one that it gives, nor for a call that hangs.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use kit::{
    apply::{self, Manager},
    tenant::{self, page::Page},
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::Request,
};
use render::dex::GroupBindings;
use serde::de::IgnoredAny;
use tokio::time;

use super::{
    Binding, Error,
    found::{Found, Metadata},
};
use crate::identity::MANAGER;

/// Bindings that are listed: more than any provider can have. The server may answer with more; these are not kept.
const LISTED: usize = 500;
/// Within this time the bindings of a kind are deleted, or listed where they are in use: a webhook of the tenant that does not answer holds
/// up no other.
const EACH: Duration = Duration::from_secs(2);
/// Bindings that are deleted concurrently.
const AT_ONCE: usize = 16;

/// Calls of one API server.
pub(super) struct Calls(pub(super) tenant::Tenant);

/// What is done about the bindings that are asked for, once the others are deleted.
#[derive(Clone, Copy)]
pub(super) enum Then<'a> {
    Apply,
    Keep,
    /// They are deleted, except those that this API server also has.
    Delete(Option<&'a Calls>),
    /// If there are any, it is an error.
    MayDelete,
}

/// The bindings of a kind, once those are deleted that are not asked for.
struct Cleared {
    /// Those that are asked for, whatever is in them.
    present: Vec<Found>,
    /// Those that are in use elsewhere, so that they stay.
    in_use: Vec<Found>,
    /// Whether some were deleted, or were to be.
    deletes: bool,
    /// The first fault.
    result: Result<(), Error>,
}

impl Calls {
    pub(super) async fn reconcile(&self, bindings: &GroupBindings, then: Then<'_>) -> Result<(), Error> {
        let GroupBindings {
            selector,
            stale,
            cluster,
            namespaced,
        } = bindings;
        let selectors = (&**selector, &**stale);
        let in_cluster = self.clear(selectors, cluster, then).await;
        let in_namespaces = self.clear(selectors, namespaced, then).await;
        let in_cluster = self.finish(selectors, cluster, then, in_cluster).await;
        in_cluster.and(self.finish(selectors, namespaced, then, in_namespaces).await)
    }

    /// Deletes all bindings, except those that the API server has which is used now. `used`: connects to that.
    pub(super) async fn leave(
        &self,
        bindings: &GroupBindings,
        used: impl Future<Output = Result<Self, tenant::Error>>,
    ) -> Result<(), Error> {
        // What nobody asks for does not wait for the other API server, and nothing waits for what cannot be deleted of it.
        let deleted = self.reconcile(bindings, Then::Keep).await;
        let in_use = |error: Error| Error::InUse(Box::new(error));
        let used = time::timeout(EACH, used).await;
        let used = used.map_err(|_| in_use(Error::NoConnection))?;
        let used = used.map_err(|error| in_use(error.into()))?;
        deleted.and(self.reconcile(bindings, Then::Delete(Some(&used))).await)
    }

    /// Deletes what is not asked for. The selectors are of the provider's bindings, and of those whose provider the cluster does not have any
    /// more.
    ///
    /// # Errors
    /// When bindings cannot be listed: then nothing is done about any.
    async fn clear<K: Binding>(
        &self,
        selectors: (&str, &str),
        desired: &[K],
        then: Then<'_>,
    ) -> Result<Cleared, Error> {
        let (mut present, mut surplus) = self.sorted(selectors, desired).await?;
        let mut result = Ok(());
        let mut in_use: Vec<Found> = Vec::new();
        match then {
            Then::MayDelete if !present.is_empty() => result = Err(Error::MayBeInUse),
            Then::MayDelete | Then::Keep | Then::Apply => {}
            Then::Delete(there) => {
                // Listed later than what is deleted: a binding that the same cluster is given meanwhile is not among that.
                if let Some(there) = there.filter(|_| !present.is_empty()) {
                    let listed = there.list_in_time::<K>(selectors.0).await;
                    in_use = listed.map_err(|error| Error::InUse(Box::new(error)))?;
                }
                surplus.extend(std::mem::take(&mut present));
            }
        }
        surplus.retain(|found| !is_among(&in_use, found));
        let mut deleting = Vec::with_capacity(surplus.len());
        for found in &surplus {
            deleting.push(self.delete_in_time::<K>(found));
        }
        let deleted = stream::iter(deleting).buffer_unordered(AT_ONCE);
        let deleted: Vec<Result<(), Error>> = deleted.collect().await;
        Ok(Cleared {
            present,
            in_use,
            deletes: !surplus.is_empty(),
            result: deleted.into_iter().fold(result, Result::and),
        })
    }

    /// Applies what is asked for, if it is to be, and lists once more what was deleted: finalizers may hold it, and a listing is bounded.
    async fn finish<K: Binding>(
        &self,
        selectors: (&str, &str),
        desired: &[K],
        then: Then<'_>,
        cleared: Result<Cleared, Error>,
    ) -> Result<(), Error> {
        let Cleared {
            present,
            in_use,
            deletes,
            mut result,
        } = cleared?;
        if matches!(then, Then::Apply) {
            for binding in desired {
                if !present.iter().any(|found| found.stands_as(binding)) {
                    result = result.and(self.apply(binding).await);
                }
            }
        }
        result?;
        if !deletes {
            return Ok(());
        }
        let (present, mut surplus) = self.sorted(selectors, desired).await?;
        if matches!(then, Then::Delete(_)) {
            surplus.extend(present);
        }
        if surplus.iter().all(|found| is_among(&in_use, found)) {
            return Ok(());
        }
        let server = self.0.server().to_owned();
        Err(Error::Remain { server })
    }

    /// The bindings that are desired, whatever is in them, and those that are to be deleted.
    async fn sorted<K: Binding>(
        &self,
        (own, stale): (&str, &str),
        desired: &[K],
    ) -> Result<(Vec<Found>, Vec<Found>), Error> {
        // One after another: an answer may have a MiB, and many tenants are asked at once.
        let listed = self.list::<K>(own).await?.into_iter();
        let (present, mut surplus): (Vec<_>, Vec<_>) =
            listed.partition(|found| desired.iter().any(|desired| found.is(desired)));
        surplus.extend(self.list::<K>(stale).await?);
        Ok((present, surplus))
    }

    async fn list<K: Binding>(&self, selector: &str) -> Result<Vec<Found>, Error> {
        let listing = ListParams::default()
            .labels(selector)
            .limit(LISTED.try_into().unwrap_or(u32::MAX));
        let request = within::<K>(None).list(&listing);
        let listed = self.0.call::<Page<Found, LISTED>>(request).await;
        let Page { metadata: _, items } =
            listed.map_err(|error| self.failed(&format!("list {}s", K::kind(&())), &error))?;
        Ok(items.0)
    }

    /// The same within its time.
    async fn list_in_time<K: Binding>(&self, selector: &str) -> Result<Vec<Found>, Error> {
        let listed = time::timeout(EACH, self.list::<K>(selector)).await;
        listed.unwrap_or_else(|_| Err(self.too_late(&format!("list {}s", K::kind(&())))))
    }

    async fn delete_in_time<K: Binding>(&self, found: &Found) -> Result<(), Error> {
        let deleted = time::timeout(EACH, self.delete::<K>(found)).await;
        let action = || format!("delete {} {}", K::kind(&()), found.metadata.name);
        deleted.unwrap_or_else(|_| Err(self.too_late(&action())))
    }

    async fn delete<K: Binding>(&self, found: &Found) -> Result<(), Error> {
        let Metadata {
            name,
            namespace,
            uid,
            labels: _,
        } = &found.metadata;
        let this = DeleteParams::default().preconditions(Preconditions {
            uid: uid.clone(),
            resource_version: None,
        });
        let request = within::<K>(namespace.as_deref()).delete(name, &this);
        match self.0.call::<IgnoredAny>(request).await {
            Err(error) if !matches!(apply::code(&error), Some(404 | 409)) => {
                Err(self.failed(&format!("delete {} {name}", K::kind(&())), &error))
            }
            _ => Ok(()),
        }
    }

    async fn apply<K: Binding>(&self, binding: &K) -> Result<(), Error> {
        let namespace = binding.namespace();
        let name = binding.name_any();
        let Manager(manager) = MANAGER;
        let params = PatchParams::apply(manager).force();
        let request = within::<K>(namespace.as_deref()).patch(&name, &params, &Patch::Apply(binding));
        let applied = self.0.call::<IgnoredAny>(request).await;
        applied.map(|_| ()).map_err(|error| {
            let place = namespace
                .map(|namespace| format!("{namespace}/"))
                .unwrap_or_default();
            let kind = K::kind(&());
            let action = format!("apply {kind} {place}{name} of role {}", binding.role().name);
            self.failed(&action, &error)
        })
    }

    fn too_late(&self, action: &str) -> Error {
        let (server, action) = (self.0.server().to_owned(), tenant::short(action));
        let reason = format!("no answer within {} s to: {action}", EACH.as_secs());
        tenant::Error::Unreachable { server, reason }.into()
    }

    fn failed(&self, action: &str, error: &kube::Error) -> Error {
        // The tenant's API server chooses the reason, and names of bindings in the action.
        let (server, reason) = (self.0.server().to_owned(), tenant::reason(error));
        match apply::code(error) {
            Some(400..500) => Error::Refused {
                server,
                action: tenant::short(action),
                reason,
            },
            _ => tenant::Error::Unreachable { server, reason }.into(),
        }
    }
}

/// The objects of a kind, in a namespace or in the whole cluster.
fn within<K: Binding>(namespace: Option<&str>) -> Request {
    Request::new(K::url_path(&(), namespace))
}

/// Whether this very object is among others.
fn is_among(objects: &[Found], found: &Found) -> bool {
    objects.iter().any(|object| object.is_same(found))
}
