//! Sessions as metrics, and as lines of the log.

use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use runtime::metrics::{Definition, Kind};

use super::{Event, Login, Peer};

const METHOD: &str = "method";

/// Sessions that have begun.
pub const SESSIONS: Definition = Definition {
    name: "sip_jump_host_sessions_total",
    kind: Kind::Counter,
    labels: &[METHOD],
    help: "Sessions that have begun, by method of the login: key, certificate",
};
/// Open sessions.
pub const OPEN: Definition = Definition {
    name: "sip_jump_host_open_sessions",
    kind: Kind::Gauge,
    labels: &[],
    help: "Open sessions",
};
/// Connections without a login.
pub const REFUSED: Definition = Definition {
    name: "sip_jump_host_refused_logins_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Connections that have ended without a login",
};

/// Every metric of a jump host besides those of each process, in the order of the documentation.
pub const DEFINITIONS: [&Definition; 3] = [&SESSIONS, &OPEN, &REFUSED];

/// Counts of sessions. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    opened: Family<[(&'static str, &'static str); 1], Counter>,
    open: Gauge,
    refused: Counter,
}

impl Metrics {
    /// The counts, registered with the process's.
    #[must_use]
    pub fn registered(metrics: &runtime::metrics::Metrics) -> Self {
        let this = Self::default();
        metrics.add(&SESSIONS, this.opened.clone());
        metrics.add(&OPEN, this.open.clone());
        metrics.add(&REFUSED, this.refused.clone());
        this
    }

    /// Counts and logs what a line has reported. `open`: how many sessions there are now.
    pub fn record(&self, event: &Event, open: usize) {
        self.open.set(i64::try_from(open).unwrap_or(i64::MAX));
        match event {
            Event::Opened(Peer { address, port }, login) => {
                let method = match login {
                    Login::Key(key) => {
                        tracing::info!(address, port, key, "session opened");
                        "key"
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
                        "certificate"
                    }
                };
                self.opened.get_or_create(&[(METHOD, method)]).inc();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_this_table() {
        let table = runtime::metrics::reference_table(&DEFINITIONS);
        assert!(
            include_str!("../../../../../docs/metrics.md").contains(&table),
            "{table}"
        );
    }
}
