//! Members whose hosts are not where they were: made again on another machine, with another address in their data, or without one that
//! another host shows.
//!
//! Load balancers may route to the address before, and it may be another machine's by now. So it stays in the record, as that of a
//! host that is gone, until its release is confirmed.

use std::net::IpAddr;

use ::placement::{HostId, MemberState, NetworkId, Uid};

use super::{machine_identity::Addresses, view::View};
use crate::record::{Member, Record, ReleaseReason};

/// Whether a host lacks an address that a member has. It may show it later: until then nobody knows whose it is.
pub(super) fn lacks(now: &Addresses, member: &Member) -> bool {
    let mut before = member.addresses.iter();
    before.any(|(network, address)| now.get(network) != Some(address))
}

/// The former place of a member that continues: an address that its host has left. It has no domain: the member holds the rack that they share,
/// and when that fails, its replacement may be in it.
pub(super) fn left_behind(mut member: Member) -> Member {
    member.domain = None;
    if member.state != MemberState::Releasing {
        member.begin_release(ReleaseReason::Gone);
        member.replaces = None;
    }
    member
}

/// Releases the addresses in whose place hosts show others, and those that another host shows and the member's own does not. At most
/// `most` former places are added: where another one is due, the member keeps its address until there is room. Returns how many were
/// added.
pub(super) fn follow_moved_hosts(view: View<'_>, record: &mut Record, most: usize) -> usize {
    let mut added = 0;
    for (id, left) in moved(view, record) {
        if let AddressOutcome::Added = record_former_place(record, &id, &left, added < most) {
            added += 1;
        }
    }
    added
}

/// Whether former places may be added when the record is settled: hosts have moved, or were made again.
pub(super) fn may_add_places(view: View<'_>, record: &Record) -> bool {
    let is_remade = |id: &HostId| view.inventory.incarnation(&id.name).is_some_and(|now| now != id);
    record.members.keys().any(is_remade) || !moved(view, record).is_empty()
}

/// Members that have addresses which their hosts have left, and those.
fn moved(view: View<'_>, record: &Record) -> Vec<(HostId, Addresses)> {
    let moved = |(id, member): (&HostId, &Member)| {
        let now = &view.reported(id)?.details().addresses;
        let stays = member.state != MemberState::Releasing;
        let is_left = |network: &NetworkId, address: IpAddr| match now.get(network) {
            Some(now) => *now != address,
            // A member that is releasing gives it up with the rest.
            None => stays && view.inventory.is_shown_elsewhere(id, address),
        };
        let before = member.addresses.iter();
        let left: Addresses = before
            .filter(|(network, address)| is_left(network, **address))
            .map(|(network, address)| (network.clone(), *address))
            .collect();
        (!left.is_empty()).then(|| (id.clone(), left))
    };
    record.members.iter().filter_map(moved).collect()
}

/// What became of the addresses that a member's host has left.
enum AddressOutcome {
    /// A new former place releases them.
    Added,
    /// A former place with these addresses exists already; its release begins again.
    Known,
    /// The member keeps them, since there is no room for another former place.
    Kept,
}

/// Maximum number of former places of one host. One that reports more addresses than this waits until earlier ones are free.
const MAX_PLACES: u32 = 8;

fn record_former_place(record: &mut Record, id: &HostId, left: &Addresses, has_room: bool) -> AddressOutcome {
    let Some(member) = record.members.get(id) else {
        return AddressOutcome::Kept;
    };
    let former = Member {
        addresses: left.clone(),
        ..left_behind(member.clone())
    };
    let places = (1..=MAX_PLACES).map_while(|number| former_id(id, number));
    let places: Vec<HostId> = places.collect();
    let is_known = |place: &&HostId| {
        let known = record.members.get(*place);
        known.is_some_and(|known| known.addresses == former.addresses)
    };
    let outcome = if let Some(known) = places.iter().find(is_known).cloned() {
        if let Some(known) = record.members.get_mut(&known) {
            release_again(known);
        }
        AddressOutcome::Known
    } else {
        let free = places
            .into_iter()
            .find(|place| !record.members.contains_key(place));
        let Some(free) = free.filter(|_| has_room) else {
            return AddressOutcome::Kept;
        };
        record.members.insert(free, former);
        AddressOutcome::Added
    };
    if let Some(member) = record.members.get_mut(id) {
        // An earlier confirmation of the release does not cover the changed addresses.
        if member.state == MemberState::Releasing {
            release_again(member);
        }
        member.addresses.retain(|network, _| !left.contains_key(network));
    }
    outcome
}

/// Releases a member once more: no earlier confirmation counts.
fn release_again(member: &mut Member) {
    member.renumber();
    member.confirmed = false;
}

/// Between the uid of a host and the number of a former place of it. Kubernetes' uids do not have it.
const SEPARATOR: char = '+';

/// In the place of a host's former address: no `BareMetalHost` has such a uid. `None`: the host's own uid leaves no room.
fn former_id(id: &HostId, number: u32) -> Option<HostId> {
    let uid = format!("{}{SEPARATOR}{number}", id.uid);
    Some(HostId {
        name: id.name.clone(),
        uid: Uid::new(uid).ok()?,
    })
}

/// Whether this is a former address of the host.
pub(super) fn is_former(former: &HostId, id: &HostId) -> bool {
    let number = former.uid.as_str().strip_prefix(id.uid.as_str());
    let number = number.and_then(|rest| rest.strip_prefix(SEPARATOR));
    former.name == id.name && number.is_some_and(|number| number.parse::<u32>().is_ok())
}
