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
    found::{FoundBinding, Metadata},
};
use crate::identity::MANAGER;

/// Maximum number of bindings that the agent lists: more than any provider can have. It skips further ones of the server.
pub(super) const MAX_LISTED_BINDINGS: usize = 500;
/// How long deleting, or applying, the bindings of a kind may take.
pub(super) const CHANGE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long listing the bindings of a kind may take.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum number of bindings of a kind that are deleted or applied concurrently, counted apart for those that the spec does not request and
/// those that may be in use.
const MAX_CONCURRENT_CHANGES: usize = 4;

/// Calls of one API server, until this time.
pub(super) struct Calls {
    tenant: tenant::Tenant,
    until: Instant,
}

/// The answer to a list of bindings.
pub(super) struct BindingList {
    pub(super) items: Vec<FoundBinding>,
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

    pub(super) async fn list<K: Binding>(&self, selector: &str) -> Result<BindingList, Error> {
        let limit = self.limit(LIST_TIMEOUT);
        let listing = ListParams::default()
            .labels(selector)
            .limit(MAX_LISTED_BINDINGS.try_into().unwrap_or(u32::MAX));
        let request = request_for::<K>(None).list(&listing);
        let action = format!("list {}s", K::kind(&()));
        let call = self
            .tenant
            .call::<Page<FoundBinding, MAX_LISTED_BINDINGS>>(request);
        let listed = time::timeout_at(limit.until, call).await;
        let listed = listed.map_err(|_| self.timeout_error(&action, limit))?;
        let Page { metadata, items } = listed.map_err(|error| self.call_error(&action, &error))?;
        let PageMeta { next } = metadata;
        let items = items.0;
        let more = next.is_some_and(|next| !next.is_empty()) || items.len() == MAX_LISTED_BINDINGS;
        let complete = if more {
            Err(Error::TooMany {
                server: self.server(),
            })
        } else {
            Ok(())
        };
        Ok(BindingList { items, complete })
    }

    pub(super) async fn delete_all<K: Binding>(&self, bindings: &[FoundBinding]) -> Result<(), Error> {
        let mut deletions = Vec::with_capacity(bindings.len());
        for found in bindings {
            deletions.push(self.delete::<K>(found));
        }
        self.run_all(&format!("delete {}s", K::kind(&())), deletions)
            .await
    }

    pub(super) async fn apply_all<'a, K: Binding + 'a>(
        &self,
        bindings: impl Iterator<Item = &'a K>,
    ) -> Result<(), Error> {
        let mut applications = Vec::new();
        for binding in bindings {
            applications.push(self.apply(binding));
        }
        self.run_all(&format!("apply {}s", K::kind(&())), applications)
            .await
    }

    /// Makes these calls concurrently. Returns that some were not answered in time, or else the first fault in the order of `calls`: the order in
    /// which they are made and answered varies, and the status must not.
    async fn run_all(
        &self,
        action: &str,
        calls: Vec<impl Future<Output = Result<(), Error>>>,
    ) -> Result<(), Error> {
        let limit = self.limit(CHANGE_TIMEOUT);
        let calls = calls.into_iter().enumerate();
        let calls = calls.map(|(index, call)| async move {
            let done = time::timeout_at(limit.until, call).await;
            (index, done)
        });
        let mut calls: Vec<_> = calls.collect();
        // Begins at a random call, so that calls that hang do not leave the same others without time in each check.
        let begin = random_index(calls.len());
        calls.rotate_left(begin);
        let mut done: Vec<_> = stream::iter(calls)
            .buffer_unordered(MAX_CONCURRENT_CHANGES)
            .collect()
            .await;
        done.sort_unstable_by_key(|(index, _)| *index);
        let done: Result<Vec<_>, _> = done.into_iter().map(|(_, done)| done).collect();
        let done = done.map_err(|_| self.timeout_error(action, limit))?;
        done.into_iter().collect()
    }

    async fn delete<K: Binding>(&self, found: &FoundBinding) -> Result<(), Error> {
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
        let request = request_for::<K>(namespace.as_deref()).delete(name, &this);
        match self.tenant.change(request).await {
            Err(error) if !matches!(apply::code(&error), Some(404 | 409)) => {
                Err(self.call_error(&format!("delete {} {name}", K::kind(&())), &error))
            }
            _ => Ok(()),
        }
    }

    async fn apply<K: Binding>(&self, binding: &K) -> Result<(), Error> {
        let namespace = binding.namespace();
        let name = binding.name_any();
        let Manager(manager) = MANAGER;
        let params = PatchParams::apply(manager).force();
        let request = request_for::<K>(namespace.as_deref()).patch(&name, &params, &Patch::Apply(binding));
        let applied = self.tenant.change(request).await;
        applied.map_err(|error| self.call_error(&apply_action(binding), &error))
    }

    fn timeout_error(&self, action: &str, Limit { time, until: _ }: Limit) -> Error {
        let (server, action) = (self.server(), tenant::short(action));
        let reason = format!("no answer within {} s to: {action}", time.as_secs());
        tenant::Error::Unreachable { server, reason }.into()
    }

    fn call_error(&self, action: &str, error: &kube::Error) -> Error {
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
fn request_for<K: Binding>(namespace: Option<&str>) -> Request {
    Request::new(K::url_path(&(), namespace))
}

/// A random index below `count`.
fn random_index(count: usize) -> usize {
    let count = u128::try_from(count).unwrap_or_default().max(1);
    usize::try_from(Uuid::new_v4().as_u128() % count).unwrap_or_default()
}

fn apply_action<K: Binding>(binding: &K) -> String {
    let place = binding.namespace().map(|namespace| format!("{namespace}/"));
    let (kind, name, role) = (K::kind(&()), binding.name_any(), &binding.role().name);
    format!("apply {kind} {}{name} of role {role}", place.unwrap_or_default())
}
