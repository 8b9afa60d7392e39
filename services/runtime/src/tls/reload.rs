//! New files take effect without a restart; what is not usable does not, and delays nothing else.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use rustls::crypto::CryptoProvider;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::Error;
use super::faults::Faults;
use super::material::{Files, Fingerprint, Material, Own, Validity, unix_seconds};
use crate::error_chain::chain;
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
    /// Too many handshakes from its address count.
    Limited,
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
            Self::Limited => "limited",
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

/// What a configuration of kind `C` is built of.
pub(super) struct Sources<'a, C> {
    pub(super) files: &'a Files,
    pub(super) realm: &'a Realm,
    pub(super) provider: &'a Arc<CryptoProvider>,
    pub(super) material: &'a Material,
    /// The configuration in use.
    pub(super) former: Option<&'a C>,
    pub(super) faults: &'a mut Faults,
}

/// Makes a configuration of kind `C`.
type Build<C> = dyn Fn(Sources<'_, C>) -> Result<Arc<C>, Error> + Send + Sync;

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
    /// Why the former content of files is in use.
    faults: Vec<String>,
}

impl<C: Send + Sync + 'static> Reloading<C> {
    pub(super) fn load(
        files: Files,
        realm: Realm,
        side: Side,
        metrics: TlsMetrics,
        build: impl Fn(Sources<'_, C>) -> Result<Arc<C>, Error> + Send + Sync + 'static,
    ) -> Result<Arc<Self>, Error> {
        let (first, _) = Current::<C>::read(&files, &realm, &build, None, SystemTime::now())?;
        let Own {
            identity,
            validity,
            key: _,
        } = &first.material.own;
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
        self.current.load().material.own.identity.clone()
    }

    pub(super) fn metrics(&self) -> &TlsMetrics {
        &self.metrics
    }

    /// Takes over changed files, each by itself: the former content of one that is not usable stays in use, and is the error. Past the half-life
    /// of the certificate, and after such a fault, the files are read even if they seem unchanged, since not every file system reports every
    /// change.
    pub(super) fn refresh(&self, now: SystemTime) -> Result<Refresh, Vec<Error>> {
        let current = self.current.load();
        let renewal_due = now >= current.material.own.validity.half_life();
        let is_settled = current.faults.is_empty() && !renewal_due;
        if is_settled && current.fingerprint == self.files.fingerprint() {
            return Ok(Refresh::Unchanged);
        }
        let taken = self.take_over(&current, now);
        match &taken {
            Ok(Refresh::Reloaded { expires: _ }) => self.metrics.reload(self.side, Outcome::Ok),
            Ok(Refresh::Unchanged | Refresh::RenewalOverdue { not_after: _ }) => {}
            Err(_) => self.metrics.reload(self.side, Outcome::Failed),
        }
        taken
    }

    fn take_over(&self, current: &Current<C>, now: SystemTime) -> Result<Refresh, Vec<Error>> {
        let read = Current::read(&self.files, &self.realm, &*self.build, Some(current), now);
        let (next, faults) = read.map_err(|error| vec![error])?;
        let own = next.material.own.clone();
        let expires = own.validity.not_after;
        // Every open connection is verified again after a change, so that a fault which lasts must not count as one.
        let is_same = next.fingerprint == current.fingerprint
            && next.faults == current.faults
            && own.has_certificate_of(&current.material.own);
        if !is_same {
            self.metrics.validity(self.side, own.validity);
            self.current.store(Arc::new(next));
            self.changes.send_replace(());
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        if is_same {
            own.require_valid(&self.files.certificate, now)
                .map_err(|error| vec![error])?;
            return Ok(Refresh::RenewalOverdue { not_after: expires });
        }
        Ok(Refresh::Reloaded { expires })
    }
}

impl<C> Current<C> {
    /// What the files hold, and the faults of those whose former content, which is in use, is part of it.
    fn read(
        files: &Files,
        realm: &Realm,
        build: &Build<C>,
        former: Option<&Self>,
        now: SystemTime,
    ) -> Result<(Self, Vec<Error>), Error> {
        // Taken before reading: files that change while they are read then differ at the next look.
        let fingerprint = files.fingerprint();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut faults = Faults::default();
        let in_use = former.map(|former| &former.material);
        let material = Material::read(files, realm, &provider, in_use, now, &mut faults)?;
        let config = build(Sources {
            files,
            realm,
            provider: &provider,
            material: &material,
            former: former.map(|former| &*former.config),
            faults: &mut faults,
        })?;
        let faults = faults.into_errors();
        let current = Self {
            config,
            material,
            fingerprint,
            faults: faults.iter().map(|fault| chain(fault)).collect(),
        };
        Ok((current, faults))
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
    fn refresh(&self, now: SystemTime) -> Result<Refresh, Vec<Error>>;
    fn validity(&self) -> Validity;
}

impl<C: Send + Sync + 'static> Refreshable for Reloading<C> {
    fn refresh(&self, now: SystemTime) -> Result<Refresh, Vec<Error>> {
        Self::refresh(self, now)
    }

    fn validity(&self) -> Validity {
        self.current.load().material.own.validity
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
    /// Only when reading files panicked: bad files are logged and counted, and what they held before stays in use.
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
    faults: Vec<String>,
    overdue: Option<SystemTime>,
}

impl Logged {
    fn report(&mut self, refreshed: &Result<Refresh, Vec<Error>>) {
        match refreshed {
            Ok(Refresh::Unchanged) => self.faults.clear(),
            Ok(Refresh::Reloaded { expires }) => {
                *self = Self::default();
                tracing::info!(expires = super::rfc3339(*expires), "certificate reloaded");
            }
            Ok(Refresh::RenewalOverdue { not_after }) => {
                self.faults.clear();
                if self.overdue.replace(*not_after) != Some(*not_after) {
                    tracing::warn!(
                        expires = super::rfc3339(*not_after),
                        "more than half of the validity of the certificate has passed, and it is not renewed"
                    );
                }
            }
            Err(faults) => {
                let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
                if self.faults != texts {
                    for error in faults {
                        tracing::error!(
                            error = error as &dyn StdError,
                            "a certificate file or the list of denied callers is not usable; what it held before stays in use"
                        );
                    }
                    self.faults = texts;
                }
            }
        }
    }
}
