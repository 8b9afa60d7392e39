//! The roles of a cluster: how many hosts, which ones, and how they are spread.

use std::time::Duration;

use vocabulary::{LabelKey, RoleName, Selector};

use super::selector;
use crate::fault::Fault;
use crate::sip_cluster::{NodeCount, NodeSet};

/// Time that a host may be in error where a role opts in without a duration.
const DEFAULT_ERROR_GRACE: Duration = Duration::from_mins(10);

/// A checked role.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Role {
    name: RoleName,
    selector: Selector,
    topology_key: Option<LabelKey>,
    active: u32,
    standby: u32,
    replace_after_error: Option<Duration>,
}

impl Role {
    /// Name, unique in the cluster.
    #[must_use]
    pub fn name(&self) -> &RoleName {
        &self.name
    }

    /// Which hosts may serve.
    #[must_use]
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// At most one member per value of this label; `None`: no such limit.
    #[must_use]
    pub fn topology_key(&self) -> Option<&LabelKey> {
        self.topology_key.as_ref()
    }

    /// Hosts at work.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.active
    }

    /// Slack for upgrades, in hosts.
    #[must_use]
    pub fn standby(&self) -> u32 {
        self.standby
    }

    /// Hosts that the role wants: active and standby. Parsing has shown that the sum does not overflow.
    #[must_use]
    pub fn wanted(&self) -> u32 {
        self.active.saturating_add(self.standby)
    }

    /// How long a member may be in error before it counts as failed; `None`: error is never failure.
    #[must_use]
    pub fn replace_after_error(&self) -> Option<Duration> {
        self.replace_after_error
    }
}

pub(super) fn parse(name: &str, set: &NodeSet, faults: &mut Vec<Fault>) -> Option<Role> {
    let path = format!("spec.nodes[{name}]");
    let NodeSet {
        label_selector,
        topology_key,
        count,
        replace_after_error,
    } = set;
    let name = role_name(name, &path, faults);
    let selector = selector::parse(label_selector.as_ref(), &format!("{path}.labelSelector"), faults);
    let topology_key = key(topology_key.as_deref(), &format!("{path}.topologyKey"), faults);
    let counts = counts(count.as_ref(), &format!("{path}.count"), faults);
    let replace_after_error = duration(
        replace_after_error.as_deref(),
        &format!("{path}.replaceAfterError"),
        faults,
    );
    let (active, standby) = counts?;
    Some(Role {
        name: name?,
        selector: selector?,
        topology_key,
        active,
        standby,
        replace_after_error,
    })
}

fn role_name(name: &str, path: &str, faults: &mut Vec<Fault>) -> Option<RoleName> {
    RoleName::new(name)
        .map_err(|error| {
            let rule = if name.is_empty() {
                error.rule.to_owned()
            } else {
                let label = crate::labels::NODE_TYPE;
                format!("the name of a role becomes the label {label}: {}", error.rule)
            };
            faults.push(Fault::text(path, name, rule));
        })
        .ok()
}

/// As in SIP, an empty key is no key.
fn key(text: Option<&str>, path: &str, faults: &mut Vec<Fault>) -> Option<LabelKey> {
    let text = text.filter(|text| !text.is_empty())?;
    selector::label_key(text, path, faults)
}

fn counts(count: Option<&NodeCount>, path: &str, faults: &mut Vec<Fault>) -> Option<(u32, u32)> {
    let Some(NodeCount { active, standby }) = count else {
        faults.push(Fault::absent(
            path,
            "must be set: the number of hosts of the role",
        ));
        return None;
    };
    let active = number(active.unwrap_or_default(), &format!("{path}.active"), faults);
    let standby = number(standby.unwrap_or_default(), &format!("{path}.standby"), faults);
    let (active, standby) = (active?, standby?);
    if active.checked_add(standby).is_none() {
        let sum = format!("{active} + {standby}");
        faults.push(Fault::new(
            path,
            sum,
            format!("active and standby together must be at most {}", u32::MAX),
        ));
        return None;
    }
    Some((active, standby))
}

fn number(value: i64, path: &str, faults: &mut Vec<Fault>) -> Option<u32> {
    let rule = if value < 0 {
        "must not be negative".to_owned()
    } else {
        format!("must be at most {}", u32::MAX)
    };
    u32::try_from(value)
        .map_err(|_| faults.push(Fault::new(path, value, rule)))
        .ok()
}

fn duration(text: Option<&str>, path: &str, faults: &mut Vec<Fault>) -> Option<Duration> {
    let text = text?;
    if text.is_empty() {
        return Some(DEFAULT_ERROR_GRACE);
    }
    let parsed = text
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok());
    if parsed.is_none() {
        faults.push(Fault::text(
            path,
            text,
            "must be a duration that is not negative, such as 30m or 1h30m, or empty for 10 minutes",
        ));
    }
    parsed
}
