//! Domain types as protobuf.

use proto::power::v1 as wire;

use crate::{
    host::Host,
    members::Member,
    redfish::{Console, Power},
};

pub(crate) fn power(power: Power) -> wire::PowerState {
    match power {
        Power::On => wire::PowerState::On,
        Power::Off => wire::PowerState::Off,
        Power::PoweringOn => wire::PowerState::PoweringOn,
        Power::PoweringOff => wire::PowerState::PoweringOff,
        Power::Paused => wire::PowerState::Paused,
        Power::Unknown => wire::PowerState::Unspecified,
    }
}

/// A member; `host` is absent where it cannot be read, for the reason `why`.
pub(crate) fn host(member: &Member, host: Result<(&Host, Power), &str>) -> wire::Host {
    let Member {
        host: id,
        role,
        ordinal: _,
        state: _,
    } = member;
    let (state, shown, blocked) = match host {
        Ok((host, shown)) => (host.provisioning_state(), shown, host.blocked()),
        Err(why) => (String::new(), Power::Unknown, Some(why.to_owned())),
    };
    let leaving = member
        .is_releasing()
        .then(|| "the cluster releases it".to_owned());
    wire::Host {
        name: id.key().name.clone(),
        namespace: id.key().namespace.clone(),
        role: role.clone(),
        releasing: member.is_releasing(),
        provisioning_state: state,
        power_state: power(shown).into(),
        blocked: leaving.or(blocked).unwrap_or_default(),
        ordinal_name: member.ordinal_name().unwrap_or_default(),
    }
}

pub(crate) fn console(console: Console) -> wire::Console {
    let Console {
        kind,
        protocol,
        url,
        command,
    } = console;
    wire::Console {
        kind: kind.to_owned(),
        protocol,
        url,
        command,
    }
}
