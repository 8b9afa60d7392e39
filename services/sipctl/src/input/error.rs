//! Why an input cannot be read.

use placement::{ClusterName, NameError};

use super::document::Place;

/// An input that cannot be read. Nothing is decided then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text begins as JSON, and is none.
    #[error("{source_name} is not valid JSON")]
    Json {
        /// The file.
        source_name: String,
        /// Where and what.
        #[source]
        source: serde_json::Error,
    },
    /// The text is no YAML.
    #[error("{source_name} is not valid YAML")]
    Yaml {
        /// The file.
        source_name: String,
        /// Where and what.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// A document is a text, a number or a list.
    #[error("{place} must be a mapping, an object of Kubernetes")]
    NotAMapping {
        /// The document.
        place: Place,
    },
    /// A field has another type than in the schema.
    #[error("{place}: {kind} {path}: {rule}")]
    Field {
        /// The document.
        place: Place,
        /// Kind of the object, and its name as far as it is known.
        kind: String,
        /// Path of the field.
        path: String,
        /// What is wrong.
        rule: String,
    },
    /// Name or namespace break the rules of Kubernetes.
    #[error("{place}: {kind} metadata")]
    Name {
        /// The document.
        place: Place,
        /// Kind of the object.
        kind: &'static str,
        /// The rule.
        #[source]
        source: Box<NameError>,
    },
    /// Two documents describe one object.
    #[error("{kind} {name} is there twice: in {first} and in {second}")]
    Twice {
        /// Kind of the object.
        kind: &'static str,
        /// `namespace/name`.
        name: String,
        /// One document.
        first: Place,
        /// The other.
        second: Place,
    },
    /// The cluster that was asked for is not in the input.
    #[error("SIPCluster {0} is not in the input")]
    NoSuchCluster(ClusterName),
}
