//! `sip-sandbox up`: an empty site.

use std::io::Write as _;

use sandbox::{
    crds,
    site::{Nodes, Site},
};
use tokio::signal::unix::{SignalKind, signal};

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
    let builder = Site::builder(&name)
        .nodes(Nodes::Kwok(nodes))
        .crds(crds::all())
        .on_progress(|step| eprintln!("{step} ..."));
    let mut interrupted = Interrupted::new()?;
    let site = tokio::select! {
        site = builder.start() => site?,
        () = interrupted.wait() => return Ok(()),
    };
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

/// Ctrl-C, or the end of the terminal, or a polite kill.
pub(crate) struct Interrupted(Vec<tokio::signal::unix::Signal>);

impl Interrupted {
    pub(crate) fn new() -> std::io::Result<Self> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        Ok(Self(kinds.into_iter().map(signal).collect::<Result<_, _>>()?))
    }

    pub(crate) async fn wait(&mut self) {
        let signals = self.0.iter_mut().map(|signal| Box::pin(signal.recv()));
        futures::future::select_all(signals).await;
    }
}
