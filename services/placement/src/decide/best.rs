//! The best few hosts of each domain while a site is read once.

use super::score::{Class, Score};
use crate::site::{Value, at};

/// Most hosts are no better than what their domain has already: that is seen from one small cell per value.
pub(crate) struct Best {
    cells: Vec<Cell>,
    domains: Vec<Places>,
    /// Each domain's places, one domain after the other.
    offers: Vec<Score>,
    keep: usize,
}

struct Places {
    value: Value,
    start: usize,
    filled: usize,
    room: usize,
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

    /// `size` says how many hosts a domain has at most: it gets no more places than that.
    #[inline]
    pub(crate) fn add(&mut self, value: Value, offer: Score, size: impl Fn(Value) -> usize) {
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
                let (start, room) = (self.offers.len(), self.keep.min(size(value)).max(1));
                self.domains.push(Places {
                    value,
                    start,
                    filled: 0,
                    room,
                });
                self.offers.resize(start + room, offer);
                self.insert(domain, offer);
            }
            State::Open(domain) => self.insert(at(domain), offer),
        }
    }

    fn insert(&mut self, domain: usize, offer: Score) {
        let Places {
            value,
            start,
            filled,
            room,
        } = &mut self.domains[domain];
        *filled = (*filled + 1).min(*room);
        let offers = &mut self.offers[*start..*start + *filled];
        let mut place = offers.len() - 1;
        while place > 0 && offer < offers[place - 1] {
            offers[place] = offers[place - 1];
            place -= 1;
        }
        offers[place] = offer;
        if *filled == *room {
            self.cells[at(*value)].last = offers.last().map(|last| (last.class, last.rank));
        }
    }

    /// Each domain with its best hosts, sorted; none is empty.
    pub(crate) fn domains(&self) -> impl Iterator<Item = (Value, &[Score])> {
        let offers = |domain: &Places| {
            (
                domain.value,
                &self.offers[domain.start..domain.start + domain.filled],
            )
        };
        self.domains.iter().map(offers)
    }
}
