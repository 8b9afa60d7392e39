//! New files take effect without a restart; bad ones do not.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::Error;
use super::material::{Files, Fingerprint, Material, Validity, unix_seconds};
use crate::identity::{Caller, Realm};
use crate::metrics::{Metrics, TLS_HANDSHAKES, TLS_NOT_AFTER, TLS_RELOADS, TLS_SITE_FAULTS};
use crate::readiness::Gate;
use crate::tasks::BoxError;

/// Which side of connections a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Side {
    Server,
    Client,
}

/// How a handshake or a reload went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    Ok,
    Failed,
    TimedOut,
    /// A newer connection has got its place.
    Evicted,
}

impl EncodeLabelValue for Side {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Evicted => "evicted",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BySide {
    side: Side,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    side: Side,
    outcome: Outcome,
}

/// Metrics of certificates and handshakes. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct TlsMetrics {
    not_after: Family<BySide, Gauge>,
    reloads: Family<ByOutcome, Counter>,
    handshakes: Family<ByOutcome, Counter>,
    site_faults: Gauge,
}

impl TlsMetrics {
    /// The metrics, registered in `metrics`.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let this = Self::default();
        let Self {
            not_after,
            reloads,
            handshakes,
            site_faults,
        } = &this;
        metrics.add(&TLS_NOT_AFTER, not_after.clone());
        metrics.add(&TLS_RELOADS, reloads.clone());
        metrics.add(&TLS_HANDSHAKES, handshakes.clone());
        metrics.add(&TLS_SITE_FAULTS, site_faults.clone());
        this
    }

    /// How many sites have a file with CA certificates that is not usable.
    pub(super) fn site_faults(&self) -> Gauge {
        self.site_faults.clone()
    }

    pub(super) fn handshake(&self, side: Side, outcome: Outcome) {
        self.handshakes.get_or_create(&ByOutcome { side, outcome }).inc();
    }

    fn reload(&self, side: Side, outcome: Outcome) {
        self.reloads.get_or_create(&ByOutcome { side, outcome }).inc();
    }

    fn validity(&self, side: Side, validity: Validity) {
        self.not_after
            .get_or_create(&BySide { side })
            .set(unix_seconds(validity.not_after));
    }
}

/// Turns files into a configuration of kind `C`.
type Build<C> = dyn Fn(&Files, &Realm) -> Result<(Arc<C>, Material), Error> + Send + Sync;

/// A configuration that follows its files.
pub(super) struct Reloading<C> {
    files: Files,
    realm: Realm,
    side: Side,
    build: Box<Build<C>>,
    current: ArcSwap<Current<C>>,
    /// Receives each new configuration.
    changes: watch::Sender<()>,
    metrics: TlsMetrics,
}

struct Current<C> {
    config: Arc<C>,
    material: Material,
    fingerprint: Fingerprint,
}

impl<C: Send + Sync + 'static> Reloading<C> {
    pub(super) fn load(
        files: Files,
        realm: Realm,
        side: Side,
        metrics: TlsMetrics,
        build: impl Fn(&Files, &Realm) -> Result<(Arc<C>, Material), Error> + Send + Sync + 'static,
    ) -> Result<Arc<Self>, Error> {
        let first = Current::load(&files, &realm, &build)?;
        first
            .material
            .require_valid(&files.certificate, SystemTime::now())?;
        let Material {
            identity,
            validity,
            own: _,
            anchors: _,
        } = &first.material;
        tracing::info!(
            identity = realm.uri(identity),
            expires = super::rfc3339(validity.not_after),
            "certificate loaded"
        );
        metrics.validity(side, *validity);
        let current = ArcSwap::from_pointee(first);
        Ok(Arc::new(Self {
            files,
            realm,
            side,
            build: Box::new(build),
            current,
            changes: watch::Sender::new(()),
            metrics,
        }))
    }

    /// The configuration for a connection that begins now.
    pub(super) fn config(&self) -> Arc<C> {
        Arc::clone(&self.current.load().config)
    }

    /// How to learn that the configuration is another one.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(super) fn identity(&self) -> Caller {
        self.current.load().material.identity.clone()
    }

    pub(super) fn metrics(&self) -> &TlsMetrics {
        &self.metrics
    }

    /// Takes over changed files. Past the half-life of the certificate the files are read even if they seem
    /// unchanged, since not every file system reports every change.
    ///
    /// A new certificate must be valid. The one in use may have expired: callers that are denied, or CAs that are withdrawn, after that must be
    /// refused all the same, since not every client verifies the server.
    pub(super) fn refresh(&self, now: SystemTime) -> Result<Refresh, Error> {
        let current = self.current.load();
        let validity = current.material.validity;
        let renewal_due = now >= validity.half_life();
        if current.fingerprint == self.files.fingerprint() && !renewal_due {
            return Ok(Refresh::Unchanged);
        }
        let failed = |_: &Error| self.metrics.reload(self.side, Outcome::Failed);
        let next = Current::load(&self.files, &self.realm, &*self.build).inspect_err(failed)?;
        let renewed = next.material.own.cert != current.material.own.cert;
        let is_same = next.fingerprint == current.fingerprint && !renewed;
        if renewed || is_same {
            let valid = next.material.require_valid(&self.files.certificate, now);
            valid.inspect_err(failed)?;
        }
        if is_same {
            return Ok(Refresh::RenewalOverdue {
                not_after: validity.not_after,
            });
        }
        let expires = next.material.validity.not_after;
        self.metrics.validity(self.side, next.material.validity);
        self.metrics.reload(self.side, Outcome::Ok);
        self.current.store(Arc::new(next));
        self.changes.send_replace(());
        Ok(Refresh::Reloaded { expires })
    }
}

impl<C> Current<C> {
    fn load(files: &Files, realm: &Realm, build: &Build<C>) -> Result<Self, Error> {
        // Taken before reading: files that change while they are read then differ at the next look.
        let fingerprint = files.fingerprint();
        let (config, material) = build(files, realm)?;
        Ok(Self {
            config,
            material,
            fingerprint,
        })
    }
}

impl<C> fmt::Debug for Reloading<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refresh {
    Unchanged,
    Reloaded { expires: SystemTime },
    RenewalOverdue { not_after: SystemTime },
}

/// What a [`Reloader`] needs of a [`Reloading`], whatever its configuration is.
trait Refreshable: Send + Sync {
    fn refresh(&self, now: SystemTime) -> Result<Refresh, Error>;
    fn validity(&self) -> Validity;
}

impl<C: Send + Sync + 'static> Refreshable for Reloading<C> {
    fn refresh(&self, now: SystemTime) -> Result<Refresh, Error> {
        Self::refresh(self, now)
    }

    fn validity(&self) -> Validity {
        self.current.load().material.validity
    }
}

/// The task that keeps certificates current.
pub struct Reloader {
    target: Arc<dyn Refreshable>,
    every: Duration,
}

impl Reloader {
    pub(super) fn new<C: Send + Sync + 'static>(target: Arc<Reloading<C>>, every: Duration) -> Self {
        Self { target, every }
    }

    /// Reads the files at the interval until `stop`, and holds `gate` open while the certificate in use is
    /// valid: with an expired one nobody talks to this process.
    ///
    /// # Errors
    /// Only when reading files panicked: bad files are logged and counted, and the old ones stay in use.
    pub async fn run(self, gate: Gate, stop: CancellationToken) -> Result<(), BoxError> {
        let Self { target, every } = self;
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut said = Logged::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                _ = ticks.tick() => {}
            }
            let looking = Arc::clone(&target);
            let refreshed = tokio::task::spawn_blocking(move || looking.refresh(SystemTime::now())).await?;
            said.report(&refreshed);
            let validity = target.validity();
            if validity.contains(SystemTime::now()) {
                gate.ready();
            } else {
                gate.not_ready(format!("expired at {}", super::rfc3339(validity.not_after)));
            }
        }
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

/// What has been logged already: a state that lasts is logged once, not at every look.
#[derive(Debug, Default)]
struct Logged {
    failure: Option<String>,
    overdue: Option<SystemTime>,
}

impl Logged {
    fn report(&mut self, refreshed: &Result<Refresh, Error>) {
        match refreshed {
            Ok(Refresh::Unchanged) => self.failure = None,
            Ok(Refresh::Reloaded { expires }) => {
                *self = Self::default();
                tracing::info!(expires = super::rfc3339(*expires), "certificate reloaded");
            }
            Ok(Refresh::RenewalOverdue { not_after }) => {
                self.failure = None;
                if self.overdue.replace(*not_after) != Some(*not_after) {
                    tracing::warn!(
                        expires = super::rfc3339(*not_after),
                        "more than half of the validity of the certificate has passed, and it is not renewed"
                    );
                }
            }
            Err(error) => {
                let text = error.to_string();
                if self.failure.as_ref() != Some(&text) {
                    tracing::error!(
                        error = error as &dyn StdError,
                        "the new certificate files are not usable; the old ones stay in use"
                    );
                    self.failure = Some(text);
                }
            }
        }
    }
}
