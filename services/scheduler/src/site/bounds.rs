//! What of a report may become part of a record is bounded where it comes in: a host with a text of megabytes is a fault of
//! that host, and no cluster that could take it may find its own record too large for the ledger.

use proto::inventory::v1 as wire;

use crate::ledger::clip;

/// Longest uid, in bytes.
const UID: usize = 253;
/// Longest address of a BMC, in bytes; metal3 sets no limit.
const BMC_ADDRESS: usize = 1024;
/// Longest part of a consumer's reference, in bytes: that of a Kubernetes name.
const CONSUMER: usize = 253;
/// Most networks in which a host has an address.
const NETWORKS: usize = 128;

/// Whether a text may be the uid of a `SIPCluster`; an empty one says that it is not known.
pub(super) fn is_uid(text: &str) -> bool {
    text.len() <= UID && !text.chars().any(char::is_control)
}

/// Takes out of a report of a host what is longer than it may be.
pub(super) fn clip_host(site: &str, host: &mut wire::Host) {
    let mut clipped = Vec::new();
    if host.bmc_address.len() > BMC_ADDRESS {
        clipped.push("the BMC address is longer than 1,024 bytes, and is left out");
        host.bmc_address.clear();
    }
    if let Some(consumer) = &mut host.consumer {
        for part in [&mut consumer.kind, &mut consumer.namespace, &mut consumer.name] {
            if part.len() > CONSUMER {
                clipped.push("the consumer's reference is longer than 253 bytes, and is cut off");
                *part = clip(part, CONSUMER).to_owned();
            }
        }
    }
    if host.addresses.len() > NETWORKS {
        clipped.push("it has addresses in more than 128 networks, and only the first are used");
        host.addresses = std::mem::take(&mut host.addresses)
            .into_iter()
            .take(NETWORKS)
            .collect();
    }
    if !clipped.is_empty() {
        let name = host.r#ref.as_ref().map_or("", |host| clip(&host.name, CONSUMER));
        tracing::warn!(
            site,
            host = name,
            "a reported host breaks limits: {}",
            clipped.join("; ")
        );
    }
}
