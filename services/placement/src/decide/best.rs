//! The best few hosts of each domain while a site is read once.

use super::score::Score;
use crate::site::{Value, at};

/// Per value number either nothing yet, or the place of the domain's hosts in one array.
pub(crate) struct Best {
    state: Vec<u32>,
    domains: Vec<(Value, usize)>,
    /// `keep` places per domain.
    offers: Vec<Score>,
    keep: usize,
}

const UNSEEN: u32 = u32::MAX;
const CLOSED: u32 = u32::MAX - 1;

impl Best {
    /// For values below `width`, the best `keep` hosts each; at least one.
    pub(crate) fn new(width: usize, keep: usize) -> Self {
        Self {
            state: vec![UNSEEN; width],
            domains: Vec::new(),
            offers: Vec::new(),
            keep: keep.max(1),
        }
    }

    /// Takes no host of this domain.
    pub(crate) fn close(&mut self, value: Value) {
        self.state[at(value)] = CLOSED;
    }

    pub(crate) fn add(&mut self, value: Value, offer: Score) {
        let Some(state) = self.state.get_mut(at(value)) else {
            return;
        };
        match *state {
            CLOSED => {}
            UNSEEN => {
                *state = super::flow::id(self.domains.len());
                self.domains.push((value, 1));
                self.offers.resize(self.offers.len() + self.keep, offer);
            }
            known => {
                let (_, filled) = &mut self.domains[at(known)];
                let start = at(known) * self.keep;
                let full = *filled == self.keep;
                if full && self.offers[start + *filled - 1] < offer {
                    return;
                }
                *filled += usize::from(!full);
                let offers = &mut self.offers[start..start + *filled];
                let mut place = offers.len() - 1;
                while place > 0 && offer < offers[place - 1] {
                    offers[place] = offers[place - 1];
                    place -= 1;
                }
                offers[place] = offer;
            }
        }
    }

    /// Each domain with its best hosts, sorted; none is empty.
    pub(crate) fn domains(&self) -> impl Iterator<Item = (Value, &[Score])> {
        let offers = |(index, (value, filled)): (usize, &(Value, usize))| {
            let start = index * self.keep;
            (*value, &self.offers[start..start + filled])
        };
        self.domains.iter().enumerate().map(offers)
    }
}
