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
    /// Show how the scheduler would adopt a site of the Airship SIP operator; run it before the migration
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
    /// Repair the scheduler's records of a site after a restore or a lost ledger; for operators only
    Site {
        /// What to do with it.
        #[command(subcommand)]
        action: Site,
    },
    /// Release a host whose SIPCluster does not exist but is still named by the host's labels or in the ledger; for operators only
    #[command(after_help = help::OVERRIDE_HELP)]
    ReleaseOrphan(ReleaseOrphan),
    /// Exclude a host, or all hosts of a domain, from new claims; members stay
    #[command(after_help = help::CORDON_HELP)]
    Cordon(Mark),
    /// Admit a host, or the hosts of a domain, to new claims again; also removes the annotation that `sipctl replace` sets
    #[command(after_help = help::UNCORDON_HELP)]
    Uncordon(Mark),
    /// Replace a healthy member; it stays until its replacement is bound
    #[command(after_help = help::REPLACE_HELP)]
    Replace(Request),
    /// Mark a host as failed; a member on it is replaced
    #[command(after_help = help::MARK_FAILED_HELP)]
    MarkFailed(Request),
    /// Confirm, instead of the load-balancer agent, that no pod routes to a host that is being released; only for users whom the admission
    /// policy sip-host-labels exempts
    #[command(after_help = help::CONFIRM_RELEASE_HELP)]
    ConfirmRelease(Confirmation),
    /// Print a kubeconfig for users who log in to a tenant cluster through its identity provider
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
    /// Remove the Leases that the scheduler has recorded for a site's agents
    ///
    /// Use it if the API server of the site was restored from a backup, and the scheduler refuses the current agents as SUPERSEDED.
    #[command(after_help = help::OVERRIDE_HELP)]
    ResetFence(ResetFence),
    /// Raise the revision of a site above the release marks of its hosts and above the statuses of its `SIPCluster`s
    ///
    /// Use it if hosts cannot be claimed because their release mark (annotation placement-revision) was issued by a lost ledger or in another
    /// site. No claim changes.
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
    /// Required. The command changes nothing with it, and refuses to run without it
    #[arg(long, required = true)]
    pub dry_run: bool,
    /// Read a JSON or YAML file, a directory, or standard input (-) instead of the API server. Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE_OR_DIR", conflicts_with_all = ["kubeconfig", "context"])]
    pub files: Vec<PathBuf>,
    /// Namespace of the objects without a namespace in the files
    #[arg(short, long, default_value = "default", value_parser = |text: &str| Namespace::new(text))]
    pub namespace: Namespace,
    /// Namespace of the agents, where they read templates of load balancers
    #[arg(long, value_name = "NAMESPACE", default_value = "sip-system", value_parser = |text: &str| Namespace::new(text))]
    pub agents_namespace: Namespace,
    /// File with the site policy, in the format of the scheduler's --site-policy
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
    /// Fill an empty ledger from an exported file or from another ledger; no scheduler may have either ledger open
    Import(Import),
    /// Validate every record of an exported file, or of a ledger that no scheduler has open
    #[command(after_help = help::CHECK_HELP)]
    Check(Check),
    /// Show which claims of a site would stay, change or be lost if a ledger were restored from an exported file
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
    #[command(after_help = help::SHOW_HELP)]
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
    /// Reason, written as a comment in DIR/denied, the list of denied callers
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub why: String,
}

/// Print when certificates expire.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Directory that `sipctl certs init` created
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// A certificate is due for renewal when it expires within this number of days
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
    /// Namespace of the objects without a namespace in the files
    #[arg(short, long, default_value = "default", value_parser = |text: &str| Namespace::new(text))]
    pub namespace: Namespace,
    /// The site's API server.
    #[command(flatten)]
    pub access: Access,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}
