//! `sipctl adopt --dry-run`: what happens to hosts that SIP has labelled when this project's agents take over. The decision and its messages are
//! those of `sipctl plan`, and so of the scheduler; this module only sorts them into kept, reported and in conflict.

use std::fmt::Write as _;

use serde::Serialize;

use crate::input::Input;
use crate::output::Output;
use crate::plan::{plan, unassignable};
use crate::region::sip_templates::CustomTemplate;
use crate::report::{Change, Cluster, Outcome, Remark};

/// Which hosts an adoption would keep, report, and find in conflict.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    /// Each SIPCluster, sorted by name.
    pub clusters: Vec<AdoptedCluster>,
    /// Hosts whose labels make them neither a member of a cluster nor free.
    pub strays: Vec<Remark>,
    /// Templates of load balancers that the site has changed.
    pub templates: Vec<CustomTemplate>,
}

/// What the adoption does with the hosts of one SIPCluster.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedCluster {
    /// The SIPCluster, `namespace/name`.
    pub cluster: String,
    /// Hosts that it keeps, each with its role. Nothing is written on them.
    pub keeps: Vec<String>,
    /// What people should know though it changes nothing.
    pub reported: Vec<Remark>,
    /// What would change, or cannot be decided: people must resolve it before the agents start.
    pub conflicts: Vec<String>,
}

impl Adoption {
    /// Whether nothing is in conflict.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let Self {
            clusters,
            strays,
            templates,
        } = self;
        strays.is_empty()
            && clusters.iter().all(|cluster| cluster.conflicts.is_empty())
            && templates.iter().all(|template| template.is_translated)
    }
}

/// Decides for every cluster of an input, as the scheduler will when it has adopted what is labelled. `templates`: those that the site has changed.
#[must_use]
pub fn adoption(input: &Input, templates: Vec<CustomTemplate>) -> Adoption {
    let strays = unassignable(input);
    let report = plan(input).report();
    Adoption {
        clusters: report
            .clusters
            .into_iter()
            .map(|cluster| adopted_cluster(cluster, &strays))
            .collect(),
        strays,
        templates,
    }
}

fn adopted_cluster(report: Cluster, strays: &[Remark]) -> AdoptedCluster {
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
    AdoptedCluster {
        cluster,
        keeps,
        reported: reports
            .into_iter()
            .filter(|remark| !strays.contains(remark))
            .collect(),
        conflicts,
    }
}

/// Prints an adoption.
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
    let Adoption {
        clusters,
        strays,
        templates,
    } = adoption;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |words: &str| {
        let _ = writeln!(text, "{words}");
    };
    let untranslated = templates.iter().filter(|template| !template.is_translated);
    let (mut hosts, mut conflicts) = (0, strays.len() + untranslated.count());
    for AdoptedCluster {
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
    if !templates.is_empty() {
        line("Templates of load balancers");
        for template in templates {
            let kind = if template.is_translated {
                "reported"
            } else {
                "CONFLICT"
            };
            line(&format!("  {kind}  {}", template.message()));
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
