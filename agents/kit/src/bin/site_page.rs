//! Writes the reference page of a site's configuration.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;

/// Writes the reference page of a site's configuration as Markdown.
#[derive(Parser)]
struct Arguments {
    /// The directory that it goes to, such as `docs`
    #[arg(long)]
    write: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let Arguments { write } = Arguments::parse();
    let path = write.join("site-configuration.md");
    std::fs::write(&path, kit::config::page::page())
        .with_context(|| format!("cannot write {}", path.display()))
}
