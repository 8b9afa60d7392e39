//! A group of processes, its directory and the watchdog over both.

use std::{
    io::{PipeWriter, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use rustix::process::Pid;

use super::{Error, Process, Program, log};

/// Lines of each log that are shown when a test panics.
const LINES_ON_PANIC: usize = 25;

/// Processes that end together, and the temporary directory that they work in.
///
/// Dropping it kills them and removes the directory; while a panic unwinds, the ends of their logs are printed first.
#[derive(Debug)]
pub struct Group {
    name: String,
    directory: PathBuf,
    registry: Arc<Registry>,
    watchdog: Child,
}

impl Group {
    /// Makes a directory and starts the watchdog over it.
    ///
    /// # Errors
    /// When there is no room for a temporary directory or no `/bin/sh`.
    pub fn new(name: &str) -> Result<Self, Error> {
        let temporary = std::env::temp_dir();
        let directory = tempfile::Builder::new()
            .prefix(&format!("sip-{name}-"))
            .tempdir()
            .map_err(|source| Error::File {
                action: "make a directory in",
                path: temporary,
                source,
            })?;
        let failed = |source| Error::Start {
            program: "the watchdog".to_owned(),
            source,
        };
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let watchdog = Command::new("/bin/sh")
            .args(["-c", include_str!("watchdog.sh"), "sip-sandbox-watchdog"])
            .arg(directory.path())
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        // From here on the watchdog removes the directory, since it outlives us in every case.
        let group = Self {
            name: name.to_owned(),
            directory: directory.keep(),
            registry: Arc::new(Registry { pipe: writer }),
            watchdog,
        };
        let logs = group.logs();
        std::fs::create_dir(&logs).map_err(|source| Error::File {
            action: "make",
            path: logs,
            source,
        })?;
        Ok(group)
    }

    /// The temporary directory; gone when the group is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    /// Starts a process. Its output goes to `logs/NAME.log` in the directory.
    ///
    /// # Errors
    /// When the process cannot be started; a binary that does not exist shows as an early end instead.
    pub fn spawn(&self, program: Program) -> Result<Process, Error> {
        let log = self.logs().join(format!("{}.log", program.name()));
        Process::start(program, log, Arc::clone(&self.registry))
    }

    /// Has a tree of control groups removed after the group's processes have ended.
    pub(crate) fn owns_cgroup(&self, directory: &Path) {
        self.registry.write(&format!("cgroup {}\n", directory.display()));
    }

    /// The ends of all logs, each under its name.
    #[must_use]
    pub fn log_tails(&self, lines: usize) -> String {
        let Ok(entries) = std::fs::read_dir(self.logs()) else {
            return String::new();
        };
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        let tails: Vec<String> = paths
            .iter()
            .map(|path| {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                format!("--- {}: {name}\n{}\n", self.name, log::tail(path, lines))
            })
            .collect();
        tails.concat()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tails(LINES_ON_PANIC));
        }
        self.registry.end();
        // It takes some milliseconds; after it nothing is left behind. Should it be gone already, there is nothing
        // more that could be done here.
        let _ = self.watchdog.wait();
    }
}

/// Our end of the watchdog's pipe.
#[derive(Debug)]
pub(super) struct Registry {
    pipe: PipeWriter,
}

impl Registry {
    /// The pipe as the standard input of a process that is about to register.
    pub(super) fn pipe(&self) -> std::io::Result<Stdio> {
        self.pipe.try_clone().map(Stdio::from)
    }

    pub(super) fn remove(&self, pid: Pid) {
        self.write(&format!("- {}\n", pid.as_raw_nonzero()));
    }

    fn end(&self) {
        self.write("end\n");
    }

    /// One line in one write, so that lines of several processes never mix (POSIX: up to `PIPE_BUF` bytes).
    fn write(&self, line: &str) {
        // The only way to fail is that the watchdog has finished, and with it every process on its list.
        let _ = (&self.pipe).write_all(line.as_bytes());
    }
}
