//! The members of a placement with their hosts assessed, and what a pass may do then.

use std::collections::BTreeSet;

use kit::placement::{Member, ObjectKey};

use super::{
    host_actions::{HostAction, Verb},
    label_or_release::{Assessment, assess},
    observation::Holding,
};

/// A member, and what its host needs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assessed<'a> {
    pub(super) member: &'a Member,
    pub(super) assessment: Assessment,
    /// See [`is_former`].
    pub(super) is_former: bool,
}

/// Orders the members of one name: the status shows the highest, since the API server identifies hosts by namespace and name.
pub(super) fn rank(member: &Member) -> (bool, u64) {
    (!member.is_releasing(), member.revision())
}

/// Whether another member of the same host name ranks higher: this one is an earlier incarnation of the host, or has an earlier address of it.
fn is_former(member: &Member, among: &[Member]) -> bool {
    let mut of_name = among
        .iter()
        .filter(|other| other.host().key() == member.host().key());
    of_name.any(|other| rank(other) > rank(member))
}

/// Whether the cluster has claimed the same host under another uid, with every address that the member has. The release of the member then waits
/// for no load balancer: the machine stays the cluster's, whatever routes to it. An address that the successor lacks may be another host's by
/// now.
#[must_use]
pub fn is_succeeded(member: &Member, among: &[Member]) -> bool {
    let same_host = |other: &&Member| other.host().key() == member.host().key();
    let mut others = among.iter().filter(same_host);
    others
        .any(|other| other.host() != member.host() && !other.is_releasing() && other.has_addresses_of(member))
}

/// Assesses every member. `load_balancers_ready`: see [`assess`].
pub(super) fn assess_all(
    holding: &Holding,
    load_balancers_ready: impl Fn(&Member) -> bool,
) -> Vec<Assessed<'_>> {
    let members = holding.placement.members();
    members
        .iter()
        .map(|member| {
            let host = holding.hosts.get(member.host().key());
            Assessed {
                member,
                is_former: is_former(member, members),
                assessment: assess(
                    holding.placement.cluster(),
                    holding.cluster_api.as_ref(),
                    member,
                    host,
                    load_balancers_ready(member) || is_succeeded(member, members),
                ),
            }
        })
        .collect()
}

/// The actions that are due, except writes to hosts that this process has written and not observed since.
pub(super) fn host_actions(holding: &Holding, members: &[Assessed<'_>]) -> Vec<HostAction> {
    let due = members.iter().filter_map(|member| member.assessment.action());
    due.filter(|action| action.verb() == Verb::Confirm || !holding.pending.contains(action.host().key()))
        .cloned()
        .collect()
}

/// Whether a write to a host is due, or one is not observed yet. Both trigger another pass, by the watch of hosts.
pub(super) fn writes_hosts(members: &[Assessed<'_>]) -> bool {
    members
        .iter()
        .filter_map(|member| member.assessment.action())
        .any(|action| action.verb().writes())
}

/// The hosts of the members.
pub(super) fn hosts(members: &[Assessed<'_>]) -> BTreeSet<ObjectKey> {
    members
        .iter()
        .map(|member| member.member.host().key().clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use api::MemberState::{self, Bound, Claimed, Releasing};
    use proto::inventory::v1 as wire;

    use super::*;
    use crate::fixtures::{answer, member, parse_member};

    fn again(host: &str, state: MemberState) -> Member {
        let answer = answer(host, state);
        let reference = answer.host.clone().unwrap();
        parse_member(proto::placement::v1::Member {
            host: Some(wire::HostRef {
                uid: format!("{}-again", reference.uid),
                ..reference
            }),
            revision: 7,
            ..answer
        })
    }

    fn at(addresses: &[(&str, &str)], member: proto::placement::v1::Member) -> Member {
        let addresses = addresses.iter();
        parse_member(proto::placement::v1::Member {
            addresses: addresses
                .map(|(network, address)| ((*network).to_owned(), (*address).to_owned()))
                .collect(),
            ..member
        })
    }

    #[test]
    fn a_claim_without_an_address_of_it_succeeds_no_member() {
        let (x, y) = (("oam", "192.0.2.1"), ("oam", "192.0.2.2"));
        let (storage, elsewhere) = (("storage", "198.51.100.1"), ("storage", "192.0.2.1"));
        let old = at(&[x, storage], answer("h1", Releasing));
        for (addresses, expected) in [
            (&[x, storage][..], true),
            (&[x, storage, ("pxe", "203.0.113.1")], true),
            (&[y, storage], false),
            (&[x], false),
            (&[], false),
            (&[y, elsewhere], false),
        ] {
            let mut other = answer("h1", Claimed);
            other.host.as_mut().unwrap().uid.push_str("-again");
            let members = [old.clone(), at(addresses, other)];
            assert_eq!(is_succeeded(&old, &members), expected, "{addresses:?}");
        }
    }

    #[test]
    fn a_newer_claim_of_the_host_succeeds_a_member() {
        let old = member("h1", Releasing);
        for (other, expected) in [
            (again("h1", Claimed), true),
            (again("h1", Bound), true),
            (again("h1", Releasing), false),
            (again("h2", Claimed), false),
        ] {
            let members = [old.clone(), other];
            assert_eq!(is_succeeded(&old, &members), expected, "{members:?}");
        }
        assert!(!is_succeeded(&old, std::slice::from_ref(&old)));
    }
}
