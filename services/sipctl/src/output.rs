//! The forms in which a result is printed.

use clap::ValueEnum;

/// How a plan is printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// Text tables with racks as columns, and the reasons of refusals
    Table,
    /// JSON in a stable format
    Json,
    /// The same as YAML
    Yaml,
}
