//! The hosts that a role could get: its funnel, and per topology domain the few that matter.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use vocabulary::{LabelKey, Namespace, NetworkId};

use super::best::{Best, best_by_domain};
use super::role_needs::{Gate, RoleNeeds, count};
use super::score::{Drawbacks, Packed, Score};
use super::spots::{BestSpots, Candidate, Spot};
use super::tree::{Node, Tree};
use crate::request::{Request, Role};
use crate::site::{NONE, Site, Slot, Value, at, slot};

/// The hosts that pass each condition of a role: each condition filters what the one before has left.
#[derive(Debug, Clone, Default)]
pub(crate) struct FilteredHosts {
    pub(crate) matched: FixedBitSet,
    pub(crate) with_topology: u32,
    pub(crate) eligible: u32,
    pub(crate) free: FixedBitSet,
}

impl FilteredHosts {
    pub(crate) fn new(site: &Site, request: &Request, role: &Role) -> Self {
        let matched = site.matching(&role.selector);
        let mut mask = matched.clone();
        if let Some(key) = &role.topology_key {
            site.keep_with_topology(key, &mut mask);
        }
        let with_topology = count(mask.count_ones(..));
        site.keep_eligible(&request.networks, &mut mask);
        site.drop_former(&request.cluster, &mut mask);
        let eligible = count(mask.count_ones(..));
        site.keep_unheld(&mut mask);
        Self {
            matched,
            with_topology,
            eligible,
            free: mask,
        }
    }

    /// How many hosts with the topology label lack an address in one of these networks.
    pub(crate) fn without_address(
        &self,
        site: &Site,
        key: Option<&LabelKey>,
        networks: &BTreeSet<NetworkId>,
    ) -> u32 {
        if networks.is_empty() {
            return 0;
        }
        let mut mask = self.matched.clone();
        if let Some(key) = key {
            site.keep_with_topology(key, &mut mask);
        }
        site.keep_addressed(networks, &mut mask);
        self.with_topology.saturating_sub(count(mask.count_ones(..)))
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

/// What limits how much of a pool can matter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depth {
    /// Spots per innermost domain of the hierarchy.
    pub(crate) spots: usize,
    /// Hosts per spot.
    pub(crate) offers: usize,
}

/// What limits and scores the hosts of a pool.
pub(crate) struct Scope<'a> {
    /// Only hosts of this namespace, if it is given.
    pub(crate) namespace: Option<&'a Namespace>,
    /// The hosts that each other role of the request matches: a score prefers others.
    pub(crate) others: Vec<&'a FixedBitSet>,
    /// Hosts in other namespaces than the cluster's, if that makes a difference.
    pub(crate) outside: Option<&'a FixedBitSet>,
    /// Hosts of the cluster's own members, which are left out.
    pub(crate) own: &'a [Slot],
}

/// What a role may choose from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pool {
    /// The spots that matter, the best first.
    pub(crate) spots: Vec<Spot>,
    /// Leaves of the hierarchy that have more.
    pub(crate) cut: Vec<Node>,
    /// As [`FilteredHosts::domains`], if it was seen on the way.
    pub(crate) domains: Option<u32>,
}

/// Finds what a role may choose from.
///
/// Let D be how many hosts the request needs in all. Of the spots on one path the best D are enough, in the order of
/// their best hosts: a placement that uses another spot there leaves one of those D untouched, since each of its other
/// D − 1 hosts touches at most one of them (by using the spot, or its best host). Moving to that one changes no load on
/// the hierarchy and no score for the worse. Of the hosts in one spot the best `depth.offers` are enough, by the same
/// exchange: no more of them can be in use by others (one per role with the same key, any number by roles with another).
/// So what is left out changes neither whether a request fits nor what the best placement costs.
pub(crate) fn pool(
    site: &Site,
    role_needs: &RoleNeeds<'_>,
    free: &FixedBitSet,
    scope: &Scope<'_>,
    depth: Depth,
    tree: &mut Tree,
) -> Pool {
    let mut mask = free.clone();
    if let Some(namespace) = scope.namespace {
        site.keep_in_namespace(namespace, &mut mask);
    }
    let mut whole = scope.namespace.is_none();
    for host in scope.own {
        whole &= !mask.contains(at(*host));
        mask.set(at(*host), false);
    }
    let Some(key) = &role_needs.role.topology_key else {
        return pool_without_key(site, &mask, scope, depth.spots, tree);
    };
    let Some((number, column)) = site.column(key) else {
        return Pool::default();
    };
    let value = |text: &vocabulary::LabelValue| column.number(text.as_str());
    let closed: BTreeSet<Value> = role_needs.closed.iter().filter_map(value).collect();
    let few = column.width().saturating_mul(DOMAIN_QUERY_COST) <= mask.count_ones(..);
    let ideal = ideal(site, &mask, scope);
    let asked = few.then(|| best_by_domain(column, &mask, &closed, ideal, |host| offer(site, scope, host)));
    let best = asked.flatten().unwrap_or_else(|| {
        let mut best = Best::new(column.width(), &closed);
        let values = site.values(number);
        each_offer(site, &mask, scope, |offer| {
            best.add(values.get(offer.host), offer);
        });
        best.domains()
    });
    let gates = role_needs.gates.iter();
    let gates: BTreeMap<Value, Gate> = gates
        .filter_map(|(text, gate)| Some((value(text)?, *gate)))
        .collect();
    let mut best_spots = BestSpots::keeping(depth.spots);
    for (domain, best) in &best {
        best_spots.add(Candidate {
            domain: *domain,
            leaf: tree.leaf(site, best.host),
            gate: gates.get(domain).copied().unwrap_or(Gate::Open),
            best: *best,
        });
    }
    let (kept, cut) = best_spots.sorted();
    let offers = |one: &Candidate| {
        let hosts = column.hosts_of(one.domain, &mask);
        let at_best = |host| Score {
            drawbacks: ideal,
            rank: site.rank(host),
            host,
        };
        best_of(hosts, depth.offers, at_best, |host| offer(site, scope, host))
    };
    let closed = || closed.iter().filter(|value| column.has(**value, free)).count();
    Pool {
        spots: kept.into_iter().map(|one| one.spot(offers(&one))).collect(),
        cut,
        domains: whole.then(|| count(best.len() + closed())),
    }
}

/// The same for a role without a topology key: each host is a spot of its own.
fn pool_without_key(
    site: &Site,
    mask: &FixedBitSet,
    scope: &Scope<'_>,
    spots: usize,
    tree: &mut Tree,
) -> Pool {
    let mut best_spots = BestSpots::keeping(spots);
    each_offer(site, mask, scope, |offer| {
        best_spots.add(Candidate {
            domain: NONE,
            leaf: tree.leaf(site, offer.host),
            gate: Gate::Open,
            best: offer,
        });
    });
    let (kept, cut) = best_spots.sorted();
    Pool {
        spots: kept.into_iter().map(|one| one.spot(vec![one.best])).collect(),
        cut,
        domains: None,
    }
}

/// Cost of asking a domain for its best host, in reads of single hosts. Domains are asked only if that costs less than reading each host:
/// most domains answer with one of their first hosts.
const DOMAIN_QUERY_COST: usize = 2;

/// What each of these hosts has at least.
fn ideal(site: &Site, hosts: &FixedBitSet, scope: &Scope<'_>) -> Packed {
    drawbacks(site, scope, |bits| hosts.is_subset(bits))
}

/// What is better avoided in a host, or in each of several hosts. `is_in`: whether a set of the site has it, or all of them.
#[inline]
fn drawbacks(site: &Site, scope: &Scope<'_>, is_in: impl Fn(&FixedBitSet) -> bool) -> Packed {
    Drawbacks {
        outside: u8::from(scope.outside.is_some_and(&is_in)),
        spread: (),
        wanted_by_others: Drawbacks::roles(scope.others.iter().map(|matched| is_in(matched))),
        uninspected: u8::from(is_in(site.uninspected())),
        impaired: u8::from(is_in(site.impaired())),
    }
    .packed()
}

/// Maximum number of hosts that insertion keeps in order; more are sorted at the end.
const MAX_INSERTION_SORTED: usize = 16;

/// The best of these hosts, sorted; at least one where there is one. No offer is better than what `at_best` says of its host.
fn best_of(
    hosts: impl Iterator<Item = Slot>,
    keep: usize,
    at_best: impl Fn(Slot) -> Score,
    offer: impl Fn(Slot) -> Score,
) -> Vec<Score> {
    let keep = keep.max(1);
    if keep > MAX_INSERTION_SORTED {
        let mut best: Vec<Score> = hosts.map(offer).collect();
        best.sort_unstable();
        best.truncate(keep);
        return best;
    }
    let mut best: Vec<Score> = Vec::with_capacity(keep + 1);
    for host in hosts {
        let limit = if best.len() < keep { None } else { best.last() };
        // Most hosts are no better than the last one even without drawbacks, which take longer to read than the order of names.
        if limit.is_some_and(|last| at_best(host) >= *last) {
            continue;
        }
        let offer = offer(host);
        if limit.is_none_or(|last| offer < *last) {
            best.insert(best.partition_point(|known| *known < offer), offer);
            best.truncate(keep);
        }
    }
    best
}

/// How good one host is.
#[inline]
fn offer(site: &Site, scope: &Scope<'_>, host: Slot) -> Score {
    Score {
        drawbacks: drawbacks(site, scope, |bits| bits.contains(at(host))),
        rank: site.rank(host),
        host,
    }
}

/// Calls for each host of the mask, in the order of slots. Sets are read a word at a time.
fn each_offer(site: &Site, mask: &FixedBitSet, scope: &Scope<'_>, mut call: impl FnMut(Score)) {
    let word = |bits: &FixedBitSet, index: usize| bits.as_slice().get(index).copied().unwrap_or(0);
    let bit = |word: usize, shift: u32| word >> shift & 1 == 1;
    let mut matched = vec![0; scope.others.len()];
    for (index, hosts) in mask
        .as_slice()
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, hosts)| *hosts != 0)
    {
        let uninspected = word(site.uninspected(), index);
        let impaired = word(site.impaired(), index);
        let outside = scope.outside.map_or(0, |bits| word(bits, index));
        // Only where some other role matches is there anything to count.
        matched.clear();
        matched.extend(
            scope
                .others
                .iter()
                .map(|bits| word(bits, index))
                .filter(|bits| bits & hosts != 0),
        );
        let first = slot(index * usize::BITS as usize);
        let mut left = hosts;
        while left != 0 {
            let shift = left.trailing_zeros();
            left &= left - 1;
            let host = first + shift;
            let drawbacks = Drawbacks {
                outside: u8::from(bit(outside, shift)),
                spread: (),
                wanted_by_others: Drawbacks::roles(matched.iter().map(|matched| bit(*matched, shift))),
                uninspected: u8::from(bit(uninspected, shift)),
                impaired: u8::from(bit(impaired, shift)),
            };
            call(Score {
                drawbacks: drawbacks.packed(),
                rank: site.rank(host),
                host,
            });
        }
    }
}
