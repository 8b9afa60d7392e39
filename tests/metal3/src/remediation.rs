//! The phases of a `Metal3Remediation` with the strategy Reboot: `metal3remediation_controller.go` of CAPM3 v1.13.2, without Nodes.

use std::time::Duration;

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not set yet.
    New,
    /// The host is rebooted.
    Running,
    /// It was rebooted, and its Node is awaited.
    Waiting,
    /// Remediation gave up.
    Deleting,
    /// The host is switched off by its spec.
    Failed,
}

impl Phase {
    /// What the field says.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("Running") => Self::Running,
            Some("Waiting") => Self::Waiting,
            Some("Deleting machine") => Self::Deleting,
            Some("Failed") => Self::Failed,
            Some(_) | None => Self::New,
        }
    }

    /// How the field says it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::New => "",
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::Deleting => "Deleting machine",
            Self::Failed => "Failed",
        }
    }
}

/// What is known of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remediation {
    /// Where it is.
    pub phase: Phase,
    /// `spec.online` of the host.
    pub online: bool,
    /// `spec.strategy.timeout`.
    pub timeout: Duration,
    /// `spec.strategy.retryLimit`; 0 is none.
    pub retry_limit: u64,
    /// `status.retryCount`.
    pub retries: u64,
    /// Since `status.lastRemediated`.
    pub since: Duration,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing yet, or nothing any more.
    Wait,
    /// It goes to this phase.
    Go(Phase),
    /// The host is rebooted once more.
    Retry,
    /// The host is marked as unhealthy, and the Machine's owner is to delete the Machine.
    GiveUp,
}

/// What happens next.
#[must_use]
pub fn step(remediation: &Remediation) -> Step {
    let Remediation {
        phase,
        online,
        timeout,
        retry_limit,
        retries,
        since,
    } = *remediation;
    match phase {
        Phase::Deleting | Phase::Failed => Step::Wait,
        Phase::New | Phase::Running | Phase::Waiting if !online => Step::Go(Phase::Failed),
        Phase::New => Step::Go(Phase::Running),
        Phase::Running => Step::Go(Phase::Waiting),
        Phase::Waiting if since < timeout => Step::Wait,
        Phase::Waiting if retries < retry_limit => Step::Retry,
        Phase::Waiting => Step::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_rebooted_up_to_the_limit_and_then_given_up() {
        let (timeout, over) = (Duration::from_mins(1), Duration::from_secs(61));
        for (phase, online, retry_limit, retries, since, expected) in [
            (Phase::New, true, 1, 0, Duration::ZERO, Step::Go(Phase::Running)),
            (Phase::New, false, 1, 0, Duration::ZERO, Step::Go(Phase::Failed)),
            (
                Phase::Running,
                true,
                1,
                0,
                Duration::ZERO,
                Step::Go(Phase::Waiting),
            ),
            (Phase::Waiting, true, 1, 0, Duration::ZERO, Step::Wait),
            (Phase::Waiting, true, 1, 0, over, Step::Retry),
            (Phase::Waiting, true, 1, 1, over, Step::GiveUp),
            (Phase::Waiting, true, 0, 0, over, Step::GiveUp),
            (Phase::Waiting, false, 1, 1, over, Step::Go(Phase::Failed)),
            (Phase::Deleting, true, 1, 1, over, Step::Wait),
            (Phase::Failed, true, 1, 1, over, Step::Wait),
        ] {
            let remediation = Remediation {
                phase,
                online,
                timeout,
                retry_limit,
                retries,
                since,
            };
            assert_eq!(step(&remediation), expected, "{remediation:?}");
            assert_eq!(Phase::parse(Some(phase.text())), phase);
        }
    }
}
