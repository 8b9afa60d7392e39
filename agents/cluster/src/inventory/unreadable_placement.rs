//! What can be read of a placement that cannot be read as a whole, since another version of the agents, or a user, has written it.

use api::{Member, MemberState, Placement};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The parts that can be read; `None` where it has none. A number that cannot be read is 0: a placement of the lowest position still holds its hosts
/// where no ledger knows more of the cluster.
pub(super) fn readable(placement: &Value) -> Option<Placement> {
    let members = placement.get("members").and_then(Value::as_array);
    placement.is_object().then(|| Placement {
        epoch: part(placement, "epoch").unwrap_or_default(),
        revision: part(placement, "revision").unwrap_or_default(),
        generation: part(placement, "generation").unwrap_or_default(),
        members: members.into_iter().flatten().filter_map(member).collect(),
        former_release: part(placement, "formerRelease"),
        former_since: None,
    })
}

/// A member whose host can be read.
fn member(member: &Value) -> Option<Member> {
    Some(Member {
        namespace: part(member, "namespace")?,
        name: part(member, "name")?,
        uid: part(member, "uid")?,
        role: part(member, "role").unwrap_or_default(),
        ordinal: part(member, "ordinal"),
        domain: part(member, "domain"),
        // No other cluster may hold the host while its state is not known.
        state: part(member, "state").unwrap_or(MemberState::Claimed),
        revision: part(member, "revision").unwrap_or_default(),
        since: None,
        failed_since: None,
        replaces: part(member, "replaces"),
        release_reason: part(member, "releaseReason"),
        machine: None,
    })
}

/// A field, if it can be read.
fn part<T: DeserializeOwned>(of: &Value, field: &str) -> Option<T> {
    serde_json::from_value(of.get(field)?.clone()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_part_makes_no_other_unreadable() {
        let member = json!({
            "namespace": "metal", "name": "h1", "uid": "uid-h1", "role": "Worker", "state": "Moving", "revision": 5, "ordinal": -1,
        });
        let placement = json!({
            "epoch": 2, "revision": "seven", "generation": 3, "members": [member, {"name": "h2"}, 3],
        });
        let read = readable(&placement).unwrap();
        assert_eq!((read.epoch, read.revision, read.generation), (2, 0, 3));
        let [member] = &*read.members else {
            panic!("{read:?}")
        };
        assert_eq!((&*member.name, &*member.uid), ("h1", "uid-h1"));
        assert_eq!((member.state, member.ordinal), (MemberState::Claimed, None));
        assert_eq!(readable(&json!(7)), None);
    }
}
