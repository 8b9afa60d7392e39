//! Which members go when a role shrinks.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::account::Known;
use crate::names::LabelValue;
use crate::request::FailReason;
use crate::site::Site;

/// Why one member goes before another: the smallest goes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order<'a> {
    /// Failed ones first.
    well: bool,
    /// Then those that nobody uses.
    consumed: bool,
    /// Of the failed, the most pressing reason.
    reason: Option<FailReason>,
    /// Then from the most loaded outer domains, outermost first, and last the most loaded topology domain.
    load: Vec<Reverse<u32>>,
    /// At last by name, the highest first.
    name: Reverse<&'a crate::names::HostId>,
}

/// Where a member is: each prefix of the site's hierarchy is a domain, and so is its topology domain.
type Place = Vec<Vec<Option<LabelValue>>>;

fn place(site: &Site, known: &Known<'_>) -> Place {
    let label = |key| known.slot.and_then(|slot| site.label(key, slot));
    let path: Vec<Option<LabelValue>> = site.policy().hierarchy.iter().map(label).collect();
    let mut domains: Place = (1..=path.len()).map(|length| path[..length].to_vec()).collect();
    domains.push(vec![known.domain.clone()]);
    domains
}

/// Takes `surplus` members out of `counted`.
///
/// One after another, each time the smallest by [`Order`], with the loads that the earlier ones leave. Within a class
/// (failed, consumed) that is optimal: outer domains are nested, so the sums of squared loads are laminar convex, for
/// which steepest descent is exact (Murota, "Discrete Convex Analysis", ch. 6).
pub(crate) fn choose<'a>(site: &Site, counted: &mut Vec<Known<'a>>, surplus: usize) -> Vec<Known<'a>> {
    if surplus == 0 {
        return Vec::new();
    }
    if surplus >= counted.len() {
        return std::mem::take(counted);
    }
    let mut places: Vec<Place> = counted.iter().map(|known| place(site, known)).collect();
    let mut loads: BTreeMap<(usize, Vec<Option<LabelValue>>), u32> = BTreeMap::new();
    for place in &places {
        for (level, domain) in place.iter().enumerate() {
            *loads.entry((level, domain.clone())).or_default() += 1;
        }
    }
    let mut victims = Vec::with_capacity(surplus);
    for _ in 0..surplus {
        let order = |index: usize| {
            let known = &counted[index];
            let load = places[index].iter().enumerate();
            Order {
                well: known.failed.is_none(),
                consumed: known.consumer.is_some(),
                reason: known.failed,
                load: load
                    .map(|(level, domain)| Reverse(loads.get(&(level, domain.clone())).copied().unwrap_or(0)))
                    .collect(),
                name: Reverse(&known.member.host),
            }
        };
        let Some(next) = (0..counted.len()).min_by(|a, b| order(*a).cmp(&order(*b))) else {
            break;
        };
        victims.push(counted.remove(next));
        for (level, domain) in places.remove(next).into_iter().enumerate() {
            if let Some(load) = loads.get_mut(&(level, domain)) {
                *load -= 1;
            }
        }
    }
    victims
}
