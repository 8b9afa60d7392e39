//! Who did what: one line of the audit log for each call that is refused, two for an action (before it is sent, and at its end), an Event on
//! the host of an action, metrics.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::ObjectReference;
use kit::events::{EventReason, Events};
use runtime::{quiet::Quiet, telemetry::AUDIT};
use tokio::time::Instant;
use tonic::{Code, Status, metadata::MetadataMap};

use crate::{action::Action, error::reason, metrics::PowerMetrics, tenant::Tenant, token::Holder};

/// Header in which the client states the ssh key that its user has logged in with.
pub const CLAIMED_KEY: &str = "sip-ssh-key";
/// Bytes of a key that a client may state, at most.
const MAX_KEY_BYTES: usize = 256;
/// Namespaces whose refusals have a limit of their own, at most; further ones share one.
const MAX_NAMESPACES: usize = 1024;
/// Time without a refusal after which the limit of a namespace is removed to make room for another. It has become equal to a new one's by then.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// Outcome of an action that is about to be sent.
const SENDING_OUTCOME: &str = "SENDING";

/// Who calls: what is proven by the token and the API server's objects, and what the client claims.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    address: SocketAddr,
    claimed_key: String,
    /// Who holds the token, once the API server has confirmed it. Whether that is a jump host may not be known yet.
    holder: Option<Holder>,
    tenant: Option<Tenant>,
}

impl Caller {
    /// A caller of which only the address is known, and the key that the client states.
    pub(crate) fn new(address: SocketAddr, headers: &MetadataMap) -> Self {
        Self {
            address,
            claimed_key: claimed_key(headers),
            holder: None,
            tenant: None,
        }
    }

    pub(crate) fn set_holder(&mut self, holder: &Holder) {
        self.holder = Some(holder.clone());
    }

    pub(crate) fn set_tenant(&mut self, tenant: &Tenant) {
        self.tenant = Some(tenant.clone());
    }
}

/// The log, Events and metrics.
#[derive(Debug)]
pub(crate) struct Audit {
    events: Events,
    metrics: PowerMetrics,
    /// Limits the lines for refused strangers, who decide how many calls they make.
    refused: Quiet,
    /// Limits the lines for refused calls of tenants, by namespace.
    refused_tenants: Mutex<HashMap<String, Refusals>>,
}

/// The refusals of one namespace.
#[derive(Debug)]
struct Refusals {
    lines: Quiet,
    last: Instant,
}

/// Method, host and action of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallDetails<'a> {
    pub(crate) call: &'static str,
    /// The host as the caller has named it, truncated.
    pub(crate) host: &'a str,
    pub(crate) action: Option<Action>,
}

impl Audit {
    pub(crate) fn new(events: Events, metrics: PowerMetrics) -> Self {
        Self {
            events,
            metrics,
            refused: Quiet::default(),
            refused_tenants: Mutex::default(),
        }
    }

    pub(crate) fn metrics(&self) -> &PowerMetrics {
        &self.metrics
    }

    /// Records the answer to a call. Only refusals are logged: reads that succeed change nothing.
    pub(crate) fn answered(&self, caller: &Caller, about: CallDetails<'_>, refusal: Option<&Status>) {
        let outcome = refusal.map_or_else(|| "OK".to_owned(), reason);
        self.metrics.answered(about.call, &outcome);
        let Some(status) = refusal else {
            return;
        };
        let withheld = match (&caller.holder, status.code()) {
            (Some(holder), _) => self.line_of(&holder.account.namespace),
            (None, Code::ResourceExhausted) => None,
            (None, _) => self.refused.line(),
        };
        if let Some(withheld) = withheld {
            log(caller, about, &outcome, status.message(), withheld);
        }
    }

    /// Whether to log another refusal of a tenant, and how many were not logged before it.
    fn line_of(&self, namespace: &str) -> Option<u64> {
        let now = Instant::now();
        let mut tenants = self
            .refused_tenants
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= MAX_NAMESPACES && !tenants.contains_key(namespace) {
            tenants.retain(|_, refusals| now.duration_since(refusals.last) < IDLE_TIMEOUT);
            if tenants.len() >= MAX_NAMESPACES {
                return self.refused.line();
            }
        }
        let refusals = tenants.entry(namespace.to_owned()).or_insert_with(|| Refusals {
            lines: Quiet::default(),
            last: now,
        });
        refusals.last = now;
        refusals.lines.line()
    }

    /// Logs that an action is about to be sent. If the process is killed before the end of the action, this line remains.
    #[expect(clippy::unused_self, reason = "it is part of the audit")]
    pub(crate) fn sending(&self, caller: &Caller, about: CallDetails<'_>, reset_type: &str) {
        log(
            caller,
            about,
            SENDING_OUTCOME,
            &format!("{reset_type} is sent to the BMC"),
            0,
        );
    }

    /// Counts and logs the end of an action.
    pub(crate) fn acted(&self, caller: &Caller, about: CallDetails<'_>, outcome: &Result<(), Status>) {
        let why = outcome.as_ref().err().map_or("", Status::message);
        let outcome = outcome.as_ref().err().map_or_else(|| "OK".to_owned(), reason);
        self.metrics
            .ended(about.action.map_or("", Action::name), &outcome);
        log(caller, about, &outcome, why, 0);
    }

    /// Publishes the end of an action as an Event on the host.
    pub(crate) async fn announce(
        &self,
        caller: &Caller,
        action: Action,
        host: &ObjectReference,
        (did, outcome): (&str, &Result<(), Status>),
    ) {
        let Some(tenant) = &caller.tenant else {
            return;
        };
        let Tenant {
            cluster,
            jump_host,
            pod,
            bmc_proxy: _,
        } = tenant;
        let who = format!(
            "pod {}/{pod} of {jump_host} for cluster {}, by {}",
            cluster.namespace(),
            cluster.key(),
            caller.key()
        );
        match outcome {
            Ok(()) => {
                let note = format!("{did}: {} ({who}).", action.name());
                self.events
                    .publish(host, None, EventReason::PowerChanged, &note)
                    .await;
            }
            Err(status) => {
                let note = format!(
                    "{} ended with {} ({who}): {}",
                    action.name(),
                    reason(status),
                    status.message()
                );
                self.events
                    .publish(host, None, EventReason::PowerChangeFailed, &note)
                    .await;
            }
        }
    }
}

impl Caller {
    fn key(&self) -> String {
        if self.claimed_key.is_empty() {
            "a user without ssh key".to_owned()
        } else {
            format!("a user who claims the ssh key {}", self.claimed_key)
        }
    }
}

fn log(caller: &Caller, about: CallDetails<'_>, outcome: &str, why: &str, withheld: u64) {
    let Caller {
        address,
        claimed_key,
        holder,
        tenant,
    } = caller;
    let CallDetails { call, host, action } = about;
    let (account, pod) = holder.as_ref().map_or_else(Default::default, |holder| {
        (holder.account.to_string(), holder.pod.clone())
    });
    let (cluster, jump_host) = tenant.as_ref().map_or_else(Default::default, |tenant| {
        (tenant.cluster.key().to_string(), tenant.jump_host.clone())
    });
    tracing::info!(
        target: AUDIT,
        account,
        pod,
        cluster,
        jump_host,
        %address,
        claimed_key,
        call,
        host,
        action = action.map_or("", Action::name),
        outcome,
        why,
        withheld,
        "power",
    );
}

/// The key that a client states in the headers of a call; empty without a text that could be one.
fn claimed_key(headers: &MetadataMap) -> String {
    let value = headers.get(CLAIMED_KEY).and_then(|value| value.to_str().ok());
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=:.@_-".contains(&byte);
    let claim = value.filter(|text| text.len() <= MAX_KEY_BYTES && text.bytes().all(allowed));
    claim.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit() -> Audit {
        let client =
            kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        Audit::new(Events::new(client, "x"), PowerMetrics::default())
    }

    #[tokio::test]
    async fn refusals_of_one_tenant_are_logged_at_a_bounded_rate() {
        let audit = audit();
        let logged = (0..1000).filter_map(|_| audit.line_of("shop")).count();
        assert!((32..40).contains(&logged), "{logged}");
        assert_eq!(audit.line_of("bank"), Some(0));
        for namespace in 0..2 * MAX_NAMESPACES {
            let _ = audit.line_of(&namespace.to_string());
        }
        assert!(audit.refused_tenants.lock().unwrap().len() <= MAX_NAMESPACES);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_namespaces_give_their_places_to_new_ones() {
        let audit = audit();
        for namespace in 0..MAX_NAMESPACES {
            let _ = audit.line_of(&namespace.to_string());
        }
        tokio::time::advance(IDLE_TIMEOUT / 2).await;
        let _ = audit.line_of("0");
        tokio::time::advance(IDLE_TIMEOUT / 2).await;
        // Strangers use up the lines that namespaces without a place share with them.
        for _ in 0..1000 {
            let _ = audit.refused.line();
        }
        assert_eq!(audit.line_of("new"), Some(0));
        let tenants = audit.refused_tenants.lock().unwrap();
        let mut names: Vec<&str> = tenants.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["0", "new"]);
    }

    #[test]
    fn a_claim_has_the_characters_of_a_fingerprint() {
        let claim = |text: &'static str| {
            let mut headers = MetadataMap::new();
            headers.insert(CLAIMED_KEY, text.parse().unwrap());
            claimed_key(&headers)
        };
        assert_eq!(claim("SHA256:ab+/cd="), "SHA256:ab+/cd=");
        assert_eq!(claim("SHA256:x outcome=OK"), "");
        assert_eq!(claimed_key(&MetadataMap::new()), "");
    }
}
