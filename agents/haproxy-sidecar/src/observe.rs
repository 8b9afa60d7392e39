//! Observation of HAProxy's processes.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;

use crate::cli::{self, Master, Pid};
use crate::members::Server;
use crate::tables::{self, ServerState};
use crate::wanted::{ORIGIN_VARIABLE, Origin};

/// Why HAProxy's state is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It does not answer.
    #[error(transparent)]
    Cli(#[from] cli::Error),
    /// The worker ended, or its answer is of an unknown form.
    #[error("worker {worker} gave an unexpected answer to `{command}`: {answer:?}")]
    Answer {
        /// Its process.
        worker: Pid,
        /// The command.
        command: &'static str,
        /// The beginning of the answer.
        answer: String,
        /// What is wrong with that.
        #[source]
        source: Option<tables::Error>,
    },
}

/// A worker as the master sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Process {
    /// Its process.
    pub pid: Pid,
    /// Whether a later one has replaced it. HAProxy before 2.5 reports this also after a later one failed to start.
    pub old: bool,
}

/// Shows cheaply whether HAProxy restarted or reloaded. Process ids alone do not suffice: in a container that restarts they are
/// the same.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fingerprint {
    /// The socket is bound again whenever the master starts or reads its configuration.
    socket: Option<(u64, i64, i64)>,
    /// Its workers.
    pub processes: Vec<Process>,
}

impl Fingerprint {
    /// Reads it from the master.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn read(master: &Master) -> Result<Self, cli::Error> {
        let answer = master.query(PROCESSES).await?;
        let processes = processes(&answer).ok_or_else(|| cli::Error::Unclear {
            command: PROCESSES,
            answer: answer.chars().take(200).collect(),
        })?;
        let socket = tokio::fs::metadata(master.socket()).await.ok();
        Ok(Self {
            socket: socket.map(|socket| (socket.ino(), socket.ctime(), socket.ctime_nsec())),
            processes,
        })
    }

    /// Whether the same master has read its configuration since, or another one has.
    #[must_use]
    pub fn has_read_again_since(&self, earlier: &Self) -> bool {
        self.socket != earlier.socket
    }
}

const PROCESSES: &str = "show proc";

/// Lines of words under headings; the words after the first two differ between versions. `None` where the master
/// itself is not listed: that is no answer, and must not be read as one without workers.
fn processes(answer: &str) -> Option<Vec<Process>> {
    let mut old = false;
    let mut has_master = false;
    let mut found = Vec::new();
    for line in answer.lines() {
        if let Some(heading) = line.strip_prefix("# ") {
            old = heading == "old workers";
        }
        let mut words = line.split_whitespace();
        match (words.next().map(str::parse), words.next()) {
            (Some(Ok(pid)), Some("worker")) => found.push(Process { pid, old }),
            (Some(Ok(_)), Some("master")) => has_master = true,
            _ => {}
        }
    }
    has_master.then_some(found)
}

/// A worker as it reports itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Worker {
    /// Its process.
    pub pid: Pid,
    /// Whether it takes no new connections.
    pub stopping: bool,
    /// What it was started from; `None` if not by us.
    pub origin: Option<Origin>,
    /// Its servers.
    pub servers: BTreeMap<Server, ServerState>,
    /// Connections that it may still give to any of them, where it takes no new ones.
    pub undecided: u64,
}

/// The state of all workers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Observation {
    /// The one that takes new connections.
    pub current: Option<Worker>,
    /// Those that still have some from before.
    pub old: Vec<Worker>,
}

/// Queries every worker.
///
/// # Errors
/// When one of them does not answer, such as because it has just ended.
pub async fn observe(master: &Master, processes: &[Process]) -> Result<Observation, Error> {
    let mut workers = Vec::with_capacity(processes.len());
    for process in processes {
        workers.push((process.old, worker(master, *process).await?));
    }
    // If the master reports all as old because the last new one failed to start, the one that is not stopping is current.
    let current = workers
        .iter()
        .position(|(old, _)| !old)
        .or_else(|| workers.iter().position(|(_, worker)| !worker.stopping));
    let current = current.map(|index| workers.remove(index).1);
    Ok(Observation {
        current,
        old: workers.into_iter().map(|(_, worker)| worker).collect(),
    })
}

/// Of all proxies, servers only.
const STATISTICS: &str = "show stat -1 4 -1";
const STATE: &str = "show servers state";

async fn worker(master: &Master, Process { pid, old }: Process) -> Result<Worker, Error> {
    let ask = async |command: &str| master.command_worker(pid, [command]).await;
    let not_understood = |command, answer: &str, source| Error::Answer {
        worker: pid,
        command,
        answer: answer.chars().take(200).collect(),
        source,
    };
    let info = ask("show info").await?;
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name));
        value.ok_or_else(|| not_understood("show info", &info, None))
    };
    let stopping = field("Stopping: ")? != "0";
    let connections = field("CurrConns: ")?.parse();
    let connections = connections.map_err(|_| not_understood("show info", &info, None))?;
    let origin = ask(&format!("show env {ORIGIN_VARIABLE}")).await?;
    let origin = origin
        .lines()
        .find_map(|line| line.strip_prefix(ORIGIN_VARIABLE)?.strip_prefix('='));
    let state = ask(STATE).await?;
    let mut servers =
        tables::servers(&state).map_err(|source| not_understood(STATE, &state, Some(source)))?;
    let statistics = ask(STATISTICS).await?;
    tables::count_sessions(&statistics, &mut servers)
        .map_err(|source| not_understood(STATISTICS, &statistics, Some(source)))?;
    let mut undecided = 0;
    if old || stopping {
        // Statistics of HAProxy 2.3 and 2.4 leave out what is stopped, as everything in an old worker is.
        let sessions = ask("show sess").await?;
        tables::count_listed_sessions(&sessions, &mut servers);
        undecided = tables::undecided(&sessions, connections);
    }
    Ok(Worker {
        pid,
        stopping,
        origin: origin.and_then(Origin::parse),
        servers,
        undecided,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;

    /// The fingerprint of a master with one worker that listens there.
    async fn fingerprint(socket: &Path) -> Fingerprint {
        let listener = UnixListener::bind(socket).unwrap();
        let master = Master::new(socket.to_owned());
        let answer = async {
            let (mut asking, _) = listener.accept().await.unwrap();
            asking.read_to_string(&mut String::new()).await.unwrap();
            let answer = "1 master 0\n# workers\n8 worker 0\n";
            asking.write_all(answer.as_bytes()).await.unwrap();
        };
        let (fingerprint, ()) = tokio::join!(Fingerprint::read(&master), answer);
        fingerprint.unwrap()
    }

    #[tokio::test]
    async fn a_restarted_master_is_another_with_the_same_pids() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("master.sock");
        let first = fingerprint(&socket).await;
        std::fs::remove_file(&socket).unwrap();
        let second = fingerprint(&socket).await;
        assert_eq!(first.processes, second.processes);
        assert!(second.has_read_again_since(&first));
        assert_ne!(first, second);
        assert!(!first.has_read_again_since(&first));
    }

    #[test]
    fn workers_are_found_in_the_output_of_every_version() {
        let of_2_6 = "#<PID>          <type>          <reloads>       <uptime>        <version>      \n\
            32478           master          2 [failed: 1]   0d00h00m26s     2.6.12-1+deb12u4\n\
            # workers\n\
            32494           worker          1               0d00h00m25s     2.6.12-1+deb12u4\n\
            # old workers\n\
            32481           worker          3               0d00h00m26s     2.6.12-1+deb12u4\n\
            # programs\n\
            12              exporter        3               0d00h00m26s     -\n\n";
        let of_2_2 = "#<PID>          <type>          <relative PID>  <reloads>       <uptime>        <version>      \n\
            32478           master          0               2               0d00h00m26s     2.2.9\n\
            # workers\n\
            32494           worker          1               0               0d00h00m25s     2.2.9\n\
            # old workers\n\
            32481           worker          [was: 1]        1               0d00h00m26s     2.2.9\n\
            # programs\n\n";

        let expected = [(32494, false), (32481, true)].map(|(pid, old)| Process { pid, old });
        assert_eq!(processes(of_2_6), Some(expected.into()));
        assert_eq!(processes(of_2_2), Some(expected.into()));
        for none in ["", "Permission denied\n"] {
            assert_eq!(processes(none), None);
        }
    }
}
