//! Whether a step has room: in the status of its `SIPCluster`, and in the ledger.
//!
//! A cluster grows only as far as there is room for the replacements that may be under way at once besides: one that has grown as far as it
//! may can still replace a host. A replacement itself may use all the room that there is. One that does not fit waits until a host
//! that is being released is free; nothing else of the step waits for it.

use ::placement::{HostId, MemberState, Replaces, Role, Uid};

use super::status_size;
use crate::{
    ledger::{TooLarge, weight},
    record::{Member, Record},
};

/// One of this many parts of the ledger's space is for reports, by which a step may be larger than a record that is only settled.
const REPORT_PARTS: usize = 32;

/// Where a step must fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepRoom<'a> {
    pub(super) site: &'a str,
    /// The record before the step.
    pub(super) before: Option<&'a Record>,
    /// The most bytes that the ledger takes.
    pub(super) largest: Option<usize>,
}

impl StepRoom<'_> {
    /// Refuses a step that has no room.
    ///
    /// # Errors
    /// [`TooLarge`] names the cluster.
    pub(super) fn require(self, after: &Record) -> Result<(), TooLarge> {
        status_size::require(self.site, self.before, after, 0)?;
        weight::require(self.site, self.before, after, self.largest)
    }

    /// Whether a settled record leaves room in the ledger for what else a step may say: then it may have so many former places of hosts
    /// that have moved. They take no room in the status, which has one member of a name.
    pub(super) fn has_room_for_places(self, settled: &Record) -> bool {
        let largest = self.largest.map(|largest| largest - largest / REPORT_PARTS);
        weight::require(self.site, self.before, settled, largest).is_ok()
    }

    /// Refuses a step by which a cluster grows so far that its members could no longer be replaced. What it has in the
    /// `settled` record is no growth: it has that already, though a ledger that was lost or restored may not know it.
    ///
    /// # Errors
    /// [`TooLarge`] names the cluster.
    pub(super) fn require_growth(self, settled: &Record, after: &Record) -> Result<(), TooLarge> {
        let mut new = new_members(settled, after);
        if new.all(|(_, member)| member.replaces.is_some()) {
            return Ok(());
        }
        let padded = with_replacements(after);
        let in_status = status_size::replacements(&padded, after);
        let required = status_size::require(self.site, self.before, after, in_status);
        let required = required.and_then(|()| weight::require(self.site, self.before, &padded, self.largest));
        required.map_err(|error| TooLarge {
            what: format!(
                "{} in site {:?} with {} hosts and room for {} that are replaced at once{}",
                after.cluster,
                self.site,
                status_size::hosts(after),
                padded.members.len() - after.members.len(),
                status_size::other_fields(after)
            ),
            ..error
        })
    }
}

/// How many members come in the place of others by a decision for the `settled` record.
pub(super) fn replaced(settled: &Record, after: &Record) -> u32 {
    let new = new_members(settled, after);
    let count = new.filter(|(_, member)| member.replaces.is_some()).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn new_members<'a>(settled: &'a Record, after: &'a Record) -> impl Iterator<Item = (&'a HostId, &'a Member)> {
    let members = after.members.iter();
    members.filter(|(id, member)| member.state == MemberState::Claimed && !settled.members.contains_key(*id))
}

/// The record with as many more members as may be replaced at once, each as large as the largest of its role.
fn with_replacements(record: &Record) -> Record {
    let mut padded = record.clone();
    for role in record.spec.roles() {
        let of_role = record
            .members
            .iter()
            .filter(|(_, member)| member.role == role.name);
        if let Some(largest) = of_role.max_by_key(|(id, member)| status_size::member(id, member)) {
            padded.members.extend(replacements(role, largest));
        }
    }
    padded
}

fn replacements(role: &Role, (id, member): (&HostId, &Member)) -> Vec<(HostId, Member)> {
    let number = |number: u32| {
        // No host has such a uid: it only has to be another one of the same length.
        let uid = format!("{number:0width$}", width = id.uid.as_str().len());
        let id = HostId {
            name: id.name.clone(),
            uid: Uid::new(uid).ok()?,
        };
        // The longest name that a replacement can name is that of the member itself.
        let member = Member {
            replaces: Some(Replaces::Alone(id.clone())),
            ..member.clone()
        };
        Some((id, member))
    };
    (0..::placement::replacement_limit(role))
        .filter_map(number)
        .collect()
}

#[cfg(test)]
mod tests {
    use ::placement::{ClusterName, HostName, RoleName, Selector};

    use super::*;
    use crate::spec::{Declared, Spec};

    const MEMBERS: u32 = 40;

    /// A cluster with so many workers of the 40 that it wants, and the weight of what it has.
    fn cluster(members: u32) -> Record {
        let role = Role {
            name: RoleName::new("Worker").unwrap(),
            selector: Selector::default(),
            topology_key: None,
            want: MEMBERS,
            replace_after_error: None,
        };
        let spec = Spec::new(vec![(role, Declared::default())], Vec::new(), 0);
        let name = ClusterName::new("tenant", "one").unwrap();
        let mut record = Record::new(name, "uid".to_owned(), None, 1, spec);
        record.members = (0..members).map(member).collect();
        record
    }

    fn member(number: u32) -> (HostId, Member) {
        let id = HostId {
            name: HostName::new("metal", format!("h{number:03}")).unwrap(),
            uid: Uid::new(format!("uid-{number:03}")).unwrap(),
        };
        let role = RoleName::new("Worker").unwrap();
        (id, Member::new(role, None, MemberState::Claimed))
    }

    fn in_a_ledger(before: &Record, largest: usize) -> StepRoom<'_> {
        StepRoom {
            site: "a",
            before: Some(before),
            largest: Some(largest),
        }
    }

    #[test]
    fn no_status_has_room_for_more_than_a_cluster_may_want() {
        let smallest = HostId {
            name: HostName::new("a", "b").unwrap(),
            uid: Uid::new("u").unwrap(),
        };
        let role = RoleName::new("R").unwrap();
        let bytes = status_size::member(&smallest, &Member::new(role, None, MemberState::Claimed));
        let refused = status_size::require("a", None, &cluster(3_000), 0).unwrap_err();
        assert_eq!(
            u64::try_from(refused.limit / bytes).unwrap(),
            crate::spec::MAX_MEMBERS
        );
    }

    #[test]
    fn growth_leaves_room_in_the_ledger_to_replace_members() {
        let (before, after) = (cluster(MEMBERS - 1), cluster(MEMBERS));
        let needed = weight::require("a", Some(&before), &after, Some(0))
            .unwrap_err()
            .bytes;
        let room = in_a_ledger(&before, needed);
        room.require(&after).unwrap();
        let refused = room.require_growth(&before, &after).unwrap_err();
        assert!(
            refused
                .what
                .ends_with("with 40 hosts and room for 4 that are replaced at once"),
            "{refused}"
        );
        in_a_ledger(&before, refused.bytes)
            .require_growth(&before, &after)
            .unwrap();

        let mut in_place = before.clone();
        let (id, mut new) = member(MEMBERS);
        let old = before.members.keys().next().unwrap();
        new.replaces = Some(Replaces::Alone(old.clone()));
        in_place.members.insert(id, new);
        room.require_growth(&before, &in_place).unwrap();
        assert_eq!((replaced(&before, &in_place), replaced(&before, &after)), (1, 0));
    }
}
