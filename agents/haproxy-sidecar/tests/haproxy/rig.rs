//! A haproxy, what follows the configuration beside it, and members that answer.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use haproxy_sidecar::cli::Master;
use haproxy_sidecar::config_map::Source;
use haproxy_sidecar::follow::{Follower, Metrics};
use haproxy_sidecar::observe::{Fingerprint, Observation, observe};
use haproxy_sidecar::tables::Admin;
use k8s_openapi::api::core::v1::ConfigMap;
use render::load_balancer::MASTER_SOCKET;
use render::running::Running;
use runtime::readiness::Readiness;
use runtime::sidecar::Report;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::configuration::{Configuration, PORT, digest};

/// For what takes a few seconds at most on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Loopback addresses of this process and test alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses(u8);

impl Addresses {
    pub(crate) fn own() -> Self {
        static TESTS: AtomicU8 = AtomicU8::new(0);
        // Two networks each: the largest test has more members than one has addresses.
        Self(TESTS.fetch_add(2, Ordering::Relaxed))
    }

    pub(crate) fn get(self, which: u16) -> Ipv4Addr {
        let [_, _, process, low] = std::process::id().to_be_bytes();
        let [more, which] = (which + 1).to_be_bytes();
        let process = 32 + (process.wrapping_mul(31) ^ low) % 200;
        Ipv4Addr::new(127, process, self.0 + more, which)
    }
}

/// haproxy as its container starts it. All its processes end with it.
pub(crate) struct Haproxy(Child);

impl Haproxy {
    pub(crate) fn start(directory: &Path, socket: &str, file: &str) -> Self {
        let socket = format!("{},mode,600", directory.join(socket).display());
        let log = File::options()
            .create(true)
            .append(true)
            .open(directory.join("log"))
            .unwrap();
        let mut command = Command::new("haproxy");
        command
            .args(["-W", "-db", "-S", &socket, "-f"])
            .arg(directory.join(file))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0);
        Self(command.spawn().unwrap_or_else(|error| {
            panic!(
                "these tests need haproxy in PATH (Debian package haproxy; `make setup` installs it): {error}"
            )
        }))
    }

    /// Nothing of it is left, as when its container ends.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.0.wait();
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.end();
    }
}

/// A pod: what follows, and mostly a haproxy.
pub(crate) struct Pod {
    pub(crate) directory: TempDir,
    pub(crate) addresses: Addresses,
    pub(crate) metrics: Metrics,
    source: watch::Sender<Source>,
    report: watch::Sender<Report<Running>>,
    drain: Duration,
    following: JoinSet<()>,
    haproxy: Option<Haproxy>,
    members: JoinSet<()>,
}

impl Pod {
    /// What follows runs; there is neither a configuration nor a haproxy yet.
    pub(crate) fn empty(drain: Duration) -> Self {
        let mut pod = Self {
            directory: tempfile::tempdir().unwrap(),
            addresses: Addresses::own(),
            metrics: Metrics::default(),
            source: watch::Sender::default(),
            report: watch::Sender::default(),
            drain,
            following: JoinSet::new(),
            haproxy: None,
            members: JoinSet::new(),
        };
        pod.follow();
        pod
    }

    /// A haproxy that runs with two members, `a` and `b`.
    pub(crate) async fn of_two(drain: Duration) -> (Self, Configuration) {
        let mut pod = Self::empty(drain);
        let [front, a, b] = [0, 1, 2].map(|which| pod.addresses.get(which));
        pod.member("a", a).await;
        pod.member("b", b).await;
        let configuration = Configuration::new(front).with("a", a).with("b", b);
        pod.want(&configuration);
        pod.until("a configuration is written", |report| report.started)
            .await;
        pod.start_haproxy();
        pod.runs(&configuration).await;
        (pod, configuration)
    }

    fn follow(&mut self) {
        let follower = Follower::new(
            self.source.subscribe(),
            self.directory.path(),
            self.drain,
            self.report.clone(),
            self.metrics.clone(),
        );
        self.following.spawn(async move {
            let gate = Readiness::default().gate("configuration");
            let Ok(()) = follower.run(&gate).await;
        });
    }

    /// Ends what follows wherever it is, and starts it again as a new process would.
    pub(crate) async fn restart_following(&mut self) {
        self.stop_following().await;
        self.follow();
    }

    pub(crate) async fn stop_following(&mut self) {
        self.following.shutdown().await;
        self.report.send_replace(Report::default());
    }

    pub(crate) fn start_haproxy(&mut self) {
        self.start_haproxy_with(MASTER_SOCKET, "haproxy.cfg");
    }

    pub(crate) fn start_haproxy_with(&mut self, socket: &str, file: &str) {
        self.haproxy = Some(Haproxy::start(self.directory.path(), socket, file));
    }

    pub(crate) fn kill_haproxy(&mut self) {
        self.haproxy.take().unwrap().kill();
    }

    /// The newest `ConfigMap`.
    pub(crate) fn want(&self, configuration: &Configuration) {
        self.put(&configuration.config_map());
    }

    pub(crate) fn put(&self, config_map: &ConfigMap) {
        self.source.send_if_modified(|source| source.take(config_map));
    }

    /// A member that says who it is and answers with what it hears.
    pub(crate) async fn member(&mut self, name: &str, address: Ipv4Addr) -> AbortHandle {
        let listener = TcpListener::bind((address, PORT)).await.unwrap();
        let greeting = format!("{name}@{address}\n");
        self.members.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let greeting = greeting.clone();
                connections.spawn(async move {
                    let mut heard = [0; 64];
                    let _ = stream.write_all(greeting.as_bytes()).await;
                    while let Ok(length @ 1..) = stream.read(&mut heard).await {
                        if stream.write_all(&heard[..length]).await.is_err() {
                            break;
                        }
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        })
    }

    pub(crate) fn report(&self) -> Report<Running> {
        self.report.borrow().clone()
    }

    pub(crate) fn reports(&self) -> watch::Receiver<Report<Running>> {
        self.report.subscribe()
    }

    pub(crate) async fn until(
        &self,
        what: &str,
        is: impl FnMut(&Report<Running>) -> bool,
    ) -> Report<Running> {
        let mut reports = self.report.subscribe();
        let waited = tokio::time::timeout(PATIENCE, reports.wait_for(is)).await;
        match waited {
            Ok(report) => report.unwrap().clone(),
            Err(elapsed) => panic!(
                "{what}: {elapsed}: not within {PATIENCE:?}: {:?}\n{}",
                self.report(),
                self.log()
            ),
        }
    }

    /// Waits until it is said that exactly this runs.
    pub(crate) async fn runs(&self, configuration: &Configuration) {
        self.runs_config_map(&configuration.config_map()).await;
    }

    pub(crate) async fn runs_config_map(&self, config_map: &ConfigMap) {
        let digest = digest(config_map);
        let report = self
            .until("it runs", |report| {
                report.running.running.as_ref() == Some(&digest)
            })
            .await;
        assert_eq!(report.running.failed, None);
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join(MASTER_SOCKET)
    }

    /// What haproxy says of itself, as soon as it says anything.
    pub(crate) async fn observe(&self) -> Observation {
        let master = Master::new(self.socket());
        let deadline = Instant::now() + PATIENCE;
        loop {
            let looking = async {
                let fingerprint = Fingerprint::read(&master).await?;
                observe(&master, &fingerprint.processes).await
            };
            match looking.await {
                Ok(observed) => return observed,
                Err(error) => assert!(Instant::now() < deadline, "{error}: {}", self.log()),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The process of the current worker.
    pub(crate) async fn worker(&self) -> u32 {
        self.observe().await.current.unwrap().pid
    }

    /// Whether the current worker may use a member.
    pub(crate) async fn admin(&self, name: &str) -> Admin {
        let current = self.observe().await.current.unwrap();
        let servers = current.servers.into_iter();
        let mut named = servers.filter(|(server, _)| server.name.to_string() == name);
        named.next().unwrap().1.admin
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}
