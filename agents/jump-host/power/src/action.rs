//! Which reset action of the BMC makes a change of the power state. Pure.

use proto::power::v1 as wire;

use crate::redfish::Power;

/// A change of a host's power state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Restart it, by its operating system if the BMC offers that.
    Reboot,
    /// Restart it at once.
    ForceReboot,
    /// Turn it on.
    On,
    /// Turn it off, by its operating system if the BMC offers that.
    Off,
    /// Turn it off at once.
    ForceOff,
}

/// What the BMC is to show after an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The host is on.
    On,
    /// The host is off.
    Off,
    /// The host was restarted, and is on.
    Restarted,
}

/// Why an action is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// It cannot be restarted.
    HostIsOff,
    /// The BMC offers no reset type for it.
    NotOffered {
        /// Reset types that would do it, the best first.
        wanted: &'static [&'static str],
    },
}

impl Action {
    /// The action of a request; `None` for one that is not known.
    #[must_use]
    pub fn parse(action: wire::Action) -> Option<Self> {
        match action {
            wire::Action::Unspecified => None,
            wire::Action::Reboot => Some(Self::Reboot),
            wire::Action::ForceReboot => Some(Self::ForceReboot),
            wire::Action::On => Some(Self::On),
            wire::Action::Off => Some(Self::Off),
            wire::Action::ForceOff => Some(Self::ForceOff),
        }
    }

    /// Its name in the audit log, in Events and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reboot => "reboot",
            Self::ForceReboot => "force-reboot",
            Self::On => "on",
            Self::Off => "off",
            Self::ForceOff => "force-off",
        }
    }

    /// Whether the action takes effect at once, without the operating system.
    #[must_use]
    pub const fn is_forced(self) -> bool {
        match self {
            Self::ForceReboot | Self::ForceOff => true,
            Self::Reboot | Self::On | Self::Off => false,
        }
    }

    /// What the BMC is to show.
    #[must_use]
    pub const fn goal(self) -> Goal {
        match self {
            Self::Reboot | Self::ForceReboot => Goal::Restarted,
            Self::On => Goal::On,
            Self::Off | Self::ForceOff => Goal::Off,
        }
    }

    /// Values of `ResetType` that do it, the best first.
    const fn reset_types(self) -> &'static [&'static str] {
        match self {
            Self::Reboot => &["GracefulRestart", "ForceRestart", "PowerCycle"],
            Self::ForceReboot => &["ForceRestart", "PowerCycle"],
            Self::On => &["On", "ForceOn"],
            Self::Off => &["GracefulShutdown", "ForceOff"],
            Self::ForceOff => &["ForceOff"],
        }
    }

    /// The reset type to send to a host in this state; `None` if the host is in the wanted state already. A BMC that does not list its reset
    /// types (`offered` is `None`) gets the best one, and may refuse it.
    ///
    /// # Errors
    /// [`Impossible`].
    pub fn decide(
        self,
        power: Power,
        offered: Option<&[String]>,
    ) -> Result<Option<&'static str>, Impossible> {
        match (self.goal(), power) {
            (Goal::On, Power::On) | (Goal::Off, Power::Off) => return Ok(None),
            (Goal::Restarted, Power::Off) => return Err(Impossible::HostIsOff),
            (Goal::On | Goal::Off | Goal::Restarted, _) => {}
        }
        let wanted = self.reset_types();
        let is_offered = |wanted: &str| offered.is_none_or(|offered| offered.iter().any(|one| one == wanted));
        let chosen = wanted.iter().copied().find(|wanted| is_offered(wanted));
        chosen.map(Some).ok_or(Impossible::NotOffered { wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_what_is_offered_is_sent() {
        let all = [
            "On",
            "ForceOff",
            "GracefulShutdown",
            "GracefulRestart",
            "ForceRestart",
            "PowerCycle",
        ];
        let hard = ["ForceOn", "ForceOff", "ForceRestart"];
        let cycle = ["PowerCycle"];
        for (action, power, offered, expected) in [
            (Action::Reboot, Power::On, Some(&all[..]), "GracefulRestart"),
            (Action::Reboot, Power::On, Some(&hard[..]), "ForceRestart"),
            (Action::Reboot, Power::On, Some(&cycle[..]), "PowerCycle"),
            (Action::Reboot, Power::Unknown, None, "GracefulRestart"),
            (Action::Reboot, Power::PoweringOff, None, "GracefulRestart"),
            (Action::ForceReboot, Power::On, Some(&all[..]), "ForceRestart"),
            (Action::On, Power::Off, Some(&all[..]), "On"),
            (Action::On, Power::Off, Some(&hard[..]), "ForceOn"),
            (Action::Off, Power::On, Some(&all[..]), "GracefulShutdown"),
            (Action::Off, Power::On, Some(&hard[..]), "ForceOff"),
            (Action::ForceOff, Power::On, Some(&all[..]), "ForceOff"),
        ] {
            let offered: Option<Vec<String>> =
                offered.map(|all| all.iter().map(|&one| one.to_owned()).collect());
            let sent = action.decide(power, offered.as_deref());
            assert_eq!(sent, Ok(Some(expected)), "{action:?} {power:?} {offered:?}");
        }
    }

    #[test]
    fn nothing_is_sent_for_a_reached_or_impossible_goal() {
        for (action, power, expected) in [
            (Action::On, Power::On, Ok(None)),
            (Action::Off, Power::Off, Ok(None)),
            (Action::ForceOff, Power::Off, Ok(None)),
            (Action::Reboot, Power::Off, Err(Impossible::HostIsOff)),
            (Action::ForceReboot, Power::Off, Err(Impossible::HostIsOff)),
        ] {
            assert_eq!(action.decide(power, None), expected, "{action:?}");
        }
        let wanted = &["ForceRestart", "PowerCycle"];
        assert_eq!(
            Action::ForceReboot.decide(Power::On, Some(&["On".to_owned()])),
            Err(Impossible::NotOffered { wanted })
        );
    }
}
