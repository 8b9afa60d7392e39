//! Network, pid and mount namespaces of a node's own: they end with their process 1, and everything in them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    Error, PATIENCE,
    files::write,
    obstacle::{Programs, SYSTEM_PATH},
};
use crate::process::{Group, Process, Program};

const INTERVAL: Duration = Duration::from_millis(10);

/// The namespaces, and the process that keeps them.
#[derive(Debug)]
pub(super) struct Isolation {
    /// The parent of process 1, which takes it along. Nothing else needs to be ended.
    process: Process,
    /// Process 1, as the host counts.
    pid: u32,
    nsenter: PathBuf,
}

impl Isolation {
    /// Makes them around a directory that the node's programs know as `/run/node`.
    pub(super) async fn start(group: &Group, programs: &Programs, directory: &Path) -> Result<Self, Error> {
        let script = directory.join("node.sh");
        write(&script, include_str!("node.sh"))?;
        let program = Program::new("node", &programs.unshare)
            .env("PATH", SYSTEM_PATH)
            .args([
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount",
                "--mount-proc",
            ])
            .args(["--propagation", "private", "/bin/sh"])
            .arg(&script)
            .arg(directory)
            .arg(&programs.catatonit);
        let mut process = group.spawn(program)?;
        let started = Instant::now();
        let pid = loop {
            process.check()?;
            // The script says when it has mounted everything.
            if directory.join("isolated").exists()
                && let Some(pid) = process.pid().and_then(only_child)
            {
                break pid;
            }
            if started.elapsed() > PATIENCE {
                return Err(Error::Late {
                    what: "the node's namespaces",
                    log: process.log_tail(25),
                });
            }
            tokio::time::sleep(INTERVAL).await;
        };
        Ok(Self {
            process,
            pid,
            nsenter: programs.nsenter.clone(),
        })
    }

    /// Process 1, as the host counts.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Says that it has ended, if it has.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        Ok(self.process.check()?)
    }

    /// A program that runs in the node.
    pub(super) fn inside(&self, name: &str, binary: &Path) -> Program {
        Program::new(name, &self.nsenter)
            .env("PATH", SYSTEM_PATH)
            .flag("--target", self.pid.to_string())
            .args(["--mount", "--net", "--pid", "--"])
            .arg(binary)
    }
}

fn only_child(pid: u32) -> Option<u32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .ok()?
        .trim()
        .parse()
        .ok()
}
