//! HAProxy's master socket: commands to the master and to its workers.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Timeout for connecting: HAProxy accepts a connection at once while it runs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a command: ten thousand servers that are added one by one take a few seconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);
/// Bytes of a response, at most: the statistics of ten thousand servers are a twentieth of it.
const MAX_RESPONSE_BYTES: u64 = 64 * 1024 * 1024;

/// Why HAProxy did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It does not run, or is starting.
    #[error("HAProxy's master does not listen on {}", socket.display())]
    Absent {
        /// The socket.
        socket: PathBuf,
        /// The error of the connection.
        #[source]
        source: io::Error,
    },
    /// It ended, or executes itself again.
    #[error("HAProxy's master has closed the connection")]
    Closed(#[source] io::Error),
    /// It is ending, or is another program.
    #[error("HAProxy's master gave an unexpected answer to `{command}`: {answer:?}")]
    Unclear {
        /// The command.
        command: &'static str,
        /// The beginning of the answer.
        answer: String,
    },
    /// It hangs.
    #[error("HAProxy's master has not answered within {within:?}")]
    Slow {
        /// How long it had.
        within: Duration,
    },
}

impl Error {
    /// Whether it is normal while HAProxy starts, ends or reads its configuration.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Absent { .. } | Self::Closed(_) | Self::Unclear { .. } => true,
            Self::Slow { .. } => false,
        }
    }
}

/// Number of a worker's process, as the master sees it.
pub type Pid = u32;

/// The process that a command is for.
#[derive(Clone, Copy, Debug)]
enum Target {
    Master,
    Worker(Pid),
}

impl Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Master => Ok(()),
            Self::Worker(pid) => write!(f, "@!{pid} "),
        }
    }
}

/// HAProxy's master.
#[derive(Clone, Debug)]
pub struct Master {
    socket: PathBuf,
}

impl Master {
    /// The master that listens there, if one does.
    #[must_use]
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    /// Sends one command to the master itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn query(&self, command: &str) -> Result<String, Error> {
        self.send(lines(Target::Master, [command])).await
    }

    /// Sends commands to a worker, one after the other, and returns the answers to all of them.
    ///
    /// # Errors
    /// When the master does not answer. Refusals by the worker are in the answers.
    pub async fn command_worker(
        &self,
        worker: Pid,
        commands: impl IntoIterator<Item: Display>,
    ) -> Result<String, Error> {
        self.send(lines(Target::Worker(worker), commands)).await
    }

    /// One connection for all: the master takes the next line when it has answered the one before, and closes behind the last.
    async fn send(&self, lines: String) -> Result<String, Error> {
        let absent = |source| Error::Absent {
            socket: self.socket.clone(),
            source,
        };
        let connected = timeout(CONNECT_TIMEOUT, UnixStream::connect(&self.socket)).await;
        let mut stream = connected
            .map_err(|_| Error::Slow {
                within: CONNECT_TIMEOUT,
            })?
            .map_err(absent)?;
        let talk = async {
            let (reading, mut writing) = stream.split();
            let mut answer = Vec::new();
            let mut reading = reading.take(MAX_RESPONSE_BYTES);
            let read = reading.read_to_end(&mut answer);
            // Both at once: the master stops reading while its answers are not read.
            let write = async {
                writing.write_all(lines.as_bytes()).await?;
                writing.shutdown().await
            };
            let (read, written) = tokio::join!(read, write);
            read?;
            written?;
            Ok(answer)
        };
        let answer = timeout(RESPONSE_TIMEOUT, talk)
            .await
            .map_err(|_| Error::Slow {
                within: RESPONSE_TIMEOUT,
            })?
            .map_err(Error::Closed)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

fn lines(to: Target, commands: impl IntoIterator<Item: Display>) -> String {
    use fmt::Write as _;

    commands.into_iter().fold(String::new(), |mut lines, command| {
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "{to}{command}");
        lines
    })
}
