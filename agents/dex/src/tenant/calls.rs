//! The calls by which the bindings at one API server become as they should be. Whatever is deleted is deleted first, of every kind: a right
//! that the spec takes away does not wait for one that it gives, nor for a call that hangs.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
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
use tokio::time::{self, Instant};
use uuid::Uuid;

use super::{
    ANSWER, Binding, Error,
    found::{Found, Metadata},
};
use crate::identity::MANAGER;

/// Bindings that are listed: more than any provider can have. The server may have more; these are not kept.
pub(super) const LISTED: usize = 500;
/// Within this time bindings are deleted, or applied: a webhook of the tenant that does not answer holds up no other call.
const CHANGES: Duration = Duration::from_secs(4);
/// Within this time bindings are listed once.
const LIST: Duration = Duration::from_secs(4);
/// Within this time the API server that is used now is connected to and has listed its bindings. Meanwhile bindings are deleted at the former
/// one.
const USED: Duration = Duration::from_secs(6);
/// It has this time for a list in any case: a former API server that is slow does not use it up, or is the fault itself.
const USED_LIST: Duration = Duration::from_secs(2);
/// Within this time since the check began the bindings at a former API server are deleted. It ends before the check, so that a deletion that
/// failed is the fault whatever else takes too long.
const LEAVE: Duration = Duration::from_secs(9);
const _: () = assert!(LEAVE.as_secs() < ANSWER.as_secs(), "it ends before the check");
/// Bindings of a kind that are deleted or applied concurrently.
const AT_ONCE: usize = 8;

/// Calls of one API server.
pub(super) struct Calls(pub(super) tenant::Tenant);

/// What is done about the bindings that are asked for, once the others are deleted.
#[derive(Clone, Copy)]
pub(super) enum Then<'a> {
    Apply,
    Keep,
    /// They are deleted, except those that another API server also has.
    Delete(Option<&'a Used>),
    /// If there are any, it is an error.
    MayDelete,
}

/// The API server that is used now, and how long it is asked.
pub(super) struct Used {
    calls: Calls,
    limit: Limit,
}

/// Until when calls are waited for.
#[derive(Clone, Copy)]
struct Limit {
    time: Duration,
    until: Instant,
}

impl Limit {
    /// That begins now.
    fn new(time: Duration) -> Self {
        Self::since(Instant::now(), time)
    }

    /// That began then.
    fn since(begin: Instant, time: Duration) -> Self {
        let until = begin + time;
        Self { time, until }
    }

    /// The same, but no longer than another one.
    fn within(self, other: Self) -> Self {
        let until = self.until.min(other.until);
        Self { until, ..self }
    }

    /// The same, but with this time left at least. It is called as before, so that a fault has one text.
    fn at_least(self, left: Duration) -> Self {
        let until = self.until.max(Instant::now() + left);
        Self { until, ..self }
    }
}

/// The bindings of a kind.
struct Listed {
    /// Those that are asked for, whatever is in them, unless they are to be deleted.
    present: Vec<Found>,
    /// Those that are to be deleted.
    surplus: Vec<Found>,
    /// Those that are in use elsewhere, so that they stay.
    in_use: Vec<Found>,
    /// Whether bindings that are asked for may be in use.
    may_be_in_use: bool,
}

impl Calls {
    pub(super) async fn reconcile(&self, bindings: &GroupBindings, then: Then<'_>) -> Result<(), Error> {
        let GroupBindings {
            selector,
            stale,
            cluster,
            namespaced,
        } = bindings;
        // Those that nobody asks for are deleted beside the comparison.
        let stale = (!matches!(then, Then::Delete(Some(_)))).then_some(&**stale);
        let selectors = (&**selector, stale);
        // No more at once: an answer may have a MiB, and many tenants are asked at once.
        let (in_cluster, in_namespaces) = tokio::join!(
            self.without_surplus::<ClusterRoleBinding>(selectors, cluster, then),
            self.without_surplus::<RoleBinding>(selectors, namespaced, then),
        );
        let (in_cluster, in_namespaces) = tokio::join!(
            self.finish(selectors, cluster, then, in_cluster),
            self.finish(selectors, namespaced, then, in_namespaces),
        );
        in_cluster.and(in_namespaces)
    }

    /// Deletes all bindings, except those that the API server has which is used now. `begin`: when the check began; `used`: connects to the
    /// one that is used now.
    pub(super) async fn leave(
        &self,
        bindings: &GroupBindings,
        begin: Instant,
        used: impl Future<Output = Result<Self, tenant::Error>>,
    ) -> Result<(), Error> {
        let all = Limit::since(begin, LEAVE);
        let limit = Limit::new(USED).within(all);
        let late = |_| Err(self.too_late("compare and delete bindings", all));
        let compared = async {
            let in_use = |error: Error| Error::InUse(Box::new(error));
            let used = time::timeout_at(limit.until, used).await;
            let used = used.map_err(|_| in_use(Error::NoConnection(USED.as_secs())))?;
            let calls = used.map_err(|error| in_use(error.into()))?;
            let then = Then::Delete(Some(&Used { calls, limit }));
            let compared = time::timeout_at(all.until, self.reconcile(bindings, then)).await;
            compared.unwrap_or_else(late)
        };
        // What nobody asks for does not wait for the other API server, and nothing waits for what cannot be deleted of it.
        let unasked = time::timeout_at(all.until, self.reconcile(bindings, Then::Keep));
        let (unasked, compared) = tokio::join!(unasked, compared);
        unasked.unwrap_or_else(late).and(compared)
    }

    /// The selectors are of the provider's bindings, and of those whose provider the cluster does not have any more. `None`: what nobody
    /// asks for is passed over.
    ///
    /// # Errors
    /// When bindings cannot be listed: then nothing is done about any of the kind.
    async fn listed<K: Binding>(
        &self,
        selectors: (&str, Option<&str>),
        desired: &[K],
        then: Then<'_>,
    ) -> Result<Listed, Error> {
        let (mut present, mut surplus) = self.sorted(selectors, desired).await?;
        let may_be_in_use = matches!(then, Then::MayDelete) && !present.is_empty();
        let mut in_use: Vec<Found> = Vec::new();
        if let Then::Delete(there) = then {
            // Listed later than what is deleted: a binding that the same cluster is given meanwhile is not among that.
            if let Some(there) = there.filter(|_| !present.is_empty()) {
                let Used { calls, limit } = there;
                let listed = calls.list::<K>(selectors.0, limit.at_least(USED_LIST)).await;
                let listed = listed.and_then(|listed| calls.complete(listed));
                in_use = listed.map_err(|error| Error::InUse(Box::new(error)))?;
            }
            surplus.extend(std::mem::take(&mut present));
        }
        surplus.retain(|found| !is_among(&in_use, found));
        Ok(Listed {
            present,
            surplus,
            in_use,
            may_be_in_use,
        })
    }

    /// Lists a kind, and deletes what is to be deleted of it. Returns the first fault with it.
    async fn without_surplus<K: Binding>(
        &self,
        selectors: (&str, Option<&str>),
        desired: &[K],
        then: Then<'_>,
    ) -> Result<(Listed, Result<(), Error>), Error> {
        let listed = self.listed(selectors, desired, then).await?;
        let mut deletions = Vec::with_capacity(listed.surplus.len());
        for found in &listed.surplus {
            deletions.push(self.delete::<K>(found));
        }
        let deleted = self.all(&format!("delete {}s", K::kind(&())), deletions).await;
        let may_be_in_use = if listed.may_be_in_use {
            Err(Error::MayBeInUse)
        } else {
            Ok(())
        };
        Ok((listed, may_be_in_use.and(deleted)))
    }

    /// Applies what is asked for, if it is to be, and lists once more what was deleted: finalizers may hold it, and a listing is bounded.
    async fn finish<K: Binding>(
        &self,
        selectors: (&str, Option<&str>),
        desired: &[K],
        then: Then<'_>,
        listed: Result<(Listed, Result<(), Error>), Error>,
    ) -> Result<(), Error> {
        let (listed, deleted) = listed?;
        let Listed {
            present,
            surplus,
            in_use,
            may_be_in_use: _,
        } = listed;
        let mut applications = Vec::new();
        if matches!(then, Then::Apply) {
            for binding in desired {
                if !present.iter().any(|found| found.stands_as(binding)) {
                    applications.push(self.apply(binding));
                }
            }
        }
        let applied = self.all(&format!("apply {}s", K::kind(&())), applications).await;
        deleted.and(applied)?;
        if surplus.is_empty() {
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

    /// Makes these calls concurrently. Returns that some are not answered in time, or else the first fault by their order: which calls come
    /// first, and which ends first, is by chance, and the status is not.
    async fn all(
        &self,
        action: &str,
        calls: Vec<impl Future<Output = Result<(), Error>>>,
    ) -> Result<(), Error> {
        let limit = Limit::new(CHANGES);
        let calls = calls.into_iter().enumerate();
        let calls = calls.map(|(index, call)| async move {
            let done = time::timeout_at(limit.until, call).await;
            (index, done)
        });
        let mut calls: Vec<_> = calls.collect();
        // Where many hang, the others are not always left over for the end.
        let begin = anywhere(calls.len());
        calls.rotate_left(begin);
        let mut done: Vec<_> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
        done.sort_unstable_by_key(|(index, _)| *index);
        let done: Result<Vec<_>, _> = done.into_iter().map(|(_, done)| done).collect();
        let done = done.map_err(|_| self.too_late(action, limit))?;
        done.into_iter().collect()
    }

    /// The bindings that are desired, whatever is in them, and those that nobody asks for, unless these are passed over.
    async fn sorted<K: Binding>(
        &self,
        (own, stale): (&str, Option<&str>),
        desired: &[K],
    ) -> Result<(Vec<Found>, Vec<Found>), Error> {
        let in_time = || Limit::new(LIST);
        let listed = self.list::<K>(own, in_time()).await?.into_iter();
        let (present, mut surplus): (Vec<_>, Vec<_>) =
            listed.partition(|found| desired.iter().any(|desired| found.is(desired)));
        match stale {
            Some(stale) => surplus.extend(self.list::<K>(stale, in_time()).await?),
            None => surplus.clear(),
        }
        Ok((present, surplus))
    }

    async fn list<K: Binding>(&self, selector: &str, limit: Limit) -> Result<Vec<Found>, Error> {
        let listing = ListParams::default()
            .labels(selector)
            .limit(LISTED.try_into().unwrap_or(u32::MAX));
        let request = within::<K>(None).list(&listing);
        let action = format!("list {}s", K::kind(&()));
        let listed = time::timeout_at(limit.until, self.0.call::<Page<Found, LISTED>>(request)).await;
        let listed = listed.map_err(|_| self.too_late(&action, limit))?;
        let Page { metadata: _, items } = listed.map_err(|error| self.failed(&action, &error))?;
        Ok(items.0)
    }

    /// Bindings that are listed, if these are all.
    fn complete(&self, listed: Vec<Found>) -> Result<Vec<Found>, Error> {
        if listed.len() < LISTED {
            return Ok(listed);
        }
        let server = self.0.server().to_owned();
        Err(Error::Many { server })
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
        applied
            .map(|_| ())
            .map_err(|error| self.failed(&action_of(binding), &error))
    }

    fn too_late(&self, action: &str, Limit { time, until: _ }: Limit) -> Error {
        let (server, action) = (self.0.server().to_owned(), tenant::short(action));
        let reason = format!("no answer within {} s to: {action}", time.as_secs());
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

/// A place among so many, by chance.
fn anywhere(many: usize) -> usize {
    let many = u128::try_from(many).unwrap_or_default().max(1);
    usize::try_from(Uuid::new_v4().as_u128() % many).unwrap_or_default()
}

fn action_of<K: Binding>(binding: &K) -> String {
    let place = binding.namespace().map(|namespace| format!("{namespace}/"));
    let (kind, name, role) = (K::kind(&()), binding.name_any(), &binding.role().name);
    format!("apply {kind} {}{name} of role {role}", place.unwrap_or_default())
}

/// Whether this very object is among others.
fn is_among(objects: &[Found], found: &Found) -> bool {
    objects.iter().any(|object| object.is_same(found))
}
