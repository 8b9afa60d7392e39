//! The checks that no namespace with held hosts was dropped from the configuration: by the statuses of `SIPCluster`s, and by the scheduler's
//! ledger.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context as _;
use kit::{
    events::{EventReason, Events},
    placement::HeldHosts,
    scheduler_client::{Scheduler, pauses},
    start::Agent,
};
use kube::Client;
use runtime::readiness::Gate;
use tokio::time::timeout;

use crate::inventory::{self, DroppedNamespace};

/// Time that the Lease holder waits for the API server in each check, at most.
pub const CHECK_TIMEOUT: Duration = Duration::from_mins(5);

/// Checks the statuses of `SIPCluster`s; each that holds hosts in a dropped namespace gets an Event.
///
/// # Errors
/// The first namespace that is missing, or that the API server has not answered within `limit`.
pub async fn check_statuses(
    agent: &Agent,
    client: &Client,
    events: &Events,
    limit: Option<Duration>,
) -> anyhow::Result<()> {
    let checking = inventory::no_held_hosts_outside(client, agent.config.host_namespaces());
    published(with_timeout(limit, checking).await?, events).await
}

/// Publishes an Event on each `SIPCluster` that holds hosts in a dropped namespace.
async fn published(checked: Result<(), DroppedNamespace>, events: &Events) -> anyhow::Result<()> {
    if let Err(dropped) = &checked {
        for cluster in dropped.holders() {
            let note = format!("the cluster agent does not start: {dropped}");
            events
                .publish(cluster, None, EventReason::HostNamespaceDropped, &note)
                .await;
        }
    }
    Ok(checked?)
}

/// The check by the scheduler's ledger. The agent is not ready before it has succeeded once: so a rollout does not replace every replica by one that
/// would not start if the scheduler answered.
pub struct Ledger {
    client: Client,
    scheduler: Scheduler,
    events: Events,
    configured: BTreeSet<String>,
    checked: Gate,
}

impl Ledger {
    /// Of the site that the agent serves.
    #[must_use]
    pub fn new(agent: &Agent, client: &Client, events: &Events) -> Self {
        Self {
            client: client.clone(),
            scheduler: agent.scheduler.clone(),
            events: events.clone(),
            configured: agent.config.host_namespaces().clone(),
            checked: agent.process.readiness.gate("ledger"),
        }
    }

    /// Checks the ledger if the scheduler answers now, so that the replica with the former configuration continues to act. Returns whether it has
    /// answered.
    ///
    /// # Errors
    /// The first namespace that is missing.
    pub async fn check_once(&self) -> anyhow::Result<bool> {
        match self.scheduler.held_hosts().await {
            Ok(held) => self.check(&held, None).await.map(|()| true),
            Err(status) => {
                tracing::warn!(code = ?status.code(), message = status.message(), "the site's placements cannot be listed; they are checked before hosts are reported");
                Ok(false)
            }
        }
    }

    /// Checks the ledger once the scheduler answers. `limit`: how long the API server may take from then on.
    ///
    /// # Errors
    /// The first namespace that is missing, or that the API server has not answered within `limit`.
    pub async fn check_when_answered(&self, limit: Option<Duration>) -> anyhow::Result<()> {
        let mut pauses = pauses();
        let held = loop {
            match self.scheduler.held_hosts().await {
                Ok(held) => break held,
                Err(status) => {
                    self.checked
                        .not_ready(format!("has not been checked: {}", status.message()));
                    tracing::warn!(code = ?status.code(), message = status.message(), "the site's placements cannot be listed; retrying");
                    tokio::time::sleep(pauses.next().unwrap_or_default()).await;
                }
            }
        };
        self.check(&held, limit).await
    }

    async fn check(&self, held: &[HeldHosts], limit: Option<Duration>) -> anyhow::Result<()> {
        let checking = inventory::no_recorded_hosts_outside(&self.client, held, &self.configured);
        published(with_timeout(limit, checking).await?, &self.events).await?;
        self.checked.ready();
        Ok(())
    }
}

/// A replica that is not answered ends, so that another one acts, which may have the former configuration and need no such check.
async fn with_timeout<T>(limit: Option<Duration>, check: impl Future<Output = T>) -> anyhow::Result<T> {
    let Some(limit) = limit else {
        return Ok(check.await);
    };
    timeout(limit, check).await.with_context(|| {
        let limit = limit.as_secs();
        format!(
            "the API server has not listed within {limit} s which hosts are held in namespaces that hostNamespaces lacks"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use api::MemberState;
    use kube::client::Body;
    use runtime::readiness::Readiness;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{answer, placement_answer};

    /// The ledger of a scheduler that is away, and an API server that always fails.
    fn ledger(readiness: &Readiness) -> Ledger {
        let service = tower::service_fn(|_: http::Request<Body>| {
            let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "", "message": ""});
            let response = http::Response::builder().status(500);
            let response = response.body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, Infallible>(response.unwrap()))
        });
        let client = Client::new(service, "metal");
        let away = "http://127.0.0.1:1".parse().unwrap();
        Ledger {
            scheduler: Scheduler::new("site-a", runtime::tls::channel(&away, None).unwrap()),
            events: Events::new(client.clone(), "test"),
            client,
            configured: BTreeSet::from(["metal-too".to_owned()]),
            checked: readiness.gate("ledger"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_of_the_ledger_ends_without_an_answer() {
        let readiness = Readiness::default();
        let held = HeldHosts::from(placement_answer(vec![answer("h1", MemberState::Bound)]));
        let checked = ledger(&readiness).check(&[held], Some(CHECK_TIMEOUT)).await;
        let ended = checked.unwrap_err().to_string();
        assert!(ended.contains("within 300 s"), "{ended}");
    }

    #[tokio::test]
    async fn a_replica_is_not_ready_before_its_ledger_is_checked() {
        let readiness = Readiness::default();
        let ledger = ledger(&readiness);
        assert!(!ledger.check_once().await.unwrap());
        assert!(readiness.unready().contains_key("ledger"));
        ledger.check(&[], Some(CHECK_TIMEOUT)).await.unwrap();
        assert!(readiness.unready().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_elected_replica_does_not_check_for_ever() {
        let limit = Some(CHECK_TIMEOUT);
        assert!(with_timeout(limit, std::future::ready(())).await.is_ok());
        let never = std::future::pending::<()>();
        let ended = with_timeout(limit, never).await.unwrap_err().to_string();
        assert!(ended.contains("within 300 s"), "{ended}");
    }
}
