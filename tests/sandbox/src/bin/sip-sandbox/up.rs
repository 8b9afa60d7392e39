//! `sip-sandbox up`: an empty site.

use std::io::Write as _;

use sandbox::{
    crds,
    site::{Nodes, Site},
};

use crate::{interrupted::Interrupted, steps::Steps};

/// What the site is to have.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The site's name
    #[arg(long, default_value = "site-a")]
    name: String,
    /// How many fake nodes it has
    #[arg(long, default_value_t = 3)]
    nodes: u32,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { name, nodes } = options;
    let steps = Steps::new();
    let progress = steps.clone();
    let builder = Site::builder(&name)
        .nodes(Nodes::Kwok(nodes))
        .crds(crds::all())
        .on_progress(move |detail| progress.say(detail));
    let mut interrupted = Interrupted::new()?;
    let site = tokio::select! {
        site = steps.step("the site comes up", builder.start()) => site?,
        () = interrupted.wait() => return Ok(()),
    };
    steps.finish();
    let mut out = std::io::stdout().lock();
    writeln!(out, "export KUBECONFIG={}", site.admin_kubeconfig().display())?;
    writeln!(
        out,
        "# logs, certificates and the audit log: {}",
        site.directory().display()
    )?;
    writeln!(out, "# Ctrl-C ends it")?;
    out.flush()?;
    drop(out);
    interrupted.wait().await;
    Ok(())
}
