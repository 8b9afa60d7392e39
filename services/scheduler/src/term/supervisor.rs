//! Begins terms, ends them, and begins others.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use runtime::readiness::Gate;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Backend, Refused, Standing, Tenure, Term, TermMetrics, Terms, term_metrics::Leader};
use crate::{
    ledger::{
        self, Contents, Ledger, Refusal,
        commit::{self, Writer},
    },
    policy::Policies,
    region::Region,
    site::Limits,
};

/// Minimum and maximum pause between two tries to begin a term.
const TERM_BACKOFF: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];
/// Length of a term after which the pauses begin with the minimum again.
const BACKOFF_RESET: Duration = Duration::from_secs(30);

/// Owns the storage, term after term.
pub struct Supervisor {
    backend: Arc<dyn Backend>,
    policies: watch::Receiver<Policies>,
    standing: watch::Sender<Standing>,
    /// Counts the regions that have ended.
    ended: watch::Sender<u64>,
    gate: Gate,
    metrics: TermMetrics,
    limits: Limits,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

/// How a term ended.
enum End {
    /// The process ends, and all that was staged is written.
    Requested,
    /// A write failed, or the right to write was lost before it. `durable` has what the ledger holds, or `None` if that is not known.
    Over {
        cause: Arc<str>,
        durable: Option<Contents>,
    },
}

impl Supervisor {
    /// Terms on a storage, by the policies as they are at each time; `gate` is open while there is one.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, policies: watch::Receiver<Policies>, gate: Gate) -> (Self, Terms) {
        let (standing, seen) = watch::channel(Standing::Opening);
        let (ended, counted) = watch::channel(0);
        let supervisor = Self {
            backend,
            policies,
            standing,
            ended,
            gate,
            metrics: TermMetrics::default(),
            limits: Limits::default(),
        };
        let terms = Terms {
            standing: seen,
            ended: counted,
        };
        (supervisor, terms)
    }

    /// The same, with these metrics.
    #[must_use]
    pub fn measured(self, metrics: TermMetrics) -> Self {
        Self { metrics, ..self }
    }

    /// The same, in which each site may have so much.
    #[must_use]
    pub fn limited(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Begins one term after the other until the shutdown; then waits until all staged changes are written.
    ///
    /// # Errors
    /// When the storage cannot be opened the first time.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ledger::Error> {
        let mut pauses = pauses();
        let mut first = true;
        // The closed writer of the read-only region. Dropping it ends the watches of that region.
        let mut held: Option<Writer> = None;
        loop {
            let begun = shutdown.run_until_cancelled(self.begin()).await;
            let refused = match begun {
                None => break,
                Some(Ok((tenure, contents))) => {
                    first = false;
                    drop(held.take());
                    let began = tokio::time::Instant::now();
                    let end = self.serve(tenure, contents, &shutdown).await;
                    match end {
                        End::Requested => break,
                        End::Over { cause, durable } => held = self.set_standing_after_term(&cause, durable),
                    }
                    self.backend.end().await;
                    if began.elapsed() > BACKOFF_RESET {
                        pauses = self::pauses();
                    }
                    None
                }
                Some(Err(refused)) => Some(refused),
            };
            match refused {
                Some(Refused { error, readable: _ }) if first => return Err(error),
                Some(Refused { error, readable }) => self.set_refused(&error, readable),
                None => {}
            }
            let pause = tokio::time::sleep(pauses.next().unwrap_or(TERM_BACKOFF[1]));
            if shutdown.run_until_cancelled(pause).await.is_none() {
                break;
            }
            self.forget_readable();
        }
        self.gate.not_ready("is ending");
        self.stand(Standing::Ending);
        self.backend.end().await;
        Ok(())
    }

    async fn begin(&self) -> Result<(Tenure, Contents), Refused> {
        let waiting = |leader: Option<&str>, cause: &str| self.wait(leader, cause);
        let tenure = self.backend.begin(&waiting).await?;
        let read = Arc::clone(&tenure.ledger);
        let loaded = tokio::task::spawn_blocking(move || read.load()).await;
        let contents = loaded
            .map_err(|error| ledger::Error::panicked("read the ledger", error))
            .and_then(|loaded| loaded);
        match contents {
            Ok(contents) => Ok((tenure, contents)),
            Err(error) => {
                drop(tenure);
                self.backend.end().await;
                Err(error.into())
            }
        }
    }

    /// One term.
    async fn serve(&self, tenure: Tenure, contents: Contents, shutdown: &CancellationToken) -> End {
        let Tenure { ledger, lost, right } = tenure;
        tracing::info!(commit = %contents.commit, clusters = contents.records.len(), "a term begins");
        let (committer, writer) = commit::measured(contents.commit, self.metrics.stages.clone());
        let committer = committer.taking(ledger.largest());
        let ending = committer.ending().clone();
        let mut policies = self.policies.clone();
        let current = policies.borrow_and_update().clone();
        let region = Region::new(contents.clone(), current, committer).limited(self.limits);
        let mut retries = Box::pin(region.clone().run_retries());
        let mut policies = Box::pin(region.clone().run_policies(policies));
        let stop = CancellationToken::new();
        let (storage, stopped) = (Arc::clone(&ledger), stop.clone());
        let undo = region.undo();
        let mut writing = tokio::task::spawn_blocking(move || {
            let mut durable = contents;
            let undo = |refusal: &Refusal<'_>| undo.reset(refusal);
            let written = stopped.run_until_cancelled(writer.run(&*storage, &mut durable, &undo));
            // Not the runtime's own: the ledger waits for that itself.
            let end = futures::executor::block_on(written).unwrap_or(Ok(()));
            (end, durable)
        });
        let term = Term::new(region, ledger, right);
        self.stand(Standing::Serving(term));
        self.metrics.begun();
        self.gate.ready();

        let cause = tokio::select! {
            biased;
            written = &mut writing => return self::term_end(written, None),
            () = lost.cancelled() => Some("this process no longer leads"),
            () = shutdown.cancelled() => None,
            _ = &mut retries => Some("the task that decides pending clusters again has ended"),
            _ = &mut policies => Some("the task that reloads policies has ended"),
        };
        drop((retries, policies));
        // Streams end; what has begun besides them is still answered, if it can be.
        ending.cancel();
        if let Some(cause) = cause {
            tracing::warn!(cause, "the term ends");
            self.wait(None, cause);
            stop.cancel();
        } else {
            // The writer ends when nobody is left who could stage anything.
            self.gate.not_ready("is ending");
            self.stand(Standing::Ending);
        }
        let written = writing.await;
        match (&written, cause) {
            (Ok((Ok(()), _)), None) => End::Requested,
            _ => term_end(written, cause),
        }
    }

    /// Replaces the standing, and counts the region that ends with it.
    fn stand(&self, standing: Standing) {
        if self.standing.send_replace(standing).has_region() {
            self.ended.send_modify(|ended| *ended += 1);
        }
    }

    /// Sets the standing after a term: read-only if this process owns the storage and knows what is durable, otherwise waiting.
    fn set_standing_after_term(&self, cause: &Arc<str>, durable: Option<Contents>) -> Option<Writer> {
        let Some(durable) = durable.filter(|_| self.backend.sole_owner()) else {
            self.wait(None, cause);
            return None;
        };
        self.gate.not_ready(format!("cannot be written: {cause}"));
        let (committer, mut held) = commit::committer(durable.commit);
        held.close();
        self.stand(Standing::ReadOnly {
            region: Region::new(durable, self.policies.borrow().clone(), committer),
            ledger: None,
            cause: Arc::clone(cause),
        });
        Some(held)
    }

    fn wait(&self, leader: Option<&str>, cause: &str) {
        if let Some(leader) = leader {
            self.metrics.leads(Leader::Other(leader.to_owned()));
        }
        self.gate.not_ready(format!("waits: {cause}"));
        self.stand(if self.backend.sole_owner() {
            Standing::Opening
        } else {
            Standing::Standby {
                leader: leader.map(Into::into),
                cause: cause.into(),
            }
        });
    }

    fn set_refused(&self, error: &ledger::Error, readable: Option<Arc<dyn Ledger>>) {
        let why: Arc<str> = error.chain().into();
        tracing::warn!(cause = &*why, "no term can begin");
        let read_only = self.standing.send_if_modified(|standing| match standing {
            Standing::ReadOnly {
                ledger,
                cause,
                region: _,
            } => {
                *ledger = readable;
                *cause = Arc::clone(&why);
                true
            }
            Standing::Opening | Standing::Serving(_) | Standing::Standby { .. } | Standing::Ending => false,
        });
        if read_only {
            self.gate.not_ready(format!("cannot be written: {why}"));
        } else {
            self.wait(None, &why);
        }
    }

    /// Drops the storage that is open for reading, since it can be opened for writing only while it is closed.
    fn forget_readable(&self) {
        self.standing.send_if_modified(|standing| match standing {
            Standing::ReadOnly {
                ledger,
                region: _,
                cause: _,
            } => ledger.take().is_some(),
            Standing::Opening | Standing::Serving(_) | Standing::Standby { .. } | Standing::Ending => false,
        });
    }
}

type Written = Result<(Result<(), ledger::Error>, Contents), tokio::task::JoinError>;

fn term_end(written: Written, cause: Option<&str>) -> End {
    let (why, durable) = match written {
        Ok((Err(error), durable)) => (Some(error.chain()), Some(durable)),
        Ok((Ok(()), durable)) => (None, Some(durable)),
        // What the batch in hand has become is not known.
        Err(panicked) => (Some(panicked.to_string()), None),
    };
    let why = why.or(cause.map(str::to_owned));
    let why = why.unwrap_or_else(|| "the writer of the ledger has ended".to_owned());
    tracing::error!(cause = why, "the term is over");
    End::Over {
        cause: why.into(),
        durable,
    }
}

fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(TERM_BACKOFF[0])
        .with_max_delay(TERM_BACKOFF[1])
        .with_jitter()
        .without_max_times()
        .build()
}
