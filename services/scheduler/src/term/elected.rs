//! Several processes on one etcd cluster: the one that owns the leader's key may write.
//!
//! The key is bound to a lease. It is made by whoever finds it missing, and goes with the lease: when its owner gives it up,
//! or is not heard of for the lease's time. The owner counts that time from *before* it has asked for each renewal, and takes
//! a part off, so it stops before anybody else can begin. That keeps answers true; that nothing is written by two is kept by
//! the transactions, whatever clocks do.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use etcd_client::{
    Compare, CompareOp, EventType, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
    WatchOptions,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Backend, Refused, Tenure, Waiting,
    renewal::{Renewal, held},
};
use crate::ledger::{
    self,
    etcd::{Etcd, EtcdArgs, Location, Pace, Right, send_with_retries},
};

/// Pause before the next request to etcd after one has failed.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum time to resign the leadership at the end; after that, the lease expires by itself.
const RESIGN_TIMEOUT: Duration = Duration::from_secs(1);

/// A candidate.
#[derive(Debug)]
pub struct Elected {
    endpoints: Vec<String>,
    args: EtcdArgs,
    /// Where others find this process.
    address: String,
    pace: Pace,
    seat: Mutex<Option<Seat>>,
}

/// What the leader holds.
struct Seat {
    location: Location,
    lease: i64,
    /// What a leader does besides, until its seat is taken.
    _service: Option<Service>,
}

struct Service {
    _renewal: Renewal,
    _certificates: AbortOnDropHandle<()>,
    /// Its end, however it comes, does not end the term.
    _compaction: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Elected {
    /// A candidate at `address` for the ledger in these endpoints.
    #[must_use]
    pub fn new(endpoints: Vec<String>, args: EtcdArgs, address: String) -> Self {
        Self {
            endpoints,
            args,
            address,
            pace: Pace::default(),
            seat: Mutex::new(None),
        }
    }

    /// The same candidate, which compacts etcd at another pace once it leads.
    #[must_use]
    pub fn compacting(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    fn time(&self) -> Duration {
        Duration::from_secs(u64::from(self.args.etcd_lease_seconds))
    }

    fn take_seat(&self, seat: Option<Seat>) -> Option<Seat> {
        std::mem::replace(
            &mut *self.seat.lock().unwrap_or_else(PoisonError::into_inner),
            seat,
        )
    }

    /// The owner of the leader's key, and the revision of etcd; `None` when there is no owner.
    async fn leader(&self, location: &Location) -> Result<Option<(String, i64)>, ledger::Error> {
        let get = || {
            let (mut client, key) = (location.client(), location.leader());
            async move { client.get(key, Some(GetOptions::new())).await }
        };
        let answer = send_with_retries(self.time(), "read the leader's key in etcd", get).await?;
        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        let owner = answer.kvs().first();
        Ok(owner.map(|key| (String::from_utf8_lossy(key.value()).into_owned(), revision)))
    }

    /// Waits until the leader's key is gone, or it is time to look again.
    async fn wait_until_vacant(&self, location: &Location, since: i64) -> Result<(), ledger::Error> {
        let mut client = location.client();
        let options = WatchOptions::new().with_start_revision(since + 1);
        let watch = client.watch(location.leader(), Some(options));
        let mut events = timed(self.time(), "watch the leader's key in etcd", watch).await?;
        let gone = async {
            while let Some(answer) = events.message().await? {
                let gone = |event: &etcd_client::Event| event.event_type() == EventType::Delete;
                if answer.canceled() || answer.events().iter().any(gone) {
                    break;
                }
            }
            Ok::<_, etcd_client::Error>(())
        };
        match tokio::time::timeout(self.time(), gone).await {
            Ok(watched) => watched.map_err(ledger::Error::storage("watch the leader's key in etcd")),
            Err(_) => Ok(()),
        }
    }

    /// Tries to make the leader's key.
    async fn try_acquire(&self, location: &Location) -> Result<Option<Tenure>, ledger::Error> {
        let time = self.time();
        let begun = Instant::now();
        let seconds = i64::from(self.args.etcd_lease_seconds);
        // One that is granted twice ends by itself.
        let grant = || {
            let mut client = location.client();
            async move { client.lease_grant(seconds, None).await }
        };
        let granted = send_with_retries(time, "grant a lease in etcd", grant).await?;
        let lease = granted.id();
        self.take_seat(Some(Seat {
            location: location.clone(),
            lease,
            _service: None,
        }));
        let mine = PutOptions::new().with_lease(lease);
        let transaction = Txn::new()
            .when([Compare::create_revision(location.leader(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(location.leader(), &*self.address, Some(mine))])
            .or_else([TxnOp::get(location.leader(), None)]);
        let acquire = || {
            let (mut client, transaction) = (location.client(), transaction.clone());
            async move { client.txn(transaction).await }
        };
        let answer = send_with_retries(time, "write the leader's key in etcd", acquire).await?;
        let Some(elected) = self::elected(&answer, lease) else {
            self.end().await;
            return Ok(None);
        };
        let right = Arc::new(Right::expiring_at(begun + held(time)));
        let lost = CancellationToken::new();
        let renewal = Renewal::begin(location.clone(), lease, time, Arc::clone(&right), lost.clone())
            .map_err(ledger::Error::storage("renew the lease"))?;
        let (followed, lost_too) = (location.clone(), lost.clone().drop_guard());
        let certificates = AbortOnDropHandle::new(tokio::spawn(async move {
            let _lost_too = lost_too;
            match followed.follow_certificates().await {}
        }));
        let (compacted, pace) = (location.clone(), self.pace);
        let compaction = AbortOnDropHandle::new(tokio::spawn(async move {
            match compacted.compact_history(pace).await {}
        }));
        self.take_seat(Some(Seat {
            location: location.clone(),
            lease,
            _service: Some(Service {
                _renewal: renewal,
                _certificates: certificates,
                _compaction: compaction,
            }),
        }));
        let ledger = Etcd::open(location.clone(), elected, Arc::clone(&right)).await?;
        tracing::info!(address = self.address, lease, elected, "elected");
        Ok(Some(Tenure {
            ledger: Arc::new(ledger),
            lost,
            right: Some(right),
        }))
    }

    async fn campaign(&self, location: &Location, waiting: &Waiting<'_>) -> Result<Tenure, ledger::Error> {
        loop {
            match self.leader(location).await? {
                Some((leader, since)) => {
                    waiting(Some(&leader), "another scheduler was elected");
                    self.wait_until_vacant(location, since).await?;
                }
                None => {
                    if let Some(tenure) = Box::pin(self.try_acquire(location)).await? {
                        return Ok(tenure);
                    }
                }
            }
        }
    }
}

/// At which revision the leader's key was made with this lease, be it by this very transaction when it was sent before.
fn elected(answer: &TxnResponse, lease: i64) -> Option<i64> {
    if answer.succeeded() {
        return answer.header().map(etcd_client::ResponseHeader::revision);
    }
    let found = answer
        .op_responses()
        .into_iter()
        .find_map(|answer| match answer {
            TxnOpResponse::Get(found) => found.kvs().first().cloned(),
            _ => None,
        })?;
    (found.lease() == lease).then(|| found.create_revision())
}

async fn timed<T>(
    limit: Duration,
    action: &'static str,
    request: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, ledger::Error> {
    tokio::time::timeout(limit, request)
        .await
        .map_err(ledger::Error::storage(action))?
        .map_err(ledger::Error::storage(action))
}

#[tonic::async_trait]
impl Backend for Elected {
    async fn begin(&self, waiting: &Waiting<'_>) -> Result<Tenure, Refused> {
        let location = Location::new(&self.endpoints, &self.args).await?;
        loop {
            let campaign = tokio::select! {
                ended = self.campaign(&location, waiting) => ended,
                never = location.follow_certificates() => match never {},
            };
            match campaign {
                Ok(tenure) => return Ok(tenure),
                Err(error @ (ledger::Error::Schema { .. } | ledger::Error::Corrupt { .. })) => {
                    self.end().await;
                    return Err(error.into());
                }
                Err(error) => {
                    self.end().await;
                    let error = location.unreachable().await.unwrap_or(error);
                    waiting(None, &error.chain());
                    tracing::warn!(error = error.chain(), "not elected");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    async fn end(&self) {
        let Some(seat) = self.take_seat(None) else { return };
        let mut client = seat.location.client();
        let lease = seat.lease;
        // Renewing ends first.
        drop(seat);
        if let Err(error) = timed(
            RESIGN_TIMEOUT,
            "revoke the lease in etcd",
            client.lease_revoke(lease),
        )
        .await
        {
            tracing::warn!(
                error = error.chain(),
                "the lease could not be released: no other replica leads before it expires"
            );
        }
    }

    fn sole_owner(&self) -> bool {
        false
    }
}
