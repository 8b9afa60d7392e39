//! Which members go when a role shrinks.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use vocabulary::LabelValue;

use super::located_member::LocatedMember;
use crate::life::ReleaseOrder;
use crate::request::{FailReason, MemberState};
use crate::site::Site;

/// One of the places that a role wants filled: the member that fills it, and the member beside it that it replaces, if that is still kept.
#[derive(Debug, Clone)]
pub(crate) struct Place<'a> {
    pub(crate) filled_by: LocatedMember<'a>,
    pub(crate) beside: Option<LocatedMember<'a>>,
}

impl<'a> Place<'a> {
    pub(crate) fn filled_by(filled_by: LocatedMember<'a>) -> Self {
        Self {
            filled_by,
            beside: None,
        }
    }

    /// The member that serves: the old one, until the new one is bound. The old one stays beside that while its host is not in the
    /// inventory.
    fn serving(&self) -> &LocatedMember<'a> {
        let new = &self.filled_by;
        let is_bound = new.member.state != MemberState::Claimed;
        self.beside.as_ref().filter(|_| !is_bound).unwrap_or(new)
    }
}

/// Why one place goes before another: the smallest goes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order<'a> {
    /// First those whose stage goes first.
    by_stage: Option<ReleaseOrder>,
    /// Then those that nobody uses.
    consumed: bool,
    /// Of the failed, the most pressing reason.
    reason: Option<FailReason>,
    /// Then those that are not bound yet.
    bound: bool,
    /// Then those whose release is requested: a person or Cluster API may be at it.
    kept_so_far: bool,
    /// Then from the most loaded outer domains, outermost first, and last the most loaded topology domain.
    load: Vec<Reverse<u32>>,
    /// At last by name, the highest first.
    name: Reverse<&'a vocabulary::HostId>,
}

/// Where a member is: each prefix of the site's hierarchy is a domain, and so is its topology domain.
type Position = Vec<Vec<Option<LabelValue>>>;

fn position(site: &Site, known: &LocatedMember<'_>) -> Position {
    let label = |key| known.slot.and_then(|slot| site.label(key, slot));
    let path: Vec<Option<LabelValue>> = site.policy().hierarchy.iter().map(label).collect();
    let mut domains: Position = (1..=path.len()).map(|length| path[..length].to_vec()).collect();
    domains.push(vec![known.domain.clone()]);
    domains
}

/// Takes `surplus` places out of all.
///
/// One after another, each time the smallest by [`Order`], with the loads that the earlier ones leave. Within a class
/// (the fields before the load) that is optimal: outer domains are nested, so the sums of squared loads are laminar convex, for
/// which steepest descent is exact (Murota, "Discrete Convex Analysis", ch. 6).
pub(crate) fn choose<'a>(site: &Site, places: &mut Vec<Place<'a>>, surplus: usize) -> Vec<Place<'a>> {
    if surplus == 0 {
        return Vec::new();
    }
    if surplus >= places.len() {
        return std::mem::take(places);
    }
    let mut positions: Vec<Position> = places
        .iter()
        .map(|place| position(site, &place.filled_by))
        .collect();
    let mut loads: BTreeMap<(usize, Vec<Option<LabelValue>>), u32> = BTreeMap::new();
    for position in &positions {
        for (level, domain) in position.iter().enumerate() {
            *loads.entry((level, domain.clone())).or_default() += 1;
        }
    }
    let mut victims = Vec::with_capacity(surplus);
    for _ in 0..surplus {
        let order = |index: usize| {
            let known = places[index].serving();
            let load = positions[index].iter().enumerate();
            Order {
                by_stage: known.stage.counts().release_order,
                consumed: known.consumer.is_some(),
                reason: known.failed.filter(|reason| *reason != FailReason::MoveRequested),
                bound: known.member.state != MemberState::Claimed,
                kept_so_far: !known.member.requested,
                load: load
                    .map(|(level, domain)| Reverse(loads.get(&(level, domain.clone())).copied().unwrap_or(0)))
                    .collect(),
                name: Reverse(&known.member.host),
            }
        };
        let Some(next) = (0..places.len()).min_by(|a, b| order(*a).cmp(&order(*b))) else {
            break;
        };
        victims.push(places.remove(next));
        for (level, domain) in positions.remove(next).into_iter().enumerate() {
            if let Some(load) = loads.get_mut(&(level, domain)) {
                *load -= 1;
            }
        }
    }
    victims
}

/// The same of places without a pair, as far as there are as many.
pub(crate) fn choose_unpaired<'a>(
    site: &Site,
    places: &mut Vec<Place<'a>>,
    surplus: usize,
) -> Vec<Place<'a>> {
    let (mut paired, mut unpaired): (Vec<_>, Vec<_>) = std::mem::take(places)
        .into_iter()
        .partition(|place| place.beside.is_some());
    let mut victims = choose(site, &mut unpaired, surplus);
    victims.extend(choose(site, &mut paired, surplus - victims.len()));
    places.append(&mut unpaired);
    places.append(&mut paired);
    places.sort_by(|a, b| a.filled_by.member.host.cmp(&b.filled_by.member.host));
    victims
}
