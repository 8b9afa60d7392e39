//! The scheduler's process, with its file.

use std::{net::TcpListener, path::PathBuf, time::Duration};

use sandbox::programs;
use tempfile::TempDir;
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

pub(crate) struct Process {
    folder: TempDir,
    port: u16,
    child: Child,
}

impl Process {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let child = spawn(&folder, port).await;
        Self { folder, port, child }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// SIGKILL, and a new process on the same file.
    pub(crate) async fn kill_and_start(&mut self) {
        self.child.kill().await.unwrap();
        self.child = spawn(&self.folder, self.port).await;
    }

    /// SIGKILL; what is left is the file, until the process is dropped.
    pub(crate) fn end(&mut self) -> PathBuf {
        self.child.start_kill().unwrap();
        while self.child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        self.folder.path().join("ledger.redb")
    }
}

async fn spawn(folder: &TempDir, port: u16) -> Child {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.path().join("log"))
        .unwrap();
    let mut child = Command::new(programs::path("sip-scheduler").unwrap())
        .args(["--plaintext-loopback", "--trust-domain", "test", "--region", "r"])
        .args(["--health-listen", "127.0.0.1:0", "--log", "warn"])
        .arg(format!("--listen=127.0.0.1:{port}"))
        .arg("--ledger")
        .arg(folder.path().join("ledger.redb"))
        .env_clear()
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let listening = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if let Some(status) = child.try_wait().unwrap() {
                let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
                panic!("the scheduler has ended with {status}:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), listening)
        .await
        .unwrap_or_else(|_| panic!("the scheduler does not listen"));
    child
}
