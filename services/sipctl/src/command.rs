//! Runs a command: reads, plans, prints.

use std::io::{self, Write};

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::cli::{Adopt, Cli, Command, Lose, Output, Plan, Site};
pub use crate::ending::Ending;
use crate::executor::block_on;
use crate::input::Input;
use crate::operate;
use crate::outcome::Outcome;
use crate::plan::{self, plan};
use crate::{adopt, certs, files, kubeconfig, ledger, loss, maintenance, one_line, repair, site, ssh, table};

/// Runs a command. `out` takes its result, `notes` what people should know beside it.
///
/// # Errors
/// The input cannot be read, or the output not be written.
pub fn run(cli: Cli, out: &mut dyn Write, notes: &mut dyn Write) -> anyhow::Result<Ending> {
    let Cli { command } = cli;
    match command {
        Command::Plan(arguments) => offline(arguments, out, notes),
        Command::Adopt(arguments) => adopt(arguments, out, notes),
        Command::Lose(arguments) => lose(arguments, out, notes),
        Command::Ledger { action } => {
            let (text, ending) = ledger::run(action)?;
            write(out, text.as_bytes())?;
            Ok(ending)
        }
        Command::Certs { action } => {
            let (text, ending) = certs::run(action)?;
            write(out, text.as_bytes())?;
            Ok(ending)
        }
        Command::Site {
            action: Site::ResetFence(command),
        } => print_outcome(&operate::reset_fence(command)?, out, notes),
        Command::Site {
            action: Site::Repair(command),
        } => print_outcome(&repair::repair(command)?, out, notes),
        Command::ReleaseOrphan(command) => print_outcome(&operate::release_orphan(command)?, out, notes),
        Command::Cordon(command) => print_outcome(&maintenance::cordon(command, true)?, out, notes),
        Command::Uncordon(command) => print_outcome(&maintenance::cordon(command, false)?, out, notes),
        Command::Replace(command) => print_outcome(&maintenance::replace(command)?, out, notes),
        Command::MarkFailed(command) => print_outcome(&maintenance::mark_failed(command)?, out, notes),
        Command::ConfirmRelease(command) => {
            print_outcome(&maintenance::confirm_release(command)?, out, notes)
        }
        Command::Kubeconfig(request) => print_outcome(&kubeconfig::run(request)?, out, notes),
        Command::SshConfig(command) => print_outcome(&ssh::config(command)?, out, notes),
        Command::Ssh(command) => Ok(Ending::Ran(ssh::run(command)?)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sipctl", &mut script);
            write(out, &script)?;
            Ok(Ending::Done)
        }
    }
}

fn print_outcome(outcome: &Outcome, out: &mut dyn Write, notes: &mut dyn Write) -> anyhow::Result<Ending> {
    write(out, outcome.text.as_bytes())?;
    if let Some(refusal) = &outcome.refusal {
        writeln!(notes, "refused: {}", one_line(refusal, 4096)).context("cannot write to standard error")?;
    }
    Ok(match outcome.refusal {
        Some(_) => Ending::Refused,
        None => Ending::Done,
    })
}

fn offline(arguments: Plan, out: &mut dyn Write, notes: &mut dyn Write) -> anyhow::Result<Ending> {
    let Plan {
        files: paths,
        namespace,
        cluster,
        policy,
        output,
    } = arguments;
    let policy = policy
        .as_deref()
        .map(files::policy)
        .transpose()?
        .unwrap_or_default();
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

fn adopt(arguments: Adopt, out: &mut dyn Write, notes: &mut dyn Write) -> anyhow::Result<Ending> {
    let Adopt {
        dry_run: _,
        files: paths,
        namespace,
        policy,
        access,
        output,
    } = arguments;
    let policy = policy
        .as_deref()
        .map(files::policy)
        .transpose()?
        .unwrap_or_default();
    let documents = if paths.is_empty() {
        block_on(async { site::documents(&access.client().await?).await })?
    } else {
        files::documents(&paths)?
    };
    let input = Input::new(documents, &namespace, policy)?;
    if input.has_no_cluster() {
        writeln!(notes, "note: there is no SIPCluster").context("cannot write to standard error")?;
    }
    let adoption = adopt::adoption(&input);
    write(out, adopt::print(&adoption, output)?.as_bytes())?;
    Ok(if adoption.is_clean() {
        Ending::Done
    } else {
        Ending::InConflict
    })
}

fn lose(arguments: Lose, out: &mut dyn Write, notes: &mut dyn Write) -> anyhow::Result<Ending> {
    let Lose {
        domain,
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
    let losses = loss::losses(&input, &domain);
    write(out, loss::print(&domain, &losses, output)?.as_bytes())?;
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

/// Writes a result. A reader that has seen enough (`| head`) is no error.
fn write(out: &mut dyn Write, bytes: &[u8]) -> anyhow::Result<()> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write the result"),
    }
}
