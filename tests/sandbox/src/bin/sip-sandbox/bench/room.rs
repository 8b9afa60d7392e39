//! Whether a site has what will be asked of it: clusters that do not fit would be waited for.

use std::iter;

use anyhow::ensure;
use sandbox::inventory;

use super::{LARGE, Options, SMALL, clusters::Shape};

/// Refuses sites that are too small.
pub(super) fn require(options: &Options) -> anyhow::Result<()> {
    let last = options.hosts.len().saturating_sub(1);
    for (index, hosts) in options.hosts.iter().enumerate() {
        require_for(*hosts, &clusters(options, index == last))?;
    }
    Ok(())
}

/// Refuses a site that is too small for so many clusters of each shape.
pub(super) fn require_for(hosts: u32, clusters: &[(Shape, u16)]) -> anyhow::Result<()> {
    let wanted = |of: fn(Shape) -> u32| -> u32 {
        let hosts = clusters
            .iter()
            .map(|(shape, count)| of(*shape) * u32::from(*count));
        hosts.sum()
    };
    let roles: [(&str, u32); 2] = [
        ("control-plane", wanted(|shape| shape.control_plane)),
        ("worker", wanted(|shape| shape.workers)),
    ];
    let fleet = inventory::fleet(hosts, super::scene::racks(hosts));
    for (flavor, wanted) in roles {
        let flavored =
            |host: &&inventory::Host| host.labels.get(inventory::FLAVOR).is_some_and(|is| is == flavor);
        let there = fleet.iter().filter(flavored).count();
        ensure!(
            there >= usize::try_from(wanted)?,
            "--hosts {hosts}: its clusters want {wanted} hosts of flavor {flavor}, and {there} are; \
             more hosts, or fewer clusters would help"
        );
    }
    Ok(())
}

/// What is placed in a site, all in all.
fn clusters(options: &Options, last: bool) -> Vec<(Shape, u16)> {
    let one_by_one = iter::once((LARGE, options.clusters));
    if !last {
        return one_by_one.collect();
    }
    let standing = options.standing.saturating_sub(options.clusters);
    one_by_one
        .chain([(SMALL, options.burst.max(standing)), (LARGE, options.clusters)])
        .collect()
}
