//! Decides as much as there is room for.

use std::time::SystemTime;

use ::placement::ClusterName;

use super::{
    decide::decide,
    room::{Room, Withheld},
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
        mut withheld: Withheld,
        settled: &Record,
        room: Room<'_>,
        now: SystemTime,
    ) -> Record {
        loop {
            let mut record = settled.clone();
            decide(self.view(), &mut record, withheld, now);
            let replaced = room.replaced(&record);
            if replaced == 0 || room.require(&record).is_ok() {
                return record;
            }
            withheld.replacements_above = replaced.min(withheld.replacements_above) / 2;
        }
    }
}
