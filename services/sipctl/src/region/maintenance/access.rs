//! A site's API server, as `kubectl` would reach it.

use std::path::PathBuf;

use anyhow::Context as _;
use kube::{
    Client,
    config::{Config, KubeConfigOptions, Kubeconfig},
};

/// How the API server is reached.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Access {
    /// Kubeconfig of the site's API server [default: the one that kubectl uses]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl Access {
    /// A client.
    ///
    /// # Errors
    /// When the file or the context cannot be used.
    pub(crate) async fn client(self) -> anyhow::Result<Client> {
        let Self { kubeconfig, context } = self;
        let read = match &kubeconfig {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        let options = KubeConfigOptions {
            context,
            ..KubeConfigOptions::default()
        };
        let config = Config::from_custom_kubeconfig(read.context("the kubeconfig cannot be read")?, &options)
            .await
            .context("the kubeconfig cannot be used")?;
        Client::try_from(config).context("a client of the API server cannot be made")
    }
}

/// The API server's message if it refuses the request.
///
/// # Errors
/// When it could not be asked.
pub(super) fn refused(error: kube::Error) -> anyhow::Result<String> {
    match error {
        kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
            Ok(status.message.clone())
        }
        other => Err(anyhow::Error::new(other).context("the API server does not answer")),
    }
}

/// Whether another client has changed the object since it was read.
pub(super) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
