//! Runs a command that needs a region.

use std::io::Write;

use anyhow::Context as _;

use super::cli::{Adopt, Command, Site};
use super::executor::block_on;
use super::outcome::Outcome;
use super::sip_templates::{Templates, namespaces};
use super::{adopt, certs, kubeconfig, ledger, maintenance, operate, site, site_repair, ssh};
use crate::ending::Ending;
use crate::input::Input;
use crate::output::write;
use crate::{files, one_line};

/// Runs a command. `out` takes its result, `notes` what people should know beside it.
///
/// # Errors
/// The input cannot be read, or the output not be written.
pub fn run(command: Command, out: &mut dyn Write, notes: &mut dyn Write) -> anyhow::Result<Ending> {
    match command {
        Command::Adopt(arguments) => adopt(arguments, out, notes),
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
        } => print_outcome(&site_repair::repair(command)?, out, notes),
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

fn adopt(arguments: Adopt, out: &mut dyn Write, notes: &mut dyn Write) -> anyhow::Result<Ending> {
    let Adopt {
        dry_run: _,
        files: paths,
        namespace,
        agents_namespace,
        policy,
        access,
        output,
    } = arguments;
    let policy = files::policy_or_default(policy.as_deref())?;
    let (input, templates) = if paths.is_empty() {
        block_on(async {
            let client = access.client().await?;
            let input = Input::new(site::documents(&client).await?, &namespace, policy)?;
            let read = namespaces(&input).into_iter().chain([&agents_namespace]);
            let maps = site::template_config_maps(&client, read.collect()).await?;
            Ok((input, Templates::read(&maps, &namespace)))
        })?
    } else {
        let documents = files::documents(&paths)?;
        let templates = Templates::read(&documents, &namespace);
        if !templates.has_config_maps() {
            writeln!(
                notes,
                "note: there is no ConfigMap, so templates of load balancers are not checked"
            )
            .context("cannot write to standard error")?;
        }
        (Input::new(documents, &namespace, policy)?, templates)
    };
    if input.has_no_cluster() {
        writeln!(notes, "note: there is no SIPCluster").context("cannot write to standard error")?;
    }
    let templates = templates.customised(&input, &agents_namespace);
    let adoption = adopt::adoption(&input, templates);
    write(out, adopt::print(&adoption, output)?.as_bytes())?;
    Ok(if adoption.is_clean() {
        Ending::Done
    } else {
        Ending::InConflict
    })
}
