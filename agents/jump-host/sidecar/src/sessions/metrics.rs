//! Sessions as metrics, and as lines of the log.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use super::{Event, Login, Peer};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Opened {
    method: Method,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Method {
    Key,
    Certificate,
}

/// Counts of sessions.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    opened: Family<Opened, Counter>,
    open: Gauge,
    refused: Counter,
}

impl Metrics {
    /// Counts for a process.
    #[must_use]
    pub fn registered(metrics: &runtime::metrics::Metrics) -> Self {
        let own = Self::default();
        metrics.register(|registry| {
            let Self {
                opened,
                open,
                refused,
            } = own.clone();
            registry.register("jump_host_sessions", "Sessions that have begun", opened);
            registry.register("jump_host_sessions_open", "Sessions that are open", open);
            registry.register(
                "jump_host_logins_refused",
                "Connections that have ended without a login",
                refused,
            );
        });
        own
    }

    /// Counts and logs what a line has reported. `open`: how many sessions there are now.
    pub fn record(&self, event: &Event, open: usize) {
        self.open.set(i64::try_from(open).unwrap_or(i64::MAX));
        match event {
            Event::Opened(Peer { address, port }, login) => {
                let method = match login {
                    Login::Key(key) => {
                        tracing::info!(address, port, key, "session opened");
                        Method::Key
                    }
                    Login::Certificate {
                        id,
                        serial,
                        authority,
                    } => {
                        tracing::info!(
                            address,
                            port,
                            certificate = id,
                            serial,
                            authority,
                            "session opened"
                        );
                        Method::Certificate
                    }
                };
                self.opened.get_or_create(&Opened { method }).inc();
            }
            Event::Closed(Peer { address, port }, login, lasted) => {
                let seconds = lasted.as_secs();
                match login {
                    Login::Key(key) => tracing::info!(address, port, key, seconds, "session closed"),
                    Login::Certificate {
                        id,
                        serial,
                        authority,
                    } => tracing::info!(
                        address,
                        port,
                        certificate = id,
                        serial,
                        authority,
                        seconds,
                        "session closed"
                    ),
                }
            }
            Event::Refused(Peer { address, port }) => {
                tracing::info!(address, port, "login refused");
                self.refused.inc();
            }
        }
    }
}
