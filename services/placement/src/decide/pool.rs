//! The hosts that a role could get: its funnel, and per topology domain the few that matter.

use fixedbitset::FixedBitSet;

use super::account::{Account, count};
use super::best::Best;
use super::score::{Class, Score};
use super::tree::{Node, ROOT, Tree};
use crate::names::{LabelKey, Namespace};
use crate::request::{Request, Role};
use crate::site::{NONE, Site, Slot, Value, at};

/// A role's hosts after each condition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stages {
    pub(crate) matched: FixedBitSet,
    pub(crate) with_topology: u32,
    pub(crate) eligible: u32,
    pub(crate) free: FixedBitSet,
}

impl Stages {
    pub(crate) fn new(site: &Site, request: &Request, role: &Role) -> Self {
        let matched = site.matching(&role.selector);
        let mut mask = matched.clone();
        if let Some(key) = &role.topology_key {
            site.keep_with_topology(key, &mut mask);
        }
        let with_topology = count(mask.count_ones(..));
        site.keep_eligible(&request.networks, &mut mask);
        let eligible = count(mask.count_ones(..));
        site.keep_unheld(&mut mask);
        Self {
            matched,
            with_topology,
            eligible,
            free: mask,
        }
    }

    /// How many different domains the free hosts are in; without a key how many hosts.
    pub(crate) fn domains(&self, site: &Site, key: Option<&LabelKey>) -> u32 {
        let Some(key) = key else {
            return count(self.free.count_ones(..));
        };
        let Some((_, column)) = site.column(key) else {
            return 0;
        };
        count(column.values_among(&self.free))
    }
}

fn slot(index: usize) -> Slot {
    super::flow::id(index)
}

/// A place for one member: a topology domain, or a single host for a role without a key.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    /// [`NONE`] without a key.
    pub(crate) domain: Value,
    /// The innermost domain of the site's hierarchy that its best host is in.
    pub(crate) leaf: Node,
    /// A failed member is in the domain and would have to be replaced.
    pub(crate) yields: bool,
    /// Sorted, the best first; never empty.
    pub(crate) offers: Vec<Score>,
}

/// What limits how much of a pool can matter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depth {
    /// Spots per innermost domain of the hierarchy.
    pub(crate) spots: usize,
    /// Hosts per spot.
    pub(crate) offers: usize,
}

/// What to leave out of a pool.
pub(crate) struct Scope<'a> {
    /// Only hosts of this namespace.
    pub(crate) namespace: Option<&'a Namespace>,
    /// The hosts that each other role of the request matches.
    pub(crate) others: Vec<&'a FixedBitSet>,
    /// No members of the cluster itself.
    pub(crate) own: &'a [Slot],
}

/// The spots of a role that matter, the best first, and which leaves of the hierarchy have more than that.
///
/// Let D be how many hosts the request needs in all. Of the spots on one path the best D are enough, in the order of
/// their best hosts: a placement that uses another spot there leaves one of those D untouched, since each of its other
/// D − 1 hosts touches at most one of them (by using the spot, or its best host). Moving to that one changes no load on
/// the hierarchy and no score for the worse. Of the hosts in one spot the best `depth.offers` are enough, by the same
/// exchange: no more of them can be in use by others (one per role with the same key, any number by roles with another).
/// So what is left out changes neither whether a request fits nor what the best placement costs.
pub(crate) fn spots(
    site: &Site,
    account: &Account<'_>,
    free: &FixedBitSet,
    scope: &Scope<'_>,
    depth: Depth,
    tree: &mut Tree,
) -> (Vec<Spot>, Vec<Node>) {
    let mut mask = free.clone();
    if let Some(namespace) = scope.namespace {
        site.keep_in_namespace(namespace, &mut mask);
    }
    for host in scope.own {
        mask.set(at(*host), false);
    }
    let Some(key) = &account.role.topology_key else {
        let spot = |offer: Score| Spot {
            domain: NONE,
            leaf: tree.leaf(site, offer.host),
            yields: false,
            offers: vec![offer],
        };
        let mut spots = Vec::new();
        let mut spot = spot;
        each_offer(site, &mask, &scope.others, |offer| spots.push(spot(offer)));
        return best_per_leaf(spots, depth.spots);
    };
    let Some((number, column)) = site.column(key) else {
        return (Vec::new(), Vec::new());
    };
    let values = site.values(number);
    let value = |text: &crate::names::LabelValue| column.number(text.as_str());
    let mut best = Best::new(column.width(), depth.offers);
    account
        .closed()
        .iter()
        .filter_map(value)
        .for_each(|value| best.close(value));
    each_offer(site, &mask, &scope.others, |offer| {
        best.add(values.of(offer.host), offer, |value| column.size(value));
    });
    let yielding: Vec<Value> = account.yielding().filter_map(|text| value(&text)).collect();
    let spot = |(domain, offers): (Value, &[Score])| {
        Some(Spot {
            domain,
            leaf: offers.first().map_or(ROOT, |offer| tree.leaf(site, offer.host)),
            yields: yielding.contains(&domain),
            offers: offers.to_vec(),
        })
    };
    best_per_leaf(best.domains().filter_map(spot).collect(), depth.spots)
}

/// Calls for each host of the mask, in the order of slots. Sets are read a word at a time.
fn each_offer(site: &Site, mask: &FixedBitSet, others: &[&FixedBitSet], mut call: impl FnMut(Score)) {
    let word = |bits: &FixedBitSet, index: usize| bits.as_slice().get(index).copied().unwrap_or(0);
    let bit = |word: usize, shift: u32| u32::from(word >> shift & 1 == 1);
    let mut matched = vec![0; others.len()];
    for (index, hosts) in mask
        .as_slice()
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, hosts)| *hosts != 0)
    {
        let uninspected = word(site.uninspected(), index);
        let unpowered = word(site.unpowered(), index);
        // Only where some other role matches is there anything to count.
        matched.clear();
        matched.extend(
            others
                .iter()
                .map(|bits| word(bits, index))
                .filter(|bits| bits & hosts != 0),
        );
        let first = slot(index * usize::BITS as usize);
        let mut left = hosts;
        while left != 0 {
            let shift = left.trailing_zeros();
            left &= left - 1;
            let scarce = matched.iter().map(|matched| bit(*matched, shift)).sum();
            let host = first + shift;
            let class = Class::new(scarce, bit(uninspected, shift), bit(unpowered, shift));
            call(Score {
                class,
                rank: site.rank(host),
                host,
            });
        }
    }
}

/// Spots that yield are kept in any case: they are few, and stand for members.
fn best_per_leaf(spots: Vec<Spot>, keep: usize) -> (Vec<Spot>, Vec<Node>) {
    let leaf = |spot: &Spot| if spot.leaf == ROOT { 0 } else { at(spot.leaf) };
    let mut by_leaf: Vec<Vec<Spot>> = Vec::new();
    let mut kept = Vec::new();
    for spot in spots {
        if spot.yields {
            kept.push(spot);
            continue;
        }
        let leaf = leaf(&spot);
        if by_leaf.len() <= leaf {
            by_leaf.resize_with(leaf + 1, Vec::new);
        }
        by_leaf[leaf].push(spot);
    }
    let mut cut = Vec::new();
    for mut spots in by_leaf {
        if spots.len() > keep {
            spots.select_nth_unstable_by(keep, |a, b| a.offers[0].cmp(&b.offers[0]));
            cut.extend(spots.first().map(|spot| spot.leaf));
            spots.truncate(keep);
        }
        kept.append(&mut spots);
    }
    kept.sort_unstable_by(|a, b| a.offers[0].cmp(&b.offers[0]));
    (kept, cut)
}
