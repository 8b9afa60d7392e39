//! Decides as much as there is room for.

use std::time::SystemTime;

use ::placement::{ClusterName, Withheld};

use super::{
    decide::decide,
    room::{Room, replaced},
    state::Site,
};
use crate::record::Record;

impl Site {
    /// Where a step of the cluster must fit.
    pub(super) fn room(&self, cluster: &ClusterName, largest: Option<usize>) -> Room<'_> {
        Room {
            site: &self.name,
            before: self.claims.get(cluster).map(|known| &**known),
            largest,
        }
    }

    /// Decides a record that is settled. As many replacements are taken as there is room for.
    pub(super) fn decide_without(
        &self,
        withheld: Withheld,
        settled: &Record,
        room: Room<'_>,
        now: SystemTime,
    ) -> Record {
        let decided = |replacements_above: u32| {
            let mut record = settled.clone();
            let withheld = Withheld {
                replacements_above,
                ..withheld
            };
            decide(self.view(), &mut record, withheld, now);
            record
        };
        let all = decided(withheld.replacements_above);
        let mut too_many = replaced(settled, &all);
        if too_many == 0 || room.require(&all).is_ok() {
            return all;
        }
        let (mut most, mut best) = (0, None);
        while too_many - most > 1 {
            let middle = most.midpoint(too_many);
            let record = decided(middle);
            if room.require(&record).is_ok() {
                (most, best) = (middle, Some(record));
            } else {
                too_many = middle;
            }
        }
        best.unwrap_or_else(|| decided(0))
    }
}
