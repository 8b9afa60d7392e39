//! The forms in which a result is printed.

use clap::ValueEnum;

/// How a plan is printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// For people: racks as columns, and why not
    Table,
    /// The stable contract
    Json,
    /// The same as YAML
    Yaml,
}
