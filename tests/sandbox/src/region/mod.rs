//! A region: the scheduler, the certificates that everybody shows, and the agents that it has in the sites.

mod agent;
mod grpcurl;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use agent::JUMP_HOST_TOOLS_IMAGE;
pub use agent::{AGENTS_NAMESPACE, Agent, AgentProcess, HOSTS_NAMESPACE, Replica, SiteConfig};

use crate::{
    authority::{Authority, Caller, Identity, TRUST_DOMAIN},
    pki, port, process,
    process::{Group, Process, Program},
    programs, readiness, repository, site, tools,
};

/// Why a region could not be brought up or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of the project's programs was not built.
    #[error(transparent)]
    Program(#[from] programs::Error),
    /// A third-party program is missing.
    #[error(transparent)]
    Tool(#[from] tools::Error),
    /// A process did not start or end.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A process is not ready.
    #[error(transparent)]
    NotReady(#[from] readiness::Error),
    /// A certificate.
    #[error(transparent)]
    Certificate(#[from] pki::Error),
    /// Something in the site that an agent needs.
    #[error(transparent)]
    Site(#[from] site::Error),
    /// A configuration file.
    #[error("write {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// There is no free port.
    #[error("find a free port on loopback")]
    Port(#[source] io::Error),
}

/// How long the project's own programs may take to become ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running region. Dropping it ends the scheduler; agents end with their sites.
#[derive(Debug)]
pub struct Region {
    scheduler: Process,
    scheduler_health: u16,
    scheduler_port: u16,
    name: String,
    authority: Authority,
    operator: Identity,
    group: Group,
}

impl Region {
    /// Starts a scheduler with an empty ledger, and waits until it is ready.
    ///
    /// # Errors
    /// When the scheduler was not built, or does not become ready: with the end of its log.
    pub async fn start(name: &str) -> Result<Self, Error> {
        let group = Group::new(name)?;
        let authority = Authority::new(&group.directory().join("pki"), name)?;
        let identity = authority.issue_server(&Caller::Scheduler, &["localhost"])?;
        let operator = authority.issue(&Caller::Operator("sandbox"))?;
        let (scheduler_port, scheduler_health) = (
            port::reserve().map_err(Error::Port)?,
            port::reserve().map_err(Error::Port)?,
        );
        // A copy: it may be changed while the scheduler runs.
        let policy = group.directory().join("policy.yaml");
        let sample = repository::deploy().join("sandbox/policy.yaml");
        fs::copy(sample, &policy).map_err(|source| Error::File {
            path: policy.clone(),
            source,
        })?;
        let program = Program::new("sip-scheduler", programs::path("sip-scheduler")?)
            .args(["--region", name])
            .arg("--ledger")
            .arg(group.directory().join("ledger.redb"))
            .arg("--site-policy")
            .arg(format!("*={}", policy.display()))
            .args(["--listen".to_owned(), format!("127.0.0.1:{scheduler_port}")])
            .args([
                "--health-listen".to_owned(),
                format!("127.0.0.1:{scheduler_health}"),
            ])
            .arg("--tls-cert")
            .arg(&identity.certificate)
            .arg("--tls-key")
            .arg(&identity.key)
            .arg("--tls-client-ca")
            .arg(authority.certificate())
            .args(["--trust-domain", TRUST_DOMAIN]);
        let scheduler = group.spawn(program)?;
        let mut region = Self {
            scheduler,
            scheduler_health,
            scheduler_port,
            name: name.to_owned(),
            authority,
            operator,
            group,
        };
        region.scheduler_is_ready().await?;
        Ok(region)
    }

    /// The region's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The policy of every site, a file that the scheduler reads again when it changes.
    #[must_use]
    pub fn policy(&self) -> PathBuf {
        self.group.directory().join("policy.yaml")
    }

    /// The region's temporary directory: the ledger, certificates and logs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.group.directory()
    }

    /// Signs certificates of this region.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Who may change things by hand.
    #[must_use]
    pub fn operator(&self) -> &Identity {
        &self.operator
    }

    /// `127.0.0.1:PORT` of the scheduler's gRPC server.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.scheduler_port)
    }

    /// The same as a URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address())
    }

    /// The scheduler's process, to crash, pause and restart it.
    #[must_use]
    pub fn scheduler(&mut self) -> &mut Process {
        &mut self.scheduler
    }

    /// Waits until the scheduler is ready, for example after a restart.
    ///
    /// # Errors
    /// When it does not become ready: with the end of its log.
    pub async fn scheduler_is_ready(&mut self) -> Result<(), Error> {
        Ok(readiness::http(&mut self.scheduler, self.scheduler_health, "/readyz", PATIENCE).await?)
    }

    /// The ends of the region's logs, each under its name.
    #[must_use]
    pub fn log_tails(&self, lines: usize) -> String {
        self.group.log_tails(lines)
    }
}
