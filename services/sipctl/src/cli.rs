//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use http::Uri;
use placement::{ClusterName, HostName, Namespace};
use runtime::identity::{Name, RealmArgs};
use runtime::tls::ClientTlsArgs;
use scheduler::term::LedgerArgs;

use crate::hands::{Access, Mark, Request};
pub use crate::output::Output;

/// Shows and explains the placement of clusters on bare-metal hosts.
#[derive(Debug, Parser)]
#[command(name = "sipctl", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Decide offline, on files, which hosts each SIPCluster would get, keep and give back
    #[command(after_help = PLAN_HELP)]
    Plan(Plan),
    /// Check a site that the Airship SIP operator has served, before this project's agents take over
    #[command(after_help = ADOPT_HELP)]
    Adopt(Adopt),
    /// Say, from files, which clusters would lose members with a domain, and which of them their majority
    #[command(after_help = LOSE_HELP)]
    Lose(Lose),
    /// Back the ledger up, move it to another storage, check it
    Ledger {
        /// What to do with it.
        #[command(subcommand)]
        action: Ledger,
    },
    /// Make authorities and certificates in a directory, deny them, and say what expires when
    Certs {
        /// What to do with them.
        #[command(subcommand)]
        action: Certs,
    },
    /// Override what protects a site; for operators only
    Site {
        /// What to do with it.
        #[command(subcommand)]
        action: Site,
    },
    /// Begin to release a host whose labels name a SIPCluster that does not exist; for operators only
    #[command(after_help = OVERRIDE_HELP)]
    ReleaseOrphan(ReleaseOrphan),
    /// Let no new claim take a host, or any host of a domain; members stay
    #[command(after_help = HANDS_HELP)]
    Cordon(Mark),
    /// Let claims take a host, or the hosts of a domain, again
    #[command(after_help = HANDS_HELP)]
    Uncordon(Mark),
    /// Move a healthy member off its host, which stays until the replacement is bound
    #[command(after_help = HANDS_HELP)]
    Replace(Request),
    /// Declare a host failed: a member on it is replaced
    #[command(after_help = HANDS_HELP)]
    MarkFailed(Request),
    /// Print a script that completes this command line in a shell
    Completions {
        /// The shell.
        shell: Shell,
    },
}

const PLAN_HELP: &str = "\
Reads BareMetalHosts, SIPClusters and the Secrets that networkData names; other objects are skipped with a note.
Nothing is sent anywhere, and nothing changes.

Exit code: 0 when every cluster is placed, 2 when one is refused, partial or invalid, 1 when the input cannot be read.

  kubectl get baremetalhosts,sipclusters,secrets -A -o yaml | sipctl plan -f -";

const ADOPT_HELP: &str = "\
Reads the site as kubectl does, or files. Nothing changes: adoption itself is what the scheduler does when the agents start.

Exit code: 0 when every labelled host is kept and nothing else changes, 2 when something is in conflict, 1 when the site or
the files cannot be read.

  sipctl adopt --dry-run
  kubectl get baremetalhosts,sipclusters,secrets -A -o yaml | sipctl adopt --dry-run -f -";

const LOSE_HELP: &str = "\
Members are the hosts that labels and status.placement name; hosts that are being given back do not count.

Exit code: 0 when every role keeps more than half of its members, 2 when one does not, 1 when the input cannot be read.

  kubectl get baremetalhosts,sipclusters -A -o yaml | sipctl lose airshipit.org/rack=r006 -f -";

const OVERRIDE_HELP: &str = "\
Says what will happen before it is done; with --dry-run that is all.

Exit code: 0 when it is done, 2 when the scheduler refuses it, 1 when the scheduler cannot be asked.";

const HANDS_HELP: &str = "\
Says what will happen before it is done; with --dry-run that is all. A host is annotated on its site's API server; a
domain is written into the site's policy, which a running scheduler reads again by itself.

Exit code: 0 when it is so now, 2 when it is refused, 1 when the API server or the file cannot be reached.

  sipctl cordon metal/r001-h0002
  sipctl cordon airshipit.org/rack=r006 --policy-configmap sip-system/site-policy";

/// The region's scheduler, and how it is reached.
#[derive(Debug, clap::Args)]
pub struct Connection {
    /// The region's scheduler, the one that leads
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
    /// Forget which agents of a site were let in, after its API server was restored and its Lease counts from an earlier number
    #[command(after_help = OVERRIDE_HELP)]
    ResetFence(ResetFence),
    /// Continue a site's history above every release mark and status that it shows, so that hosts with marks of a lost ledger or of
    /// another site can be claimed again. Claims stay as they are
    #[command(after_help = OVERRIDE_HELP)]
    Repair(Repair),
}

/// Raise a site's position.
#[derive(Debug, clap::Args)]
pub struct Repair {
    /// The site
    #[arg(value_name = "SITE")]
    pub site: String,
    /// Say what would happen, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The scheduler.
    #[command(flatten)]
    pub connection: Connection,
}

/// Forget which agents were let in.
#[derive(Debug, clap::Args)]
pub struct ResetFence {
    /// The site
    #[arg(value_name = "SITE")]
    pub site: String,
    /// Say what would happen, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The scheduler.
    #[command(flatten)]
    pub connection: Connection,
}

/// Release a host whose labels name nobody.
#[derive(Debug, clap::Args)]
pub struct ReleaseOrphan {
    /// The BareMetalHost
    #[arg(value_name = "NS/NAME", value_parser = |text: &str| text.parse::<HostName>())]
    pub host: HostName,
    /// Its site
    #[arg(long, value_name = "SITE")]
    pub site: String,
    /// Say what would happen, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The scheduler.
    #[command(flatten)]
    pub connection: Connection,
}

/// Check an adoption.
#[derive(Debug, clap::Args)]
pub struct Adopt {
    /// A check is all there is: say so
    #[arg(long, required = true)]
    pub dry_run: bool,
    /// A file, JSON or YAML, or a directory, instead of the API server; - is standard input. Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE_OR_DIR", conflicts_with_all = ["kubeconfig", "context"])]
    pub files: Vec<PathBuf>,
    /// The namespace of objects in files that name none
    #[arg(short, long, default_value = "default", value_parser = |text: &str| Namespace::new(text))]
    pub namespace: Namespace,
    /// The site's policy, a file as the scheduler reads it
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// The site's API server.
    #[command(flatten)]
    pub access: Access,
    /// How to print what is found
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Lose a domain.
#[derive(Debug, clap::Args)]
pub struct Lose {
    /// The label and its value that all hosts of the domain have
    #[arg(value_name = "KEY=VALUE", value_parser = crate::loss::domain)]
    pub domain: placement::Domain,
    /// A file, JSON or YAML, or a directory with *.yaml, *.yml and *.json; - is standard input. Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE_OR_DIR", required = true)]
    pub files: Vec<PathBuf>,
    /// The namespace of objects that name none
    #[arg(short, long, default_value = "default", value_parser = |text: &str| Namespace::new(text))]
    pub namespace: Namespace,
    /// How to print the losses
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// What to do with a ledger.
#[derive(Debug, Subcommand)]
pub enum Ledger {
    /// Write all that a running scheduler's ledger holds into a file; for operators only
    Export(Export),
    /// Fill an empty ledger from a file; no scheduler may run on it
    Import(Import),
    /// Look at every record of a file or of a ledger, and say what is wrong
    #[command(
        after_help = "Exit code: 0 when nothing is wrong, 2 when something is, 1 when it cannot be read."
    )]
    Check(Check),
}

/// What to do with certificates.
#[derive(Debug, Subcommand)]
pub enum Certs {
    /// Make a directory with the authority of a region
    Init(Init),
    /// Make the authority of a site, which certifies that site's agents and nobody else
    Site(SiteAuthority),
    /// Make a certificate and its key, or renew them
    Issue(Issue),
    /// Deny a certificate, or all of an identity's
    Deny(Deny),
    /// Say what there is, and what expires when
    #[command(
        after_help = "Exit code: 0 when nothing is due, 2 when something is, 1 when the directory cannot be read."
    )]
    Show(Show),
}

/// Make a directory.
#[derive(Debug, clap::Args)]
pub struct Init {
    /// The directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// The region.
    #[command(flatten)]
    pub realm: RealmArgs,
    /// Days until the authority expires
    #[arg(long, value_name = "DAYS", default_value_t = 3650)]
    pub days: u32,
}

/// Make a site's authority.
#[derive(Debug, clap::Args)]
pub struct SiteAuthority {
    /// The directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// The site
    #[arg(value_name = "SITE")]
    pub site: Name,
    /// Days until the authority expires
    #[arg(long, value_name = "DAYS", default_value_t = 1825)]
    pub days: u32,
}

/// Make a certificate.
#[derive(Debug, clap::Args)]
pub struct Issue {
    /// The directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// For whom: scheduler, operator/NAME, reader/NAME or site/SITE/agent/NAME
    #[arg(value_name = "IDENTITY")]
    pub identity: String,
    /// Days until it expires
    #[arg(long, value_name = "DAYS", default_value_t = 90)]
    pub days: u32,
}

/// Deny somebody.
#[derive(Debug, clap::Args)]
pub struct Deny {
    /// The directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// A certificate's file, or an identity
    #[arg(value_name = "FILE_OR_IDENTITY")]
    pub who: String,
    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub why: String,
}

/// Say what expires when.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// The directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Days before its end from which a certificate is due
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub warn_days: u32,
}

/// Back a ledger up.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// The scheduler.
    #[command(flatten)]
    pub connection: Connection,
    /// The file; it is there when it is whole
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Fill a ledger.
#[derive(Debug, clap::Args)]
pub struct Import {
    /// A file that `sipctl ledger export` has written
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The empty ledger.
    #[command(flatten)]
    pub ledger: LedgerArgs,
}

/// Check a ledger.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct Check {
    /// A file that `sipctl ledger export` has written
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The file of a ledger that no scheduler has open
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// Decide offline.
#[derive(Debug, clap::Args)]
pub struct Plan {
    /// A file, JSON or YAML, or a directory with *.yaml, *.yml and *.json; - is standard input. Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE_OR_DIR", required = true)]
    pub files: Vec<PathBuf>,
    /// The namespace of objects that name none
    #[arg(short, long, default_value = "default", value_parser = |text: &str| Namespace::new(text))]
    pub namespace: Namespace,
    /// Print only this cluster, which then decides the exit code; all are decided
    #[arg(long, value_name = "NS/NAME", value_parser = |text: &str| text.parse::<ClusterName>())]
    pub cluster: Option<ClusterName>,
    /// The site's policy, a file as the scheduler reads it
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// How to print the plan
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}
