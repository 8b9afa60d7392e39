//! The hosts that a role could get: its funnel, and per topology domain the few that matter.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use super::account::{Account, count};
use super::score::Score;
use crate::names::{LabelKey, LabelValue, Namespace};
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
        let Some((number, column)) = site.column(key) else {
            return 0;
        };
        let mut seen = FixedBitSet::with_capacity(column.width());
        self.free
            .ones()
            .for_each(|host| seen.insert(at(site.value(number, slot(host)))));
        count(seen.count_ones(..))
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
    /// Values of the site's hierarchy keys of its first host, [`NONE`] for an absent label.
    pub(crate) path: Vec<Value>,
    /// A failed member is in the domain and would have to be replaced.
    pub(crate) yields: bool,
    /// Sorted, the best first; never empty.
    pub(crate) offers: Vec<Score>,
}

/// What limits how much of a pool can matter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depth {
    /// Spots per path of the hierarchy.
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

/// The spots of a role that matter, the best first.
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
) -> Vec<Spot> {
    let mut mask = free.clone();
    if let Some(namespace) = scope.namespace {
        site.keep_in_namespace(namespace, &mut mask);
    }
    for host in scope.own {
        mask.set(at(*host), false);
    }
    let key = account
        .role
        .topology_key
        .as_ref()
        .and_then(|key| site.column(key));
    let offers = mask.ones().map(|host| score(site, slot(host), &scope.others));
    let spots = match (key, &account.role.topology_key) {
        (None, Some(_)) => Vec::new(),
        (None, None) => offers
            .map(|offer| Spot {
                domain: NONE,
                path: path(site, offer.host),
                yields: false,
                offers: vec![offer],
            })
            .collect(),
        (Some((key, column)), Some(_) | None) => {
            let number = |value: &LabelValue| column.number(value.as_str());
            let closed: Vec<Value> = account.closed().iter().filter_map(number).collect();
            let yielding: Vec<Value> = account.yielding().filter_map(|value| number(&value)).collect();
            let mut domains = Domains::new(column.width(), depth.offers);
            for value in closed {
                domains.close(value);
            }
            offers.for_each(|offer| domains.add(site.value(key, offer.host), offer));
            domains.into_spots(site, &yielding)
        }
    };
    best_per_path(spots, depth.spots)
}

fn score(site: &Site, host: Slot, others: &[&FixedBitSet]) -> Score {
    Score {
        scarce: count(others.iter().filter(|matched| matched.contains(at(host))).count()),
        uninspected: site.is_uninspected(host),
        unpowered: site.is_unpowered(host),
        rank: site.rank(host),
        host,
    }
}

pub(crate) fn path(site: &Site, host: Slot) -> Vec<Value> {
    let value = |key| {
        site.column(key)
            .map_or(NONE, |(number, _)| site.value(number, host))
    };
    site.policy().hierarchy.iter().map(value).collect()
}

/// Best hosts per domain while they are gathered.
struct Domains {
    /// Per value number: what to look up in `best`.
    index: Vec<u32>,
    best: Vec<(Value, Vec<Score>)>,
    keep: usize,
}

const UNSEEN: u32 = u32::MAX;
const CLOSED: u32 = u32::MAX - 1;

impl Domains {
    fn new(width: usize, keep: usize) -> Self {
        Self {
            index: vec![UNSEEN; width],
            best: Vec::new(),
            keep,
        }
    }

    fn close(&mut self, value: Value) {
        self.index[at(value)] = CLOSED;
    }

    fn add(&mut self, value: Value, offer: Score) {
        let Some(index) = self.index.get_mut(at(value)) else {
            return;
        };
        match *index {
            CLOSED => {}
            UNSEEN => {
                *index = super::flow::id(self.best.len());
                self.best.push((value, vec![offer]));
            }
            known => {
                let offers = &mut self.best[at(known)].1;
                if offers.len() == self.keep {
                    if offers.last().is_none_or(|last| *last <= offer) {
                        return;
                    }
                    offers.pop();
                }
                let place = offers.partition_point(|known| *known < offer);
                offers.insert(place, offer);
            }
        }
    }

    fn into_spots(self, site: &Site, yielding: &[Value]) -> Vec<Spot> {
        let spot = |(domain, offers): (Value, Vec<Score>)| {
            let first = offers.first()?;
            Some(Spot {
                domain,
                path: path(site, first.host),
                yields: yielding.contains(&domain),
                offers,
            })
        };
        self.best.into_iter().filter_map(spot).collect()
    }
}

/// Spots that yield are kept in any case: they are few, and stand for members.
fn best_per_path(mut spots: Vec<Spot>, keep: usize) -> Vec<Spot> {
    spots.sort_unstable_by(|a, b| a.offers.cmp(&b.offers));
    let mut kept: BTreeMap<Vec<Value>, usize> = BTreeMap::new();
    spots.retain(|spot| {
        let seen = kept.entry(spot.path.clone()).or_default();
        *seen += usize::from(!spot.yields);
        spot.yields || *seen <= keep
    });
    spots
}
