//! A user on another machine: keys, and ssh with what the status of the cluster says.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    process::{Child, Command},
};

use crate::fixtures::PATIENCE;

/// A key pair of somebody.
#[derive(Clone, Debug)]
pub(super) struct Key {
    directory: Arc<TempDir>,
}

impl Key {
    pub(super) fn new(comment: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"])
            .arg(directory.path().join("key"))
            .status();
        assert!(made.unwrap().success());
        Self {
            directory: Arc::new(directory),
        }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.directory.path().join("key")
    }

    pub(super) fn private(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    pub(super) fn public(&self) -> String {
        let line = fs::read_to_string(self.directory.path().join("key.pub")).unwrap();
        line.trim_end().to_owned()
    }

    /// Another key with a certificate of this authority, which ssh finds beside it.
    pub(super) fn issues(&self, id: &str, principals: &str, validity: &str) -> Self {
        let key = Self::new(id);
        let issued = std::process::Command::new("ssh-keygen")
            .args(["-q", "-I", id, "-n", principals, "-V", validity, "-s"])
            .arg(self.file())
            .arg(key.directory.path().join("key.pub"))
            .status();
        assert!(issued.unwrap().success());
        key
    }
}

/// What a command has printed.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) success: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// How a user reaches a jump host.
#[derive(Clone, Debug)]
pub(super) struct Login {
    address: Ipv4Addr,
    port: u64,
    user: &'static str,
    key: Key,
    directory: Arc<TempDir>,
}

impl Login {
    /// By the endpoint in a cluster's status, once sshd answers there: kube-proxy learns of a ready pod a moment later than the API
    /// server. The host key is the one of the status.
    pub(super) async fn new(address: Ipv4Addr, endpoints: &Value, key: &Key) -> Self {
        let endpoints = endpoints.as_array().unwrap().iter();
        let endpoint = endpoints
            .clone()
            .find(|endpoint| endpoint["protocol"] == "ssh")
            .unwrap();
        let port = endpoint["port"].as_u64().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let host_key = endpoint["hostKeys"]["ssh-ed25519"].as_str().unwrap();
        let line = format!("[{address}]:{port} ssh-ed25519 {host_key}\n");
        fs::write(directory.path().join("known_hosts"), line).unwrap();
        greets(address, u16::try_from(port).unwrap()).await;
        Self {
            address,
            port,
            user: "ubuntu",
            key: key.clone(),
            directory: Arc::new(directory),
        }
    }

    /// Somebody else at the same place.
    pub(super) fn as_holder_of(&self, key: &Key) -> Self {
        Self {
            key: key.clone(),
            ..self.clone()
        }
    }

    /// The same person as another user.
    pub(super) fn to(&self, user: &'static str) -> Self {
        Self { user, ..self.clone() }
    }

    /// Opens a connection whose user runs commands while sshd, which reads a changed configuration, may refuse new ones for a moment.
    pub(super) async fn open(&self) -> OpenLogin {
        let socket = self.directory.path().join("open");
        let connection = self.ssh().args(["-M", "-N", "-S"]).arg(&socket).spawn().unwrap();
        let started = Instant::now();
        while !socket.exists() {
            assert!(started.elapsed() < PATIENCE, "no connection to {self:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        OpenLogin {
            login: self.clone(),
            socket,
            _connection: connection,
        }
    }

    /// Runs a command on the jump host with more options of ssh.
    pub(super) async fn run_with(&self, options: &[&str], command: &str) -> Printed {
        let mut ssh = self.ssh();
        ssh.args(options);
        if !command.is_empty() {
            ssh.arg(command);
        }
        printed(&mut ssh).await
    }

    /// Runs a command on the jump host.
    pub(super) async fn run(&self, command: &str) -> Printed {
        printed(self.ssh().arg(command)).await
    }

    /// What a command prints on a terminal of its own.
    pub(super) async fn on_terminal(&self, command: &str) -> String {
        let printed = printed(self.ssh().arg("-tt").arg(command)).await;
        assert!(printed.success, "{command}: {printed:?}");
        printed.stdout.trim_end().to_owned()
    }

    /// What a command prints that must succeed.
    pub(super) async fn prints(&self, command: &str) -> String {
        let printed = self.run(command).await;
        assert!(printed.success, "{command}: {printed:?}");
        printed.stdout.trim_end().to_owned()
    }

    /// ssh to the jump host, which must show the host key of the status.
    pub(super) fn ssh(&self) -> Command {
        let mut ssh = ssh(&self.key, &self.directory.path().join("known_hosts"));
        ssh.args(["-p", &self.port.to_string()])
            .arg(format!("{}@{}", self.user, self.address));
        ssh
    }

    /// What one connection gets at once: the greeting of sshd, or why not.
    pub(super) async fn greeted(&self) -> Result<(), String> {
        greeted(self.address, u16::try_from(self.port).unwrap()).await
    }

    /// The variable `NODE` on a node, which the user reaches from the own machine through the jump host.
    pub(super) async fn through(&self, node: Ipv4Addr, key: &Key, host_key: &Key) -> String {
        let known = self.directory.path().join("known_nodes");
        fs::write(&known, format!("{node} {}\n", host_key.public())).unwrap();
        let jump = self.ssh();
        let words = std::iter::once(jump.as_std().get_program()).chain(jump.as_std().get_args());
        let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
        let (target, options) = words.split_last().unwrap();
        let proxy = format!("ProxyCommand={} -W %h:%p {target}", options.join(" "));
        let mut ssh = ssh(key, &known);
        ssh.args(["-o", &proxy])
            .arg(format!("ubuntu@{node}"))
            .arg("echo $NODE");
        let printed = printed(&mut ssh).await;
        assert!(printed.success, "{printed:?}");
        printed.stdout.trim_end().to_owned()
    }
}

/// A connection to a jump host that stays open.
#[derive(Debug)]
pub(super) struct OpenLogin {
    login: Login,
    socket: PathBuf,
    /// Ends with this.
    _connection: Child,
}

impl OpenLogin {
    /// Runs a command through the open connection.
    pub(super) async fn run(&self, command: &str) -> Printed {
        let socket = format!("ControlPath={}", self.socket.display());
        // Without the connection, ssh would open another one.
        let only_open = ["-o", &socket, "-o", "ProxyCommand=false"];
        self.login.run_with(&only_open, command).await
    }

    /// What a command prints that must succeed.
    pub(super) async fn prints(&self, command: &str) -> String {
        let printed = self.run(command).await;
        assert!(printed.success, "{command}: {printed:?}");
        printed.stdout.trim_end().to_owned()
    }
}

/// ssh with one key, and with nothing of the user who runs the test.
fn ssh(key: &Key, known_hosts: &Path) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-F", "none"]);
    for option in [
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "StrictHostKeyChecking=yes",
        "ConnectTimeout=20",
    ] {
        command.args(["-o", option]);
    }
    command
        .arg("-o")
        .arg(format!("UserKnownHostsFile={}", known_hosts.display()))
        .arg("-i")
        .arg(key.file())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

async fn printed(command: &mut Command) -> Printed {
    let run = tokio::time::timeout(PATIENCE, command.output()).await;
    let run = run
        .unwrap_or_else(|_| panic!("{command:?} does not end"))
        .unwrap();
    Printed {
        success: run.status.success(),
        stdout: String::from_utf8(run.stdout).unwrap(),
        stderr: String::from_utf8(run.stderr).unwrap(),
    }
}

/// What one connection to an ssh server gets at once: its greeting, or why not.
async fn greeted(address: Ipv4Addr, port: u16) -> Result<(), String> {
    let greeted = async {
        let mut greeting = [0; 4];
        let mut stream = TcpStream::connect((address, port)).await?;
        stream.read_exact(&mut greeting).await?;
        std::io::Result::Ok(greeting)
    };
    match tokio::time::timeout(Duration::from_secs(5), greeted).await {
        Ok(Ok(greeting)) if greeting == *b"SSH-" => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Waits until an ssh server answers.
pub(super) async fn greets(address: Ipv4Addr, port: u16) {
    let started = Instant::now();
    while let Err(why) = greeted(address, port).await {
        assert!(
            started.elapsed() < PATIENCE,
            "sshd does not answer at {address}:{port}: {why}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
