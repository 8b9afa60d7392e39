//! Where the ledger is, on the command line.

use std::{fmt, path::PathBuf, sync::Arc};

use super::{Backend, Elected, File};
use crate::ledger::etcd::EtcdArgs;

/// Where the ledger is.
#[derive(Clone, Debug, clap::Args)]
pub struct LedgerArgs {
    #[command(flatten)]
    location: Location,
    #[command(flatten)]
    etcd: EtcdArgs,
}

#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Location {
    /// File of the ledger, if only one scheduler runs; it is created if it does not exist
    #[arg(long, env = "SIP_LEDGER", value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Endpoints of the etcd cluster that holds the ledger, for several replicas with one leader
    #[arg(long, env = "SIP_LEDGER_ETCD", value_name = "URL", value_delimiter = ',')]
    ledger_etcd: Vec<String>,
}

impl LedgerArgs {
    /// The backend, for a process that others find at `address`.
    #[must_use]
    pub fn backend(&self, address: String) -> Arc<dyn Backend> {
        let Self { location, etcd } = self;
        match &location.ledger {
            Some(path) => Arc::new(File::new(path.clone())),
            None => Arc::new(Elected::new(location.ledger_etcd.clone(), etcd.clone(), address)),
        }
    }
}

impl fmt::Display for LedgerArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location.ledger {
            Some(path) => write!(f, "{}", path.display()),
            None => write!(
                f,
                "{} in {}",
                self.etcd.etcd_prefix,
                self.location.ledger_etcd.join(",")
            ),
        }
    }
}
