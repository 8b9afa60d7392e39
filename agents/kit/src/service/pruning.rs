//! Deletion of instances that are no longer desired.

use api::SIPCluster;
use kube::{ResourceExt as _, core::ObjectMeta};

use super::{
    context::Context,
    definition::Service,
    error::{Error, Errors, refusal},
    kinds::{Children, Kind},
    observed::Observed,
    outcome::Outcome,
    ownership,
    problem::Problem,
    site::Site,
};

/// Which objects without an owner are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unowned {
    /// Those that SIP made, by their labels or names.
    Sip,
    /// None.
    Kept,
}

/// What has become of instances that are not desired.
#[derive(Default)]
pub(super) struct Pruned {
    /// Deletions that the API server refuses.
    pub(super) refused: Vec<Problem>,
    /// What failed in the pass.
    pub(super) errors: Errors,
}

impl Pruned {
    /// Deletes these instances of a cluster; one that cannot be deleted holds up no other.
    pub(super) async fn delete<'a, S: Service>(
        context: &Context<S>,
        observed: &Observed<'_>,
        names: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut pruned = Self::default();
        for name in names {
            context.service.forget(observed.object(), name);
            match delete(&context.site, observed.object(), name).await {
                Ok(refused) => pruned.refused.extend(refused),
                Err(error) => pruned.errors.push(error),
            }
        }
        pruned
    }

    /// Deletes every instance that exists, but for these, and has the service forget all others.
    pub(super) async fn delete_others<S: Service>(
        context: &Context<S>,
        observed: &Observed<'_>,
        staying: &[&str],
    ) -> Self {
        context.service.retain(observed.object(), staying);
        let existing = observed.names().iter().map(String::as_str);
        Self::delete(context, observed, existing.filter(|name| !staying.contains(name))).await
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.refused.extend(other.refused);
        self.errors.extend(other.errors);
    }

    /// Whether everything is deleted.
    pub(super) fn is_complete(&self) -> bool {
        self.refused.is_empty() && self.errors.is_empty()
    }

    /// What is refused, for the report.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = Outcome> {
        let refused = self.refused.iter().cloned();
        refused.map(|problem| Outcome::Refused(problem, Vec::new()))
    }

    /// The end of a pass that has done all else: it fails if anything has failed.
    pub(super) fn end<Pass>(self, pass: Pass) -> Result<Pass, Error> {
        match self.errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(pass),
        }
    }
}

/// Deletes the children of an instance in the order of `Identity::children`, and its Service last. The next pass finds what is left by its owner.
/// Objects of this name that somebody else owns stay; if the Service is one of these, the children that the cluster owns are deleted, and
/// children without an owner count as belonging to the owner of the Service. Returns the first deletion that the API server refuses.
pub(super) async fn delete(site: &Site, object: &SIPCluster, name: &str) -> Result<Option<Problem>, Error> {
    let namespace = object.namespace().unwrap_or_default();
    site.last_applied.forget(&namespace, name);
    let is_foreign = ownership::foreign(site, object, name).await?.is_some();
    let unowned = if is_foreign { Unowned::Kept } else { Unowned::Sip };
    let cluster = (object.uid().unwrap_or_default(), object.name_any());
    let cluster = (&*cluster.0, &*cluster.1);
    let mut refused = None;
    for Children { kind, suffix } in site.identity.children {
        let child = format!("{name}{suffix}");
        let deleted = delete_child(site, cluster, *kind, (&namespace, &child), unowned).await?;
        refused = refused.or(deleted);
    }
    if refused.is_none() && !is_foreign {
        refused = delete_child(site, cluster, Kind::Service, (&namespace, name), unowned).await?;
    }
    Ok(refused.map(|problem| problem.named(name)))
}

/// Deletes one child of a cluster, by uid and name, that its instance must not have; not an object of somebody else. Returns why the API server
/// refuses that.
pub(super) async fn delete_child(
    site: &Site,
    cluster: (&str, &str),
    kind: Kind,
    (namespace, name): (&str, &str),
    unowned: Unowned,
) -> Result<Option<Problem>, Error> {
    let action = || format!("delete the {}", kind.as_str());
    let found = kind.find(&site.client, namespace, name).await;
    let Some(found) = found.map_err(Error::kubernetes(action()))? else {
        return Ok(None);
    };
    let stays = unowned == Unowned::Kept && !has_owner(&found);
    if stays || ownership::foreign_child(site.identity, cluster, kind, &found).is_some() {
        return Ok(None);
    }
    let Err(error) = kind.delete(&site.client, namespace, &found).await else {
        return Ok(None);
    };
    let Problem { reason, message } = refusal(action(), error)?;
    let message = format!("the API server does not {}: {message}", action());
    Ok(Some(Problem::new(reason, message)))
}

/// Whether a `SIPCluster` owns it.
fn has_owner(found: &ObjectMeta) -> bool {
    let mut owners = found.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "SIPCluster")
}
