//! The command line of what needs a region.

mod help;

use std::path::PathBuf;

use clap::Subcommand;
use http::Uri;
use placement::{HostName, Namespace};
use runtime::identity::{Name, RealmArgs};
use runtime::tls::ClientTlsArgs;
use scheduler::term::LedgerArgs;

use crate::output::Output;
use crate::region::kubeconfig;
use crate::region::maintenance::{Access, Confirmation, Mark, Request};
use crate::region::ssh::{JumpHostArgs, Ssh};

/// What to do with a region.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check how the scheduler would adopt a site of the Airship SIP operator, before its migration
    #[command(after_help = help::ADOPT_HELP)]
    Adopt(Adopt),
    /// Export, import or check the ledger: backups, and moves between a file and etcd
    Ledger {
        /// What to do with it.
        #[command(subcommand)]
        action: Ledger,
    },
    /// Create CAs and certificates in a directory, deny certificates, and show when each expires
    Certs {
        /// What to do with them.
        #[command(subcommand)]
        action: Certs,
    },
    /// Override safeguards of a site; for operators only
    Site {
        /// What to do with it.
        #[command(subcommand)]
        action: Site,
    },
    /// Release a host of a SIPCluster that does not exist: its labels name that SIPCluster, or the ledger holds the host for it; for operators only
    #[command(after_help = help::OVERRIDE_HELP)]
    ReleaseOrphan(ReleaseOrphan),
    /// Exclude a host, or all hosts of a domain, from new claims; members stay
    #[command(after_help = help::CORDON_HELP)]
    Cordon(Mark),
    /// Admit a host, or the hosts of a domain, to new claims again; also withdraws `sipctl replace`
    #[command(after_help = help::UNCORDON_HELP)]
    Uncordon(Mark),
    /// Replace a healthy member; it stays until its replacement is bound
    #[command(after_help = help::REPLACE_HELP)]
    Replace(Request),
    /// Mark a host as failed; a member on it is replaced
    #[command(after_help = help::MARK_FAILED_HELP)]
    MarkFailed(Request),
    /// Confirm that nothing routes to a host that its cluster releases, in place of the load-balancer agent; for users whom the policy sip-host-labels exempts
    #[command(after_help = help::CONFIRM_RELEASE_HELP)]
    ConfirmRelease(Confirmation),
    /// Print a kubeconfig with which users log in to a tenant cluster at its identity provider
    #[command(after_help = help::KUBECONFIG_HELP)]
    Kubeconfig(kubeconfig::Request),
    /// Print an ssh configuration for a cluster's jump host and nodes
    SshConfig(JumpHostArgs),
    /// Run ssh on a cluster's jump host, or on a node through it
    Ssh(Ssh),
}

/// The region's scheduler, and how it is reached.
#[derive(Debug, clap::Args)]
pub struct Connection {
    /// URL of the region's scheduler; of several replicas, the leader's
    #[arg(long, env = "SIP_SCHEDULER", value_name = "URL")]
    pub scheduler: Uri,
    /// The region.
    #[command(flatten)]
    pub realm: RealmArgs,
    /// Certificates.
    #[command(flatten)]
    pub tls: ClientTlsArgs,
}

/// What to do with a site.
#[derive(Debug, Subcommand)]
pub enum Site {
    /// Remove the recorded Leases of the agents that have reported for a site. Use it when current agents are refused as SUPERSEDED because
    /// the API server of the site was restored from a backup, and its Lease with it
    #[command(after_help = help::OVERRIDE_HELP)]
    ResetFence(ResetFence),
    /// Raise the site's revision above every annotation placement-revision of its hosts and every SIPCluster status, so that hosts
    /// that were released under a lost ledger or in another site can be claimed. Claims do not change
    #[command(after_help = help::OVERRIDE_HELP)]
    Repair(Repair),
}

/// Raise a site's position.
#[derive(Debug, clap::Args)]
pub struct Repair {
    /// The site
    #[arg(value_name = "SITE")]
    pub site: String,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The scheduler.
    #[command(flatten)]
    pub connection: Connection,
}

/// Reset the fence of a site.
#[derive(Debug, clap::Args)]
pub struct ResetFence {
    /// The site
    #[arg(value_name = "SITE")]
    pub site: String,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The scheduler.
    #[command(flatten)]
    pub connection: Connection,
}

/// Release a host whose labels name no existing cluster.
#[derive(Debug, clap::Args)]
pub struct ReleaseOrphan {
    /// The BareMetalHost
    #[arg(value_name = "NS/NAME", value_parser = |text: &str| text.parse::<HostName>())]
    pub host: HostName,
    /// The site of the host
    #[arg(long, value_name = "SITE")]
    pub site: String,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The scheduler.
    #[command(flatten)]
    pub connection: Connection,
}

/// Check an adoption.
#[derive(Debug, clap::Args)]
pub struct Adopt {
    /// Required: the command only checks, and changes nothing
    #[arg(long, required = true)]
    pub dry_run: bool,
    /// Read a JSON or YAML file, a directory, or standard input (-) instead of the API server. Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE_OR_DIR", conflicts_with_all = ["kubeconfig", "context"])]
    pub files: Vec<PathBuf>,
    /// Namespace of objects in files that name none
    #[arg(short, long, default_value = "default", value_parser = |text: &str| Namespace::new(text))]
    pub namespace: Namespace,
    /// File with the policy of the site, in the format of the scheduler's --site-policy
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// The site's API server.
    #[command(flatten)]
    pub access: Access,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// What to do with a ledger.
#[derive(Debug, Subcommand)]
pub enum Ledger {
    /// Write the whole ledger of a running scheduler to a file; for operators only
    Export(Export),
    /// Fill an empty ledger from an exported file or from another ledger; no scheduler may run on either
    Import(Import),
    /// Validate every record of an exported file, or of a ledger that no scheduler has open
    #[command(after_help = "Exit code: 0 if every record is valid, 2 if one is not, 1 if it cannot be read.")]
    Check(Check),
    /// Compare an exported file with a live site, before a restore: which claims would stay, change or be lost
    #[command(after_help = help::REHEARSE_HELP)]
    Rehearse(Rehearse),
}

/// What to do with certificates.
#[derive(Debug, Subcommand)]
pub enum Certs {
    /// Create a directory with the CA of a region
    Init(Init),
    /// Create the CA of a site, which certifies only the agents of that site
    Site(SiteAuthority),
    /// Create or renew a certificate and its key
    Issue(Issue),
    /// Deny a certificate, or all certificates of an identity
    Deny(Deny),
    /// List the certificates, and when each expires
    #[command(
        after_help = "Exit code: 0 if no certificate is due for renewal, 2 if one is, 1 if the directory cannot be read."
    )]
    Show(Show),
}

/// Make a directory.
#[derive(Debug, clap::Args)]
pub struct Init {
    /// Directory for the CAs and certificates; it is created if it does not exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// The region.
    #[command(flatten)]
    pub realm: RealmArgs,
    /// Days until the CA certificate expires
    #[arg(long, value_name = "DAYS", default_value_t = 3650)]
    pub days: u32,
}

/// Make a site's authority.
#[derive(Debug, clap::Args)]
pub struct SiteAuthority {
    /// Directory that `sipctl certs init` created
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// The site
    #[arg(value_name = "SITE")]
    pub site: Name,
    /// Days until the CA certificate expires
    #[arg(long, value_name = "DAYS", default_value_t = 1825)]
    pub days: u32,
}

/// Make a certificate.
#[derive(Debug, clap::Args)]
pub struct Issue {
    /// Directory that `sipctl certs init` created
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Holder of the certificate: scheduler, operator/NAME, reader/NAME or site/SITE/agent/NAME
    #[arg(value_name = "IDENTITY")]
    pub identity: String,
    /// Additional DNS name in the certificate, such as that of the jump-host agent's `PowerService`. Can be repeated
    #[arg(long = "dns", value_name = "NAME")]
    pub dns_names: Vec<String>,
    /// Days until the certificate expires
    #[arg(long, value_name = "DAYS", default_value_t = 90)]
    pub days: u32,
}

/// Deny an identity or a certificate.
#[derive(Debug, clap::Args)]
pub struct Deny {
    /// Directory that `sipctl certs init` created
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// File of a certificate, or an identity such as operator/ana
    #[arg(value_name = "FILE_OR_IDENTITY")]
    pub who: String,
    /// Reason, written as a comment beside the entry
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub why: String,
}

/// Print when certificates expire.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Directory that `sipctl certs init` created
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Days before its expiry from which a certificate is due for renewal
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub warn_days: u32,
}

/// Back a ledger up.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// The scheduler.
    #[command(flatten)]
    pub connection: Connection,
    /// File to write; it appears only once it is complete
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Fill a ledger.
#[derive(Debug, clap::Args)]
pub struct Import {
    /// File written by `sipctl ledger export`
    #[arg(value_name = "FILE", required_unless_present = "from_ledger")]
    pub file: Option<PathBuf>,
    /// File of a ledger that no scheduler has open, in place of an exported file
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub from_ledger: Option<PathBuf>,
    /// The empty ledger.
    #[command(flatten)]
    pub ledger: LedgerArgs,
}

/// Check a ledger.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct Check {
    /// File written by `sipctl ledger export`
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// File of a ledger that no scheduler has open
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// Rehearse a restore.
#[derive(Debug, clap::Args)]
pub struct Rehearse {
    /// File written by `sipctl ledger export`, or a backup of the scheduler
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The site to compare it with
    #[arg(long, value_name = "SITE")]
    pub site: String,
    /// Read a JSON or YAML file, a directory, or standard input (-) instead of the API server. Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE_OR_DIR", conflicts_with_all = ["kubeconfig", "context"])]
    pub files: Vec<PathBuf>,
    /// Namespace of objects in files that name none
    #[arg(short, long, default_value = "default", value_parser = |text: &str| Namespace::new(text))]
    pub namespace: Namespace,
    /// The site's API server.
    #[command(flatten)]
    pub access: Access,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}
