//! Decides when a release is confirmed, and reads hosts again where that is needed.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use api::{BareMetalHost, ConsumerReference, labels};
use futures::{FutureExt as _, StreamExt as _};
use kit::placement::{ClusterId, ObjectKey, Release};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::Notify;

use super::{
    evidence::Released,
    releases::{Releases, Verdict},
};
use crate::{inventory::is_absent, triggers::Triggers};

/// Concurrent reads of hosts of one cluster.
const MAX_CONCURRENT_READS: usize = 16;

/// Decides when releases are confirmed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LateClaims {
    releases: Arc<Mutex<Releases>>,
    changed: Arc<Notify>,
}

impl LateClaims {
    /// `in_flight`: for how long a claim may be in flight where nothing refuses it.
    #[must_use]
    pub fn new(in_flight: Duration) -> Self {
        Self {
            releases: Arc::new(Mutex::new(Releases::new(in_flight))),
            changed: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Releases> {
        self.releases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the policy is in force, or no longer is.
    pub(super) fn policy_is(&self, in_force: bool) {
        self.lock().policy_is(in_force, Instant::now());
        self.changed.notify_one();
    }

    /// Forgets a cluster that no longer holds anything.
    pub fn forget(&self, cluster: &ObjectKey) {
        self.lock().forget(cluster);
    }

    /// Which of a cluster's releases may be confirmed now. The others are judged again when they are due: the cluster is
    /// triggered then. `is_own`: whether a consumer is the cluster's, by the label [`labels::CLUSTER_API`] of its host.
    ///
    /// Also what the API server answers if a host that is to be read again cannot be read: the first such error. Only the release of
    /// that host waits for it.
    pub async fn confirmed(
        &self,
        cluster: &ClusterId,
        released: Vec<Released>,
        client: &Client,
        is_own: impl Fn(&ConsumerReference, Option<&str>) -> bool + Send + Sync,
    ) -> (Vec<Release>, Option<kube::Error>) {
        let key = cluster.key();
        let verdicts = self.lock().judge(key, released, Instant::now());
        self.changed.notify_one();
        // Boxed and collected first: the compiler cannot see that a lazily mapped stream of borrows is Send.
        let reading: Vec<_> = verdicts
            .into_iter()
            .map(|(release, verdict)| passes(release, verdict, client, &is_own).boxed())
            .collect();
        let read: Vec<_> = futures::stream::iter(reading)
            .buffered(MAX_CONCURRENT_READS)
            .collect()
            .await;
        let (mut confirmed, mut failed) = (Vec::new(), None);
        for (release, passes) in read {
            match passes {
                Ok(true) => {
                    self.lock().passed(key, &release);
                    confirmed.push(release);
                }
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        (confirmed, failed)
    }

    /// Triggers each cluster when one of its releases is due.
    ///
    /// # Errors
    /// None: it runs until it is dropped.
    pub async fn run(self, triggers: Triggers) -> Result<(), Infallible> {
        loop {
            let next = self.lock().next();
            match next {
                Some(next) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(next.into()) => {}
                        () = self.changed.notified() => {}
                    }
                }
                None => self.changed.notified().await,
            }
            if self.lock().counts_now(Instant::now()) {
                tracing::info!(
                    "every API server enforces sip-host-consumers by now: releases are confirmed at once"
                );
            }
            let due = self.lock().due(Instant::now());
            for cluster in due {
                triggers.cluster(cluster);
            }
        }
    }
}

/// The release, and whether it may be confirmed.
async fn passes(
    release: Release,
    verdict: Verdict,
    client: &Client,
    is_own: impl Fn(&ConsumerReference, Option<&str>) -> bool + Send + Sync,
) -> (Release, kube::Result<bool>) {
    let passes = match verdict {
        Verdict::Confirm => Ok(true),
        // The watch may be behind: no further claim is possible, so the state on the API server is final.
        Verdict::ReadAgain => is_free(&release, client, is_own).await,
        Verdict::Wait => Ok(false),
    };
    (release, passes)
}

/// Whether the host is gone, or shows neither a cluster's labels nor a consumer that is the cluster's.
async fn is_free(
    release: &Release,
    client: &Client,
    is_own: impl Fn(&ConsumerReference, Option<&str>) -> bool + Send + Sync,
) -> kube::Result<bool> {
    let ObjectKey { namespace, name } = release.host().key();
    let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), namespace);
    let host = match hosts.get(name).await {
        Ok(host) if host.uid().as_deref() == Some(release.host().uid()) => host,
        Ok(_) => return Ok(true),
        Err(error) if is_absent(&error) => return Ok(true),
        Err(error) => return Err(error),
    };
    if host.labels().contains_key(labels::CLUSTER_NAME) {
        return Ok(false);
    }
    let label = host.labels().get(labels::CLUSTER_API).map(String::as_str);
    let consumer = host.spec.consumer_ref.as_ref();
    Ok(consumer.is_none_or(|consumer| !is_own(consumer, label)))
}

#[cfg(test)]
mod tests {
    use api::MemberState::Releasing;
    use kube::client::Body;
    use serde_json::json;

    use super::{super::evidence::Evidence, *};
    use crate::fixtures::{member, reference};

    /// Whether a released host counts as free if the API server answers with a 404 of this body.
    async fn is_free_by(body: String) -> bool {
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let response = http::Response::builder().status(404);
            let response = response.body(Body::from(body.clone().into_bytes())).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let is_own = |_: &ConsumerReference, _: Option<&str>| false;
        let release = member("h1", Releasing).release();
        let free = is_free(&release, &Client::new(service, "metal"), is_own).await;
        free.unwrap_or(false)
    }

    #[tokio::test]
    async fn one_host_without_an_answer_holds_back_no_other() {
        let service = tower::service_fn(|request: http::Request<Body>| {
            let (code, reason): (u16, &str) = if request.uri().path().ends_with("/h1") {
                (500, "InternalError")
            } else {
                (404, "NotFound")
            };
            let body = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "",
            });
            let response = http::Response::builder().status(code);
            let response = response.body(Body::from(body.to_string().into_bytes())).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let client = Client::new(service, "metal");
        let releases = ["h1", "h2"].map(|host| member(host, Releasing).release());
        let released = releases.clone().map(|release| Released {
            release,
            evidence: Evidence::Seen,
        });
        let late_claims = LateClaims::new(Duration::ZERO);
        let is_own = |_: &ConsumerReference, _: Option<&str>| false;
        let (confirmed, failed) = late_claims
            .confirmed(&reference(), released.into(), &client, is_own)
            .await;
        assert_eq!(confirmed, releases[1..]);
        assert!(matches!(failed, Some(kube::Error::Api(status)) if status.code == 500));
    }

    #[tokio::test]
    async fn a_released_host_is_gone_only_by_a_stated_absence() {
        let absent = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": "",
        });
        assert!(is_free_by(absent.to_string()).await);
        assert!(!is_free_by("404 page not found".to_owned()).await);
    }
}
