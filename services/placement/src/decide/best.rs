//! The best few hosts of each domain while a site is read once.

use super::score::{Class, Score};
use crate::site::{Value, at};

/// Most hosts are no better than what their domain has already: that is seen from one small cell per value.
pub(crate) struct Best {
    cells: Vec<Cell>,
    /// Per domain its value and how many of its places are filled.
    domains: Vec<(Value, usize)>,
    /// `keep` places per domain.
    offers: Vec<Score>,
    keep: usize,
}

#[derive(Clone, Copy)]
struct Cell {
    /// Only hosts before this are of interest: the last of those kept when all places are filled.
    last: Option<(Class, u64)>,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Unseen,
    Closed,
    Open(u32),
}

impl Best {
    /// For values below `width`, the best `keep` hosts each; at least one.
    pub(crate) fn new(width: usize, keep: usize) -> Self {
        let cells = vec![
            Cell {
                last: None,
                state: State::Unseen
            };
            width
        ];
        Self {
            cells,
            domains: Vec::new(),
            offers: Vec::new(),
            keep: keep.max(1),
        }
    }

    /// Takes no host of this domain.
    pub(crate) fn close(&mut self, value: Value) {
        self.cells[at(value)].state = State::Closed;
    }

    #[inline]
    pub(crate) fn add(&mut self, value: Value, offer: Score) {
        let Some(cell) = self.cells.get(at(value)).copied() else {
            return;
        };
        if cell.last.is_some_and(|last| last < (offer.class, offer.rank)) {
            return;
        }
        match cell.state {
            State::Closed => {}
            State::Unseen => {
                let domain = self.domains.len();
                self.cells[at(value)].state = State::Open(super::flow::id(domain));
                self.domains.push((value, 0));
                self.offers.resize(self.offers.len() + self.keep, offer);
                self.insert(value, domain, offer);
            }
            State::Open(domain) => self.insert(value, at(domain), offer),
        }
    }

    fn insert(&mut self, value: Value, domain: usize, offer: Score) {
        let filled = &mut self.domains[domain].1;
        *filled = (*filled + 1).min(self.keep);
        let start = domain * self.keep;
        let offers = &mut self.offers[start..start + *filled];
        let mut place = offers.len() - 1;
        while place > 0 && offer < offers[place - 1] {
            offers[place] = offers[place - 1];
            place -= 1;
        }
        offers[place] = offer;
        if *filled == self.keep {
            self.cells[at(value)].last = offers.last().map(|last| (last.class, last.rank));
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
