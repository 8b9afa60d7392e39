//! Maintenance of hosts and domains: `sipctl cordon`, `uncordon`, `replace`, `mark-failed`, `confirm-release`.
//!
//! A host is annotated on its site's API server, with the rights of whoever asks; the cluster agent reports it. A domain is
//! written into the site's policy: a file, or a `ConfigMap` from which the scheduler's file comes. Neither needs the scheduler.

mod access;
mod domain;
mod host;
mod release;

use std::path::PathBuf;

use api::annotations;
use placement::{Domain, HostName};

use crate::region::{executor::block_on, outcome::Outcome};
pub use access::Access;
pub use domain::PolicyArgs;
use host::Change;

/// What is cordoned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One host.
    Host(HostName),
    /// All hosts that carry a label.
    Domain(Domain),
}

/// Parses `NS/NAME` or `KEY=VALUE`.
///
/// # Errors
/// What is expected.
pub fn target(text: &str) -> Result<Target, String> {
    if text.contains('=') {
        return crate::lose::parse_domain(text).map(Target::Domain);
    }
    let host = text.parse().map(Target::Host);
    host.map_err(|error: placement::NameError| format!("expected NS/NAME or KEY=VALUE: {error}"))
}

/// Cordon or uncordon.
#[derive(Debug, clap::Args)]
pub struct Mark {
    /// The BareMetalHost, or the label of all hosts of the domain
    #[arg(value_name = "NS/NAME|KEY=VALUE", value_parser = target)]
    target: Target,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    access: Access,
    /// Print what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Something that is asked of one host.
#[derive(Debug, clap::Args)]
pub struct Request {
    /// The BareMetalHost
    #[arg(value_name = "NS/NAME", value_parser = |text: &str| text.parse::<HostName>())]
    host: HostName,
    /// Remove the annotation that this command sets
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    access: Access,
    /// Print what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// The confirmation of a release.
#[derive(Debug, clap::Args)]
pub struct Confirmation {
    /// The BareMetalHost
    #[arg(value_name = "NS/NAME", value_parser = |text: &str| text.parse::<HostName>())]
    host: HostName,
    #[command(flatten)]
    access: Access,
    /// Print what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

const CORDON: Change = Change {
    set: &[annotations::CORDONED],
    clear: &[],
    effect: "No new claim takes it; a member on it stays where it is.",
    done: "it is cordoned",
};
const UNCORDON: Change = Change {
    set: &[],
    clear: &[annotations::CORDONED, annotations::REPLACE],
    effect: "New claims may take it again, unless another annotation or the site policy excludes it. A member on it is not moved,\n\
             unless its replacement is bound already.",
    done: "it is not cordoned",
};
const REPLACE: Change = Change {
    set: &[annotations::REPLACE],
    clear: &[],
    effect: "A cluster that holds it gets another host in its place, one of a cluster at a time, and keeps this one until the\n\
             other one is bound. No new claim takes it until it is uncordoned.",
    done: "its replacement is requested",
};
const KEEP: Change = Change {
    set: &[],
    clear: &[annotations::REPLACE],
    effect: "Its member stays, unless its replacement is bound already or it is marked as failed. New claims may take it\n\
             again, unless another annotation or the site policy excludes it.",
    done: "its replacement is not requested",
};
const FAIL: Change = Change {
    set: &[annotations::FAILED],
    clear: &[],
    effect: "A cluster that holds it gets another host in its place as soon as there is one, within the limits, and releases\n\
             this one. No new claim takes it.",
    done: "it is marked as failed",
};
const MEND: Change = Change {
    set: &[],
    clear: &[annotations::FAILED],
    effect: "Its member is not replaced, unless it has been already or another annotation marks it as failed. New claims may\n\
             take it again, unless another annotation or the site policy excludes it.",
    done: "it is not marked as failed",
};

/// Runs `cordon`, or `uncordon`.
///
/// # Errors
/// When the API server cannot be asked, or the policy not be read or written.
pub fn cordon(command: Mark, cordoned: bool) -> anyhow::Result<Outcome> {
    let Mark {
        target,
        policy,
        access,
        dry_run,
    } = command;
    let location = policy.location();
    match (target, location) {
        (Target::Host(_), Some(_)) => {
            anyhow::bail!("--policy and --policy-configmap are for domains, and this is a host")
        }
        (Target::Host(host), None) => {
            let change = if cordoned { CORDON } else { UNCORDON };
            block_on(host::mark(access, host, change, dry_run))
        }
        (Target::Domain(domain), None) => {
            Ok(Outcome::refused(String::new(), domain::missing_policy(&domain)))
        }
        (Target::Domain(domain), Some(location)) => {
            block_on(domain::mark(location, access, domain, cordoned, dry_run))
        }
    }
}

/// Runs `replace`.
///
/// # Errors
/// When the API server cannot be asked.
pub fn replace(command: Request) -> anyhow::Result<Outcome> {
    let change = if command.undo { KEEP } else { REPLACE };
    one(command, change)
}

/// Runs `mark-failed`.
///
/// # Errors
/// When the API server cannot be asked.
pub fn mark_failed(command: Request) -> anyhow::Result<Outcome> {
    let change = if command.undo { MEND } else { FAIL };
    one(command, change)
}

/// Runs `confirm-release`.
///
/// # Errors
/// When the API server cannot be asked.
pub fn confirm_release(command: Confirmation) -> anyhow::Result<Outcome> {
    let Confirmation {
        host,
        access,
        dry_run,
    } = command;
    block_on(release::confirm(access, host, dry_run))
}

fn one(command: Request, change: Change) -> anyhow::Result<Outcome> {
    let Request {
        host,
        undo: _,
        access,
        dry_run,
    } = command;
    block_on(host::mark(access, host, change, dry_run))
}

/// Where a site's policy is.
#[derive(Clone, Debug)]
enum PolicyLocation {
    /// A file.
    File(PathBuf),
    /// A key of a `ConfigMap`.
    ConfigMap {
        namespace: String,
        name: String,
        key: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_or_a_domain() {
        assert!(matches!(target("metal/h1"), Ok(Target::Host(_))));
        assert!(matches!(target("example.org/rack=r1"), Ok(Target::Domain(_))));
        for bad in ["h1", "metal/", "=r1", "a/b/c"] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }
}
