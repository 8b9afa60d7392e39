//! The door: documents become the decision's types.
//!
//! What an API server would never hold (a wrong type, a name or label that breaks the rules) cannot be read, and nothing
//! is decided. A SIPCluster whose spec breaks a rule is read, and its outcome is `invalid`, as in a live site.

mod cluster;
mod document;
mod error;
mod host;
mod object;
mod secret;

use std::collections::{BTreeMap, BTreeSet};

use placement::{ClusterName, HostName, Namespace, Policy};
use serde_json::Value;

pub use document::{Document, Location, documents};
pub use error::Error;

pub(crate) use cluster::{Claim, Declared};
pub(crate) use host::Observed;

use crate::line::one_line;

/// Maximum number of names of skipped objects in a note.
const MAX_SKIPPED_NAMES: usize = 3;

/// Everything that is decided on.
#[derive(Clone, Debug, Default)]
pub struct Input {
    pub(crate) hosts: BTreeMap<HostName, Observed>,
    pub(crate) clusters: BTreeMap<ClusterName, Declared>,
    /// Whether any Secret with networkData is in the input.
    pub(crate) has_addresses: bool,
    pub(crate) policy: Policy,
    notes: Vec<String>,
}

/// A kind that is read.
#[derive(Clone, Copy)]
enum Kind {
    Host,
    Cluster,
    Secret,
}

impl Kind {
    fn detect(document: &Document) -> Option<Self> {
        let text = |field: &str| document.object.get(field).and_then(Value::as_str);
        match (text("apiVersion")?, text("kind")?) {
            ("metal3.io/v1alpha1", "BareMetalHost") => Some(Self::Host),
            ("airship.airshipit.org/v1", "SIPCluster") => Some(Self::Cluster),
            ("v1", "Secret") => Some(Self::Secret),
            _ => None,
        }
    }
}

impl Input {
    /// Reads documents, in whatever order they come. Objects without a namespace are in `namespace`.
    ///
    /// # Errors
    /// The first document that cannot be read, or an object that is there twice.
    pub fn new(documents: Vec<Document>, namespace: &Namespace, policy: Policy) -> Result<Self, Error> {
        let mut hosts = BTreeMap::new();
        let mut clusters = BTreeMap::new();
        let mut secrets = Vec::new();
        let mut skipped = Skipped::default();
        for document in documents {
            match Kind::detect(&document) {
                Some(Kind::Host) => {
                    let host = host::read(document, namespace)?;
                    let location = host.location.clone();
                    unique("BareMetalHost", &mut hosts, host.name.clone(), location, host)?;
                }
                Some(Kind::Cluster) => {
                    let (location, cluster) = cluster::read(document, namespace)?;
                    unique(
                        "SIPCluster",
                        &mut clusters,
                        cluster.name.clone(),
                        location,
                        cluster,
                    )?;
                }
                Some(Kind::Secret) => secrets.push(document),
                None => skipped.add(&document, ""),
            }
        }
        let named: BTreeSet<_> = hosts
            .values()
            .flat_map(|(_, host)| host.secrets.all().cloned())
            .collect();
        let mut networks = BTreeMap::new();
        for document in secrets {
            let Some(name) = secret::name(&document, namespace).filter(|name| named.contains(name)) else {
                skipped.add(&document, " that no networkData names");
                continue;
            };
            let location = document.location.clone();
            let data = secret::network_data(&document, &name)?;
            unique("Secret", &mut networks, name, location, data)?;
        }
        let networks = values(networks);
        let observe =
            |(name, (_, host)): (HostName, (Location, host::Read))| Ok((name, host.observe(&networks)?));
        Ok(Self {
            hosts: hosts.into_iter().map(observe).collect::<Result<_, Error>>()?,
            clusters: values(clusters),
            has_addresses: !networks.is_empty(),
            policy,
            notes: skipped.notes(),
        })
    }

    /// What was not read, for people.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether no SIPCluster is there, so that nothing can be decided.
    #[must_use]
    pub fn has_no_cluster(&self) -> bool {
        self.clusters.is_empty()
    }
}

fn values<K: Ord, V>(found: BTreeMap<K, (Location, V)>) -> BTreeMap<K, V> {
    found
        .into_iter()
        .map(|(name, (_, value))| (name, value))
        .collect()
}

fn unique<K: Ord + std::fmt::Display, V>(
    kind: &'static str,
    found: &mut BTreeMap<K, (Location, V)>,
    name: K,
    second: Location,
    value: V,
) -> Result<(), Error> {
    if let Some((first, _)) = found.get(&name) {
        return Err(Error::Twice {
            kind,
            name: name.to_string(),
            first: first.clone(),
            second,
        });
    }
    found.insert(name, (second, value));
    Ok(())
}

/// Objects that are not read, by what is said of them.
#[derive(Default)]
struct Skipped(BTreeMap<String, BTreeSet<String>>);

impl Skipped {
    fn add(&mut self, document: &Document, why: &str) {
        let text = |field: &str| document.object.get(field).and_then(Value::as_str);
        let what = match (text("kind"), text("apiVersion")) {
            (None, _) => "documents without a kind".to_owned(),
            (Some(kind), None) => format!("{} without apiVersion", one_line(kind, 63)),
            (Some(kind), Some(version)) => format!("{} ({})", one_line(kind, 63), one_line(version, 63)),
        };
        let named = document
            .object
            .get("metadata")
            .and_then(|metadata| metadata.get("name"))
            .and_then(Value::as_str);
        let name = match named {
            Some(name) => format!("{} in {}", one_line(name, 63), document.location),
            None => document.location.to_string(),
        };
        self.0.entry(what + why).or_default().insert(name);
    }

    fn notes(self) -> Vec<String> {
        let note = |(what, names): (String, BTreeSet<String>)| {
            let shown: Vec<&str> = names.iter().take(MAX_SKIPPED_NAMES).map(String::as_str).collect();
            let more = match names.len().saturating_sub(MAX_SKIPPED_NAMES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("skipped {} {what}: {}{more}", names.len(), shown.join("; "))
        };
        self.0.into_iter().map(note).collect()
    }
}
