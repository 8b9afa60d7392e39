//! Advice for users on a host that is in use: what they can do depends on why the host leaves, and on who uses it.

use kit::placement::Member;

use super::{
    machine::Machine,
    observation::{Holding, MachineLookup},
};

/// Reasons of a release, by the names that the scheduler gives them.
const SURPLUS: &str = "surplus";
const FAILED: &str = "failed";
const GONE: &str = "gone";

/// Whether a member leaves because its role has too many hosts. Only then its Machine has to be deleted without a replacement.
pub(super) fn is_surplus(member: &Member) -> bool {
    member.release_reason() == Some(SURPLUS)
}

/// What to do with the Machine on the host of a member that leaves, as the end of a message; empty where there is nothing to do.
pub(super) fn advice(holding: &Holding, member: &Member) -> String {
    let machine = holding.machines.get(member.host().uid());
    let follows = match machine {
        Some(MachineLookup::Found(machine)) => holding.is_followed(member, machine),
        Some(
            MachineLookup::Claim(_)
            | MachineLookup::Foreign(_)
            | MachineLookup::Kept(_)
            | MachineLookup::Collected(_)
            | MachineLookup::Unreadable(_),
        )
        | None => false,
    };
    by_machine(member, machine, follows)
}

/// `follows`: this agent sets the replicas of what owns the Machine.
fn by_machine(member: &Member, machine: Option<&MachineLookup>, follows: bool) -> String {
    if member.release_reason() == Some(GONE) {
        return of_gone_host(machine);
    }
    let machine = match machine {
        Some(MachineLookup::Found(machine)) => machine,
        Some(MachineLookup::Claim(claim)) => return format!("; delete {claim}, which no Machine uses"),
        Some(MachineLookup::Foreign(consumer)) => {
            return format!(
                "; {consumer} is for a Machine of another Cluster{}",
                foreign_consumer()
            );
        }
        Some(MachineLookup::Kept(cluster)) => {
            return format!(
                "; CAPM3 reserves it for the next Machine of {cluster} (nodeReuse): to release it, remove spec.consumerRef and label {} of the host",
                api::labels::CLUSTER_API
            );
        }
        Some(MachineLookup::Collected(_) | MachineLookup::Unreadable(_)) | None => return String::new(),
    };
    let advice = if is_surplus(member) {
        surplus(machine, follows)
    } else if member.release_reason() == Some(FAILED) {
        replace(machine)
    } else {
        format!("delete Machine {machine} of this host, or the Cluster of that Machine")
    };
    format!("; {advice}")
}

/// Why a host is gone and what to do with its Machine, as the end of a message; empty where neither is known.
pub(super) fn of_gone_host(machine: Option<&MachineLookup>) -> String {
    match machine {
        Some(MachineLookup::Found(machine)) => {
            format!("; its Machine no longer has a host: {}", replace(machine))
        }
        Some(MachineLookup::Collected(owner)) => format!(
            "; the garbage collector of Kubernetes deleted the host, because the owner of the host, {owner}, was gone"
        ),
        Some(
            MachineLookup::Claim(_)
            | MachineLookup::Foreign(_)
            | MachineLookup::Kept(_)
            | MachineLookup::Unreadable(_),
        )
        | None => String::new(),
    }
}

/// What to do where a consumer of another Cluster uses a member's host, as the end of a message.
pub(super) fn foreign_consumer() -> String {
    format!(
        ": delete the Machine that uses it, or name its Cluster in annotation {} of the SIPCluster",
        api::annotations::CLUSTER_API_CLUSTER
    )
}

/// The same where the `SIPCluster` is being deleted: to name another Cluster in it frees no host. That Cluster may be its own under another
/// name, or one of another tenant.
pub(super) const FOREIGN_CONSUMER_OF_DELETED: &str = ": it is released once nothing uses it; delete the Cluster of that consumer if it is to \
    be deleted too, or else its Machine only; where the consumer no longer exists, remove spec.consumerRef and label cluster.x-k8s.io/cluster-name of \
    the host";

fn surplus(machine: &Machine, follows: bool) -> String {
    match machine.owner() {
        Some(owner) if follows => {
            format!(
                "the cluster agent lowers the replicas of {owner}, and Cluster API deletes its Machine {machine} first"
            )
        }
        Some(owner) => format!("scale {owner} down: Cluster API deletes its Machine {machine} first"),
        None => format!("delete Machine {machine} of this host, which has no owner"),
    }
}

fn replace(machine: &Machine) -> String {
    match machine.owner() {
        Some(owner) => format!(
            "delete Machine {machine} of this host, and do not scale {owner} down: {owner} then creates a Machine, which gets the replacement host"
        ),
        None => format!(
            "delete Machine {machine} of this host, and create another Machine, which gets the replacement host"
        ),
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
        let claim = MachineLookup::Claim("HostClaim shop/c-0".to_owned());
        let collected = MachineLookup::Collected("Metal3Machine metal/m-0".to_owned());
        let kept = MachineLookup::Kept("Cluster metal/shop".to_owned());
        let foreign = MachineLookup::Foreign("HostClaim shop/c-0".to_owned());
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
                "; delete Machine metal/m-0 of this host, which has no owner",
            ),
            (
                "failed",
                Some(&owned),
                "; delete Machine metal/m-0 of this host, and do not scale MachineDeployment shop-md down: MachineDeployment shop-md then creates a Machine, which gets the replacement host",
            ),
            (
                "failed",
                Some(&alone),
                "; delete Machine metal/m-0 of this host, and create another Machine, which gets the replacement host",
            ),
            (
                "deleted",
                Some(&owned),
                "; delete Machine metal/m-0 of this host, or the Cluster of that Machine",
            ),
            (
                "orphaned",
                Some(&alone),
                "; delete Machine metal/m-0 of this host, or the Cluster of that Machine",
            ),
            (
                "surplus",
                Some(&claim),
                "; delete HostClaim shop/c-0, which no Machine uses",
            ),
            (
                "gone",
                Some(&owned),
                "; its Machine no longer has a host: delete Machine metal/m-0 of this host, and do not scale MachineDeployment shop-md down: MachineDeployment shop-md then creates a Machine, which gets the replacement host",
            ),
            (
                "gone",
                Some(&collected),
                "; the garbage collector of Kubernetes deleted the host, because the owner of the host, Metal3Machine metal/m-0, was gone",
            ),
            ("gone", Some(&claim), ""),
            ("gone", None, ""),
            ("failed", Some(&collected), ""),
            (
                "surplus",
                Some(&kept),
                "; CAPM3 reserves it for the next Machine of Cluster metal/shop (nodeReuse): to release it, remove spec.consumerRef and label cluster.x-k8s.io/cluster-name of the host",
            ),
            (
                "surplus",
                Some(&foreign),
                "; HostClaim shop/c-0 is for a Machine of another Cluster: delete the Machine that uses it, or name its Cluster in annotation sip.airshipit.org/cluster-api-cluster of the SIPCluster",
            ),
            ("gone", Some(&foreign), ""),
            ("surplus", Some(&unreadable), ""),
            ("failed", None, ""),
        ] {
            let member = parse_member(wire::Member {
                release_reason: reason.to_owned(),
                ..answer("h1", Releasing)
            });
            assert_eq!(by_machine(&member, machine, false), expected, "{reason}");
        }
    }

    #[test]
    fn nobody_is_told_to_scale_what_follows() {
        let owned = Machine::parse("metal/m-0")
            .unwrap()
            .owned_by("MachineDeployment shop-md");
        let owned = MachineLookup::Found(owned);
        for (reason, expected) in [
            (
                "surplus",
                "; the cluster agent lowers the replicas of MachineDeployment shop-md, and Cluster API deletes its Machine metal/m-0 first",
            ),
            (
                "deleted",
                "; delete Machine metal/m-0 of this host, or the Cluster of that Machine",
            ),
        ] {
            let member = parse_member(wire::Member {
                release_reason: reason.to_owned(),
                ..answer("h1", Releasing)
            });
            assert_eq!(by_machine(&member, Some(&owned), true), expected, "{reason}");
        }
    }
}
