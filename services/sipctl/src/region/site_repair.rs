//! `sipctl site repair`: a site's history continues above what the site shows.

use std::fmt::Write as _;

use proto::inventory::v1::{
    self as inventory, RepairSiteRequest, inventory_service_client::InventoryServiceClient,
};

use crate::one_line;
use crate::region::cli::Repair;
use crate::region::connection::{open, refused, timed};
use crate::region::executor::block_on;
use crate::region::outcome::{DRY_RUN, Outcome};

/// Maximum number of characters of one fault.
const MAX_FAULT_CHARACTERS: usize = 600;

/// Runs `site repair`.
///
/// # Errors
/// When the scheduler does not answer.
pub(crate) fn repair(command: Repair) -> anyhow::Result<Outcome> {
    let Repair {
        site,
        dry_run,
        connection,
    } = command;
    block_on(async {
        let (scheduler, channel) = open(connection)?;
        let request = RepairSiteRequest {
            site: site.clone(),
            dry_run,
        };
        let answer = InventoryServiceClient::new(channel)
            .repair_site(timed(request))
            .await;
        match answer {
            Ok(answer) => Ok(Outcome::done(statement(&site, &answer.into_inner(), dry_run))),
            Err(status) => Ok(Outcome::refused(String::new(), refused(&scheduler, &status)?)),
        }
    })
}

fn statement(site: &str, repaired: &inventory::RepairSiteResponse, dry_run: bool) -> String {
    let inventory::RepairSiteResponse {
        before,
        after,
        faults,
    } = repaired;
    let position = |at: &Option<inventory::Revision>| {
        let inventory::Revision { epoch, revision } = at.unwrap_or_default();
        format!("{epoch}.{revision}")
    };
    let (before, after) = (position(before), position(after));
    let site = one_line(site, MAX_FAULT_CHARACTERS);
    let mut text = if before == after {
        format!(
            "Nothing to repair: site {site} is at position {before}, and no host or status states a higher position that the scheduler can have issued.\n"
        )
    } else if dry_run {
        format!("Site {site} is at position {before} and would continue at {after}. No claim changes.\n")
    } else {
        format!("Done: site {site} was at position {before} and continues at {after}. No claim changes.\n")
    };
    for fault in faults {
        let inventory::HostRef { namespace, name, .. } = fault.host.clone().unwrap_or_default();
        let line = format!("Host {namespace}/{name} cannot be claimed: {}", fault.message);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", one_line(&line, MAX_FAULT_CHARACTERS));
    }
    if dry_run {
        text.push_str(DRY_RUN);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, revision: u64) -> inventory::Revision {
        inventory::Revision { epoch, revision }
    }

    #[test]
    fn repair_says_what_changes_and_what_does_not() {
        let fault = inventory::HostFault {
            host: Some(inventory::HostRef {
                namespace: "metal".to_owned(),
                name: "h9".to_owned(),
                uid: "u".to_owned(),
            }),
            message: "remove the annotation".to_owned(),
        };
        let mut repaired = inventory::RepairSiteResponse {
            before: Some(at(1, 7)),
            after: Some(at(2, 901)),
            faults: vec![fault],
        };
        assert_eq!(
            statement("a", &repaired, false),
            "Done: site a was at position 1.7 and continues at 2.901. No claim changes.\n\
             Host metal/h9 cannot be claimed: remove the annotation\n"
        );
        assert!(statement("a", &repaired, true).ends_with(DRY_RUN));
        repaired.after = repaired.before;
        let text = statement("a", &repaired, false);
        assert!(
            text.starts_with("Nothing to repair: site a is at position 1.7, and no host"),
            "{text}"
        );
    }
}
