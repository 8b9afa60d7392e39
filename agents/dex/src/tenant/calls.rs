//! Calls to one API server, about bindings. Each has a time limit: a webhook of the tenant that does not answer delays no other call.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use kit::{
    apply::{self, Manager},
    tenant::{
        self,
        page::{Page, PageMeta},
    },
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::Request,
};
use tokio::time::{self, Instant};
use uuid::Uuid;

use super::{
    Binding, Error,
    found::{Found, Metadata},
};
use crate::identity::MANAGER;

/// Bindings that are listed: more than any provider can have. The server may have more; these are not kept.
pub(super) const LISTED: usize = 500;
/// Within this time bindings are deleted, or applied.
pub(super) const CHANGES: Duration = Duration::from_secs(4);
/// Within this time bindings are listed.
pub(super) const LIST: Duration = Duration::from_secs(4);
/// Bindings of a kind that are deleted or applied concurrently; those that nobody asks for and those that may be in use are apart.
const AT_ONCE: usize = 4;

/// Calls of one API server, until this time.
pub(super) struct Calls {
    tenant: tenant::Tenant,
    until: Instant,
}

/// Bindings that are listed.
pub(super) struct Listed {
    pub(super) items: Vec<Found>,
    /// Whether these are all; otherwise that there are more.
    pub(super) complete: Result<(), Error>,
}

/// The time limit of calls.
#[derive(Clone, Copy)]
struct Limit {
    time: Duration,
    until: Instant,
}

impl Calls {
    pub(super) fn new(tenant: tenant::Tenant, until: Instant) -> Self {
        Self { tenant, until }
    }

    pub(super) fn server(&self) -> String {
        self.tenant.server().to_owned()
    }

    /// A limit from now on, which ends no later than that of all calls. Messages state `time` even where less is left, so that the same fault has
    /// the same text each time.
    fn limit(&self, time: Duration) -> Limit {
        let until = self.until.min(Instant::now() + time);
        Limit { time, until }
    }

    pub(super) async fn list<K: Binding>(&self, selector: &str) -> Result<Listed, Error> {
        let limit = self.limit(LIST);
        let listing = ListParams::default()
            .labels(selector)
            .limit(LISTED.try_into().unwrap_or(u32::MAX));
        let request = within::<K>(None).list(&listing);
        let action = format!("list {}s", K::kind(&()));
        let call = self.tenant.call::<Page<Found, LISTED>>(request);
        let listed = time::timeout_at(limit.until, call).await;
        let listed = listed.map_err(|_| self.too_late(&action, limit))?;
        let Page { metadata, items } = listed.map_err(|error| self.failed(&action, &error))?;
        let PageMeta { next } = metadata;
        let items = items.0;
        let more = next.is_some_and(|next| !next.is_empty()) || items.len() == LISTED;
        let complete = if more {
            Err(Error::Many {
                server: self.server(),
            })
        } else {
            Ok(())
        };
        Ok(Listed { items, complete })
    }

    pub(super) async fn delete_all<K: Binding>(&self, bindings: &[Found]) -> Result<(), Error> {
        let mut deletions = Vec::with_capacity(bindings.len());
        for found in bindings {
            deletions.push(self.delete::<K>(found));
        }
        self.all(&format!("delete {}s", K::kind(&())), deletions).await
    }

    pub(super) async fn apply_all<'a, K: Binding + 'a>(
        &self,
        bindings: impl Iterator<Item = &'a K>,
    ) -> Result<(), Error> {
        let mut applications = Vec::new();
        for binding in bindings {
            applications.push(self.apply(binding));
        }
        self.all(&format!("apply {}s", K::kind(&())), applications).await
    }

    /// Makes these calls concurrently. Returns that some were not answered in time, or else the first fault in the order of `calls`: the order in
    /// which they are made and answered varies, and the status must not.
    async fn all(
        &self,
        action: &str,
        calls: Vec<impl Future<Output = Result<(), Error>>>,
    ) -> Result<(), Error> {
        let limit = self.limit(CHANGES);
        let calls = calls.into_iter().enumerate();
        let calls = calls.map(|(index, call)| async move {
            let done = time::timeout_at(limit.until, call).await;
            (index, done)
        });
        let mut calls: Vec<_> = calls.collect();
        // Begins at a random call, so that calls that hang do not leave the same others without time in each check.
        let begin = anywhere(calls.len());
        calls.rotate_left(begin);
        let mut done: Vec<_> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
        done.sort_unstable_by_key(|(index, _)| *index);
        let done: Result<Vec<_>, _> = done.into_iter().map(|(_, done)| done).collect();
        let done = done.map_err(|_| self.too_late(action, limit))?;
        done.into_iter().collect()
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
        match self.tenant.change(request).await {
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
        let applied = self.tenant.change(request).await;
        applied.map_err(|error| self.failed(&action_of(binding), &error))
    }

    fn too_late(&self, action: &str, Limit { time, until: _ }: Limit) -> Error {
        let (server, action) = (self.server(), tenant::short(action));
        let reason = format!("no answer within {} s to: {action}", time.as_secs());
        tenant::Error::Unreachable { server, reason }.into()
    }

    fn failed(&self, action: &str, error: &kube::Error) -> Error {
        // The tenant's API server chooses the reason, and names of bindings in the action.
        let (server, reason) = (self.server(), tenant::reason(error));
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

/// A random place among so many.
fn anywhere(many: usize) -> usize {
    let many = u128::try_from(many).unwrap_or_default().max(1);
    usize::try_from(Uuid::new_v4().as_u128() % many).unwrap_or_default()
}

fn action_of<K: Binding>(binding: &K) -> String {
    let place = binding.namespace().map(|namespace| format!("{namespace}/"));
    let (kind, name, role) = (K::kind(&()), binding.name_any(), &binding.role().name);
    format!("apply {kind} {}{name} of role {role}", place.unwrap_or_default())
}
