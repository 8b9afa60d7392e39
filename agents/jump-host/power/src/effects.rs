//! Waits until the BMC shows the effect of an action.
//!
//! A BMC has few sessions, and baremetal-operator needs them too. Each read of a wait counts against the concurrent reads of the BMC. A session
//! stays open between two reads only while no other wait uses the same BMC.

use std::time::Duration;

use proto::power::v1::{Done, Observed, set_power_response::Step};
use runtime::error_chain::chain;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};

use crate::{
    action::Goal,
    convert,
    error::Error,
    execution::{Executor, READ_TIMEOUT},
    host::Host,
    idempotency::Operation,
    members::Membership,
    observation::Observation,
    reads::Observer,
    redfish::{Client, Failure, Reading, System},
    tenant::Tenant,
};

/// Time between two calls that ask the scheduler whether the cluster still holds the host, and the timeout of such a call.
const PLACEMENT_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Consecutive reads for which the BMC may refuse the session.
const MAX_SESSION_REFUSALS: u32 = 3;

/// The effect to wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) host: &'a Host,
    /// Host and port of its BMC.
    pub(crate) bmc: &'a str,
    pub(crate) goal: Goal,
    /// What was sent.
    pub(crate) reset_type: &'static str,
}

/// Why the reads of an effect have ended without it.
#[derive(Debug)]
enum StopReason {
    /// The process ends, or the BMC refuses every login.
    NoMoreReads(String),
    Superseded,
    TimedOut,
    NoLongerHeld,
}

/// Reads of one host that wait for an effect.
struct Polls<'a> {
    effect: Effect<'a>,
    operation: &'a Operation,
    observer: Observer,
    session: Option<Client>,
    ticks: Interval,
    begun: Instant,
    /// When the cluster was last asked whether it holds the host.
    placement_checked: Instant,
    /// Reads in a row that the BMC has refused for the lack of a session.
    refused: u32,
    /// Why the host could not be read last.
    last: Option<String>,
}

impl<M: Membership> Executor<M> {
    /// Reads the host until the goal shows. A read that fails is no failure of the action.
    pub(crate) async fn observe(
        &self,
        client: Client,
        effect: Effect<'_>,
        before: Reading,
        operation: &Operation,
    ) -> Result<(), Error> {
        let mut ticks = interval(self.effect_polling.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut polls = Polls {
            effect,
            operation,
            observer: self.reads.observer(effect.bmc),
            session: Some(client),
            ticks,
            begun: Instant::now(),
            placement_checked: Instant::now(),
            refused: 0,
            last: None,
        };
        let mut observation = Observation::new(effect.goal, before);
        let stopped = loop {
            let reading = match self.poll(&mut polls).await {
                Ok(Some(system)) => system.reading,
                Ok(None) => continue,
                Err(reason) => break Some(reason),
            };
            let (power, boot) = (convert::power(reading.power), reading.boot.clone());
            let comparison = observation.observe(reading);
            if comparison.changed {
                operation.step(Step::Observed(Observed {
                    power_state: power.into(),
                    boot_progress: boot.unwrap_or_default(),
                }));
            }
            if comparison.reached {
                polls.log_out().await;
                operation.step(Step::Done(Done {
                    power_state: power.into(),
                    changed: true,
                }));
                break None;
            }
        };
        polls.log_out().await;
        stopped.map_or(Ok(()), |reason| Err(self.not_observed(&polls, reason)))
    }

    fn not_observed(&self, polls: &Polls<'_>, reason: StopReason) -> Error {
        let Effect { host, reset_type, .. } = polls.effect;
        let host = host.name();
        let last = match reason {
            StopReason::Superseded => return Error::Superseded { host, reset_type },
            StopReason::NoLongerHeld => return Error::NoLongerHeld { host, reset_type },
            StopReason::NoMoreReads(why) => Some(why),
            StopReason::TimedOut => polls.last.clone(),
        };
        Error::NotObserved {
            host,
            reset_type,
            within: polls.begun.elapsed().min(self.effect_polling.timeout),
            last,
        }
    }

    /// The next read; `None` where the BMC did not answer it.
    async fn poll(&self, polls: &mut Polls<'_>) -> Result<Option<System>, StopReason> {
        let operation = polls.operation;
        self.unless_stopped(operation, polls.ticks.tick()).await?;
        if !polls.observer.is_alone() {
            polls.log_out().await;
        }
        let left = self.effect_polling.timeout.saturating_sub(polls.begun.elapsed());
        if left.is_zero() {
            return Err(StopReason::TimedOut);
        }
        let Effect {
            tenant, host, bmc, ..
        } = polls.effect;
        if polls.placement_checked.elapsed() >= PLACEMENT_CHECK_INTERVAL {
            let check = timeout(PLACEMENT_CHECK_INTERVAL, self.check_still_held(tenant, host.id()));
            // The state of a host that another cluster holds must not be returned. An error that leaves the holder unknown does not end the wait.
            if let Ok(Err(Error::NotAMember { .. } | Error::Releasing { .. })) =
                self.unless_stopped(operation, check).await?
            {
                return Err(StopReason::NoLongerHeld);
            }
            polls.placement_checked = Instant::now();
        }
        let namespace = tenant.cluster.namespace();
        let slot = self.unless_stopped(operation, self.reads.slot(bmc, namespace));
        let _slot = match slot.await? {
            Ok(slot) => slot,
            Err(busy) => {
                polls.last = Some(busy.to_string());
                return Ok(None);
            }
        };
        if polls.session.is_none() && !self.log_in(polls).await? {
            return Ok(None);
        }
        let Some(session) = &mut polls.session else {
            return Ok(None);
        };
        let read = self
            .unless_stopped(operation, timeout(left, session.system()))
            .await?;
        if !polls.observer.is_alone() {
            polls.log_out().await;
        }
        match read {
            Ok(Ok(system)) => {
                (polls.last, polls.refused) = (None, 0);
                return Ok(Some(system));
            }
            // The BMC ends sessions by itself, and some end them all when they reset a system.
            Ok(Err(failure @ Failure::Unauthorized { .. })) => {
                polls.log_out().await;
                let last = chain(&failure);
                polls.refused += 1;
                if polls.refused > MAX_SESSION_REFUSALS {
                    return Err(StopReason::NoMoreReads(last));
                }
                polls.last = Some(last);
            }
            Ok(Err(failure)) => polls.last = Some(chain(&failure)),
            Err(_elapsed) => {}
        }
        Ok(None)
    }

    /// Logs in again. Must not be cancelled: a session that the BMC has made would stay open. A BMC that refuses the credentials is not tried
    /// again, since it may lock the account.
    async fn log_in(&self, polls: &mut Polls<'_>) -> Result<bool, StopReason> {
        let Effect { tenant, host, .. } = polls.effect;
        let credentials = timeout(READ_TIMEOUT, host.credentials(&self.client.0)).await;
        let login = match credentials.unwrap_or(Err(Error::TooLate(READ_TIMEOUT))) {
            Ok(credentials) => self.login_with(tenant, host, &credentials).await,
            Err(error) => Err(error),
        };
        match login {
            Ok(session) => {
                polls.session = Some(session);
                Ok(true)
            }
            Err(
                error @ Error::BmcFailed {
                    failure: Failure::Unauthorized { .. },
                    ..
                },
            ) => Err(StopReason::NoMoreReads(error.to_string())),
            Err(error) => {
                polls.last = Some(error.to_string());
                Ok(false)
            }
        }
    }

    /// Awaits `waited_for`, until this process ends or a forced action supersedes this one.
    async fn unless_stopped<T>(
        &self,
        operation: &Operation,
        waited_for: impl Future<Output = T>,
    ) -> Result<T, StopReason> {
        tokio::select! {
            biased;
            () = operation.superseded() => Err(StopReason::Superseded),
            () = self.stop.cancelled() => Err(StopReason::NoMoreReads("this replica is shutting down".to_owned())),
            done = waited_for => Ok(done),
        }
    }
}

impl Polls<'_> {
    async fn log_out(&mut self) {
        if let Some(session) = self.session.take() {
            session.logout().await;
        }
    }
}
