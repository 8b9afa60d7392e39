//! Members whose hosts are not where they were: made again on another machine, or with another address in their data.
//!
//! Load balancers may route to the address before, and it may be another machine's by now. So it stays in the record, as that of a
//! host that is gone, until its release is confirmed.

use ::placement::{HostId, MemberState, Uid};

use super::{former::Addresses, view::View};
use crate::record::{Member, Record, ReleaseReason};

/// Whether a host lacks an address that a member has. It may show it later: until then nobody knows whose it is.
pub(super) fn lacks(now: &Addresses, member: &Member) -> bool {
    let mut before = member.addresses.iter();
    before.any(|(network, address)| now.get(network) != Some(address))
}

/// A member whose host is gone, and in whose place another one of its cluster has come.
pub(super) fn left_behind(mut member: Member) -> Member {
    if member.state != MemberState::Releasing {
        member.begin_release(ReleaseReason::Gone);
        member.replaces = None;
    }
    member
}

/// Releases the addresses in whose place hosts show others.
pub(super) fn follow_moved_hosts(view: View<'_>, record: &mut Record) {
    let moved = |(id, member): (&HostId, &Member)| {
        let now = &view.reported(id)?.details().addresses;
        let differs = |network, address| now.get(network).is_some_and(|now| now != address);
        let before = member.addresses.iter();
        let left: Addresses = before
            .filter(|(network, address)| differs(*network, *address))
            .map(|(network, address)| (network.clone(), *address))
            .collect();
        (!left.is_empty()).then(|| (id.clone(), left))
    };
    let moved: Vec<(HostId, Addresses)> = record.members.iter().filter_map(moved).collect();
    for (id, left) in moved {
        leave(record, &id, left);
    }
}

fn leave(record: &mut Record, id: &HostId, left: Addresses) {
    let Some(member) = record.members.get_mut(id) else {
        return;
    };
    // What was confirmed of its release may be older than this.
    if member.state == MemberState::Releasing {
        again(member);
    }
    let former = Member {
        addresses: left,
        ..left_behind(member.clone())
    };
    let mut known = record.members.iter_mut();
    if let Some((_, known)) =
        known.find(|(other, known)| is_former(other, id) && known.addresses == former.addresses)
    {
        again(known);
        return;
    }
    let mut ids = (1_u32..).map_while(|number| former_id(id, number));
    if let Some(free) = ids.find(|former| !record.members.contains_key(former)) {
        record.members.insert(free, former);
    }
}

/// Releases a member once more: no earlier confirmation counts.
fn again(member: &mut Member) {
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

/// Whether this stands for a former address of the host.
pub(super) fn is_former(former: &HostId, id: &HostId) -> bool {
    let number = former.uid.as_str().strip_prefix(id.uid.as_str());
    let number = number.and_then(|rest| rest.strip_prefix(SEPARATOR));
    former.name == id.name && number.is_some_and(|number| number.parse::<u32>().is_ok())
}
