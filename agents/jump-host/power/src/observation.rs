//! When the reports of a BMC prove that an action took effect. Pure.

use crate::{
    action::Goal,
    redfish::{Power, Reading},
};

/// What the BMC has reported since an action.
#[derive(Clone, Debug)]
pub struct Observation {
    goal: Goal,
    before: Reading,
    last: Reading,
    restarted: bool,
}

/// The comparison of a reading with the one before and the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Whether it differs from the reading before in a value that is printed to users.
    pub changed: bool,
    /// Whether the goal is reached.
    pub reached: bool,
}

impl Observation {
    /// Begins with the reading right before the action.
    #[must_use]
    pub fn new(goal: Goal, before: Reading) -> Self {
        Self {
            goal,
            last: before.clone(),
            before,
            restarted: false,
        }
    }

    /// Takes another reading.
    ///
    /// A BMC may show a restart in any of three ways: the system is off for a moment, the time of its last reset changes, or its boot falls back
    /// from the operating system to an earlier stage. A value that the BMC reports for the first time is no evidence: it may not have reported it
    /// before.
    pub fn observe(&mut self, reading: Reading) -> Comparison {
        let Self {
            goal,
            before,
            last,
            restarted,
        } = self;
        let was_off = matches!(reading.power, Power::Off | Power::PoweringOff);
        let was_reset = match (&before.last_reset, &reading.last_reset) {
            (Some(then), Some(now)) => then != now,
            (None, _) | (_, None) => false,
        };
        let falls_back = |then: &Reading| match (stage(then), stage(&reading)) {
            (Some(then), Some(now)) => then >= OS_BOOT_STAGE && now < then,
            (None, _) | (_, None) => false,
        };
        *restarted |= was_off || was_reset || falls_back(before) || falls_back(last);
        let reached = match goal {
            Goal::On => reading.power == Power::On,
            Goal::Off => reading.power == Power::Off,
            Goal::Restarted => *restarted && reading.power == Power::On,
        };
        let changed = (reading.power, &reading.boot) != (last.power, &last.boot);
        *last = reading;
        Comparison { changed, reached }
    }
}

/// Stages of a boot in their order, as Redfish names them. `None` and `OEM` are no stages: their place in the order is not defined.
const BOOT_STAGES: [&str; 9] = [
    "PrimaryProcessorInitializationStarted",
    "BusInitializationStarted",
    "MemoryInitializationStarted",
    "SecondaryProcessorInitializationStarted",
    "PCIResourceConfigStarted",
    "SystemHardwareInitializationComplete",
    "SetupEntered",
    "OSBootStarted",
    "OSRunning",
];
/// The first stage of the operating system.
const OS_BOOT_STAGE: usize = 7;

fn stage(reading: &Reading) -> Option<usize> {
    let boot = reading.boot.as_deref()?;
    BOOT_STAGES.iter().position(|stage| *stage == boot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(power: Power) -> Reading {
        Reading {
            power,
            last_reset: Some("1".to_owned()),
            boot: Some("OSRunning".to_owned()),
        }
    }

    /// At which of the readings the goal is reached.
    fn reached(goal: Goal, before: Reading, readings: impl IntoIterator<Item = Reading>) -> Option<usize> {
        let mut observation = Observation::new(goal, before);
        let mut readings = readings.into_iter();
        readings.position(|reading| observation.observe(reading).reached)
    }

    #[test]
    fn on_and_off_are_reached_when_the_bmc_shows_them() {
        use Power::{Off, On, PoweringOff, PoweringOn};
        let on = reached(Goal::On, reading(Off), [Off, PoweringOn, On].map(reading));
        let off = reached(Goal::Off, reading(On), [On, PoweringOff, Off].map(reading));
        assert_eq!((on, off), (Some(2), Some(2)));
    }

    #[test]
    fn a_restart_is_reached_when_the_host_is_on_again() {
        use Power::{Off, On, PoweringOn};
        let readings = [On, On, Off, PoweringOn, On].map(reading);
        assert_eq!(reached(Goal::Restarted, reading(On), readings), Some(4));
        assert_eq!(
            reached(Goal::Restarted, reading(On), [On, On, On].map(reading)),
            None,
            "nothing shows a restart"
        );
    }

    #[test]
    fn a_warm_restart_is_seen_by_reset_time_or_boot() {
        let on = reading(Power::On);
        let reset = Reading {
            last_reset: Some("9".to_owned()),
            ..on.clone()
        };
        let boot = Reading {
            boot: Some("SystemHardwareInitializationComplete".to_owned()),
            ..on.clone()
        };
        for shown in [reset, boot] {
            assert_eq!(reached(Goal::Restarted, on.clone(), [on.clone(), shown]), Some(1));
        }
    }

    #[test]
    fn what_also_shows_without_a_restart_is_no_restart() {
        let on = reading(Power::On);
        let boot = |stage: &str| Reading {
            boot: Some(stage.to_owned()),
            ..on.clone()
        };
        let silent = Reading {
            last_reset: None,
            boot: None,
            ..on.clone()
        };
        for (before, shown) in [
            // A boot that was under way goes on.
            (boot("SystemHardwareInitializationComplete"), on.clone()),
            (boot("OSBootStarted"), on.clone()),
            (on.clone(), boot("OEM")),
            (on.clone(), silent.clone()),
            // The BMC begins to say what it did not say before.
            (silent, on.clone()),
            (on.clone(), reading(Power::PoweringOn)),
            (on.clone(), reading(Power::Paused)),
            (on.clone(), reading(Power::Unknown)),
        ] {
            let found = reached(Goal::Restarted, before.clone(), [shown.clone(), on.clone()]);
            assert_eq!(found, None, "{before:?} {shown:?}");
        }
    }

    #[test]
    fn a_boot_progress_that_falls_back_is_a_restart() {
        let on = reading(Power::On);
        let early = Reading {
            boot: Some("BusInitializationStarted".to_owned()),
            ..on.clone()
        };
        let readings = [early.clone(), on, early.clone()];
        assert_eq!(reached(Goal::Restarted, early, readings), Some(2));
    }

    #[test]
    fn only_changes_are_reported() {
        let mut observation = Observation::new(Goal::Restarted, reading(Power::On));
        let changed: Vec<bool> = [Power::On, Power::Off, Power::Off, Power::On]
            .map(|power| observation.observe(reading(power)).changed)
            .into();
        assert_eq!(changed, [false, true, false, true]);
    }
}
