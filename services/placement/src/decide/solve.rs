//! From accounts and stages to a placement, or to the proof that there is none.

use fixedbitset::FixedBitSet;

use super::account::{Account, Accounts};
use super::network::{Demand, Layout, used_offer};
use super::pool::{Depth, Scope, Stages, spots};
use super::tree::{Node, Tree};
use crate::names::Namespace;
use crate::site::{NONE, Site, Slot, Value};

/// A host for a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) host: Slot,
    pub(crate) domain: Value,
    pub(crate) yields: bool,
}

/// What was found for one role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) replaced: u32,
    pub(crate) grown: u32,
    pub(crate) choices: Vec<Choice>,
}

/// How good a whole placement is; the smallest is the best. Compares placements in different namespaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quality {
    spread: Vec<u64>,
    scarce: u32,
    uninspected: u32,
    unpowered: u32,
}

/// The flow after as much as possible was sent.
pub(crate) struct Solution {
    pub(crate) demands: Vec<Demand>,
    pub(crate) layout: Layout,
    pub(crate) found: Vec<Found>,
    /// As in `found`, with the replacements alone.
    pub(crate) replacements_only: Vec<Found>,
}

impl Solution {
    /// Whether every demand was met.
    pub(crate) fn is_complete(&self) -> bool {
        self.demands
            .iter()
            .zip(&self.found)
            .all(|(demand, found)| found.replaced == demand.replace && found.grown == demand.growth)
    }

    pub(crate) fn grows(&self) -> bool {
        self.demands
            .iter()
            .zip(&self.found)
            .all(|(demand, found)| found.grown == demand.growth)
    }

    /// How many hosts each role lacks.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let missing = |(demand, found): (&Demand, &Found)| {
            demand.replace - found.replaced + demand.growth - found.grown
        };
        self.demands.iter().zip(&self.found).map(missing).collect()
    }

    /// Whether nothing that the pools left out could have changed the outcome: everything was found, and each leaf of
    /// the hierarchy that has more spots still has one that is unused together with its best host.
    ///
    /// Such a spot is no dearer than any left out, and leads to the sink at once. A cheaper placement would be a cycle of
    /// negative price through a spot left out and one of its hosts; if that is unused, the unused spot does as well. If
    /// another role uses it, the rest of the cycle moves that role elsewhere, which by itself is a cycle without the left
    /// out spot and so not negative: again the unused spot does as well.
    fn is_certain(&self) -> bool {
        let network = &self.layout.network;
        let is_open = |role: usize, leaf: Node| {
            let nodes = &self.layout.roles[role].spots;
            self.demands[role].spots.iter().zip(nodes).any(|(spot, nodes)| {
                spot.leaf == leaf
                    && !spot.yields
                    && !network.is_full(nodes.edge)
                    && !self.layout.is_used(&spot.offers[0])
            })
        };
        let cut = self
            .demands
            .iter()
            .enumerate()
            .flat_map(|(role, demand)| demand.cut.iter().map(move |leaf| (role, *leaf)));
        self.is_complete() && cut.into_iter().all(|(role, leaf)| is_open(role, leaf))
    }

    pub(crate) fn quality(&self, levels: usize) -> Quality {
        let mut quality = Quality {
            spread: vec![0; levels],
            scarce: 0,
            uninspected: 0,
            unpowered: 0,
        };
        for (demand, nodes) in self.demands.iter().zip(&self.layout.roles) {
            let mut loads: Vec<u32> = demand.tree.domains().iter().map(|domain| domain.load).collect();
            for (spot, nodes) in demand.spots.iter().zip(&nodes.spots) {
                let Some(offer) =
                    used_offer(&self.layout.network, nodes).and_then(|index| spot.offers.get(index))
                else {
                    continue;
                };
                demand
                    .tree
                    .upwards(spot.leaf)
                    .for_each(|(node, _)| loads[to_usize(node)] += 1);
                quality.scarce += offer.class.scarce();
                quality.uninspected += offer.class.uninspected();
                quality.unpowered += offer.class.unpowered();
            }
            for (domain, load) in demand.tree.domains().iter().zip(loads) {
                quality.spread[domain.level] += u64::from(load) * u64::from(load);
            }
        }
        quality
    }
}

/// The hosts that the cluster has already, under any uid; they are not taken again.
pub(crate) fn own(site: &Site, members: &[crate::request::Member]) -> Vec<Slot> {
    members
        .iter()
        .filter_map(|member| site.slot_named(&member.host.name))
        .collect()
}

/// Sends what is demanded: replacements of all roles first, then growth, each in the order of role names.
pub(crate) fn run(demands: Vec<Demand>, levels: usize) -> Solution {
    let mut layout = Layout::new(&demands, levels);
    let mut found = vec![Found::default(); demands.len()];
    for (role, demand) in demands.iter().enumerate() {
        found[role].replaced = layout.network.send(layout.roles[role].role, demand.replace);
        layout.limit_replacements(role, found[role].replaced);
    }
    read_choices(&demands, &layout, &mut found);
    let replacements_only = found.clone();
    for (role, demand) in demands.iter().enumerate() {
        found[role].grown = layout.network.send(layout.roles[role].role, demand.growth);
    }
    read_choices(&demands, &layout, &mut found);
    Solution {
        demands,
        layout,
        found,
        replacements_only,
    }
}

fn read_choices(demands: &[Demand], layout: &Layout, found: &mut [Found]) {
    for ((demand, nodes), found) in demands.iter().zip(&layout.roles).zip(found) {
        let chosen = demand.spots.iter().zip(&nodes.spots).filter_map(|(spot, nodes)| {
            let offer = spot.offers.get(used_offer(&layout.network, nodes)?)?;
            Some(Choice {
                host: offer.host,
                domain: spot.domain,
                yields: spot.yields,
            })
        });
        found.choices = chosen.collect();
    }
}

/// Everything about a request that does not depend on the namespace in which it is tried.
pub(crate) struct Inputs<'a> {
    pub(crate) site: &'a Site,
    pub(crate) accounts: &'a Accounts<'a>,
    pub(crate) stages: &'a [Stages],
    pub(crate) own: &'a [Slot],
}

impl Inputs<'_> {
    fn levels(&self) -> usize {
        self.site.policy().hierarchy.len()
    }

    /// What each role asks; `depth` is how many spots are kept per leaf of the hierarchy.
    pub(crate) fn demands(&self, namespace: Option<&Namespace>, depth: usize) -> Vec<Demand> {
        let roles = &self.accounts.roles;
        let demand = |(index, account): (usize, &Account<'_>)| {
            let mut tree = Tree::default();
            let (spots, cut) = if account.demand() == 0 {
                (Vec::new(), Vec::new())
            } else {
                let others = self
                    .stages
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| *other != index);
                let others: Vec<&FixedBitSet> = others.map(|(_, stages)| &stages.matched).collect();
                let scope = Scope {
                    namespace,
                    others,
                    own: self.own,
                };
                let depth = Depth {
                    spots: depth,
                    offers: offers(roles, index),
                };
                spots(
                    self.site,
                    account,
                    &self.stages[index].free,
                    &scope,
                    depth,
                    &mut tree,
                )
            };
            account
                .present
                .iter()
                .filter_map(|known| known.slot)
                .for_each(|slot| tree.load(self.site, slot));
            Demand {
                replace: account.replaceable,
                growth: account.growth,
                tree,
                spots,
                cut,
            }
        };
        roles.iter().enumerate().map(demand).collect()
    }

    /// Solves with few spots per leaf of the hierarchy first, since a spread placement uses few; and with as many as can
    /// matter (see [`spots`]) if what was left out could change anything.
    pub(crate) fn solve(&self, namespace: Option<&Namespace>) -> Solution {
        let total = self
            .accounts
            .roles
            .iter()
            .map(Account::demand)
            .fold(0_u32, u32::saturating_add);
        let shallow = self.shallow_depth(total);
        let solution = run(self.demands(namespace, shallow), self.levels());
        if shallow >= to_usize(total) || solution.is_certain() {
            return solution;
        }
        run(self.demands(namespace, to_usize(total)), self.levels())
    }

    /// An even share of the outermost domains, and some more.
    fn shallow_depth(&self, total: u32) -> usize {
        let outermost = self
            .site
            .policy()
            .hierarchy
            .first()
            .and_then(|key| self.site.column(key));
        let domains = outermost.map_or(1, |(_, column)| column.width().max(1));
        to_usize(total) / domains + 3
    }

    /// Solves in one namespace where that is possible: that of the members, or else the best by the policy's preference
    /// and then by [`Quality`].
    pub(crate) fn solve_in_best_namespace(&self, kept: &[&Namespace]) -> Solution {
        let mut namespaces = self.site.namespaces();
        if let (_, None) = (namespaces.next(), namespaces.next()) {
            return self.solve(None);
        }
        match kept {
            [only] => Some(self.solve(Some(only))).filter(Solution::is_complete),
            [] => self.solve_new(),
            _ => None,
        }
        .unwrap_or_else(|| self.solve(None))
    }

    fn solve_new(&self) -> Option<Solution> {
        let preference = &self.site.policy().namespace_preference;
        let class = |namespace: &&Namespace| {
            preference
                .iter()
                .position(|p| p == *namespace)
                .unwrap_or(preference.len())
        };
        let mut namespaces: Vec<&Namespace> = self.site.namespaces().collect();
        namespaces.sort_by_key(class);
        namespaces
            .chunk_by(|a, b| class(a) == class(b))
            .find_map(|equals| {
                let enough = equals.iter().filter(|namespace| self.has_enough(namespace));
                let solved = enough
                    .map(|namespace| self.solve(Some(namespace)))
                    .filter(Solution::is_complete);
                solved.min_by_key(|solution| solution.quality(self.levels()))
            })
    }

    /// Whether a namespace has as many free hosts as each role needs: cheap to see, and most often decisive.
    fn has_enough(&self, namespace: &Namespace) -> bool {
        self.accounts
            .roles
            .iter()
            .zip(self.stages)
            .all(|(account, stages)| {
                let mut free = stages.free.clone();
                self.site.keep_in_namespace(namespace, &mut free);
                free.count_ones(..) >= to_usize(account.demand())
            })
    }
}

pub(crate) fn to_usize(number: u32) -> usize {
    crate::site::at(number)
}

/// How many hosts of one spot can matter: one for the role, one for each role that could use the spot's domain, or as
/// many as such a role needs when its domains are others; and one that stays free, so that a minimum cut over them is one
/// over all.
fn offers(roles: &[Account<'_>], index: usize) -> usize {
    let key = &roles[index].role.topology_key;
    let others = roles.iter().enumerate().filter(|(other, _)| *other != index);
    let others = others.map(|(_, account)| {
        let same = key.is_some() && account.role.topology_key == *key;
        if same {
            account.demand().min(1)
        } else {
            account.demand()
        }
    });
    to_usize(others.fold(2_u32, u32::saturating_add))
}

/// The text of a domain; None for a role without a key.
pub(crate) fn domain_text(
    site: &Site,
    account: &Account<'_>,
    domain: Value,
) -> Option<crate::names::LabelValue> {
    if domain == NONE {
        return None;
    }
    let (_, column) = site.column(account.role.topology_key.as_ref()?)?;
    column
        .text(domain)
        .cloned()
        .map(crate::names::LabelValue::of_shared)
}
