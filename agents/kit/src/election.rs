//! Of several replicas of an agent one acts: the Lease holder.
//!
//! The rules are those of client-go's leader election, with three additions. The last holder counts as the holder
//! until the Lease has not changed for its duration *by this process's own clock*; clocks are never compared. The holder
//! counts its time from before it has requested each renewal, and stops acting when two thirds of it have passed, so
//! before another replica can begin. Every election raises `leaseTransitions`, also one of the same replica: with the
//! Lease's uid it distinguishes an old holder's session from a new one's on the scheduler. A Lease alone fences no
//! write; that, and conditions on writes, do.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ObjectMeta, PostParams},
};
use runtime::readiness::Gate;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// Which replica this is, and where the Lease is.
#[derive(Clone, Debug, clap::Args)]
pub struct ElectionArgs {
    /// Name of this replica. If it is the name of the pod, a container that is restarted in the pod keeps the Lease [default: a unique name]
    #[arg(long, env = "SIP_REPLICA", value_name = "NAME")]
    replica: Option<String>,
    /// Namespace of the Lease for leader election [default: that of the service account]
    #[arg(long, env = "SIP_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    lease_namespace: Option<String>,
    /// Seconds without a renewal of the Lease after which another replica acquires it
    #[arg(long, env = "SIP_LEASE_SECONDS", value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u8).range(3..))]
    lease_seconds: u8,
}

impl ElectionArgs {
    /// Where the Lease is.
    pub(crate) fn namespace(&self, client: &Client) -> String {
        let given = self.lease_namespace.clone();
        given.unwrap_or_else(|| client.default_namespace().to_owned())
    }
}

/// One who may be elected.
#[derive(Clone, Debug)]
pub struct Candidate {
    leases: Api<Lease>,
    name: String,
    replica: String,
    length: Duration,
    seconds: i32,
}

/// Identifies an election, of this Lease and of one of its name that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// uid of the Lease.
    pub lease_uid: String,
    /// Its `leaseTransitions`.
    pub transitions: i64,
}

/// The Lease is held. Whatever acts on it runs in [`Leadership::during`].
#[derive(Debug)]
pub struct Leadership {
    candidate: Candidate,
    lease: Lease,
    until: Instant,
}

/// Why a replica must stop acting.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The API server has not accepted a renewal in time.
    #[error("the Lease {lease} was not renewed in time, and another replica may hold it")]
    Late {
        /// Namespace and name.
        lease: String,
    },
    /// It is another's now.
    #[error("the Lease {lease} is held by {holder}")]
    Taken {
        /// Namespace and name.
        lease: String,
        /// Who has it.
        holder: String,
    },
}

/// A Lease as it was first observed.
#[derive(Clone, Debug)]
struct ObservedLease {
    version: Option<String>,
    since: Instant,
}

impl Candidate {
    /// A candidate for the Lease of this name.
    #[must_use]
    pub fn new(client: Client, name: &str, args: &ElectionArgs) -> Self {
        let ElectionArgs {
            replica,
            lease_namespace,
            lease_seconds,
        } = args;
        let leases = match lease_namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::default_namespaced(client),
        };
        let replica = replica
            .clone()
            .unwrap_or_else(|| format!("{name}-{}", uuid::Uuid::new_v4()));
        Self {
            leases,
            name: name.to_owned(),
            replica,
            length: Duration::from_secs(u64::from(*lease_seconds)),
            seconds: i32::from(*lease_seconds),
        }
    }

    /// Waits until the Lease is held. `gate` is ready while another replica acts, and no longer when this one is
    /// to: what it needs for that has to be ready first.
    pub async fn elected(self, gate: &Gate) -> Leadership {
        let mut seen = None;
        let mut pauses = pauses(self.length);
        loop {
            let begun = Instant::now();
            match self.stand(&mut seen).await {
                Ok(Some(lease)) => {
                    gate.not_ready("has acquired the Lease");
                    let leadership = Leadership {
                        until: begun + held(self.length),
                        candidate: self,
                        lease,
                    };
                    tracing::info!(election = ?leadership.election(), "elected");
                    return leadership;
                }
                Ok(None) => {
                    gate.ready();
                    sleep(retry(self.length)).await;
                }
                Err(error) => {
                    gate.not_ready("the Lease cannot be acquired");
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        lease = self.name,
                        "the Lease cannot be acquired"
                    );
                    sleep(pauses.next().unwrap_or(self.length)).await;
                }
            }
        }
    }

    /// Acquires the Lease if it is free.
    async fn stand(&self, seen: &mut Option<ObservedLease>) -> kube::Result<Option<Lease>> {
        let taken = match self.leases.get_opt(&self.name).await? {
            None => {
                let metadata = ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                };
                let spec = Some(self.spec(None, 0));
                let new = Lease { metadata, spec };
                self.leases.create(&PostParams::default(), &new).await
            }
            Some(lease) => {
                let version = lease.resource_version();
                let known = seen.take().filter(|seen| seen.version == version);
                let since = known.map_or_else(Instant::now, |seen| seen.since);
                *seen = Some(ObservedLease { version, since });
                if !is_free(&lease, &self.replica, self.length, since.elapsed()) {
                    return Ok(None);
                }
                let spec = self.spec(None, transitions(&lease) + 1);
                let mine = Lease {
                    spec: Some(spec),
                    ..lease
                };
                self.leases
                    .replace(&self.name, &PostParams::default(), &mine)
                    .await
            }
        };
        match taken {
            Ok(lease) => Ok(Some(lease)),
            // Another was quicker.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The Lease's spec while this replica holds it, since `acquired` or from now.
    fn spec(&self, acquired: Option<MicroTime>, transitions: i32) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.replica.clone()),
            lease_duration_seconds: Some(self.seconds),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

impl Leadership {
    /// Which election it was.
    #[must_use]
    pub fn election(&self) -> Election {
        Election {
            lease_uid: self.lease.uid().unwrap_or_default(),
            transitions: transitions(&self.lease).into(),
        }
    }

    /// Runs `work` while the Lease is renewed, and releases the Lease when it is done: another replica need not wait. If the Lease is
    /// lost first, `work` is dropped where it waits, so that it writes nothing further.
    ///
    /// # Errors
    /// How the Lease was lost.
    pub async fn during<T>(mut self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let done = tokio::select! {
            biased;
            lost = self.renew_until_lost() => return Err(lost),
            done = work => done,
        };
        self.release().await;
        Ok(done)
    }

    /// Renews the Lease until it is lost. When this returns, no task may act on it.
    async fn renew_until_lost(&mut self) -> Lost {
        let retry = retry(self.candidate.length);
        loop {
            sleep_until(self.until.min(Instant::now() + retry)).await;
            let begun = Instant::now();
            match timeout_at(self.until, self.renew()).await {
                Ok(Ok(None)) => self.until = begun + held(self.candidate.length),
                Ok(Ok(Some(holder))) => {
                    return Lost::Taken {
                        lease: self.place(),
                        holder,
                    };
                }
                Ok(Err(error)) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    lease = self.place(),
                    "the Lease could not be renewed; retrying"
                ),
                Err(_) => return Lost::Late { lease: self.place() },
            }
        }
    }

    /// Renews once; returns the holder if it is another.
    async fn renew(&mut self) -> kube::Result<Option<String>> {
        let acquired = self
            .lease
            .spec
            .as_ref()
            .and_then(|spec| spec.acquire_time.clone());
        let spec = self.candidate.spec(acquired, transitions(&self.lease));
        match self.replace(spec.clone()).await {
            Ok(()) => Ok(None),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                let now = self.candidate.leases.get_opt(&self.candidate.name).await?;
                match now {
                    // Another writer has changed another field of it, or the response to a renewal was lost.
                    Some(lease) if self.is_same_election(&lease) => {
                        self.lease = lease;
                        self.replace(spec).await.map(|()| None)
                    }
                    Some(lease) => Ok(Some(holder(&lease).unwrap_or("no replica").to_owned())),
                    None => Ok(Some("no replica: it was deleted".to_owned())),
                }
            }
            Err(error) => Err(error),
        }
    }

    async fn replace(&mut self, spec: LeaseSpec) -> kube::Result<()> {
        let lease = Lease {
            spec: Some(spec),
            ..self.lease.clone()
        };
        let Candidate { leases, name, .. } = &self.candidate;
        self.lease = leases.replace(name, &PostParams::default(), &lease).await?;
        Ok(())
    }

    fn is_same_election(&self, lease: &Lease) -> bool {
        lease.uid() == self.lease.uid()
            && holder(lease) == Some(&self.candidate.replica)
            && transitions(lease) == transitions(&self.lease)
    }

    /// Gives the Lease up: this replica acts no more, and another need not wait. If that fails, it waits.
    async fn release(mut self) {
        let spec = LeaseSpec {
            holder_identity: None,
            lease_duration_seconds: Some(1),
            ..self.candidate.spec(None, transitions(&self.lease))
        };
        if let Ok(Err(error)) = timeout_at(self.until, self.give_up(spec)).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                lease = self.place(),
                "the Lease could not be released: no other replica acts before it expires"
            );
        }
    }

    /// Replaces the Lease also where a renewal without an answer has changed it.
    async fn give_up(&mut self, spec: LeaseSpec) -> kube::Result<()> {
        match self.replace(spec.clone()).await {
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                match self.candidate.leases.get_opt(&self.candidate.name).await? {
                    Some(lease) if self.is_same_election(&lease) => {
                        self.lease = lease;
                        self.replace(spec).await
                    }
                    // Another election holds it now.
                    Some(_) | None => Ok(()),
                }
            }
            replaced => replaced,
        }
    }

    /// Namespace and name of the Lease, for messages.
    fn place(&self) -> String {
        let namespace = self.lease.namespace().unwrap_or_default();
        format!("{namespace}/{}", self.candidate.name)
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then_some(holder)
}

fn transitions(lease: &Lease) -> i32 {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.lease_transitions).unwrap_or_default()
}

/// Whether a replica may take a Lease that has not changed for so long; `length` is for one that does not state its own.
fn is_free(lease: &Lease, replica: &str, length: Duration, unchanged: Duration) -> bool {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let length = seconds.map_or(length, Duration::from_secs);
    match holder(lease) {
        None => true,
        // The process before this one, in the same pod: it has ended.
        Some(holder) if holder == replica => true,
        Some(_) => unchanged >= length,
    }
}

/// How long the holder acts after it has requested a renewal that was granted.
fn held(length: Duration) -> Duration {
    length * 2 / 3
}

/// Pause between two renewals, or two reads of another's Lease.
fn retry(length: Duration) -> Duration {
    length * 2 / 15
}

fn pauses(length: Duration) -> backon::ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(retry(length))
        .with_jitter()
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests;
