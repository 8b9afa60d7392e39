//! A rehearsal as it is printed.

use std::fmt::Write as _;

use super::rehearsal::{Rehearsal, Rehearsed};
use crate::output::Output;
use crate::report::Remark;

/// A rehearsal in the format that was requested.
///
/// # Errors
/// None that is known: it has only texts and lists.
pub(super) fn print(rehearsal: &Rehearsal, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Table => text(rehearsal),
        Output::Json => serde_json::to_string_pretty(rehearsal)? + "\n",
        Output::Yaml => serde_saphyr::to_string(rehearsal)?,
    })
}

fn text(rehearsal: &Rehearsal) -> String {
    let Rehearsal {
        site,
        exported,
        observed,
        raised,
        clusters,
        conflicts,
    } = rehearsal;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |words: &str| {
        let _ = writeln!(text, "{words}");
    };
    line(&match raised {
        None => format!("Site {site} is at {exported} in the export; it states nothing beyond that."),
        Some(raised) => format!(
            "Site {site} is at {exported} in the export and states {observed}: it would continue at {raised}."
        ),
    });
    let (mut hosts, mut found) = (0, conflicts.len());
    for Rehearsed {
        cluster,
        keeps,
        reported,
        conflicts,
    } in clusters
    {
        hosts += keeps.len();
        found += conflicts.len();
        line(&format!("SIPCluster {cluster}"));
        for host in keeps {
            line(&format!("  kept      {host}"));
        }
        for Remark { message, .. } in reported {
            line(&format!("  reported  {message}"));
        }
        for Remark { message, .. } in conflicts {
            line(&format!("  CONFLICT  {message}"));
        }
    }
    if !conflicts.is_empty() {
        line("Hosts of no SIPCluster");
        for Remark { message, .. } in conflicts {
            line(&format!("  CONFLICT  {message}"));
        }
    }
    let clusters = clusters.len();
    line(&match found {
        0 => format!("{hosts} hosts of {clusters} SIPClusters stay as they are; nothing is in conflict."),
        _ => format!("{hosts} hosts of {clusters} SIPClusters stay as they are; {found} in conflict."),
    });
    text
}
