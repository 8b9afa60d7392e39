//! An etcd cluster, and where in it a region's ledger is.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use etcd_client::{Client, GetOptions, KvClient};

use super::{
    batch::Limits,
    compaction::Growth,
    connect::{self, Certificates, EtcdArgs},
    holds::Holds,
    keys::Keys,
    retries::{REQUEST_TIMEOUT, send_with_retries},
};
use crate::ledger::{Error, Storage};

/// Time between two reads of the certificates' files.
const RELOAD_PERIOD: Duration = Duration::from_secs(5);
/// Maximum size of an answer, in bytes, unless a single value may be larger. An answer with more keys is read in smaller pages.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// An etcd cluster, and where in it a region's ledger is. Cheap to clone.
#[derive(Clone)]
pub struct Location {
    endpoints: Arc<[String]>,
    args: Arc<EtcdArgs>,
    link: Arc<Mutex<Link>>,
    pub(super) growth: Arc<Growth>,
    pub(super) holds: Arc<Holds>,
    /// As etcd has said last.
    pub(super) storage: Arc<Mutex<Option<Storage>>>,
    pub(super) keys: Keys,
    pub(super) limits: Limits,
}

/// A client, and with what it connects.
struct Link {
    client: Client,
    certificates: Option<Certificates>,
}

impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Location")
            .field("endpoints", &self.endpoints)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

impl Location {
    /// The ledger under the prefix in `args`.
    ///
    /// # Errors
    /// When a file cannot be used, or an endpoint is no URL.
    pub async fn new(endpoints: &[String], args: &EtcdArgs) -> Result<Self, Error> {
        let certificates = Certificates::read(endpoints, args).await?;
        let client = connect::connect(endpoints, certificates.as_ref()).await?;
        Ok(Self {
            endpoints: endpoints.into(),
            args: Arc::new(args.clone()),
            link: Arc::new(Mutex::new(Link { client, certificates })),
            growth: Arc::default(),
            holds: Arc::default(),
            storage: Arc::default(),
            keys: Keys::new(&args.etcd_prefix),
            limits: Limits::from(args),
        })
    }

    /// The same location by a connection of its own, which is served by the caller's runtime.
    ///
    /// # Errors
    /// As [`Location::new`].
    pub async fn reconnect(&self) -> Result<Self, Error> {
        Self::new(&self.endpoints, &self.args).await
    }

    /// The key whose owner may write.
    #[must_use]
    pub fn leader(&self) -> String {
        self.keys.leader()
    }

    /// A client of the cluster, with the certificates that were good last.
    #[must_use]
    pub fn client(&self) -> Client {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.client.clone()
    }

    pub(super) fn kv(&self) -> KvClient {
        let answer = MAX_ANSWER_BYTES.max(2 * self.limits.bytes);
        self.client().kv_client().max_decoding_message_size(answer)
    }

    /// Connects anew whenever the files of certificates have changed. What cannot be used is reported, and changes nothing.
    pub async fn follow_certificates(&self) -> Infallible {
        loop {
            tokio::time::sleep(RELOAD_PERIOD).await;
            if let Err(error) = self.reload().await {
                tracing::error!(
                    error = error.chain(),
                    "certificates for etcd cannot be used, and the previous ones stay in use"
                );
            }
        }
    }

    async fn reload(&self) -> Result<(), Error> {
        let certificates = Certificates::read(&self.endpoints, &self.args).await?;
        let known = self
            .link
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .certificates
            == certificates;
        if known {
            return Ok(());
        }
        let client = connect::connect(&self.endpoints, certificates.as_ref()).await?;
        tracing::info!("reconnected to etcd with new certificates");
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Link { client, certificates };
        Ok(())
    }

    /// Why no member of the cluster can be connected to; `None` when one can. A client only says that none has answered.
    pub async fn unreachable(&self) -> Option<Error> {
        let certificates = self
            .link
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .certificates
            .clone();
        connect::unreachable(&self.endpoints, certificates.as_ref()).await
    }

    /// One request, which is not waited for without end.
    pub(super) async fn get(
        &self,
        key: String,
        options: GetOptions,
    ) -> Result<etcd_client::GetResponse, Error> {
        let get = || {
            let (mut kv, key, options) = (self.kv(), key.clone(), options.clone());
            async move { kv.get(key, Some(options)).await }
        };
        send_with_retries(REQUEST_TIMEOUT * 5, "read from etcd", get).await
    }
}
