//! What is printed: tables and sentences for users, JSON for programs. Progress goes to standard error.

use std::io::{self, Write as _};

use comfy_table::{ContentArrangement, Table, presets};
use proto::power::v1::{
    Accepted, Done, GetConsoleResponse, GetHostResponse, Host, ListHostsResponse, Observed, PowerState, Sent,
    SetPowerResponse, set_power_response::Step,
};
use serde::Serialize;

use crate::{arguments::Format, failure::Failure};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HostOutput<'a> {
    name: &'a str,
    namespace: &'a str,
    ordinal_name: &'a str,
    role: &'a str,
    power_state: &'static str,
    provisioning_state: &'a str,
    blocked: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListOutput<'a> {
    cluster: &'a str,
    hosts: Vec<HostOutput<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusOutput<'a> {
    #[serde(flatten)]
    host: HostOutput<'a>,
    boot_progress: &'a str,
    offered: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConsoleOutput<'a> {
    kind: &'a str,
    protocol: &'a str,
    url: &'a str,
    command: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConsolesOutput<'a> {
    host: &'a str,
    consoles: Vec<ConsoleOutput<'a>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct OutcomeOutput {
    host: String,
    reset_type: String,
    power_state: &'static str,
    changed: bool,
    notes: Vec<String>,
}

fn power(state: PowerState) -> &'static str {
    match state {
        PowerState::Unspecified => "unknown",
        PowerState::On => "on",
        PowerState::Off => "off",
        PowerState::PoweringOn => "powering on",
        PowerState::PoweringOff => "powering off",
        PowerState::Paused => "paused",
    }
}

fn host(host: &Host) -> HostOutput<'_> {
    HostOutput {
        name: &host.name,
        namespace: &host.namespace,
        ordinal_name: &host.ordinal_name,
        role: &host.role,
        power_state: power(host.power_state()),
        provisioning_state: &host.provisioning_state,
        blocked: &host.blocked,
    }
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

fn print_table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Result<(), Failure> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    // What is in columns to the right is blank.
    let mut out = io::stdout().lock();
    for line in table.lines() {
        writeln!(out, "{}", line.trim())?;
    }
    Ok(())
}

fn row(host: &HostOutput<'_>) -> Vec<String> {
    let HostOutput {
        name,
        namespace,
        ordinal_name,
        role,
        power_state,
        provisioning_state,
        blocked,
    } = host;
    [
        name,
        namespace,
        ordinal_name,
        role,
        power_state,
        provisioning_state,
        blocked,
    ]
    .map(|cell| (*cell).to_owned())
    .into()
}

const LIST_COLUMNS: [&str; 7] = [
    "NAME",
    "NAMESPACE",
    "ORDINAL",
    "ROLE",
    "POWER",
    "PROVISIONING",
    "BLOCKED",
];

pub(crate) fn list(format: Format, listed: &ListHostsResponse) -> Result<(), Failure> {
    let hosts: Vec<_> = listed.hosts.iter().map(host).collect();
    match format {
        Format::Json => print_json(&ListOutput {
            cluster: &listed.cluster,
            hosts,
        }),
        Format::Table if hosts.is_empty() => {
            eprintln!("{} holds no hosts", listed.cluster);
            Ok(())
        }
        Format::Table => print_table(&LIST_COLUMNS, hosts.iter().map(row)),
    }
}

pub(crate) fn status(format: Format, got: &GetHostResponse) -> Result<(), Failure> {
    let unknown = Host::default();
    let shown = host(got.host.as_ref().unwrap_or(&unknown));
    match format {
        Format::Json => print_json(&StatusOutput {
            host: shown,
            boot_progress: &got.boot_progress,
            offered: &got.offered,
        }),
        Format::Table => print_table(&LIST_COLUMNS, [row(&shown)]),
    }
}

pub(crate) fn consoles(format: Format, got: &GetConsoleResponse) -> Result<(), Failure> {
    let consoles: Vec<_> = got
        .consoles
        .iter()
        .map(|console| ConsoleOutput {
            kind: &console.kind,
            protocol: &console.protocol,
            url: &console.url,
            command: &console.command,
        })
        .collect();
    match format {
        Format::Json => print_json(&ConsolesOutput {
            host: &got.host,
            consoles,
        }),
        Format::Table if consoles.is_empty() => {
            println!("{}: its BMC offers no console", got.host);
            Ok(())
        }
        Format::Table => {
            let rows = consoles.iter().map(|console| {
                let ConsoleOutput {
                    kind,
                    protocol,
                    url,
                    command,
                } = console;
                [kind, protocol, url, command]
                    .map(|cell| (*cell).to_owned())
                    .into()
            });
            print_table(&["KIND", "PROTOCOL", "URL", "COMMAND"], rows)
        }
    }
}

/// The steps of an action that the service has reported, and the result.
pub(crate) struct Outcome {
    format: Format,
    output: OutcomeOutput,
    /// How many steps were printed, and how many came since the last request: a repetition begins with the first step again.
    printed: usize,
    came: usize,
}

impl Outcome {
    pub(crate) fn new(format: Format) -> Self {
        Self {
            format,
            output: OutcomeOutput::default(),
            printed: 0,
            came: 0,
        }
    }

    /// A repeated request yields the steps from the first one again.
    pub(crate) fn restart(&mut self) {
        self.came = 0;
    }

    pub(crate) fn step(&mut self, answer: &SetPowerResponse) -> Result<(), Failure> {
        let Some(step) = &answer.step else {
            return Ok(());
        };
        self.came += 1;
        if self.came <= self.printed {
            return Ok(());
        }
        self.printed += 1;
        let mut progress = io::stderr().lock();
        match step {
            Step::Accepted(accepted) => {
                let state = power(accepted.power_state());
                let Accepted {
                    host,
                    power_state: _,
                    reset_type,
                    notes,
                } = accepted;
                host.clone_into(&mut self.output.host);
                reset_type.clone_into(&mut self.output.reset_type);
                notes.clone_into(&mut self.output.notes);
                if reset_type.is_empty() {
                    writeln!(progress, "{host} is {state}")?;
                } else {
                    writeln!(progress, "{host} is {state}; sending {reset_type}")?;
                }
                for note in notes {
                    writeln!(progress, "note: {note}")?;
                }
            }
            Step::Sent(Sent {}) => writeln!(progress, "its BMC has accepted the action")?,
            Step::Observed(observed) => {
                let state = power(observed.power_state());
                let Observed {
                    power_state: _,
                    boot_progress,
                } = observed;
                if boot_progress.is_empty() {
                    writeln!(progress, "it is {state}")?;
                } else {
                    writeln!(progress, "it is {state} ({boot_progress})")?;
                }
            }
            Step::Done(done) => {
                self.output.power_state = power(done.power_state());
                let Done {
                    power_state: _,
                    changed,
                } = done;
                self.output.changed = *changed;
            }
        }
        Ok(())
    }

    /// Prints what the action has led to.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        let OutcomeOutput {
            host,
            reset_type,
            power_state,
            changed,
            notes: _,
        } = &self.output;
        match self.format {
            Format::Json => print_json(&self.output),
            Format::Table if *changed => {
                println!("{host}: {reset_type} is done, the host is {power_state}");
                Ok(())
            }
            Format::Table => {
                println!("{host}: nothing to do, the host is {power_state}");
                Ok(())
            }
        }
    }
}
