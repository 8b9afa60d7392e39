//! How many audit lines an identity may cause. Lines about changes, exports, denials and calls that only operators may make are always written: the
//! ledger and the limits of calls bound them. A call that another limit than that on denials refuses has no line. Of the other lines each identity
//! has a few at once and one a second, so that a flood of calls that do nothing neither hides lines about others nor fills the disk. What is
//! withheld is counted, and a notice states how much it was.

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU64, Ordering},
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use runtime::telemetry::AUDIT;

use crate::call_rules::{Call, Callers, Effect};

/// Maximum number of lines of one kind that may come at once.
const LINE_BURST: NonZeroU32 = NonZeroU32::new(32).unwrap();
/// Lines of one kind a second after that burst.
const LINES_PER_SECOND: NonZeroU32 = NonZeroU32::MIN;

/// What an audit line is about. Each kind has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call that its identity may not make.
    Denied,
    /// A call that has staged changes in the ledger.
    Changed,
    /// A call that reads the whole ledger.
    Exported,
    /// A call that only operators may make, and that has changed and exported nothing: it repeats an earlier call, or failed. Whoever tries to
    /// override a safeguard has a line for each time, unless a limit refuses the call, which then does nothing.
    Overriding,
    /// Any other call of a method that changes something, and that has changed nothing: it repeats an earlier call, or failed.
    Unchanged,
    /// A stream that has changed nothing so far begins or ends.
    Stream,
}

impl Kind {
    /// The kind of a line about a call that is audited, `denied`, or has staged so many changes. `opened`: its stream of answers has begun.
    pub(super) fn new(call: Call, changes: u64, denied: bool, opened: bool) -> Self {
        match (denied, changes, opened) {
            (true, _, _) => Self::Denied,
            (false, 1.., _) => Self::Changed,
            (false, 0, false) => match call.descriptor().who {
                Callers::Operators => Self::Overriding,
                Callers::ClusterAgent
                | Callers::Agents
                | Callers::Readers
                | Callers::People
                | Callers::Everyone => Self::Unchanged,
            },
            (false, 0, true) => match call.descriptor().effect {
                Effect::Read => Self::Exported,
                Effect::Write => Self::Stream,
            },
        }
    }

    /// What such a line says has become of the call.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Changed => "changed",
            Self::Exported => "exported",
            Self::Overriding | Self::Unchanged | Self::Stream => "called",
        }
    }
}

/// How many lines are about one identity, or about those of a group that have no account.
#[derive(Debug)]
pub(super) struct Lines {
    identity: String,
    unchanged: Budget,
    streams: Budget,
    /// Denials that the limit on them has refused without a line.
    denied: AtomicU64,
}

/// The lines of one kind.
#[derive(Debug)]
struct Budget {
    limiter: DefaultDirectRateLimiter,
    withheld: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            limiter: RateLimiter::direct(Quota::per_second(LINES_PER_SECOND).allow_burst(LINE_BURST)),
            withheld: AtomicU64::new(0),
        }
    }
}

impl Budget {
    fn allows(&self) -> bool {
        let allowed = self.limiter.check().is_ok();
        if !allowed {
            self.withheld.fetch_add(1, Ordering::Relaxed);
        }
        allowed
    }
}

/// How many lines were withheld.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Withheld {
    denied: u64,
    unchanged: u64,
    streams: u64,
}

impl Lines {
    pub(super) fn new(identity: String) -> Self {
        Self {
            identity,
            unchanged: Budget::default(),
            streams: Budget::default(),
            denied: AtomicU64::new(0),
        }
    }

    /// Whether a line is to be written; one that is not is counted.
    pub(super) fn allows(&self, kind: Kind) -> bool {
        match kind {
            Kind::Denied | Kind::Changed | Kind::Exported | Kind::Overriding => true,
            Kind::Unchanged => self.unchanged.allows(),
            Kind::Stream => self.streams.allows(),
        }
    }

    /// Counts a denial without a line: there were too many of them.
    pub(super) fn withhold_denied(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a line was withheld since the last notice.
    pub(super) fn has_withheld(&self) -> bool {
        let counts = [&self.denied, &self.unchanged.withheld, &self.streams.withheld];
        counts.into_iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    fn take_withheld(&self) -> Withheld {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        Withheld {
            denied: take(&self.denied),
            unchanged: take(&self.unchanged.withheld),
            streams: take(&self.streams.withheld),
        }
    }

    /// Writes how many lines were withheld since the last notice, if there were any.
    pub(super) fn write_notice(&self) {
        let withheld = self.take_withheld();
        if withheld == Withheld::default() {
            return;
        }
        let Withheld {
            denied,
            unchanged,
            streams,
        } = withheld;
        tracing::info!(target: AUDIT, identity = self.identity, denied, unchanged, streams, "withheld");
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.write_notice();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_about_what_its_call_has_done() {
        let (write, stream, export, read) = (
            Call::ApplyCluster,
            Call::ReportHosts,
            Call::ExportLedger,
            Call::GetPlacement,
        );
        for (call, changes, denied, opened, kind) in [
            (write, 1, false, false, Kind::Changed),
            (write, 0, false, false, Kind::Unchanged),
            (write, 0, true, false, Kind::Denied),
            (stream, 0, false, false, Kind::Unchanged),
            (stream, 0, false, true, Kind::Stream),
            (stream, 7, false, true, Kind::Changed),
            (export, 0, false, false, Kind::Overriding),
            (Call::ReleaseOrphan, 0, false, false, Kind::Overriding),
            (Call::RepairSite, 1, false, false, Kind::Changed),
            (Call::RepairSite, 0, true, false, Kind::Denied),
            (export, 0, false, true, Kind::Exported),
            (read, 0, true, false, Kind::Denied),
            (read, 2, false, false, Kind::Changed),
        ] {
            let found = Kind::new(call, changes, denied, opened);
            assert_eq!(found, kind, "{call:?} {changes} {denied} {opened}");
        }
    }

    #[test]
    fn a_flood_of_one_kind_withholds_no_other_line() {
        const CALLS: u64 = 1000;
        let lines = || Lines::new("reader/one".to_owned());
        let (flood, other) = (lines(), lines());
        let written = (0..CALLS).filter(|_| flood.allows(Kind::Unchanged)).count();
        assert!((32..40).contains(&written), "{written}");
        flood.withhold_denied();
        for kind in [Kind::Denied, Kind::Changed, Kind::Exported, Kind::Overriding] {
            assert!((0..CALLS).all(|_| flood.allows(kind)), "{kind:?}");
        }
        assert!(flood.allows(Kind::Stream) && other.allows(Kind::Unchanged));
        assert!(flood.has_withheld() && !other.has_withheld());
        let withheld = Withheld {
            denied: 1,
            unchanged: CALLS - u64::try_from(written).unwrap(),
            streams: 0,
        };
        assert_eq!(flood.take_withheld(), withheld);
        assert_eq!(flood.take_withheld(), Withheld::default(), "each is counted once");
    }
}
