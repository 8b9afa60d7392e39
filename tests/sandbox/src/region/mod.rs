//! A region: the scheduler, the certificates that everybody shows, and the agents that it has in the sites.

mod agent;
mod error;
mod grpcurl;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use agent::JUMP_HOST_TOOLS_IMAGE;
pub use agent::{AGENTS_NAMESPACE, Agent, AgentProcess, HOSTS_NAMESPACE, Replica, SiteConfig};
pub use error::Error;
pub(crate) use error::{api_error, file_error};
pub use grpcurl::Grpcurl;
use tokio::{process::Command, sync::Mutex};

use crate::{
    authority::{Authority, Caller, Identity, TRUST_DOMAIN},
    etcd::Etcd,
    port,
    process::{Group, Process, Program},
    programs, readiness, repository,
};

/// How long the project's own programs may take to become ready.
const PATIENCE: Duration = Duration::from_secs(90);

/// The ledger's file in the region's directory.
const LEDGER: &str = "ledger.redb";

/// A running region. Dropping it ends the scheduler; agents end with their sites.
#[derive(Debug)]
pub struct Region {
    scheduler: Mutex<Process>,
    /// How it is started, but for its ledger.
    program: Program,
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
        Self::start_with(name, &[]).await
    }

    /// The same with variables in the scheduler's environment.
    ///
    /// # Errors
    /// As [`Region::start`].
    pub async fn start_with(name: &str, variables: &[(&str, String)]) -> Result<Self, Error> {
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
        fs::copy(sample, &policy).map_err(file_error("write", &policy))?;
        let program = Program::new("sip-scheduler", programs::path("sip-scheduler")?)
            .args(["--region", name])
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
        let program = variables
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value));
        let on_file = program
            .clone()
            .arg("--ledger")
            .arg(group.directory().join(LEDGER));
        let scheduler = Mutex::new(group.spawn(on_file)?);
        let mut region = Self {
            scheduler,
            program,
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

    /// The port of the scheduler's `/readyz` and `/metrics`.
    #[must_use]
    pub fn health_port(&self) -> u16 {
        self.scheduler_health
    }

    /// The scheduler's process, to crash, pause and restart it.
    #[must_use]
    pub fn scheduler(&mut self) -> &mut Process {
        self.scheduler.get_mut()
    }

    /// Kills the scheduler, starts it again, and waits until it is ready. For a region that several sites share.
    ///
    /// # Errors
    /// When it cannot be killed or started, or does not become ready.
    pub async fn kill_and_restart(&self) -> Result<(), Error> {
        let mut scheduler = self.scheduler.lock().await;
        scheduler.kill9().await?;
        scheduler.restart().await?;
        Ok(readiness::http(&mut scheduler, self.scheduler_health, "/readyz", PATIENCE).await?)
    }

    /// Kills the scheduler, moves its ledger from the file to etcd as an operator would, and starts it there under the same address.
    ///
    /// # Errors
    /// When a step fails: with what it printed.
    pub async fn move_to_etcd(&self, etcd: &Etcd) -> Result<(), Error> {
        let mut scheduler = self.scheduler.lock().await;
        scheduler.kill9().await?;
        let file = self.group.directory().join(LEDGER);
        let endpoints = etcd.endpoints().join(",");
        let output = Command::new(programs::path("sipctl")?)
            .args(["ledger", "import", "--ledger-etcd", &endpoints, "--from-ledger"])
            .arg(&file)
            .output()
            .await;
        let output = output.map_err(file_error("move", &file))?;
        if !output.status.success() {
            return Err(Error::Move(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let on_etcd = self.program.clone().args(["--ledger-etcd", &endpoints]);
        *scheduler = self.group.spawn(on_etcd)?;
        Ok(readiness::http(&mut scheduler, self.scheduler_health, "/readyz", PATIENCE).await?)
    }

    /// Kills the scheduler and starts it with an empty ledger, as after the loss of its volume.
    ///
    /// # Errors
    /// When it cannot be killed or started, or the ledger not be removed.
    pub async fn lose_ledger(&mut self) -> Result<(), Error> {
        self.scheduler.get_mut().kill9().await?;
        let path = self.group.directory().join(LEDGER);
        match fs::remove_file(&path) {
            // A scheduler that was killed early has made none.
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(file_error("remove", &path)(source));
            }
            _ => {}
        }
        Ok(self.scheduler.get_mut().restart().await?)
    }

    /// Waits until the scheduler is ready, for example after a restart.
    ///
    /// # Errors
    /// When it does not become ready: with the end of its log.
    pub async fn scheduler_is_ready(&mut self) -> Result<(), Error> {
        Ok(readiness::http(
            self.scheduler.get_mut(),
            self.scheduler_health,
            "/readyz",
            PATIENCE,
        )
        .await?)
    }

    /// The ends of the region's logs, each under its name.
    #[must_use]
    pub fn log_tails(&self, lines: usize) -> String {
        self.group.log_tails(lines)
    }
}
