//! Settles and decides as much as there is room for.

use std::time::SystemTime;

use ::placement::{ClusterName, Withheld};

use super::{
    changed_addresses::may_add_places,
    decide::decide,
    settle::settle,
    state::Site,
    step_room::{StepRoom, replaced},
};
use crate::record::Record;

impl Site {
    /// Where a step of the cluster must fit.
    pub(super) fn step_room(&self, cluster: &ClusterName, largest: Option<usize>) -> StepRoom<'_> {
        StepRoom {
            site: &self.name,
            before: self.claims.get(cluster).map(|known| &**known),
            largest,
        }
    }

    /// The record in line with what is observed. Where many hosts have moved, as many of their former places are added as there is room for:
    /// the other members keep their addresses until some of these are free.
    pub(super) fn settled(&self, mut record: Record, room: StepRoom<'_>, now: SystemTime) -> Record {
        if room.largest.is_none() || !may_add_places(self.view(), &record) {
            settle(self.view(), &mut record, now, usize::MAX);
            return record;
        }
        let settled = |most: usize| {
            let mut record = record.clone();
            let places = settle(self.view(), &mut record, now, most);
            (places, record)
        };
        let (mut too_many, all) = settled(usize::MAX);
        if too_many == 0 || room.has_room_for_places(&all) {
            return all;
        }
        let (mut most, mut best) = (0, None);
        while too_many - most > 1 {
            let middle = most.midpoint(too_many);
            let (_, record) = settled(middle);
            if room.has_room_for_places(&record) {
                (most, best) = (middle, Some(record));
            } else {
                too_many = middle;
            }
        }
        best.unwrap_or_else(|| settled(0).1)
    }

    /// Decides a record that is settled. As many replacements are taken as there is room for.
    pub(super) fn decide_without(
        &self,
        withheld: Withheld,
        settled: &Record,
        room: StepRoom<'_>,
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
