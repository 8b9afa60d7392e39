//! Which problem the status states: one that polls have found for a while, until polls find another state for a while. So a server whose answers
//! alternate does not cause a status write each time. Pure; the time is an argument.

use std::time::{Duration, Instant};

/// Time for which polls have to find a different state before the status has it.
const STABLE_AFTER: Duration = Duration::from_mins(1);

/// The problem of one cluster.
#[derive(Debug, Default)]
pub(super) struct Lasting {
    stated: Option<String>,
    /// What polls show instead, and since when.
    other: Option<(Option<String>, Instant)>,
}

impl Lasting {
    /// Begins with the problem that the status has from an earlier process.
    pub(super) fn resumed(stated: Option<String>) -> Self {
        Self { stated, other: None }
    }

    /// Records that a poll has found this problem, or none. Returns what the status states.
    pub(super) fn record(&mut self, now: Instant, problem: Option<String>) -> Option<String> {
        let other = self.other.take();
        if problem != self.stated {
            let since = match other {
                // Where the status states no problem, any problem counts, whatever its text; where it states one, another text counts only if it
                // stays the same.
                Some((other, since)) if other == problem || (self.stated.is_none() && other.is_some()) => {
                    since
                }
                Some(_) | None => now,
            };
            if now.saturating_duration_since(since) >= STABLE_AFTER {
                self.stated = problem;
            } else {
                self.other = Some((problem, since));
            }
        }
        self.stated.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_stated_and_taken_back_once_it_lasts() {
        let start = Instant::now();
        let mut lasting = Lasting::default();
        for (seconds, found, expected) in [
            (0, Some("silent"), None),
            // It answers in turns.
            (10, None, None),
            (20, Some("refused"), None),
            (60, Some("silent"), None),
            (79, Some("silent: 2"), None),
            (80, Some("silent: 3"), Some("silent: 3")),
            // Its words change, or it is over for a moment.
            (90, Some("silent: 4"), Some("silent: 3")),
            (150, Some("silent: 5"), Some("silent: 3")),
            (160, None, Some("silent: 3")),
            (210, Some("silent: 5"), Some("silent: 3")),
            (220, None, Some("silent: 3")),
            (279, None, Some("silent: 3")),
            (280, None, None),
        ] {
            let now = start + Duration::from_secs(seconds);
            let stated = lasting.record(now, found.map(str::to_owned));
            assert_eq!(stated.as_deref(), expected, "after {seconds} s");
        }
    }

    #[test]
    fn another_problem_is_stated_once_it_stays() {
        let start = Instant::now();
        let mut lasting = Lasting::resumed(Some("it does not exist".to_owned()));
        for (seconds, found, expected) in [
            (0, "it does not exist", "it does not exist"),
            (10, "it has no key value", "it does not exist"),
            (69, "it has no key value", "it does not exist"),
            (70, "it has no key value", "it has no key value"),
        ] {
            let now = start + Duration::from_secs(seconds);
            let stated = lasting.record(now, Some(found.to_owned()));
            assert_eq!(stated.as_deref(), Some(expected), "after {seconds} s");
        }
    }
}
