//! Writes the reference pages that follow from the types: of conditions, of Events and of a site's configuration.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;

/// Writes the reference pages as Markdown.
#[derive(Parser)]
struct Arguments {
    /// Output directory, such as `docs`
    #[arg(long)]
    write: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let Arguments { write } = Arguments::parse();
    for (name, page) in [
        ("conditions.md", api::conditions::page()),
        ("events.md", api::events::page()),
        ("site-configuration.md", kit::config::page::page()),
    ] {
        let path = write.join(name);
        std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
