//! `sip-sandbox up`: an empty site.

use std::io::Write as _;

use sandbox::{
    crds,
    node::{self, Image},
    site::{Nodes, Site},
};

use crate::{interrupted::Interrupted, steps::Steps};

/// What the site is to have.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Name of the site
    #[arg(long, default_value = "site-a")]
    name: String,
    /// Number of fake nodes
    #[arg(long, default_value_t = 3)]
    nodes: u32,
    /// Start one real node instead of fake nodes, with an image haproxy:2.8 built from the HAProxy of this computer; needs root on Linux
    #[arg(long, conflicts_with = "nodes")]
    real_node: bool,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options {
        name,
        nodes,
        real_node,
    } = options;
    let steps = Steps::new();
    let progress = steps.clone();
    let site = Site::builder(&name);
    let site = if real_node {
        site.nodes(Nodes::Real)
            .image(Image::new("haproxy:2.8", node::system_program("haproxy")?))
    } else {
        site.nodes(Nodes::Kwok(nodes))
    };
    let builder = site
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
    if let Some(node) = site.node() {
        let (address, host) = (node.address(), node.host_address());
        writeln!(out, "# node ports: {address}; pods see this machine as {host}")?;
    }
    writeln!(out, "# Ctrl-C ends it")?;
    out.flush()?;
    drop(out);
    interrupted.wait().await;
    Ok(())
}
