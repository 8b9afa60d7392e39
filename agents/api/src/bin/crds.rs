//! Prints the project's `CustomResourceDefinition`s, or writes them into a directory.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;

/// Prints the project's `CustomResourceDefinition`s as YAML.
#[derive(Parser)]
struct Arguments {
    /// Write one file per definition into this directory instead, for example `deploy/crd`.
    #[arg(long)]
    write: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let Arguments { write } = Arguments::parse();
    for (file, definition) in api::custom_resource_definitions()? {
        let yaml = api::crd_to_yaml(&definition)?;
        match &write {
            None => print!("{yaml}"),
            Some(directory) => {
                let path = directory.join(file);
                std::fs::write(&path, yaml).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
    }
    Ok(())
}
