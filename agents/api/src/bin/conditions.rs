//! Prints the reference page of conditions, or writes it into a file.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;

/// Prints the reference page of conditions as Markdown.
#[derive(Parser)]
struct Arguments {
    /// Write it into this file instead, for example `docs/conditions.md`.
    #[arg(long)]
    write: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let Arguments { write } = Arguments::parse();
    let page = api::conditions::page();
    match write {
        None => print!("{page}"),
        Some(path) => {
            std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}
