//! Processes that end together, whatever happens to the one that started them.
//!
//! A [`Group`] owns a temporary directory and a watchdog, a small shell script at the end of a pipe. Every process
//! writes its process id into that pipe before it executes its program. When the group is dropped, or its owner is gone
//! (a panic, Ctrl-C, even SIGKILL closes the pipe), the watchdog kills what is on its list and removes the directory.

mod clock;
mod group;
mod log;
mod members;
mod program;

use std::{
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

pub use clock::Clock;
pub use group::Group;
pub use program::Program;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

use self::group::Registry;

/// Pause between two looks at the processes of a group that was killed.
const PACE: Duration = Duration::from_millis(10);

/// Why a process could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The temporary directory or a file in it.
    #[error("{action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The process did not start.
    #[error("start {program}")]
    Start {
        /// The program's name.
        program: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A signal could not be sent.
    #[error("send a signal to {program}")]
    Signal {
        /// The program's name.
        program: String,
        /// What the operating system said.
        source: rustix::io::Errno,
    },
    /// The operating system does not tell whether it has ended.
    #[error("wait for {program}")]
    Wait {
        /// The program's name.
        program: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The process ended when it should have gone on.
    #[error("{program} has ended: {status}. The end of its log:\n{log}")]
    Ended {
        /// The program's name.
        program: String,
        /// How it ended.
        status: String,
        /// The last lines of its log.
        log: String,
    },
}

/// One process of a [`Group`], with its log file. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    program: Program,
    log: PathBuf,
    registry: Arc<Registry>,
    running: Option<(Pid, Child)>,
    /// How it ended the last time.
    ended: Option<ExitStatus>,
}

impl Process {
    fn start(program: Program, log: PathBuf, registry: Arc<Registry>) -> Result<Self, Error> {
        let mut process = Self {
            program,
            log,
            registry,
            running: None,
            ended: None,
        };
        process.launch()?;
        Ok(process)
    }

    fn launch(&mut self) -> Result<(), Error> {
        let failed = |source| Error::Start {
            program: self.program.name().to_owned(),
            source,
        };
        let log = log::append(&self.log)?;
        let child = self
            .program
            .registered()
            .stdin(self.registry.pipe().map_err(failed)?)
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let pid = child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| failed(std::io::Error::other("it has no process id")))?;
        self.running = Some((pid, child));
        Ok(())
    }

    /// What people call it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.program.name()
    }

    /// The process id, unless it is known to have ended.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.running
            .as_ref()
            .and_then(|(pid, _)| u32::try_from(pid.as_raw_nonzero().get()).ok())
    }

    /// The file with everything it wrote to standard output and standard error, over all restarts.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        log::tail(&self.log, lines)
    }

    /// Says that it has ended, if it has.
    ///
    /// # Errors
    /// [`Error::Ended`], with the end of its log.
    pub fn check(&mut self) -> Result<(), Error> {
        if let Some((_, child)) = &mut self.running {
            match child.try_wait().map_err(|source| self.cannot_wait(source))? {
                None => return Ok(()),
                Some(status) => self.reaped(status),
            }
        }
        Err(Error::Ended {
            program: self.name().to_owned(),
            status: self
                .ended
                .map_or_else(|| "it was never started".to_owned(), |status| status.to_string()),
            log: self.log_tail(25),
        })
    }

    /// Waits until it ends by itself. `None` if it was not running.
    ///
    /// # Errors
    /// When the operating system cannot wait for it.
    pub async fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        let Some((_, child)) = &mut self.running else {
            return Ok(None);
        };
        let status = child.wait().await.map_err(|source| self.cannot_wait(source))?;
        self.reaped(status);
        Ok(Some(status))
    }

    /// Asks it to end (SIGTERM), and kills it when it has not ended in time.
    ///
    /// Returns how it ended of itself; `None` if it was not running or had to be killed.
    ///
    /// # Errors
    /// When a signal cannot be sent.
    pub async fn stop(&mut self, grace: Duration) -> Result<Option<ExitStatus>, Error> {
        self.signal(Signal::TERM)?;
        // A paused process would see the signal only when it goes on.
        self.signal(Signal::CONT)?;
        if let Ok(status) = tokio::time::timeout(grace, self.ended()).await {
            status
        } else {
            self.kill9().await?;
            Ok(None)
        }
    }

    /// Kills it and everything in its process group at once (SIGKILL), as a crash of the machine would.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub async fn kill9(&mut self) -> Result<(), Error> {
        self.signal(Signal::KILL)?;
        let group = self.running.as_ref().map(|(group, _)| *group);
        self.ended().await?;
        if let Some(group) = group {
            // What it has started dies by itself, perhaps later, and has its ports until then.
            while members::run(group) {
                tokio::time::sleep(PACE).await;
            }
        }
        Ok(())
    }

    /// Stops it from running without ending it (SIGSTOP): connections stay open and nobody answers.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on after [`Process::pause`].
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    /// Starts it again with the same arguments, killing it first if it is running.
    ///
    /// # Errors
    /// When it cannot be killed or started.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.kill9().await?;
        self.launch()
    }

    /// Ends it as an upgrade does, and starts another file with the same arguments.
    ///
    /// # Errors
    /// When it cannot be ended or started.
    pub async fn replace(&mut self, binary: PathBuf, grace: Duration) -> Result<(), Error> {
        self.stop(grace).await?;
        self.program.run(binary);
        self.launch()
    }

    /// Starts it again by another clock than the system's.
    ///
    /// # Errors
    /// As [`Process::restart`].
    pub async fn restart_by(&mut self, clock: &Clock) -> Result<(), Error> {
        for (variable, value) in clock.environment() {
            self.program.set(variable, value);
        }
        self.restart().await
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let Some((pid, _)) = &self.running else {
            return Ok(());
        };
        match kill_process_group(*pid, signal) {
            // It has ended and nobody has waited for it yet.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(source) => Err(Error::Signal {
                program: self.name().to_owned(),
                source,
            }),
        }
    }

    fn cannot_wait(&self, source: std::io::Error) -> Error {
        Error::Wait {
            program: self.name().to_owned(),
            source,
        }
    }

    /// From now on its number may be somebody else's.
    fn reaped(&mut self, status: ExitStatus) {
        self.ended = Some(status);
        if let Some((pid, _)) = self.running.take() {
            self.registry.remove(pid);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its children with it; dropping `Child` then kills and reaps the process itself. If the signal cannot be
        // sent there is nobody left to send it to.
        let _ = self.signal(Signal::KILL);
    }
}
