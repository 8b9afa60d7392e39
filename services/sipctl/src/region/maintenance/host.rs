//! Annotations on one `BareMetalHost`: one merge patch, conditioned on what was looked at.

use std::fmt::Write as _;

use api::{BareMetalHost, annotations, labels};
use backon::{ExponentialBuilder, Retryable as _};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use placement::HostName;
use serde_json::{Map, Value, json};

use super::access::{self, Access};
use crate::one_line;
use crate::region::outcome::{DRY_RUN, Outcome};

/// Field manager of what sipctl writes.
pub(super) const FIELD_MANAGER: &str = "sipctl";
/// Maximum number of characters of a host's own texts in a message.
const MAX_TEXT_CHARACTERS: usize = 300;

/// Annotations to add and to remove, and what that means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) set: &'static [&'static str],
    pub(super) clear: &'static [&'static str],
    /// What will happen because of the change, for people.
    pub(super) effect: &'static str,
    /// What has happened after the change, for people.
    pub(super) done: &'static str,
}

impl Change {
    fn is_made(&self, host: &BareMetalHost) -> bool {
        let on = host.annotations();
        self.set.iter().all(|key| on.contains_key(*key))
            && !self.clear.iter().any(|key| on.contains_key(*key))
    }

    /// The whole patch. It fails if the host has changed, or has been recreated, since it was read.
    fn patch(&self, host: &BareMetalHost) -> Value {
        let set = self.set.iter().map(|key| ((*key).to_owned(), json!("")));
        let clear = self.clear.iter().map(|key| ((*key).to_owned(), Value::Null));
        let changes: Map<String, Value> = set.chain(clear).collect();
        json!({ "metadata": {
            "uid": host.uid(), "resourceVersion": host.resource_version(), "annotations": changes,
        }})
    }
}

/// Result of an attempt that need not be repeated.
enum Attempt {
    Already,
    Written,
    /// A host of the same name has been recreated since it was read.
    AnotherHost,
}

/// Describes what will happen to a host, and does it.
///
/// # Errors
/// When the API server does not answer.
pub(super) async fn mark(
    access: Access,
    name: HostName,
    change: Change,
    dry_run: bool,
) -> anyhow::Result<Outcome> {
    let client = access.client().await?;
    let hosts: Api<BareMetalHost> = Api::namespaced(client, name.namespace().as_str());
    let seen = match hosts.get(name.name()).await {
        Ok(seen) => seen,
        Err(error) => return Ok(Outcome::refused(String::new(), access::refused(error)?)),
    };
    let mut text = statement(&name, &seen, change);
    if change.is_made(&seen) {
        writeln!(text, "Nothing to do: {} already.", change.done)?;
        return Ok(Outcome::done(text));
    }
    if dry_run {
        text.push_str(DRY_RUN);
        return Ok(Outcome::done(text));
    }
    // Status and labels change all the time; the request is about this host whatever they are.
    let uid = seen.uid();
    let write = async || {
        let now = hosts.get(name.name()).await?;
        if now.uid() != uid {
            return Ok(Attempt::AnotherHost);
        }
        if change.is_made(&now) {
            return Ok(Attempt::Already);
        }
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(change.patch(&now));
        hosts
            .patch_metadata(name.name(), &params, &patch)
            .await
            .map(|_| Attempt::Written)
    };
    let written = write
        .retry(ExponentialBuilder::default().with_max_times(5))
        .when(access::is_conflict);
    match written.await {
        Ok(Attempt::Written | Attempt::Already) => {
            writeln!(text, "Done: {}.", change.done)?;
            Ok(Outcome::done(text))
        }
        Ok(Attempt::AnotherHost) => Ok(Outcome::refused(
            text,
            format!("{name} was deleted and created again meanwhile: inspect the new one first"),
        )),
        Err(error) => Ok(Outcome::refused(text, access::refused(error)?)),
    }
}

fn statement(name: &HostName, host: &BareMetalHost, change: Change) -> String {
    let label = |key| host.labels().get(key).map(String::as_str);
    let held = match [labels::CLUSTER_NAMESPACE, labels::CLUSTER_NAME, labels::NODE_TYPE].map(label) {
        [Some(namespace), Some(cluster), Some(role)] => {
            format!("its labels name {role} of {namespace}/{cluster}")
        }
        [None, None, None] => "it has no labels of a cluster".to_owned(),
        [_, _, _] => {
            "it has only some of the labels cluster-namespace, cluster-name and node-type".to_owned()
        }
    };
    let used = host.spec.consumer_ref.as_ref().map(|consumer| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (kind, namespace, name) = (
            text(&consumer.kind),
            text(&consumer.namespace),
            text(&consumer.name),
        );
        format!("used by {kind} {namespace}/{name}")
    });
    let marks = [
        (annotations::CORDONED, "cordoned"),
        (annotations::REPLACE, "to be moved off"),
        (annotations::FAILED, "marked as failed"),
        (annotations::UNHEALTHY, "found unhealthy by Cluster API"),
        (annotations::PAUSED, "paused"),
        (annotations::DETACHED, "detached"),
    ];
    let marks = marks
        .into_iter()
        .filter(|(key, _)| host.annotations().contains_key(*key))
        .map(|(_, what)| what.to_owned());
    let facts: Vec<String> = [held].into_iter().chain(used).chain(marks).collect();
    let facts = format!(
        "Host {name} (uid {}): {}.",
        host.uid().unwrap_or_default(),
        facts.join(", ")
    );
    format!(
        "{}\n{}\n",
        one_line(&facts, 3 * MAX_TEXT_CHARACTERS),
        change.effect
    )
}
