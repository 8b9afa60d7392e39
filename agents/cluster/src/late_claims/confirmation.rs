//! Decides when a release is confirmed, and reads hosts again where that is needed.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use api::{BareMetalHost, ConsumerReference, labels};
use kit::placement::{ClusterId, ObjectKey, Release};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::Notify;

use super::{
    evidence::Released,
    releases::{Releases, Verdict},
};
use crate::{inventory::is_absent, triggers::Triggers};

/// Decides when releases are confirmed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LateClaims {
    releases: Arc<Mutex<Releases>>,
    changed: Arc<Notify>,
}

impl LateClaims {
    /// `in_flight`: for how long a claim may be under way where nothing refuses it.
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

    /// The policy has been found in force, or not any more.
    pub(super) fn policy_is(&self, in_force: bool) {
        self.lock().policy_is(in_force, Instant::now());
        self.changed.notify_one();
    }

    /// Forgets a cluster that holds nothing any more.
    pub fn forget(&self, cluster: &ObjectKey) {
        self.lock().forget(cluster);
    }

    /// Which of a cluster's releases may be confirmed now. The others are tried again when their time has come: the cluster is
    /// triggered then. `is_own`: whether a consumer is the cluster's, by the label [`labels::CLUSTER_API`] of its host.
    ///
    /// # Errors
    /// What the API server answers when a host is read again.
    pub async fn confirmed(
        &self,
        cluster: &ClusterId,
        released: Vec<Released>,
        client: &Client,
        is_own: impl Fn(&ConsumerReference, Option<&str>) -> bool + Send + Sync,
    ) -> kube::Result<Vec<Release>> {
        let key = cluster.key();
        let verdicts = self.lock().judge(key, released, Instant::now());
        self.changed.notify_one();
        let mut confirmed = Vec::new();
        for (release, verdict) in verdicts {
            let passes = match verdict {
                Verdict::Confirm => true,
                // The watch may be behind: no claim can come any more, so what the API server shows now stays.
                Verdict::ReadAgain => is_free(&release, client, &is_own).await?,
                Verdict::Wait => false,
            };
            if passes {
                self.lock().passed(key, &release);
                confirmed.push(release);
            }
        }
        Ok(confirmed)
    }

    /// Triggers each cluster when the time of one of its releases has come.
    ///
    /// # Errors
    /// None: it goes on until it is dropped.
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

    use super::*;
    use crate::fixtures::member;

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
    async fn a_released_host_is_gone_only_by_a_stated_absence() {
        let absent = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": "",
        });
        assert!(is_free_by(absent.to_string()).await);
        assert!(!is_free_by("404 page not found".to_owned()).await);
    }
}
