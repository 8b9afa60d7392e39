//! The limits of one identity, and their options: how much it may have of the scheduler at once.

use std::{num::NonZeroU32, time::Duration};

use crate::call_rules::CallKind;

/// Limits of one identity, on the command line. Every identity has its own, and all of one site have four times as much together.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Limits of each identity")]
#[allow(clippy::struct_field_names, reason = "they are the names of the options")]
pub struct LimitArgs {
    /// Maximum number of concurrent changes (such as `ApplyCluster`) of one identity; the same number of concurrent short reads is allowed too
    #[arg(long, env = "SIP_LIMIT_CALLS", value_name = "NUMBER", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    limit_calls: u32,
    /// Maximum number of concurrent large reads of one identity: `ListHosts`, `ListPlacements`, `ListDecisions`, `FindCapacity`, `ExportLedger`
    #[arg(long, env = "SIP_LIMIT_SCANS", value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    limit_scans: u32,
    /// Maximum number of concurrent watches of one identity
    #[arg(long, env = "SIP_LIMIT_WATCHES", value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    limit_watches: u32,
    /// Calls per second of one identity; the burst is twice as many
    #[arg(long, env = "SIP_LIMIT_RATE", value_name = "CALLS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    limit_rate: u32,
    /// Maximum size in MiB of requests with a spec, of more than 4 KiB each, that the scheduler buffers for one identity. The limits for
    /// other messages are fixed fractions of this
    #[arg(long, env = "SIP_LIMIT_BUFFER_MIB", value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(17..=1024))]
    limit_buffer_mib: u32,
    /// Maximum number of concurrent connections of one identity; the scheduler closes the oldest for a further one
    #[arg(long, env = "SIP_LIMIT_CONNECTIONS", value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    limit_connections: u32,
    /// Maximum number of concurrent unauthenticated handshakes of all callers together; for a further one the scheduler closes one whose
    /// caller sends nothing
    #[arg(long, env = "SIP_LIMIT_HANDSHAKES", value_name = "NUMBER", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    limit_handshakes: u32,
    /// Maximum number of identities that call at the same time: for each site, for operators, and for readers
    #[arg(long, env = "SIP_LIMIT_IDENTITIES", value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    limit_identities: u32,
}

/// Maximum number of streams of reports of one identity. Those of two replicas of an agent overlap for a moment when another one is
/// elected.
const MAX_REPORT_STREAMS: usize = 4;
/// Maximum number of health checks and reflection streams of one identity.
const MAX_PROBES: usize = 32;
/// How many times the permits of one identity a machine without TLS has, so that all its processes have no less than others have on many
/// machines.
const PLAINTEXT_FACTOR: usize = 32;
/// Refused calls of one identity a second that are audited one by one; beyond that the answer has a retry delay.
const DENIALS_PER_SECOND: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// What one identity may have.
#[derive(Clone, Debug)]
pub struct Limits {
    pub(super) calls: usize,
    pub(super) scans: usize,
    pub(super) watches: usize,
    pub(super) reports: usize,
    pub(super) probes: usize,
    pub(super) buffer: usize,
    pub(super) identities: usize,
    /// `None`: no limit.
    pub(super) rate: Option<NonZeroU32>,
    pub(super) denials: NonZeroU32,
    /// How long a message may take to arrive once it has begun, and a stream's first one at all.
    pub(super) arrival: Duration,
    /// How many times as much the processes of this machine have together, where they are served without TLS.
    pub(super) plaintext_factor: usize,
    /// Time between two notices of audit lines that were withheld.
    pub(super) notices: Duration,
}

/// How long a message may take to arrive: 4 MiB at 0.4 MiB a second.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two notices of withheld audit lines of one identity.
const NOTICE_INTERVAL: Duration = Duration::from_mins(1);

impl LimitArgs {
    /// The limits of calls.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let Self {
            limit_calls,
            limit_scans,
            limit_watches,
            limit_rate,
            limit_buffer_mib,
            limit_connections: _,
            limit_handshakes: _,
            limit_identities,
        } = *self;
        Limits {
            calls: size(limit_calls),
            scans: size(limit_scans),
            watches: size(limit_watches),
            reports: MAX_REPORT_STREAMS,
            probes: MAX_PROBES,
            buffer: size(limit_buffer_mib) << 20,
            identities: size(limit_identities),
            rate: NonZeroU32::new(limit_rate),
            denials: DENIALS_PER_SECOND,
            arrival: MESSAGE_TIMEOUT,
            plaintext_factor: PLAINTEXT_FACTOR,
            notices: NOTICE_INTERVAL,
        }
    }

    /// The limits of connections.
    #[must_use]
    pub fn connections(&self) -> runtime::tls::Limits {
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        runtime::tls::Limits {
            handshakes: size(self.limit_handshakes),
            connections: size(self.limit_connections),
        }
    }
}

impl Default for Limits {
    /// As without options on the command line.
    fn default() -> Self {
        Self {
            calls: 256,
            scans: 8,
            watches: 64,
            reports: MAX_REPORT_STREAMS,
            probes: MAX_PROBES,
            buffer: 32 << 20,
            identities: 64,
            rate: NonZeroU32::new(1000),
            denials: DENIALS_PER_SECOND,
            arrival: MESSAGE_TIMEOUT,
            plaintext_factor: PLAINTEXT_FACTOR,
            notices: NOTICE_INTERVAL,
        }
    }
}

impl Limits {
    /// So many calls of each kind for every identity, for tests.
    #[must_use]
    pub fn of_each_kind(calls: usize) -> Self {
        Self {
            calls,
            scans: calls,
            watches: calls,
            plaintext_factor: 1,
            ..Self::default()
        }
    }

    /// The same, for so many identities of each kind, for tests.
    #[must_use]
    pub fn identities(self, identities: usize) -> Self {
        Self { identities, ..self }
    }

    /// The same, with another time for messages to arrive.
    #[must_use]
    pub fn arrival(self, arrival: Duration) -> Self {
        Self { arrival, ..self }
    }

    /// The same, with room for so many bytes of requests and answers, for tests.
    #[must_use]
    pub fn buffer(self, buffer: usize) -> Self {
        Self { buffer, ..self }
    }

    /// The same, with so many calls a second, for tests.
    #[must_use]
    pub fn rate(self, rate: NonZeroU32) -> Self {
        Self {
            rate: Some(rate),
            ..self
        }
    }

    /// The same, with another time between notices of withheld audit lines, for tests.
    #[must_use]
    pub fn notices(self, notices: Duration) -> Self {
        Self { notices, ..self }
    }

    /// The limits of all processes of this machine together, where they are served without TLS: they are one identity, and
    /// trusted with everything.
    pub(super) fn of_plaintext(&self) -> Self {
        let times = |number: usize| number.saturating_mul(self.plaintext_factor);
        let Self {
            calls,
            scans,
            watches,
            reports,
            probes,
            buffer,
            identities,
            rate: _,
            denials,
            arrival,
            plaintext_factor,
            notices,
        } = *self;
        Self {
            calls: times(calls),
            scans: times(scans),
            watches: times(watches),
            reports: times(reports),
            probes: times(probes),
            buffer: times(buffer),
            identities,
            rate: None,
            denials,
            arrival,
            plaintext_factor,
            notices,
        }
    }

    pub(super) fn most_calls(&self, kind: CallKind) -> usize {
        match kind {
            CallKind::Writes | CallKind::Reads => self.calls,
            CallKind::Scans => self.scans,
            CallKind::Watches => self.watches,
            CallKind::Reports => self.reports,
            CallKind::Probes => self.probes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::parse_options;

    #[test]
    fn default_identity_limits_are_those_of_the_options() {
        let parsed: LimitArgs = parse_options(&[]);
        assert_eq!(
            format!("{:?}", parsed.limits()),
            format!("{:?}", Limits::default())
        );
        assert_eq!(parsed.connections(), runtime::tls::Limits::default());
    }
}
