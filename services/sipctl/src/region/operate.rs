//! What an operator overrides: `sipctl site reset-fence` and `sipctl release-orphan`. Each says first what will happen.

use std::fmt::Write as _;

use http::Uri;
use placement::SipLabels;
use proto::inventory::v1::{
    self as inventory, GetHostRequest, ListSitesRequest, ResetSiteFenceRequest,
    inventory_service_client::InventoryServiceClient,
};
use proto::placement::v1::{
    Placement, ReleaseOrphanRequest, placement_service_client::PlacementServiceClient,
};
use runtime::tls::Channel;
use scheduler::convert;

use crate::one_line;
use crate::region::cli::{ReleaseOrphan, ResetFence};
use crate::region::connection::{open, refused, status_error, timed};
use crate::region::executor::block_on;
use crate::region::outcome::{DRY_RUN, Outcome};

/// Maximum number of characters of the texts of a site or host in a message.
const MAX_TEXT_CHARACTERS: usize = 300;

/// Runs `site reset-fence`.
///
/// # Errors
/// When the scheduler does not answer.
pub fn reset_fence(command: ResetFence) -> anyhow::Result<Outcome> {
    let ResetFence {
        site,
        dry_run,
        connection,
    } = command;
    block_on(async {
        let (scheduler, channel) = open(connection)?;
        let mut client = InventoryServiceClient::new(channel);
        let Some(known) = find_site(&mut client, &scheduler, &site).await? else {
            let why = format!(
                "site {} is not known to {scheduler}: no agent has ever reported it",
                named(&site)
            );
            return Ok(Outcome::refused(String::new(), why));
        };
        let mut text = fence_statement(&known);
        if dry_run {
            text.push_str(DRY_RUN);
            return Ok(Outcome::done(text));
        }
        let answer = client
            .reset_site_fence(timed(ResetSiteFenceRequest { site }))
            .await;
        let inventory::ResetSiteFenceResponse {
            lease_uid,
            lease_transitions,
        } = match answer {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Ok(Outcome::refused(text, refused(&scheduler, &status)?)),
        };
        let lease = one_line(&lease_uid, MAX_TEXT_CHARACTERS);
        if lease_uid.is_empty() && lease_transitions == 0 {
            text.push_str(
                "Done: the scheduler has removed the fence of an agent without a Lease, or had none.\n",
            );
        } else {
            writeln!(
                text,
                "Done: the scheduler has removed the fence of the agent with Lease {lease}, transition {lease_transitions}."
            )?;
        }
        Ok(Outcome::done(text))
    })
}

fn fence_statement(site: &inventory::Site) -> String {
    let inventory::Site {
        name,
        synced,
        hosts,
        held_hosts,
        clusters,
        last_report: _,
        revision: _,
    } = site;
    let now = if *synced {
        "an agent reports it at present, and will be fenced"
    } else {
        "no agent reports it at present"
    };
    format!(
        "Site {}: {now}. It has {hosts} hosts, {held_hosts} of them held by {clusters} clusters; they stay as they are.\n\
         The scheduler removes the Lease of the last agent from its fence: it accepts the next one that reports, whatever its Lease.\n\
         Until then it places nothing in the site. First stop every agent that must not report for the site.\n",
        named(name)
    )
}

async fn find_site(
    client: &mut InventoryServiceClient<Channel>,
    scheduler: &Uri,
    name: &str,
) -> anyhow::Result<Option<inventory::Site>> {
    let mut page_token = String::new();
    loop {
        let request = ListSitesRequest {
            page_size: 1000,
            page_token,
        };
        let page = client.list_sites(timed(request)).await;
        let page = page
            .map_err(|status| status_error(scheduler, &status))?
            .into_inner();
        if let Some(site) = page.sites.into_iter().find(|site| site.name == name) {
            return Ok(Some(site));
        }
        if page.next_page_token.is_empty() {
            return Ok(None);
        }
        page_token = page.next_page_token;
    }
}

/// Runs `release-orphan`.
///
/// # Errors
/// When the scheduler does not answer.
pub fn release_orphan(command: ReleaseOrphan) -> anyhow::Result<Outcome> {
    let ReleaseOrphan {
        host,
        site,
        dry_run,
        connection,
    } = command;
    block_on(async {
        let (scheduler, channel) = open(connection)?;
        let asked = GetHostRequest {
            site: site.clone(),
            namespace: host.namespace().to_string(),
            name: host.name().to_owned(),
        };
        let found = InventoryServiceClient::new(channel.clone())
            .get_host(timed(asked))
            .await;
        let found = match found {
            Ok(found) => found.into_inner().host.unwrap_or_default(),
            Err(status) => return Ok(Outcome::refused(String::new(), refused(&scheduler, &status)?)),
        };
        let reported = found.host.clone().unwrap_or_default();
        let mut text = orphan_statement(&site, &found);
        if dry_run {
            text.push_str(DRY_RUN);
            return Ok(Outcome::done(text));
        }
        // With the uid that was looked at: a host that was made again meanwhile is another one.
        let request = ReleaseOrphanRequest {
            site,
            host: reported.r#ref,
        };
        let answer = PlacementServiceClient::new(channel)
            .release_orphan(timed(request))
            .await;
        match answer {
            Ok(answer) => {
                text.push_str(&released(answer.into_inner().placement));
                Ok(Outcome::done(text))
            }
            Err(status) => Ok(Outcome::refused(text, refused(&scheduler, &status)?)),
        }
    })
}

fn released(placement: Option<Placement>) -> String {
    let Some(placement) = placement else {
        return "Done: it is free.\n".to_owned();
    };
    let inventory::ClusterRef {
        namespace,
        name,
        uid: _,
    } = placement.cluster.unwrap_or_default();
    let inventory::Revision { epoch, revision } = placement.revision.unwrap_or_default();
    format!(
        "Done: its release from {} has begun at {epoch}.{revision}.\n",
        one_line(&format!("{namespace}/{name}"), MAX_TEXT_CHARACTERS)
    )
}

fn orphan_statement(site: &str, found: &inventory::HostRecord) -> String {
    let inventory::HostRecord { host, holder } = found;
    let host = host.clone().unwrap_or_default();
    let inventory::HostRef { namespace, name, uid } = host.r#ref.clone().unwrap_or_default();
    let labels = match convert::sip_labels(&host.labels) {
        SipLabels::None => "it has no labels of a cluster".to_owned(),
        SipLabels::Partial => {
            "it has only some of the labels cluster-namespace, cluster-name and node-type".to_owned()
        }
        SipLabels::Complete { cluster, role } => format!("its labels name {role} of {cluster}"),
    };
    let holder = holder.as_ref().and_then(|holder| holder.cluster.as_ref());
    let held = holder.map_or_else(
        || "no cluster holds it".to_owned(),
        |cluster| format!("{}/{} holds it", cluster.namespace, cluster.name),
    );
    let used = host.consumer.map_or_else(String::new, |consumer| {
        format!(
            "It is used by {} {}/{}: the agent waits until no object uses it.\n",
            consumer.kind, consumer.namespace, consumer.name
        )
    });
    let facts = format!("Host {namespace}/{name} (uid {uid}) of site {site}: {labels}, {held}.");
    format!(
        "{}\n\
         If there is no such SIPCluster, the host's release begins: the site's cluster agent takes the labels off and marks\n\
         the host, and then any cluster may claim it. A SIPCluster of that name that comes later does not get it back.\n{}",
        one_line(&facts, 3 * MAX_TEXT_CHARACTERS),
        if used.is_empty() {
            used
        } else {
            one_line(used.trim_end(), MAX_TEXT_CHARACTERS) + "\n"
        }
    )
}

fn named(site: &str) -> String {
    one_line(site, MAX_TEXT_CHARACTERS)
}
