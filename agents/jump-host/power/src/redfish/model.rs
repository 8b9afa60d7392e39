//! The resources of Redfish that power control reads, and what is made of them. Tolerant: everything is optional, as BMCs leave much out.

use serde::Deserialize;

use super::{failure::Failure, reference};
use crate::bmc::Address;

/// Reset types that are read of a response, at most.
const MAX_RESET_TYPES: usize = 32;
/// Characters of a text of a response that are kept at most.
const MAX_TEXT_CHARACTERS: usize = 128;

/// Whether a system has power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It has.
    On,
    /// It has not.
    Off,
    /// It is powered on.
    PoweringOn,
    /// It loses power.
    PoweringOff,
    /// It is paused.
    Paused,
    /// The BMC reports no state, or another one.
    Unknown,
}

impl Power {
    fn parse(text: Option<&str>) -> Self {
        match text {
            Some("On") => Self::On,
            Some("Off") => Self::Off,
            Some("PoweringOn") => Self::PoweringOn,
            Some("PoweringOff") => Self::PoweringOff,
            Some("Paused") => Self::Paused,
            Some(_) | None => Self::Unknown,
        }
    }
}

/// What a BMC shows of a system at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether it has power.
    pub power: Power,
    /// When it was reset last, as the BMC writes it.
    pub last_reset: Option<String>,
    /// Its boot progress, such as `OSRunning`.
    pub boot: Option<String>,
}

/// How a system is reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reset {
    pub(super) target: String,
    /// Values of `ResetType` that the system lists; `None`: it lists none.
    pub(super) offered: Option<Vec<String>>,
    /// Where the values are described otherwise.
    pub(super) info: Option<String>,
}

/// An enabled console of a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Console {
    /// `serial` or `graphical`.
    pub kind: &'static str,
    /// As the BMC names it.
    pub protocol: String,
    /// Where it is.
    pub url: String,
    /// What to type after the login; empty if the BMC states none.
    pub command: String,
}

/// A system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// What it shows now.
    pub reading: Reading,
    /// Ways to its console.
    pub consoles: Vec<Console>,
    pub(super) reset: Option<Reset>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct RawSystem {
    #[serde(rename = "@odata.id")]
    path: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[serde(rename = "UUID")]
    uuid: Option<String>,
    power_state: Option<String>,
    last_reset_time: Option<String>,
    boot_progress: Option<RawBootProgress>,
    actions: Option<RawActions>,
    serial_console: Option<RawSerialConsole>,
    graphical_console: Option<RawGraphicalConsole>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawBootProgress {
    last_state: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawActions {
    #[serde(rename = "#ComputerSystem.Reset")]
    reset: Option<RawReset>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawReset {
    target: Option<String>,
    #[serde(rename = "ResetType@Redfish.AllowableValues")]
    offered: Option<Vec<String>>,
    #[serde(rename = "@Redfish.ActionInfo")]
    info: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawSerialConsole {
    #[serde(rename = "SSH")]
    ssh: Option<RawConsole>,
    #[serde(rename = "Telnet")]
    telnet: Option<RawConsole>,
    #[serde(rename = "IPMI")]
    ipmi: Option<RawConsole>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawConsole {
    service_enabled: Option<bool>,
    port: Option<u16>,
    console_entry_command: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawGraphicalConsole {
    service_enabled: Option<bool>,
    port: Option<u16>,
    connect_types_supported: Option<Vec<String>>,
}

/// `ActionInfo`: the values of an action's parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct RawActionInfo {
    parameters: Option<Vec<RawParameter>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawParameter {
    name: Option<String>,
    allowable_values: Option<Vec<String>>,
}

/// The service root, as far as it states where sessions are created.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct RawRoot {
    links: Option<RawLinks>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawLinks {
    sessions: Option<RawLink>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawLink {
    #[serde(rename = "@odata.id")]
    id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RawError {
    error: RawErrorBody,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawErrorBody {
    message: Option<String>,
    #[serde(rename = "@Message.ExtendedInfo")]
    extended: Option<Vec<RawMessage>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawMessage {
    message: Option<String>,
}

impl RawRoot {
    /// Where sessions are made; `None` where there are none.
    pub(super) fn sessions(self) -> Option<String> {
        self.links?.sessions?.id
    }
}

impl RawActionInfo {
    /// The values of `ResetType`.
    pub(super) fn offered(self) -> Option<Vec<String>> {
        let mut parameters = self.parameters?.into_iter();
        let reset = parameters.find(|parameter| parameter.name.as_deref() == Some("ResetType"))?;
        reset.allowable_values.map(|values| listed(&values))
    }
}

impl RawSystem {
    /// Whether its `Id`, `Name` or `UUID` is this one.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let own = [&self.id, &self.name, &self.uuid];
        own.into_iter().flatten().any(|own| own == name)
    }

    /// The system, which was read from `path`.
    pub(super) fn parse(self, address: &Address, path: &str) -> Result<System, Failure> {
        let Self {
            path: id,
            id: _,
            name: _,
            uuid: _,
            power_state,
            last_reset_time,
            boot_progress,
            actions,
            serial_console,
            graphical_console,
        } = self;
        let not_redfish = |found: &str| Failure::NotRedfish {
            bmc: address.authority(),
            path: path.to_owned(),
            found: found.to_owned(),
        };
        let reset = actions.and_then(|actions| actions.reset);
        if power_state.is_none() && reset.is_none() {
            return Err(not_redfish("JSON that is no ComputerSystem"));
        }
        let reset = match reset {
            None => None,
            Some(RawReset {
                target,
                offered,
                info,
            }) => {
                let target = target.ok_or_else(|| not_redfish("a reset action without target"))?;
                let target = reference::path_on_bmc(address, &target)?;
                // A BMC serves many systems: the action must be this one's.
                let read = path.strip_suffix('/').unwrap_or(path);
                let id = id.as_deref().map(|id| id.strip_suffix('/').unwrap_or(id));
                let is_below = |own: &str| {
                    let rest = target.strip_prefix(own);
                    rest.is_some_and(|rest| rest.starts_with('/'))
                };
                if !is_below(read) || id.is_some_and(|id| id != read) {
                    return Err(not_redfish(
                        "another system, or with another system's reset action",
                    ));
                }
                Some(Reset {
                    target,
                    offered: offered.map(|values| listed(&values)),
                    info: info
                        .map(|info| reference::path_on_bmc(address, &info))
                        .transpose()?,
                })
            }
        };
        let RawBootProgress { last_state } = boot_progress.unwrap_or_default();
        Ok(System {
            reading: Reading {
                power: Power::parse(power_state.as_deref()),
                last_reset: last_reset_time.as_deref().map(truncated),
                boot: last_state.as_deref().map(truncated),
            },
            consoles: consoles(address, serial_console, graphical_console),
            reset,
        })
    }
}

fn consoles(
    address: &Address,
    serial: Option<RawSerialConsole>,
    graphical: Option<RawGraphicalConsole>,
) -> Vec<Console> {
    let authority = address.authority();
    let host = authority.rsplit_once(':').map_or(&*authority, |(host, _)| host);
    let RawSerialConsole { ssh, telnet, ipmi } = serial.unwrap_or_default();
    let mut found = Vec::new();
    for (protocol, scheme, port, console) in [
        ("SSH", "ssh", 22, ssh),
        ("Telnet", "telnet", 23, telnet),
        ("IPMI", "ipmi", 623, ipmi),
    ] {
        let RawConsole {
            service_enabled,
            port: given,
            console_entry_command,
        } = console.unwrap_or_default();
        if service_enabled == Some(true) {
            found.push(Console {
                kind: "serial",
                protocol: protocol.to_owned(),
                url: format!("{scheme}://{host}:{}", given.unwrap_or(port)),
                command: console_entry_command
                    .as_deref()
                    .map(truncated)
                    .unwrap_or_default(),
            });
        }
    }
    let RawGraphicalConsole {
        service_enabled,
        port,
        connect_types_supported,
    } = graphical.unwrap_or_default();
    if service_enabled == Some(true) {
        for protocol in listed(&connect_types_supported.unwrap_or_default()) {
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            found.push(Console {
                kind: "graphical",
                protocol,
                url: format!("https://{host}{port}/"),
                command: String::new(),
            });
        }
    }
    found
}

/// The path that a resource has by its own word.
pub(super) fn path(body: &[u8]) -> Option<String> {
    let RawLink { id } = serde_json::from_slice(body).ok()?;
    id
}

/// The message in an error of Redfish.
pub(super) fn error_message(body: &[u8]) -> Option<String> {
    let RawError {
        error: RawErrorBody { message, extended },
    } = serde_json::from_slice(body).ok()?;
    let extended = extended.into_iter().flatten().find_map(|info| info.message);
    extended.or(message)
}

fn listed(values: &[String]) -> Vec<String> {
    values
        .iter()
        .take(MAX_RESET_TYPES)
        .map(|value| truncated(value))
        .collect()
}

fn truncated(text: &str) -> String {
    let visible = text.chars().filter(|c| !c.is_control());
    visible.take(MAX_TEXT_CHARACTERS).collect()
}

#[cfg(test)]
mod tests;
