//! Sessions as metrics, and as lines of the log.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use runtime::{
    metrics::{Definition, Kind},
    quiet::QuietByAddress,
};

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
    /// Limits the lines for refused logins: strangers decide how many there are, and would push lines of sessions out of the log.
    quiet: Arc<QuietByAddress>,
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

    /// Counts and logs an event. `open`: number of sessions after it.
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
            Event::Refused(peer) => {
                self.refused.inc();
                if let Some(withheld) = self.line(peer) {
                    let Peer { address, port } = peer;
                    tracing::info!(address, port, withheld, "login refused");
                }
            }
        }
    }
}

impl Metrics {
    /// Whether to log a refused login, and how many from the same network were not logged before it.
    fn line(&self, peer: &Peer) -> Option<u64> {
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let address = peer.remote().map_or(unknown, |(address, _)| address);
        self.quiet.line(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refused_logins_is_logged_at_a_bounded_rate() {
        let metrics = Metrics::default();
        let from = |address: &str, port| Peer {
            address: address.to_owned(),
            port,
        };
        let logged = (0..1_000).filter(|port| metrics.line(&from("192.0.2.9", *port)).is_some());
        assert!((32..40).contains(&logged.count()));
        for other in ["192.0.2.8", "2001:db8::7", "UNKNOWN"] {
            assert_eq!(metrics.line(&from(other, 1)), Some(0), "{other}");
        }
    }

    #[test]
    fn the_reference_lists_every_session_metric() {
        let table = runtime::metrics::reference_table(&DEFINITIONS);
        assert!(
            include_str!("../../../../../docs/metrics.md").contains(&table),
            "{table}"
        );
    }
}
