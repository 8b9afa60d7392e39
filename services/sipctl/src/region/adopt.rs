//! `sipctl adopt --dry-run`: what happens to hosts that SIP has labelled when this project's agents take over. The decision and its messages are
//! those of `sipctl plan`, and so of the scheduler; this module only sorts them into kept, reported and in conflict.

use std::fmt::Write as _;

use serde::Serialize;

use crate::input::Input;
use crate::output::Output;
use crate::plan::{plan, unassignable};
use crate::report::{Change, Cluster, Outcome, Remark};

/// What would be kept, reported, and in conflict.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    /// Each SIPCluster, sorted by name.
    pub clusters: Vec<Adopted>,
    /// Hosts with labels that make them nobody's: neither a member nor free.
    pub strays: Vec<Remark>,
}

/// What becomes of one SIPCluster.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Adopted {
    /// The SIPCluster, `namespace/name`.
    pub cluster: String,
    /// Hosts that it keeps, each with its role. Nothing is written on them.
    pub keeps: Vec<String>,
    /// What people should know though it changes nothing.
    pub reported: Vec<Remark>,
    /// What would change, or cannot be decided: to be looked at before the agents start.
    pub conflicts: Vec<String>,
}

impl Adoption {
    /// Whether nothing is in conflict.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let Self { clusters, strays } = self;
        strays.is_empty() && clusters.iter().all(|cluster| cluster.conflicts.is_empty())
    }
}

/// Decides for every cluster of an input, as the scheduler will when it has adopted what is labelled.
#[must_use]
pub fn adoption(input: &Input) -> Adoption {
    let strays = unassignable(input);
    let report = plan(input).report();
    Adoption {
        clusters: report
            .clusters
            .into_iter()
            .map(|cluster| adopted(cluster, &strays))
            .collect(),
        strays,
    }
}

fn adopted(report: Cluster, strays: &[Remark]) -> Adopted {
    let Cluster {
        cluster,
        outcome,
        roles,
        release,
        reports,
        refusal,
    } = report;
    let (mut keeps, mut conflicts) = (Vec::new(), Vec::new());
    for (name, role) in &roles {
        for host in &role.hosts {
            match host.change {
                Change::Keep => keeps.push(format!("{} ({name})", host.host)),
                Change::Take => conflicts.push(format!("{} would be taken ({name})", host.host)),
            }
        }
    }
    for given in release {
        let (host, role, why) = (given.host, given.role, given.reason.as_str());
        conflicts.push(format!("{host} would be released ({role}): {why}"));
    }
    if outcome != Outcome::Placed {
        let why = refusal.map(|refusal| refusal.message).unwrap_or_default();
        conflicts.push(format!("{}: {why}", outcome.as_str()));
    }
    Adopted {
        cluster,
        keeps,
        reported: reports
            .into_iter()
            .filter(|remark| !strays.contains(remark))
            .collect(),
        conflicts,
    }
}

/// An adoption as it is printed.
///
/// # Errors
/// None that is known: it has only texts and lists.
pub fn print(adoption: &Adoption, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Table => text(adoption),
        Output::Json => serde_json::to_string_pretty(adoption)? + "\n",
        Output::Yaml => serde_saphyr::to_string(adoption)?,
    })
}

fn text(adoption: &Adoption) -> String {
    let Adoption { clusters, strays } = adoption;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |words: &str| {
        let _ = writeln!(text, "{words}");
    };
    let (mut hosts, mut conflicts) = (0, strays.len());
    for Adopted {
        cluster,
        keeps,
        reported,
        conflicts: found,
    } in clusters
    {
        hosts += keeps.len();
        conflicts += found.len();
        line(&format!("SIPCluster {cluster}"));
        for host in keeps {
            line(&format!("  kept      {host}"));
        }
        for remark in reported {
            line(&format!("  reported  {}", sentence(remark)));
        }
        for conflict in found {
            line(&format!("  CONFLICT  {conflict}"));
        }
    }
    if !strays.is_empty() {
        line("Hosts that no cluster holds");
        for stray in strays {
            line(&format!("  CONFLICT  {}", sentence(stray)));
        }
    }
    let clusters = clusters.len();
    line(&match conflicts {
        0 => format!("{hosts} hosts of {clusters} SIPClusters are kept as they are; nothing is in conflict."),
        _ => format!(
            "{hosts} hosts of {clusters} SIPClusters are kept as they are; {conflicts} in conflict: resolve these first."
        ),
    });
    text
}

fn sentence(remark: &Remark) -> String {
    match &remark.host {
        Some(host) => format!("{host}: {}", remark.message),
        None => remark.message.clone(),
    }
}
