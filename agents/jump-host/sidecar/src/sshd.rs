//! Runs sshd: checks its configuration before each use, makes it read a changed one, and reads what it logs. Sessions continue while it reads its
//! configuration, and for a while when the pod ends.

use std::{
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use render::{
    jump_host::files::SSHD_CONFIG,
    running::{CONFIG_PATH, Running, STARTED_PATH},
};
use runtime::{
    Process, ProcessArgs,
    health::HealthArgs,
    sidecar::{self, Paths, Report},
    telemetry::TelemetryArgs,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    fs,
    io::BufReader,
    process::{Child, ChildStderr, Command},
    sync::watch,
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use crate::{
    account, connections,
    lines::Lines,
    options::{Environment, INSTEAD_OF_SET_ENV, NEWER_OPTIONS},
    orphans,
    reload::{Configuration, Reload, handles},
    sessions::{Sessions, metrics::Metrics},
};

/// Paths of sshd in images. It must be started by its absolute path, since it starts itself again.
const SSHD_PATHS: [&str; 3] = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"];
/// Time between comparisons of the configuration with the one that sshd has read.
const CONFIGURATION_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Time between comparisons of the sessions with the open connections.
const SESSION_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time to wait for a further line of an sshd that has ended.
const LAST_LINE_TIMEOUT: Duration = Duration::from_millis(100);
/// Time for all of them: users can write to the same output.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(1);
/// Seconds that the process may take to exit after its sessions have ended.
const EXIT_GRACE_SECONDS: u16 = 3;

/// Where the agent reads which configuration sshd has read.
const REPORT_PATHS: Paths = Paths {
    started: STARTED_PATH,
    running: CONFIG_PATH,
    starts_with: None,
};

/// The directories of sshd, and how long its sessions may last.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    telemetry: TelemetryArgs,
    #[command(flatten)]
    health: HealthArgs,
    /// Directory with the files that sshd reads
    #[arg(long, value_name = "PATH")]
    directory: PathBuf,
    /// Directory of the account that users log in to
    #[arg(long, value_name = "PATH")]
    home: PathBuf,
    /// Seconds that sessions may continue after a signal to shut down
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    drain_seconds: u16,
}

/// Why sshd does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image has none.
    #[error("the image has no sshd in any of {}", SSHD_PATHS.join(", "))]
    Absent,
    /// It cannot be started.
    #[error("{} cannot be started", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It refuses its configuration.
    #[error("sshd refuses its configuration: {0}")]
    Configuration(String),
    /// It has ended.
    #[error("sshd has ended: {0}")]
    Ended(ExitStatus),
    /// An expression of [`Sessions`].
    #[error(transparent)]
    Expression(#[from] regex::Error),
}

/// Runs until it receives a signal or sshd exits.
///
/// # Errors
/// Why it could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args {
        telemetry,
        health,
        directory,
        home,
        drain_seconds,
    } = args;
    account::check()?;
    let program = SSHD_PATHS.iter().map(Path::new).find(|path| path.exists());
    let program = program.ok_or(Error::Absent)?.to_owned();
    let process = ProcessArgs {
        telemetry,
        health,
        drain_seconds: drain_seconds.saturating_add(EXIT_GRACE_SECONDS),
    };
    let (name, version) = ("sip-jump-host-sidecar", env!("CARGO_PKG_VERSION"));
    let (report, reported) = watch::channel(Report::default());
    let routes = sidecar::routes(REPORT_PATHS, reported);
    let mut process = Process::start_answering(name, version, &process, routes).await?;
    for error in account::prepare(&home, &directory) {
        let error = runtime::error_chain::chain(&error);
        tracing::error!(
            error,
            "a file in the home directory of the ssh user cannot be written; sshd starts without it"
        );
    }
    let server = Server {
        program,
        config: directory.join(SSHD_CONFIG),
        home,
        environment: Environment::of_sessions(),
        metrics: Metrics::registered(&process.metrics),
        report,
        drain: Duration::from_secs(drain_seconds.into()),
    };
    let shutdown = process.shutdown.clone();
    process
        .tasks
        .spawn("sshd", async move { server.run(shutdown).await });
    process.run().await?;
    Ok(())
}

/// sshd, and what it runs with.
#[derive(Clone, Debug)]
pub struct Server {
    /// Whole path.
    pub program: PathBuf,
    /// Its configuration.
    pub config: PathBuf,
    /// Directory of the account that users log in to.
    pub home: PathBuf,
    /// What sessions have.
    pub environment: Environment,
    /// Counts sessions.
    pub metrics: Metrics,
    /// Which configuration sshd has read, or why it refuses the newest one.
    pub report: watch::Sender<Report<Running>>,
    /// How long sessions may continue after the shutdown began.
    pub drain: Duration,
}

impl Server {
    /// Runs until the shutdown, and then until no session and no login is left or the time to drain is over. Sessions that are open then end
    /// with the container, and are reported as closed.
    ///
    /// # Errors
    /// When sshd refuses its first configuration, cannot be started, or ends.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let mut sessions = Sessions::new()?;
        let ended = self.serve(&mut sessions, shutdown).await;
        for event in sessions.cut(Instant::now()) {
            self.metrics.record(&event, sessions.open());
        }
        ended
    }

    async fn serve(&self, sessions: &mut Sessions, shutdown: CancellationToken) -> Result<(), Error> {
        let mut reload = Reload::new(self.configuration().await);
        self.check(&[]).await?;
        let options = self.options().await?;
        let (mut child, mut output) = self.start(&options)?;
        let mut pace = time::interval(CONFIGURATION_CHECK_INTERVAL);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut checks = time::interval(SESSION_CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                line = output.next() => match line {
                    Some(line) if reload.observe(&line) => tracing::info!("sshd reads its configuration again"),
                    Some(line) => self.observe(sessions, &line),
                    None => return Err(Error::Ended(self.ended(&mut child).await?)),
                },
                ended = child.wait() => {
                    self.observe_rest(sessions, &mut output).await;
                    return Err(Error::Ended(ended.map_err(|source| self.failed(source))?));
                }
                _ = pace.tick() => {
                    orphans::reap(&process_ids(&child));
                    let configuration = self.configuration().await;
                    self.reload(&mut reload, &configuration, &child, &options).await;
                    self.report(reload.running(&configuration));
                }
                _ = checks.tick() => self.end_disconnected(sessions),
                () = shutdown.cancelled() => break,
            }
        }
        self.drain(child, output, sessions).await;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Start {
            program: self.program.clone(),
            source,
        }
    }

    async fn ended(&self, child: &mut Child) -> Result<ExitStatus, Error> {
        child.wait().await.map_err(|source| self.failed(source))
    }

    /// A missing file counts as no change: the sidecar replaces it as a whole.
    async fn configuration(&self) -> Configuration {
        fs::read(&self.config).await.ok()
    }

    /// Options that this version of sshd knows and others would refuse.
    async fn options(&self) -> Result<Vec<String>, Error> {
        let mut options = Vec::new();
        for option in NEWER_OPTIONS {
            options.extend(self.if_supported(option).await?);
        }
        if let Some(option) = self.if_supported(&self.environment.set_env()).await? {
            options.push(option);
            return Ok(options);
        }
        match self.environment.write(&self.home) {
            Ok(()) => options.extend(self.if_supported(INSTEAD_OF_SET_ENV).await?),
            Err(error) => {
                tracing::error!(%error, "the environment file of the ssh user cannot be written: sessions start without its variables");
            }
        }
        Ok(options)
    }

    /// If the check of an option fails, the option does not count as unknown: sshd would run with fewer restrictions.
    async fn if_supported(&self, option: &str) -> Result<Option<String>, Error> {
        let option = option.to_owned();
        match self.check(std::slice::from_ref(&option)).await {
            Ok(()) => Ok(Some(option)),
            Err(Error::Configuration(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn start(&self, options: &[String]) -> Result<(Child, Output), Error> {
        let mut command = Command::new(&self.program);
        let command = command
            .args(["-D", "-e", "-f"])
            .arg(&self.config)
            .args(as_arguments(options))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|source| self.failed(source))?;
        let output = child
            .stderr
            .take()
            .ok_or_else(|| self.failed(io::ErrorKind::BrokenPipe.into()))?;
        let output = Lines::new(BufReader::new(output));
        tracing::info!(program = %self.program.display(), "sshd is started");
        Ok((child, output))
    }

    /// Whether sshd accepts its configuration. sshd ends when it reads one that it refuses, and everybody who reaches the jump host by it loses
    /// the connection, so it is checked first. A check that a signal ends is no refusal.
    async fn check(&self, options: &[String]) -> Result<(), Error> {
        let mut command = Command::new(&self.program);
        let command = command
            .args(["-t", "-f"])
            .arg(&self.config)
            .args(as_arguments(options));
        let checked = command.output().await;
        let checked = checked.map_err(|source| self.failed(source))?;
        if checked.status.code().is_none() {
            return Err(Error::Ended(checked.status));
        }
        let printed = String::from_utf8_lossy(&checked.stderr);
        if checked.status.success() && self.has_host_key(&printed).await {
            return Ok(());
        }
        let lines: Vec<&str> = printed.lines().map(str::trim).collect();
        Err(Error::Configuration(lines.join("; ")))
    }

    /// Whether sshd could load a host key, by what `sshd -t` printed. The sshd of Ubuntu 18.04 succeeds without any, and prints a line for each
    /// that it cannot load; started so, it ends.
    async fn has_host_key(&self, printed: &str) -> bool {
        let configuration = self.configuration().await.unwrap_or_default();
        let configuration = String::from_utf8_lossy(&configuration);
        let keys = configuration.lines().filter(|line| line.starts_with("HostKey "));
        let unloaded = printed
            .lines()
            .filter(|line| line.starts_with("Could not load host key: "));
        let unloaded = unloaded.count();
        unloaded == 0 || unloaded < keys.count()
    }

    async fn reload(
        &self,
        reload: &mut Reload,
        configuration: &Configuration,
        child: &Child,
        options: &[String],
    ) {
        if !reload.is_due(configuration, Instant::now()) || !handles_hangup(child).await {
            return;
        }
        if let Err(error) = self.check(options).await {
            let error = runtime::error_chain::chain(&error);
            if reload.refused(configuration.clone(), error.clone(), Instant::now()) {
                tracing::error!(error, "sshd keeps its previous configuration");
            }
            return;
        }
        signal(child, Signal::HUP);
        reload.requested(configuration.clone(), Instant::now());
    }

    fn report(&self, running: Running) {
        self.report.send_if_modified(|report| {
            let newest = Report {
                started: true,
                running,
                starts_with: None,
            };
            let changed = *report != newest;
            *report = newest;
            changed
        });
    }

    fn observe(&self, sessions: &mut Sessions, line: &str) {
        if let Some(event) = sessions.observe(line, Instant::now()) {
            self.metrics.record(&event, sessions.open());
        } else {
            // Lines about probes and strangers would fill the log.
            tracing::debug!(line, "sshd");
        }
    }

    /// Observes what sshd wrote before it ended: sessions that it opened last are reported, too. Its sessions have the same output, so it may not
    /// end.
    async fn observe_rest(&self, sessions: &mut Sessions, output: &mut Output) {
        let rest = async {
            while let Ok(Some(line)) = time::timeout(LAST_LINE_TIMEOUT, output.next()).await {
                self.observe(sessions, &line);
            }
        };
        let _ = time::timeout(LAST_LINES_TIMEOUT, rest).await;
    }

    /// Ends sessions without connection: a process of sshd that is killed logs no end of its session.
    fn end_disconnected(&self, sessions: &mut Sessions) {
        match connections::remotes() {
            Ok(remotes) => {
                for event in sessions.end_disconnected(&remotes, Instant::now()) {
                    self.metrics.record(&event, sessions.open());
                }
            }
            Err(error) => tracing::debug!(%error, "the connections of the pod cannot be read"),
        }
    }

    /// Stops sshd from accepting connections; open sessions and logins in progress may end by themselves.
    async fn drain(&self, mut child: Child, mut output: Output, sessions: &mut Sessions) {
        signal(&child, Signal::TERM);
        let ending = async {
            // Every process of sshd writes to this output, also those of logins, so it ends with the last of them.
            while let Some(line) = output.next().await {
                self.observe(sessions, &line);
            }
            // An error means that sshd had ended before.
            let _ = child.wait().await;
        };
        if time::timeout(self.drain, ending).await.is_err() {
            tracing::info!("sessions are closed: the drain time has ended");
        }
    }
}

fn as_arguments(options: &[String]) -> impl Iterator<Item = &str> {
    options.iter().flat_map(|option| ["-o", option])
}

/// The number of sshd's process, while it runs.
fn process_ids(child: &Child) -> Vec<u32> {
    child.id().into_iter().collect()
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // Fails only if sshd has ended, which the wait for it reports.
        let _ = kill_process(pid, signal);
    }
}

async fn handles_hangup(child: &Child) -> bool {
    let Some(pid) = child.id() else { return false };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).await;
    status.is_ok_and(|status| handles(&status, Signal::HUP))
}

/// What sshd writes, by lines.
type Output = Lines<BufReader<ChildStderr>>;

#[cfg(test)]
mod tests;
