//! The best spots of each leaf of the hierarchy, out of many.

use super::role_needs::Gate;
use super::score::Score;
use super::tree::{Node, ROOT};
use crate::site::{Value, at};

/// A place for one member: a topology domain, or a single host for a role without a key.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    /// [`NONE`] without a key.
    pub(crate) domain: Value,
    /// The innermost domain of the site's hierarchy that its best host is in.
    pub(crate) leaf: Node,
    /// Whose replacement may use it, if a member is in the domain.
    pub(crate) gate: Gate,
    /// Sorted, the best first; never empty.
    pub(crate) offers: Vec<Score>,
}

/// What may become a [`Spot`]: most do not, so it is small and owns nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) domain: Value,
    pub(crate) leaf: Node,
    pub(crate) gate: Gate,
    pub(crate) best: Score,
}

impl Candidate {
    pub(crate) fn spot(self, offers: Vec<Score>) -> Spot {
        let Self {
            domain,
            leaf,
            gate,
            best: _,
        } = self;
        Spot {
            domain,
            leaf,
            gate,
            offers,
        }
    }
}

/// Keeps the best of what is added, per leaf. Those behind a gate are kept in any case: they are few, and stand for members.
///
/// Once a leaf has as many as are kept, most others are seen to be worse by one comparison; the rest is gathered until
/// it is worth a selection. So adding takes constant time, amortised.
#[derive(Debug)]
pub(crate) struct BestSpots {
    keep: usize,
    gated: Vec<Candidate>,
    /// Per leaf: [`ROOT`] first, the others by their number.
    by_number: Vec<LeafSpots>,
}

#[derive(Debug, Clone, Default)]
struct LeafSpots {
    /// Fewer than twice the number of candidates to keep; the best are among them.
    best: Vec<Candidate>,
    /// A candidate that is not better than this is dropped.
    limit: Option<Score>,
    added: usize,
}

impl LeafSpots {
    fn add(&mut self, one: Candidate, keep: usize) {
        self.added += 1;
        if self.limit.is_some_and(|limit| one.best >= limit) {
            return;
        }
        self.best.push(one);
        if self.best.len() >= keep.saturating_mul(2) {
            self.select(keep);
        }
    }

    fn select(&mut self, keep: usize) {
        if self.best.len() > keep {
            let (_, last, _) = self.best.select_nth_unstable_by_key(keep - 1, |one| one.best);
            self.limit = Some(last.best);
            self.best.truncate(keep);
        }
    }
}

impl BestSpots {
    /// Keeps so many of each leaf, at least one.
    pub(crate) fn keeping(keep: usize) -> Self {
        Self {
            keep: keep.max(1),
            gated: Vec::new(),
            by_number: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, one: Candidate) {
        if one.gate != Gate::Open {
            self.gated.push(one);
            return;
        }
        let place = if one.leaf == ROOT { 0 } else { at(one.leaf) + 1 };
        if place >= self.by_number.len() {
            self.by_number.resize_with(place + 1, LeafSpots::default);
        }
        self.by_number[place].add(one, self.keep);
    }

    /// The best of all leaves, the best first, and the leaves that had more.
    pub(crate) fn sorted(self) -> (Vec<Candidate>, Vec<Node>) {
        let Self {
            keep,
            gated: mut kept,
            by_number,
        } = self;
        let mut cut = Vec::new();
        for mut leaf in by_number {
            leaf.select(keep);
            if leaf.added > keep {
                cut.extend(leaf.best.first().map(|one| one.leaf));
            }
            kept.append(&mut leaf.best);
        }
        kept.sort_unstable_by_key(|one| one.best);
        (kept, cut)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::score::Drawbacks;
    use super::*;

    proptest! {
        #[test]
        fn the_best_of_each_leaf_are_what_sorting_all_of_it_finds(
            drawn in prop::collection::vec((0_u32..4, 0_u64..1000, prop::bool::weighted(0.05)), 0..300),
            keep in 1_usize..40,
        ) {
            let all: Vec<Candidate> = drawn.into_iter().zip(0..).map(|((leaf, rank, gated), host)| Candidate {
                domain: host,
                leaf: leaf.checked_sub(1).unwrap_or(ROOT),
                gate: if gated { Gate::Failed } else { Gate::Open },
                best: Score { drawbacks: Drawbacks::NONE.packed(), rank, host },
            }).collect();
            let mut best_spots = BestSpots::keeping(keep);
            for one in &all {
                best_spots.add(*one);
            }
            let (best, cut) = best_spots.sorted();
            let mut expected: Vec<Score> = all.iter().filter(|one| one.gate != Gate::Open).map(|one| one.best).collect();
            let mut expected_cut = Vec::new();
            for leaf in [ROOT, 0, 1, 2] {
                let of_leaf = all.iter().filter(|one| one.leaf == leaf && one.gate == Gate::Open);
                let mut of_leaf: Vec<Score> = of_leaf.map(|one| one.best).collect();
                of_leaf.sort();
                if of_leaf.len() > keep {
                    expected_cut.push(leaf);
                }
                expected.extend(of_leaf.into_iter().take(keep));
            }
            expected.sort();
            prop_assert_eq!(best.iter().map(|one| one.best).collect::<Vec<_>>(), expected);
            prop_assert_eq!(cut, expected_cut);
        }
    }
}
