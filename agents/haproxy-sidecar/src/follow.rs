//! The reconcile loop: observe, decide, act, report. Every pass begins with the newest configuration and with the state that
//! HAProxy reports, so that nothing is queued, and nothing is assumed after a restart of either.
//!
//! **The file is written before HAProxy gets any command**, so HAProxy always restarts with the newest configuration. It may still
//! have read the file just before that was replaced. A worker therefore carries the configuration that it was started from
//! ([`crate::wanted::ORIGIN_VARIABLE`], which the file sets), and this is read whenever the socket of the master has been
//! recreated: a worker that started from an older file lacks changes like any other. The same observation
//! finds what an earlier run of this program left half done, so none of that is stored.

mod change;
mod reload;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use render::load_balancer::MASTER_SOCKET;
use render::running::Running;
use runtime::{readiness::Gate, sidecar::Report};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::cli::{self, Master};
use crate::commands;
use crate::config_map::Source;
use crate::file::{self, ConfigFile};
pub use crate::metrics::Metrics;
use crate::observe::{self, Fingerprint, Observation, observe};
use crate::steps::{Action, Decision, Member, decide, leavers};
use crate::wanted::Wanted;
use change::Sent;
use reload::Attempt;
use runtime::error_chain::chain;

/// Time between checks that HAProxy has not restarted.
const RESTART_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between full observations while nothing changes.
const RESYNC_PERIOD: Duration = Duration::from_secs(30);
/// Shortest and longest time between observations while changes are pending. Observing many servers costs HAProxy time, so the pause
/// is ten times as long as the observation took.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Time within which a HAProxy that has read the file before it was replaced answers on its socket: reading takes no longer.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    File(#[from] file::Error),
    #[error(transparent)]
    Cli(#[from] cli::Error),
    #[error(transparent)]
    Observation(#[from] observe::Error),
}

impl Error {
    /// Whether this is normal while HAProxy starts or one of its workers ends.
    fn is_passing(&self) -> bool {
        match self {
            Self::Cli(error) | Self::Observation(observe::Error::Cli(error)) => error.is_passing(),
            Self::Observation(observe::Error::Answer { .. }) => true,
            Self::File(_) => false,
        }
    }
}

/// The result of one pass.
struct Pass {
    /// Whether the newest configuration runs.
    runs: bool,
    /// Why it cannot run.
    failed: Option<String>,
    /// Time until the next pass.
    pause: Duration,
}

impl Pass {
    fn pending(pause: Duration) -> Self {
        Self {
            runs: false,
            failed: None,
            pause,
        }
    }
}

/// The state in which nothing was left to do.
struct Settled {
    digest: String,
    fingerprint: Fingerprint,
    at: Instant,
}

/// Keeps HAProxy at the newest configuration.
pub struct Follower {
    source: watch::Receiver<Source>,
    file: ConfigFile,
    master: Master,
    drain: Duration,
    report: watch::Sender<Report<Running>>,
    metrics: Metrics,
    /// The configuration that takes the place of a refused one: the last one that ran, or of which this has reported since that HAProxy
    /// will start with it.
    good: Option<Arc<Wanted>>,
    settled: Option<Settled>,
    attempt: Option<Attempt>,
    sent: Sent,
    /// Members that drain, and since when. A restart of this program restarts their time: it may be longer than configured, never shorter.
    leaving: BTreeMap<Member, Instant>,
    /// The configuration that has been in the file while HAProxy did not answer, and since when.
    unread: Option<(Arc<Wanted>, Instant)>,
    trouble: Option<String>,
}

impl Follower {
    /// Applies the configuration in `source` to the HAProxy of `directory`, and publishes the result in `report`.
    #[must_use]
    pub fn new(
        source: watch::Receiver<Source>,
        directory: &Path,
        drain: Duration,
        report: watch::Sender<Report<Running>>,
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
            sent: Sent::default(),
            leaving: BTreeMap::new(),
            unread: None,
            trouble: None,
        }
    }

    /// Reconciles until it is dropped, which may happen at any await.
    ///
    /// # Errors
    /// None: failures are retried.
    pub async fn run(mut self, gate: &Gate) -> Result<(), Infallible> {
        // HAProxy runs already if only this program restarted.
        if self.file.exists().await {
            self.started();
        }
        loop {
            let pause = self.reconcile().await;
            if self.report.borrow().started {
                gate.ready();
            }
            let changed = async {
                if self.source.changed().await.is_err() {
                    // The source is gone; HAProxy may still restart.
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = changed => {}
                () = sleep(pause) => {}
            }
        }
    }

    async fn reconcile(&mut self) -> Duration {
        let Source { newest, unusable } = self.source.borrow_and_update().clone();
        let Some(wanted) = newest else {
            self.unread = None;
            self.report_running(None, unusable);
            return RESTART_CHECK_INTERVAL;
        };
        self.unread = self
            .unread
            .take()
            .filter(|(unread, _)| unread.digest() == wanted.digest());
        if self.report.borrow().running.running.as_deref() != Some(wanted.digest()) {
            self.report_running(None, unusable.clone());
        }
        let pass = match self.follow(&wanted).await {
            Ok(pass) => {
                self.trouble = None;
                pass
            }
            Err(error) => self.failed(&error),
        };
        let running = pass.runs.then(|| wanted.digest().to_owned());
        self.report_running(running, unusable.or(pass.failed));
        pass.pause
    }

    fn failed(&mut self, error: &Error) -> Pass {
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
        Pass {
            runs: false,
            failed,
            pause: POLL_INTERVALS.0,
        }
    }

    fn report_running(&mut self, running: Option<String>, failed: Option<String>) {
        let running = Running { running, failed };
        let lasting = self
            .unread
            .as_ref()
            .filter(|(_, since)| since.elapsed() >= START_TIMEOUT);
        let lasting = lasting.map(|(unread, _)| Arc::clone(unread));
        let starts_with = lasting.as_ref().map(|lasting| lasting.digest().to_owned());
        if lasting.is_some() {
            // Hosts that are not in it may leave on this report: nothing older may take its place.
            self.good = lasting;
        }
        self.report.send_if_modified(|report| {
            let changed = report.running != running || report.starts_with != starts_with;
            if changed {
                tracing::info!(
                    running = running.running,
                    failed = running.failed,
                    starts_with,
                    "reporting"
                );
                report.running = running;
                report.starts_with = starts_with;
            }
            changed
        });
    }

    /// Notes that the file holds this configuration and that HAProxy does not answer, so that it reads it when it starts.
    fn note_unread(&mut self, wanted: &Arc<Wanted>) {
        let known = self.unread.as_ref();
        if known.is_none_or(|(unread, _)| unread.digest() != wanted.digest()) {
            self.unread = Some((Arc::clone(wanted), Instant::now()));
        }
    }

    /// Notes that HAProxy answers. What it starts with is withdrawn at once: when it refuses a reload, the file changes.
    fn note_answer(&mut self) {
        self.unread = None;
        self.report
            .send_if_modified(|report| report.starts_with.take().is_some());
    }

    fn started(&self) {
        self.report
            .send_if_modified(|report| !std::mem::replace(&mut report.started, true));
    }

    async fn follow(&mut self, wanted: &Arc<Wanted>) -> Result<Pass, Error> {
        let refused = self.is_refused(wanted);
        if refused {
            self.unread = None;
        } else {
            self.file.write(&wanted.file()).await?;
            self.started();
        }
        let fingerprint = match Fingerprint::read(&self.master).await {
            Ok(fingerprint) => fingerprint,
            Err(error) => {
                // After a refusal the file holds the configuration before.
                if !refused {
                    self.note_unread(wanted);
                }
                return Err(error.into());
            }
        };
        self.note_answer();
        let settled = self.settled.as_ref().is_some_and(|settled| {
            settled.digest == wanted.digest()
                && settled.fingerprint == fingerprint
                && settled.at.elapsed() < RESYNC_PERIOD
        });
        if settled {
            return Ok(Pass {
                runs: true,
                failed: None,
                pause: RESTART_CHECK_INTERVAL,
            });
        }
        // From here on HAProxy changes: the settled configuration may be wanted again before that is complete.
        self.settled = None;
        let asked = Instant::now();
        let observed = observe(&self.master, &fingerprint.processes).await?;
        let poll = (asked.elapsed() * 10).clamp(POLL_INTERVALS.0, POLL_INTERVALS.1);
        let overdue = self.overdue(&observed, wanted);
        let Decision { action, cut, runs } = decide(&observed, wanted, &overdue);
        for (worker, servers) in &cut {
            commands::cut(&self.master, *worker, servers).await?;
        }
        match (action, wanted.members()) {
            (Action::Wait, _) => Ok(Pass::pending(poll)),
            (Action::Reload(reason), _) => self.reload(wanted, fingerprint, &reason.to_string()).await,
            (Action::Change(steps), Some(members)) if !steps.is_empty() => {
                self.change((wanted, members), &observed, fingerprint, steps, poll)
                    .await
            }
            (Action::Change(_), _) => {
                if runs {
                    self.good = Some(Arc::clone(wanted));
                    self.settled = Some(Settled {
                        digest: wanted.digest().to_owned(),
                        fingerprint,
                        at: Instant::now(),
                    });
                }
                Ok(Pass {
                    runs,
                    failed: None,
                    pause: if runs { RESTART_CHECK_INTERVAL } else { poll },
                })
            }
        }
    }

    /// Members whose drain time is over.
    fn overdue(&mut self, observed: &Observation, wanted: &Wanted) -> BTreeSet<Member> {
        if let Some(leavers) = leavers(observed, wanted) {
            self.leaving.retain(|member, _| leavers.contains(member));
            let now = Instant::now();
            for member in leavers {
                self.leaving.entry(member).or_insert(now);
            }
            self.metrics.set_draining(self.leaving.len());
        }
        let over = self
            .leaving
            .iter()
            .filter(|(_, since)| since.elapsed() >= self.drain);
        over.map(|(member, _)| member.clone()).collect()
    }
}
