//! The loop: look, decide, do, tell; and look again. Every turn begins with the newest configuration and with what HAProxy says
//! of itself, so that nothing is queued, and nothing is assumed after a restart of either.
//!
//! **The file is written before HAProxy is told anything**: whenever it starts anew, it starts with the newest. It may still
//! have read the file just before that was replaced. A worker therefore says itself what it was started from
//! ([`crate::wanted::ORIGIN_VARIABLE`], which the file sets), and that is looked at whenever the socket of its master is another
//! one than at the last look: a worker that started from an older file is one more worker that lacks changes. The same look
//! finds what an earlier run of this program has left half done, so nothing of that is stored.

mod change;
mod reload;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use render::load_balancer::MASTER_SOCKET;
use render::load_balancer::running::Running;
use runtime::readiness::Gate;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::cli::{self, Master};
use crate::config_map::Source;
use crate::file::{self, ConfigFile};
use crate::look::{self, Face, Look, look};
pub use crate::metrics::Metrics;
use crate::orders;
use crate::report::Report;
use crate::steps::{Course, Decision, Member, decide, leavers};
use crate::wanted::Wanted;
use change::Told;
use reload::Attempt;
use runtime::error_chain::chain;

/// When to look whether HAProxy is still the one that was looked at.
const IDLE: Duration = Duration::from_secs(1);
/// When to look at all of it again nonetheless.
const SETTLED: Duration = Duration::from_secs(30);
/// When to look again while something is to change. A look at many servers takes its time of HAProxy: it gets ten times as much
/// in between.
const POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Why a turn ended early.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    File(#[from] file::Error),
    #[error(transparent)]
    Cli(#[from] cli::Error),
    #[error(transparent)]
    Look(#[from] look::Error),
}

impl Error {
    /// HAProxy starts, or one of its workers has ended: the next look tells more.
    fn is_passing(&self) -> bool {
        match self {
            Self::Cli(error) | Self::Look(look::Error::Cli(error)) => error.is_passing(),
            Self::Look(look::Error::Answer { .. }) => true,
            Self::File(_) => false,
        }
    }
}

/// How a turn ended.
struct Turn {
    /// Whether the newest configuration runs.
    runs: bool,
    /// Why it will not.
    failed: Option<String>,
    /// When to look again.
    pause: Duration,
}

impl Turn {
    fn goes_on(pause: Duration) -> Self {
        Self {
            runs: false,
            failed: None,
            pause,
        }
    }
}

/// Nothing was left to do.
struct Settled {
    digest: String,
    face: Face,
    at: Instant,
}

/// Makes HAProxy follow.
pub struct Follower {
    source: watch::Receiver<Source>,
    file: ConfigFile,
    master: Master,
    drain: Duration,
    report: watch::Sender<Report>,
    metrics: Metrics,
    /// The last configuration that ran.
    good: Option<Arc<Wanted>>,
    settled: Option<Settled>,
    attempt: Option<Attempt>,
    told: Told,
    /// Who leaves, since when. It begins anew with this program: a member may have its time twice, and never less.
    leaving: BTreeMap<Member, Instant>,
    trouble: Option<String>,
}

impl Follower {
    /// Follows what `source` has in `directory`, and tells `report`.
    #[must_use]
    pub fn new(
        source: watch::Receiver<Source>,
        directory: &Path,
        drain: Duration,
        report: watch::Sender<Report>,
        metrics: Metrics,
    ) -> Self {
        Self {
            source,
            file: ConfigFile::within(directory),
            master: Master::new(directory.join(MASTER_SOCKET)),
            drain,
            report,
            metrics,
            good: None,
            settled: None,
            attempt: None,
            told: Told::default(),
            leaving: BTreeMap::new(),
            trouble: None,
        }
    }

    /// Follows for ever. It may be dropped wherever it waits.
    ///
    /// # Errors
    /// None: what goes wrong is tried again.
    pub async fn run(mut self, gate: &Gate) -> Result<(), Infallible> {
        // HAProxy runs already when this program alone was started again.
        if self.file.exists().await {
            self.started();
        }
        loop {
            let pause = self.turn().await;
            if self.report.borrow().started {
                gate.ready();
            }
            let changed = async {
                if self.source.changed().await.is_err() {
                    // Nobody will have anything newer; HAProxy may still start again.
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = changed => {}
                () = sleep(pause) => {}
            }
        }
    }

    async fn turn(&mut self) -> Duration {
        let Source { newest, unusable } = self.source.borrow_and_update().clone();
        let Some(wanted) = newest else {
            self.tell(None, unusable);
            return IDLE;
        };
        if self.report.borrow().running.running.as_deref() != Some(wanted.digest()) {
            self.tell(None, unusable.clone());
        }
        let turn = match self.follow(&wanted).await {
            Ok(turn) => {
                self.trouble = None;
                turn
            }
            Err(error) => self.stumble(&error),
        };
        let running = turn.runs.then(|| wanted.digest().to_owned());
        self.tell(running, unusable.or(turn.failed));
        turn.pause
    }

    fn stumble(&mut self, error: &Error) -> Turn {
        self.settled = None;
        let text = chain(error);
        let failed = (!error.is_passing()).then(|| text.clone());
        if self.trouble.as_ref() != Some(&text) {
            if error.is_passing() {
                tracing::info!(
                    reason = text,
                    "HAProxy does not answer; the configuration for its start is written"
                );
            } else {
                tracing::warn!(
                    error = text,
                    "the configuration cannot be applied to HAProxy; retrying"
                );
            }
            self.trouble = Some(text);
        }
        Turn {
            runs: false,
            failed,
            pause: POLL.0,
        }
    }

    fn tell(&self, running: Option<String>, failed: Option<String>) {
        let running = Running { running, failed };
        self.report.send_if_modified(|report| {
            let changed = report.running != running;
            if changed {
                tracing::info!(running = running.running, failed = running.failed, "reporting");
                report.running = running;
            }
            changed
        });
    }

    fn started(&self) {
        self.report
            .send_if_modified(|report| !std::mem::replace(&mut report.started, true));
    }

    async fn follow(&mut self, wanted: &Arc<Wanted>) -> Result<Turn, Error> {
        if !self.is_refused(wanted) {
            self.file.write(&wanted.file()).await?;
            self.started();
        }
        let face = Face::of(&self.master).await?;
        let settled = self.settled.as_ref().is_some_and(|settled| {
            settled.digest == wanted.digest() && settled.face == face && settled.at.elapsed() < SETTLED
        });
        if settled {
            return Ok(Turn {
                runs: true,
                failed: None,
                pause: IDLE,
            });
        }
        // Whatever comes now, it is not as it was: the same may be wanted again before it is all done.
        self.settled = None;
        let asked = Instant::now();
        let look = look(&self.master, &face.processes).await?;
        let poll = (asked.elapsed() * 10).clamp(POLL.0, POLL.1);
        let overdue = self.overdue(&look, wanted);
        let Decision { course, cut, runs } = decide(&look, wanted, &overdue);
        for (worker, servers) in &cut {
            orders::cut(&self.master, *worker, servers).await?;
        }
        match (course, wanted.members()) {
            (Course::Wait, _) => Ok(Turn::goes_on(poll)),
            (Course::Reload(reason), _) => self.reload(wanted, face, &reason.to_string()).await,
            (Course::Change(steps), Some(members)) if !steps.is_empty() => {
                self.change((wanted, members), &look, face, steps, poll).await
            }
            (Course::Change(_), _) => {
                if runs {
                    self.good = Some(Arc::clone(wanted));
                    self.settled = Some(Settled {
                        digest: wanted.digest().to_owned(),
                        face,
                        at: Instant::now(),
                    });
                }
                Ok(Turn {
                    runs,
                    failed: None,
                    pause: if runs { IDLE } else { poll },
                })
            }
        }
    }

    /// Those whose time is over.
    fn overdue(&mut self, look: &Look, wanted: &Wanted) -> BTreeSet<Member> {
        if let Some(leavers) = leavers(look, wanted) {
            self.leaving.retain(|member, _| leavers.contains(member));
            let now = Instant::now();
            for member in leavers {
                self.leaving.entry(member).or_insert(now);
            }
            self.metrics.leaving(self.leaving.len());
        }
        let over = self
            .leaving
            .iter()
            .filter(|(_, since)| since.elapsed() >= self.drain);
        over.map(|(member, _)| member.clone()).collect()
    }
}
