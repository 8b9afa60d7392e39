//! How much one entry of a section may hold.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{MAX_ENTRIES, MAX_ITEMS, at_most};
use crate::fault::Fault;
use crate::sip_cluster::{
    AuthSpec, JumpHostSpec, LoadBalancerControlPlaneSpec, LoadBalancerWorkerSpec, ResourcesSpec, Services,
};

/// Bytes of the name of an image, at most. Registries allow about half of it.
const MAX_IMAGE_BYTES: usize = 1_024;
/// Labels of a node, and labels and annotations of an `override`, each at most.
const MAX_LABELS: usize = 64;
/// Requests and limits of a container, each at most.
const MAX_RESOURCES: usize = 32;
/// Networks that pods join, at most.
const MAX_ATTACHMENTS: usize = 32;
/// Keys that may log in, at most: what is rendered of them has to fit into one object.
const MAX_KEYS: usize = MAX_ITEMS;
/// Certificate authorities, at most.
const MAX_AUTHORITIES: usize = 64;

/// The fields that every entry has and that have no bound of their own.
struct Entry<'a> {
    image: Option<&'a String>,
    node_labels: Option<&'a BTreeMap<String, String>>,
    resources: Option<&'a ResourcesSpec>,
    network_attachments: Option<&'a Vec<String>>,
    changes: Option<&'a Value>,
}

macro_rules! entries {
    ($($type:ty)*) => { $(
        impl<'a> From<&'a $type> for Entry<'a> {
            fn from(entry: &'a $type) -> Self {
                Self {
                    image: entry.image.as_ref(),
                    node_labels: entry.node_labels.as_ref(),
                    resources: entry.resources.as_ref(),
                    network_attachments: entry.network_attachments.as_ref(),
                    changes: entry.changes.as_ref(),
                }
            }
        }
    )* };
}

entries!(LoadBalancerControlPlaneSpec LoadBalancerWorkerSpec JumpHostSpec AuthSpec);

/// Adds a fault for everything of which entries have more than allowed.
pub(super) fn check(services: &Services, faults: &mut Vec<Fault>) {
    let Services {
        load_balancer_control_plane,
        load_balancer_worker,
        jump_host,
        auth,
    } = services;
    section(
        "loadBalancerControlPlane",
        load_balancer_control_plane.as_ref(),
        faults,
    );
    section("loadBalancerWorker", load_balancer_worker.as_ref(), faults);
    section("jumpHost", jump_host.as_ref(), faults);
    section("auth", auth.as_ref(), faults);
    for (index, entry) in jump_host.iter().flatten().take(MAX_ENTRIES).enumerate() {
        let field = |name: &str| format!("spec.services.jumpHost[{index}].{name}");
        let keys = entry.ssh_authorized_keys.as_ref().map_or(0, Vec::len);
        at_most(&field("sshAuthorizedKeys"), keys, MAX_KEYS, "keys", faults);
        let keys = entry.ssh_user_ca.as_ref().map_or(0, Vec::len);
        at_most(&field("sshUserCA"), keys, MAX_AUTHORITIES, "keys", faults);
    }
}

fn section<'a, T>(name: &str, entries: Option<&'a Vec<T>>, faults: &mut Vec<Fault>)
where
    Entry<'a>: From<&'a T>,
{
    for (index, entry) in entries.into_iter().flatten().take(MAX_ENTRIES).enumerate() {
        check_entry(&entry.into(), &format!("spec.services.{name}[{index}]"), faults);
    }
}

fn check_entry(entry: &Entry<'_>, path: &str, faults: &mut Vec<Fault>) {
    let Entry {
        image,
        node_labels,
        resources,
        network_attachments,
        changes,
    } = entry;
    if let Some(image) = image.filter(|image| image.len() > MAX_IMAGE_BYTES) {
        let rule = format!("must be at most {MAX_IMAGE_BYTES} bytes");
        faults.push(Fault::text(&format!("{path}.image"), image, rule));
    }
    let labels = node_labels.map_or(0, BTreeMap::len);
    at_most(
        &format!("{path}.nodeLabels"),
        labels,
        MAX_LABELS,
        "labels",
        faults,
    );
    let attachments = network_attachments.map_or(0, Vec::len);
    let at = format!("{path}.networkAttachments");
    at_most(&at, attachments, MAX_ATTACHMENTS, "networks", faults);
    if let Some(ResourcesSpec { requests, limits }) = resources {
        for (field, amounts) in [("requests", requests), ("limits", limits)] {
            let amounts = amounts.as_ref().map_or(0, BTreeMap::len);
            let at = format!("{path}.resources.{field}");
            at_most(&at, amounts, MAX_RESOURCES, "resources", faults);
        }
    }
    if let Some(changes) = changes {
        check_changes(changes, &format!("{path}.override"), faults);
    }
}

/// Checks every map of an `override`, in known fields and in unknown ones.
fn check_changes(value: &Value, path: &str, faults: &mut Vec<Fault>) {
    let (items, inner) = match value {
        Value::Array(list) => (list.len(), Vec::new()),
        Value::Object(map) => (map.len(), map.iter().take(MAX_LABELS).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    at_most(path, items, MAX_LABELS, "items", faults);
    for (key, value) in inner {
        if items <= MAX_LABELS {
            check_changes(value, &format!("{path}.{key}"), faults);
        }
    }
}
