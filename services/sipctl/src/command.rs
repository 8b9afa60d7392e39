//! Runs a command: reads, plans, prints.

use std::io::Write;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::cli::{Cli, Command, Lose, Output, Plan};
pub use crate::ending::Ending;
use crate::input::Input;
use crate::lose::Members;
use crate::output::write;
use crate::plan::{self, plan};
#[cfg(feature = "region")]
use crate::region;
use crate::{files, lose, table};

/// Runs a command. `out` takes its result, `notes` what people should know beside it.
///
/// # Errors
/// The input cannot be read, or the output not be written.
pub fn run(cli: Cli, out: &mut dyn Write, notes: &mut dyn Write) -> anyhow::Result<Ending> {
    let Cli { command } = cli;
    match command {
        Command::Plan(arguments) => offline(arguments, out, notes),
        Command::Lose(arguments) => lose(arguments, out, notes),
        #[cfg(feature = "region")]
        Command::Region(command) => region::command::run(command, out, notes),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sipctl", &mut script);
            write(out, &script)?;
            Ok(Ending::Done)
        }
    }
}

fn offline(arguments: Plan, out: &mut dyn Write, notes: &mut dyn Write) -> anyhow::Result<Ending> {
    let Plan {
        files: paths,
        namespace,
        cluster,
        policy,
        output,
    } = arguments;
    let policy = files::policy_or_default(policy.as_deref())?;
    let input = Input::new(files::documents(&paths)?, &namespace, policy)?;
    for note in input.notes() {
        writeln!(notes, "note: {note}").context("cannot write to standard error")?;
    }
    if input.has_no_cluster() {
        writeln!(notes, "note: no SIPCluster is in the input").context("cannot write to standard error")?;
    }
    let mut plan = plan(&input);
    if let Some(cluster) = &cluster {
        plan = plan.only(cluster)?;
    }
    write(out, print(&plan, output)?.as_bytes())?;
    Ok(if plan.report().all_placed() {
        Ending::Done
    } else {
        Ending::NotPlaced
    })
}

fn lose(arguments: Lose, out: &mut dyn Write, notes: &mut dyn Write) -> anyhow::Result<Ending> {
    let Lose {
        domain,
        planned,
        files: paths,
        namespace,
        output,
    } = arguments;
    let input = Input::new(
        files::documents(&paths)?,
        &namespace,
        placement::Policy::default(),
    )?;
    for note in input.notes() {
        writeln!(notes, "note: {note}").context("cannot write to standard error")?;
    }
    let members = if planned { Members::Planned } else { Members::Held };
    let losses = lose::losses(&input, &domain, members);
    write(out, lose::print(&domain, &losses, output)?.as_bytes())?;
    let any = losses.iter().any(placement::whatif::Loss::loses_majority);
    Ok(if any { Ending::MajorityLost } else { Ending::Done })
}

/// A plan as it is printed.
///
/// # Errors
/// None that is known: the contract has only texts, numbers, lists and mappings with texts as keys.
pub fn print(plan: &plan::Plan, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Table => table::render(plan),
        Output::Json => {
            serde_json::to_string_pretty(&plan.report()).context("the plan cannot be written as JSON")? + "\n"
        }
        Output::Yaml => {
            serde_saphyr::to_string(&plan.report()).context("the plan cannot be written as YAML")?
        }
    })
}
