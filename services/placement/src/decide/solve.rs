//! From needs and filtered hosts to a placement, or to the proof that there is none.

use fixedbitset::FixedBitSet;
use vocabulary::{Namespace, RoleName};

use super::demand::Demand;
use super::demand_order::find_hosts;
use super::pool::{Depth, FilteredHosts, Pool, Scope, pool};
use super::role_needs::{ClusterNeeds, RoleNeeds};
use super::solution::Solution;
use super::tree::Tree;
use crate::request::{Member, Request};
use crate::site::{Site, Slot, at};

/// The hosts that the cluster has already; they are not taken again. A host that was made again under a member's name is
/// another host.
pub(crate) fn own(site: &Site, members: &[Member]) -> Vec<Slot> {
    members
        .iter()
        .filter_map(|member| site.slot_of(&member.host))
        .collect()
}

/// Which hosts a solution may use.
#[derive(Clone, Copy, Default)]
struct AllowedHosts<'a> {
    /// Only in this namespace.
    only: Option<&'a Namespace>,
    /// Hosts that are used only if there are no others.
    outside: Option<&'a FixedBitSet>,
}

impl<'a> AllowedHosts<'a> {
    fn only(namespace: &'a Namespace) -> Self {
        Self {
            only: Some(namespace),
            outside: None,
        }
    }
}

/// Everything about a request that does not depend on the namespace in which it is tried.
pub(crate) struct Inputs<'a> {
    pub(crate) site: &'a Site,
    pub(crate) members: &'a [Member],
    pub(crate) needs: &'a ClusterNeeds<'a>,
    pub(crate) filtered: &'a [FilteredHosts],
    pub(crate) own: &'a [Slot],
}

impl Inputs<'_> {
    fn levels(&self) -> usize {
        self.site.policy().hierarchy.len()
    }

    /// What each role asks; `depth` is how many spots are kept per leaf of the hierarchy.
    fn demands(&self, within: AllowedHosts<'_>, depth: usize) -> Vec<Demand> {
        let roles = &self.needs.roles;
        self.demands_to(within, |index| Depth {
            spots: depth,
            offers: offers(roles, index),
        })
    }

    fn demands_to(&self, within: AllowedHosts<'_>, depth: impl Fn(usize) -> Depth) -> Vec<Demand> {
        let demand = |(index, role_needs): (usize, &RoleNeeds<'_>)| {
            let mut tree = Tree::new(self.site);
            let pool = if role_needs.demand() == 0 {
                Pool::default()
            } else {
                let others = self
                    .filtered
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| *other != index);
                let others: Vec<&FixedBitSet> = others.map(|(_, filtered)| &filtered.matched).collect();
                let scope = Scope {
                    namespace: within.only,
                    others,
                    outside: within.outside,
                    own: self.own,
                };
                let free = &self.filtered[index].free;
                pool(self.site, role_needs, free, &scope, depth(index), &mut tree)
            };
            let present = role_needs.present.iter().filter_map(|known| known.slot);
            present.for_each(|slot| tree.load(self.site, slot));
            Demand {
                replace: role_needs.replaceable,
                turns: role_needs.turns.clone(),
                fresh: role_needs.fresh,
                moves: role_needs.may_move,
                growth: role_needs.growth,
                tree,
                pool,
            }
        };
        self.needs.roles.iter().enumerate().map(demand).collect()
    }

    /// Solves with few spots per leaf of the hierarchy first, since a spread placement uses few; with twice as many while
    /// what was left out could make it better, and with as many as can matter (see [`pool`]) if something was not found.
    fn solve(&self, within: AllowedHosts<'_>) -> Solution {
        let total = self
            .needs
            .roles
            .iter()
            .map(RoleNeeds::demand)
            .fold(0_u32, u32::saturating_add);
        let mut depth = self.shallow_depth(total);
        loop {
            let solution = find_hosts(self.demands(within, depth), self.levels());
            if depth >= at(total) || solution.is_certain() {
                return solution;
            }
            depth = if solution.is_complete() {
                depth.saturating_mul(2).min(at(total))
            } else {
                at(total)
            };
        }
    }

    /// Whether everything is found if these roles want so many.
    pub(crate) fn fits_with_less(&self, request: &Request, less: &[(RoleName, u32)]) -> bool {
        let mut smaller = request.clone();
        for role in &mut smaller.roles {
            let asked = less.iter().find(|(name, _)| *name == role.name);
            role.want = asked.map_or(role.want, |(_, want)| *want);
        }
        let needs = ClusterNeeds::new(self.site, &smaller, self.members);
        let inputs = Inputs {
            needs: &needs,
            ..*self
        };
        inputs.solve(AllowedHosts::default()).is_complete()
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
        at(total) / domains + 2
    }

    /// Solves in one namespace where that is possible: that of the members, or else the best by the policy's preference
    /// and then by [`Quality`](super::solution::Quality). Where it is not, as few hosts as possible are taken outside the
    /// namespaces of the members.
    pub(crate) fn solve_in_best_namespace(&self, kept: &[&Namespace]) -> Solution {
        let mut namespaces = self.site.namespaces();
        if let (_, None) = (namespaces.next(), namespaces.next()) {
            return self.solve(AllowedHosts::default());
        }
        match kept {
            [only] => Some(self.solve(AllowedHosts::only(only))).filter(Solution::is_complete),
            [] => self.solve_new(),
            _ => None,
        }
        .unwrap_or_else(|| {
            let outside = self.site.outside(kept);
            let outside = (!kept.is_empty()).then_some(&outside);
            self.solve(AllowedHosts { only: None, outside })
        })
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
                    .map(|namespace| self.solve(AllowedHosts::only(namespace)))
                    .filter(Solution::is_complete);
                solved.min_by_key(|solution| solution.quality(self.levels()))
            })
    }

    /// Whether a namespace has as many free hosts as each role needs: cheap to see, and most often decisive.
    fn has_enough(&self, namespace: &Namespace) -> bool {
        self.needs
            .roles
            .iter()
            .zip(self.filtered)
            .all(|(role_needs, filtered)| {
                let mut free = filtered.free.clone();
                self.site.keep_in_namespace(namespace, &mut free);
                free.count_ones(..) >= at(role_needs.demand())
            })
    }
}

/// How many hosts of one spot can matter: one for the role, one for each role that could use the spot's domain, or as
/// many as such a role needs when its domains are others; and one that stays free, so that a minimum cut over them is one
/// over all.
fn offers(roles: &[RoleNeeds<'_>], index: usize) -> usize {
    let key = &roles[index].role.topology_key;
    let others = roles.iter().enumerate().filter(|(other, _)| *other != index);
    let others = others.map(|(_, role_needs)| {
        let same = key.is_some() && role_needs.role.topology_key == *key;
        if same {
            role_needs.demand().min(1)
        } else {
            role_needs.demand()
        }
    });
    at(others.fold(2_u32, u32::saturating_add))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        Host, HostId, HostName, LabelKey, LabelValue, Policy, Request, Requirement, Role, Selector, Uid,
    };

    fn key(text: &str) -> LabelKey {
        LabelKey::new(text).expect("a key")
    }

    fn value(text: &str) -> LabelValue {
        LabelValue::new(text).expect("a value")
    }

    /// Room of the rack, rack, flavor and whether it is on.
    type Drawn = (u8, u8, bool);

    fn site(drawn: &[Drawn]) -> Site {
        let mut site = Site::new(Policy {
            hierarchy: vec![key("room")],
            ..Policy::default()
        });
        for (index, (rack, flavor, on)) in drawn.iter().enumerate() {
            let name = HostName::new("metal", format!("h{index:03}")).expect("a name");
            let mut host = Host::available(HostId {
                name,
                uid: Uid::new("u").expect("a uid"),
            });
            host.labels = [
                (key("rack"), value(&format!("r{rack}"))),
                (key("room"), value(&format!("m{}", rack % 3))),
                (key("server"), value(&format!("s{index}"))),
                (key("flavor"), value(&format!("f{flavor}"))),
            ]
            .into();
            host.powered_on = *on;
            site.upsert(host);
        }
        site
    }

    fn role(index: usize, (flavors, keys, want): (u8, u8, u32)) -> Role {
        let all = (0..3)
            .filter(|flavor| flavors >> flavor & 1 == 1)
            .map(|flavor| value(&format!("f{flavor}")));
        let selector = Selector::all([Requirement::In(key("flavor"), all.collect::<BTreeSet<_>>())]);
        let topology_key = [Some("rack"), Some("rack"), Some("server"), None][usize::from(keys)].map(key);
        let name = crate::RoleName::new(format!("role{index}")).expect("a role");
        Role {
            name,
            selector,
            topology_key,
            want,
            replace_after_error: None,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_the_pools_leave_out_changes_neither_fit_nor_price(
            drawn in prop::collection::vec((0_u8..14, 0_u8..3, any::<bool>()), 10..90),
            roles in prop::collection::vec((1_u8..8, 0_u8..4, 0_u32..9), 1..4),
        ) {
            let site = site(&drawn);
            let roles: Vec<Role> = roles.into_iter().enumerate().map(|(index, drawn)| role(index, drawn)).collect();
            let request = Request { cluster: "t/c".parse().expect("a name"), roles, networks: BTreeSet::new() };
            let needs = ClusterNeeds::new(&site, &request, &[]);
            let filtered: Vec<FilteredHosts> =
                needs.roles.iter().map(|role_needs| FilteredHosts::new(&site, &request, role_needs.role)).collect();
            let inputs = Inputs { site: &site, members: &[], needs: &needs, filtered: &filtered, own: &[] };
            let pruned = inputs.solve(AllowedHosts::default());
            let all = find_hosts(inputs.demands_to(AllowedHosts::default(), |_| Depth { spots: usize::MAX - 1, offers: 90 }), 1);
            prop_assert_eq!(pruned.missing(), all.missing());
            if all.is_complete() {
                prop_assert_eq!(pruned.quality(1), all.quality(1));
            }
        }
    }
}
