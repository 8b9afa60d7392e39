//! The best host of each domain, while a site is read once.

use super::score::{Class, Score};
use crate::site::{Value, at};

/// Most hosts are no better than what their domain has already: that is seen from one small cell per value.
pub(crate) struct Best {
    cells: Vec<Score>,
    /// The domains that have a host, as they were met.
    met: Vec<Value>,
}

impl Best {
    /// For values below `width`.
    pub(crate) fn new(width: usize) -> Self {
        Self {
            cells: vec![Score::WORST; width],
            met: Vec::new(),
        }
    }

    /// Takes no host of this domain.
    pub(crate) fn close(&mut self, value: Value) {
        self.cells[at(value)] = Score::BEST;
    }

    #[inline]
    pub(crate) fn add(&mut self, value: Value, offer: Score) {
        let Some(cell) = self.cells.get_mut(at(value)) else {
            return;
        };
        if (offer.class, offer.rank) < (cell.class, cell.rank) {
            if cell.class == Class::WORST {
                self.met.push(value);
            }
            *cell = offer;
        }
    }

    /// Each domain that has a host and is not closed, with the best of them.
    pub(crate) fn domains(&self) -> impl Iterator<Item = (Value, Score)> {
        self.met.iter().map(|value| (*value, self.cells[at(*value)]))
    }
}
