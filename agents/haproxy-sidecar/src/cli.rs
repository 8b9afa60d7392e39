//! The socket on which HAProxy's master takes orders, for itself and for its workers.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Connecting is immediate, or nobody is there.
const CONNECT: Duration = Duration::from_secs(2);
/// Ten thousand servers that are added one by one take a few seconds.
const ANSWER: Duration = Duration::from_mins(1);
/// Bytes of an answer: the statistics of ten thousand servers are a twentieth of it.
const AT_MOST: u64 = 64 * 1024 * 1024;

/// Why HAProxy did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It does not run, or starts just now.
    #[error("HAProxy's master does not listen on {}", socket.display())]
    Absent {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It went away.
    #[error("HAProxy's master has closed the connection")]
    Closed(#[source] io::Error),
    /// It is about to end, or another program.
    #[error("HAProxy's master gave an unexpected answer to `{command}`: {answer:?}")]
    Unclear {
        /// What it was asked.
        command: &'static str,
        /// The beginning of what it said.
        answer: String,
    },
    /// It does not move.
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

/// Whom an order is for.
#[derive(Clone, Copy, Debug)]
enum To {
    Master,
    Worker(Pid),
}

impl Display for To {
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

    /// Asks the master itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn ask(&self, command: &str) -> Result<String, Error> {
        self.send(lines(To::Master, [command])).await
    }

    /// Gives a worker orders, one after the other, and returns what it says to all of them.
    ///
    /// # Errors
    /// When the master does not answer. What the worker refuses is in its words.
    pub async fn tell(
        &self,
        worker: Pid,
        commands: impl IntoIterator<Item: Display>,
    ) -> Result<String, Error> {
        self.send(lines(To::Worker(worker), commands)).await
    }

    /// One connection for all: the master takes the next line when it has answered the one before, and closes behind the last.
    async fn send(&self, lines: String) -> Result<String, Error> {
        let absent = |source| Error::Absent {
            socket: self.socket.clone(),
            source,
        };
        let connected = timeout(CONNECT, UnixStream::connect(&self.socket)).await;
        let mut stream = connected
            .map_err(|_| Error::Slow { within: CONNECT })?
            .map_err(absent)?;
        let talk = async {
            let (reading, mut writing) = stream.split();
            let mut answer = Vec::new();
            let mut reading = reading.take(AT_MOST);
            let read = reading.read_to_end(&mut answer);
            // Both at once: it stops reading while nobody reads what it says.
            let write = async {
                writing.write_all(lines.as_bytes()).await?;
                writing.shutdown().await
            };
            let (read, written) = tokio::join!(read, write);
            read?;
            written?;
            Ok(answer)
        };
        let answer = timeout(ANSWER, talk)
            .await
            .map_err(|_| Error::Slow { within: ANSWER })?
            .map_err(Error::Closed)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

fn lines(to: To, commands: impl IntoIterator<Item: Display>) -> String {
    use fmt::Write as _;

    commands.into_iter().fold(String::new(), |mut lines, command| {
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "{to}{command}");
        lines
    })
}
