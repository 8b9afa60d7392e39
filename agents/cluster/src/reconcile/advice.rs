//! What frees a host that leaves and is in use, for people: it depends on why it leaves.

use kit::placement::Member;

use super::{machine::Machine, observation::MachineLookup};

/// Reasons of a release, by the names that the scheduler gives them.
const SURPLUS: &str = "surplus";
const FAILED: &str = "failed";

/// Whether a member leaves because its role has too many: only then its Machine is to go without another one in its place.
pub(super) fn is_surplus(member: &Member) -> bool {
    member.release_reason() == Some(SURPLUS)
}

/// What to do with the Machine on the host of a member that leaves, to follow what the message says; empty where there is none.
pub(super) fn advice(member: &Member, machine: Option<&MachineLookup>) -> String {
    let Some(MachineLookup::Found(machine)) = machine else {
        return String::new();
    };
    let words = if is_surplus(member) {
        scale_down(machine)
    } else if member.release_reason() == Some(FAILED) {
        replace(machine)
    } else {
        format!("delete its Machine {machine}, or the Cluster of that")
    };
    format!("; {words}")
}

fn scale_down(machine: &Machine) -> String {
    match machine.owner() {
        Some(owner) => format!("scale {owner} down: Cluster API deletes its Machine {machine} first"),
        None => format!("delete its Machine {machine}: nothing owns that"),
    }
}

fn replace(machine: &Machine) -> String {
    match machine.owner() {
        Some(owner) => format!(
            "delete its Machine {machine}, and do not scale {owner} down: the Machine that it makes instead takes the replacement"
        ),
        None => format!("delete its Machine {machine}, and create another one, which takes the replacement"),
    }
}

#[cfg(test)]
mod tests {
    use api::MemberState::Releasing;
    use proto::placement::v1 as wire;

    use super::*;
    use crate::fixtures::{answer, parse_member};

    #[test]
    fn the_advice_follows_the_reason() {
        let owned = Machine::parse("metal/m-0").unwrap();
        let owned = MachineLookup::Found(owned.owned_by("MachineDeployment shop-md"));
        let alone = MachineLookup::Found(Machine::parse("metal/m-0").unwrap());
        let unreadable = MachineLookup::Unreadable("not now".to_owned());
        for (reason, machine, expected) in [
            (
                "surplus",
                Some(&owned),
                "; scale MachineDeployment shop-md down: Cluster API deletes its Machine metal/m-0 first",
            ),
            (
                "surplus",
                Some(&alone),
                "; delete its Machine metal/m-0: nothing owns that",
            ),
            (
                "failed",
                Some(&owned),
                "; delete its Machine metal/m-0, and do not scale MachineDeployment shop-md down: the Machine that it makes instead takes the replacement",
            ),
            (
                "failed",
                Some(&alone),
                "; delete its Machine metal/m-0, and create another one, which takes the replacement",
            ),
            (
                "deleted",
                Some(&owned),
                "; delete its Machine metal/m-0, or the Cluster of that",
            ),
            (
                "orphaned",
                Some(&alone),
                "; delete its Machine metal/m-0, or the Cluster of that",
            ),
            ("surplus", Some(&unreadable), ""),
            ("failed", None, ""),
        ] {
            let member = parse_member(wire::Member {
                release_reason: reason.to_owned(),
                ..answer("h1", Releasing)
            });
            assert_eq!(advice(&member, machine), expected, "{reason}");
        }
    }
}
