//! `sipctl lose`: which members the clusters would lose if a failure domain failed.

use anyhow::Context as _;
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL;
use placement::whatif::{Loss, lose_domain};
use placement::{Domain, LabelKey, LabelValue};
use serde::Serialize;

use crate::input::Input;
use crate::output::Output;
use crate::plan::{after_plan, held};

/// Which hosts a cluster is taken to have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Members {
    /// Those that labels and statuses name.
    Held,
    /// Those that it has once the plan for the same input is carried out.
    Planned,
}

/// What every cluster of an input would lose if all hosts of a domain were gone.
#[must_use]
pub fn losses(input: &Input, domain: &Domain, members: Members) -> Vec<Loss> {
    let (site, members) = match members {
        Members::Held => held(input),
        Members::Planned => after_plan(input),
    };
    let clusters = members.iter().map(|(cluster, members)| (cluster, &**members));
    lose_domain(&site, clusters, domain)
}

/// Parses a domain from `KEY=VALUE`.
///
/// # Errors
/// A sentence that says which part is no label key or value.
pub fn parse_domain(text: &str) -> Result<Domain, String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} is not KEY=VALUE, e.g. vino.airshipit.org/rack=r006"))?;
    Ok(Domain {
        key: key.parse::<LabelKey>().map_err(|error| error.to_string())?,
        value: value.parse::<LabelValue>().map_err(|error| error.to_string())?,
    })
}

/// The losses as JSON and YAML. Fields are only ever added.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LossesOutput {
    domain: String,
    losses: Vec<LossOutput>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LossOutput {
    cluster: String,
    role: String,
    members: u32,
    failed: u32,
    lost: u32,
    loses_majority: bool,
}

/// Prints the losses.
///
/// # Errors
/// None that is known: there are only texts, numbers and lists to write.
pub fn print(domain: &Domain, losses: &[Loss], output: Output) -> anyhow::Result<String> {
    let listed = || LossesOutput {
        domain: domain.to_string(),
        losses: losses.iter().map(loss_output).collect(),
    };
    Ok(match output {
        Output::Table => table(domain, losses),
        Output::Json => {
            serde_json::to_string_pretty(&listed()).context("the losses cannot be written as JSON")? + "\n"
        }
        Output::Yaml => serde_saphyr::to_string(&listed()).context("the losses cannot be written as YAML")?,
    })
}

fn loss_output(loss: &Loss) -> LossOutput {
    let Loss {
        cluster,
        role,
        members,
        failed,
        lost,
    } = loss;
    LossOutput {
        cluster: cluster.to_string(),
        role: role.to_string(),
        members: *members,
        failed: *failed,
        lost: *lost,
        loses_majority: loss.loses_majority(),
    }
}

fn table(domain: &Domain, losses: &[Loss]) -> String {
    if losses.is_empty() {
        return format!("No cluster has a running member in {domain}.\n");
    }
    let mut table = Table::new();
    table.load_style(UTF8_FULL);
    table.set_header(["Cluster", "Role", "Members", "Failed", "Lost", "Majority left"]);
    for loss in losses {
        let left = if loss.loses_majority() { "no" } else { "yes" };
        table.add_row([
            loss.cluster.to_string(),
            loss.role.to_string(),
            loss.members.to_string(),
            loss.failed.to_string(),
            loss.lost.to_string(),
            left.to_owned(),
        ]);
    }
    format!("Without {domain}:\n{table}\n")
}
