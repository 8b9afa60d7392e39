//! Why an input cannot be read.

use placement::{ClusterName, NameError};

use super::document::Location;

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
    #[error("{location} must be a mapping, an object of Kubernetes")]
    NotAMapping {
        /// The document.
        location: Location,
    },
    /// A field has another type than in the schema.
    #[error("{location}: {kind} {path}: {rule}")]
    Field {
        /// The document.
        location: Location,
        /// Kind of the object, and its name as far as it is known.
        kind: String,
        /// Path of the field.
        path: String,
        /// What is wrong.
        rule: String,
    },
    /// Name or namespace break the rules of Kubernetes.
    #[error("{location}: {kind} metadata")]
    Name {
        /// The document.
        location: Location,
        /// Kind of the object.
        kind: &'static str,
        /// The rule.
        #[source]
        source: Box<NameError>,
    },
    /// Two documents describe one object.
    #[error("{kind} {name} is defined twice: in {first} and in {second}")]
    Twice {
        /// Kind of the object.
        kind: &'static str,
        /// `namespace/name`.
        name: String,
        /// One document.
        first: Location,
        /// The other.
        second: Location,
    },
    /// The cluster that was requested is not in the input.
    #[error("SIPCluster {0} is not in the input")]
    NoSuchCluster(ClusterName),
}
