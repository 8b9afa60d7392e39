//! Which replicas an object may have by now, by the hosts of its role.
//!
//! Up: a Machine without a labelled host would wait, so replicas follow the hosts that carry their labels. Down: Cluster API deletes marked
//! Machines first, so replicas are lowered only once the Machines on surplus hosts are marked; otherwise it would delete others, and the surplus
//! hosts would never be free. A host that has failed does not lower replicas: a user deletes its Machine, and the owner of the Machine makes
//! another.

use api::ScaledKind;

/// The hosts of a role, as far as replicas follow them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hosts {
    /// Hosts that the spec wants in use.
    pub(super) active: u32,
    /// Active hosts and spare ones.
    pub(super) wanted: u32,
    /// Members that do not leave.
    pub(super) staying: u32,
    /// Staying members whose host is observed with its labels.
    pub(super) labelled: u32,
    /// Staying members except those whose host is observed without a consumer.
    pub(super) used: u32,
    /// Surplus hosts whose Machine is not marked for deletion first; why, for messages.
    pub(super) unmarked: Vec<String>,
    /// Surplus hosts whose Machine is marked and not being deleted yet; for messages.
    pub(super) marked: Vec<String>,
    /// Hosts that leave for another reason, and whose Machine is not being deleted; for messages.
    pub(super) others: Vec<String>,
}

/// How an object's replicas relate to the hosts of its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The object has the replicas that its role sets.
    Synced,
    /// The object will have them; what it waits for, for messages.
    Waiting(String),
    /// The role sets a number that the kind cannot have; for messages.
    Even(String),
}

/// The replicas to set now, if the object has another number.
pub(super) fn due(kind: ScaledKind, replicas: u32, hosts: &Hosts) -> Option<u32> {
    let goal = goal(kind, hosts.active)?;
    let to = if replicas < goal {
        if !hosts.marked.is_empty() || !hosts.unmarked.is_empty() {
            return None;
        }
        let most = possible(kind, goal.min(hosts.labelled));
        most.filter(|most| *most > replicas)?
    } else {
        goal
    };
    (to != replicas && (to > replicas || why_not_lower(kind, goal, hosts).is_none())).then_some(to)
}

/// How an object with so many replicas relates to the hosts of its role.
pub(super) fn state(kind: ScaledKind, replicas: u32, hosts: &Hosts) -> State {
    let Hosts {
        active,
        wanted: _,
        staying: _,
        labelled,
        used: _,
        unmarked,
        marked,
        others: _,
    } = hosts;
    let goal = goal(kind, *active);
    let waiting = match goal {
        Some(goal) if replicas > goal => why_not_lower(kind, goal, hosts),
        Some(goal) if replicas < goal && labelled < active => {
            Some(format!("{labelled} of {active} hosts have their labels"))
        }
        _ => None,
    };
    let leaving = unmarked.first().or_else(|| marked.first()).cloned();
    let odd = matches!(kind, ScaledKind::KubeadmControlPlane) && active.is_multiple_of(2);
    match waiting.or(leaving) {
        Some(why) => State::Waiting(why),
        None if odd => State::Even(format!(
            "count.active is {active}, but a {kind} must have an odd number of replicas: it keeps {replicas}"
        )),
        None if goal == Some(replicas) => State::Synced,
        None => State::Waiting(format!("it has {replicas} replicas for {active} hosts")),
    }
}

/// The replicas that an object has in the end; `None` leaves it as it is.
fn goal(kind: ScaledKind, active: u32) -> Option<u32> {
    match kind {
        ScaledKind::MachineDeployment => Some(active),
        // Cluster API refuses no replicas, and an even number with etcd on the hosts: an even number tolerates no more failures.
        ScaledKind::KubeadmControlPlane => possible(kind, active),
    }
}

/// The highest number of replicas that is allowed, at most this one.
fn possible(kind: ScaledKind, most: u32) -> Option<u32> {
    match kind {
        ScaledKind::MachineDeployment => Some(most),
        ScaledKind::KubeadmControlPlane if most % 2 == 1 => Some(most),
        ScaledKind::KubeadmControlPlane => most.checked_sub(1),
    }
}

/// Why replicas are not lowered to the goal; for messages.
fn why_not_lower(kind: ScaledKind, goal: u32, hosts: &Hosts) -> Option<String> {
    if let Some(why) = hosts.unmarked.first().or_else(|| hosts.others.first()) {
        return Some(why.clone());
    }
    if hosts.staying > hosts.wanted {
        return Some("the scheduler has not released the surplus hosts".to_owned());
    }
    let is_control_plane = matches!(kind, ScaledKind::KubeadmControlPlane);
    (is_control_plane && goal < hosts.used).then(|| {
        format!(
            "{} hosts that stay are in use, and the agent does not scale a control plane below that number: scale it down yourself, or raise count.active",
            hosts.used
        )
    })
}

#[cfg(test)]
mod tests {
    use ScaledKind::{KubeadmControlPlane as Kcp, MachineDeployment as Md};

    use super::*;

    /// A role that wants so many hosts and has so many that stay, labelled ones and used ones.
    fn hosts(active: u32, staying: u32, labelled: u32, used: u32) -> Hosts {
        Hosts {
            active,
            wanted: active,
            staying,
            labelled,
            used,
            ..Hosts::default()
        }
    }

    fn spare(hosts: Hosts, spare: u32) -> Hosts {
        Hosts {
            wanted: hosts.active + spare,
            ..hosts
        }
    }

    fn leaving(hosts: Hosts, unmarked: &[&str], marked: &[&str]) -> Hosts {
        let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        Hosts {
            unmarked: texts(unmarked),
            marked: texts(marked),
            ..hosts
        }
    }

    fn failed(hosts: Hosts) -> Hosts {
        Hosts {
            others: vec!["f".to_owned()],
            ..hosts
        }
    }

    #[test]
    fn replicas_follow_hosts_in_the_right_order() {
        for (what, kind, replicas, hosts, expected) in [
            ("as many as wanted", Md, 3, hosts(3, 3, 3, 3), None),
            ("none is labelled", Md, 1, hosts(3, 3, 0, 0), None),
            ("some are labelled", Md, 1, hosts(3, 3, 2, 0), Some(2)),
            ("all are labelled", Md, 1, hosts(3, 3, 3, 1), Some(3)),
            ("fewer are labelled than it has", Md, 2, hosts(3, 3, 1, 1), None),
            (
                "spare hosts get no Machine",
                Md,
                3,
                spare(hosts(3, 4, 4, 3), 1),
                None,
            ),
            ("up from nothing", Md, 0, hosts(2, 2, 2, 0), Some(2)),
            (
                "nobody is marked yet",
                Md,
                5,
                leaving(hosts(3, 3, 3, 3), &["h"], &["i"]),
                None,
            ),
            (
                "all are marked",
                Md,
                5,
                leaving(hosts(3, 3, 3, 3), &[], &["h", "i"]),
                Some(3),
            ),
            ("unused hosts have left", Md, 5, hosts(3, 3, 3, 3), Some(3)),
            (
                "down to nothing",
                Md,
                2,
                leaving(hosts(0, 0, 0, 0), &[], &["h", "i"]),
                Some(0),
            ),
            ("the surplus is not released yet", Md, 5, hosts(3, 5, 5, 5), None),
            ("to spare hosts", Md, 5, spare(hosts(3, 5, 5, 5), 2), Some(3)),
            (
                "up again while others go",
                Md,
                3,
                leaving(hosts(5, 5, 5, 3), &[], &["h"]),
                None,
            ),
            (
                "up again before others are marked",
                Md,
                3,
                leaving(hosts(5, 5, 5, 3), &["h"], &[]),
                None,
            ),
            ("up, and one failed", Md, 3, failed(hosts(5, 5, 5, 2)), Some(5)),
            (
                "one failed, and has a replacement",
                Md,
                3,
                failed(hosts(3, 3, 3, 2)),
                None,
            ),
            (
                "one failed, and is not replaced",
                Md,
                3,
                failed(hosts(3, 2, 2, 2)),
                None,
            ),
            ("down, and one failed", Md, 5, failed(hosts(3, 3, 3, 3)), None),
            ("one control-plane host", Kcp, 1, hosts(3, 3, 1, 1), None),
            ("two of them", Kcp, 1, hosts(3, 3, 2, 1), None),
            ("three of them", Kcp, 1, hosts(3, 3, 3, 1), Some(3)),
            ("three of five", Kcp, 1, hosts(5, 5, 4, 1), Some(3)),
            ("an even number", Kcp, 1, hosts(4, 4, 4, 1), Some(3)),
            (
                "an even number down",
                Kcp,
                5,
                leaving(hosts(4, 4, 4, 4), &[], &["h"]),
                None,
            ),
            ("from even to odd", Kcp, 2, hosts(3, 3, 3, 2), Some(3)),
            ("to none", Kcp, 3, leaving(hosts(0, 0, 0, 0), &[], &["h"]), None),
            (
                "down by two",
                Kcp,
                5,
                leaving(hosts(3, 3, 3, 3), &[], &["h", "i"]),
                Some(3),
            ),
            ("below what is used", Kcp, 5, spare(hosts(3, 5, 5, 5), 2), None),
            ("used at most", Kcp, 5, spare(hosts(3, 5, 5, 3), 2), Some(3)),
        ] {
            assert_eq!(due(kind, replicas, &hosts), expected, "{what}");
        }
    }

    #[test]
    fn the_state_names_what_is_awaited() {
        for (kind, replicas, hosts, expected) in [
            (Md, 3, hosts(3, 3, 3, 3), State::Synced),
            (
                Md,
                1,
                hosts(3, 3, 1, 1),
                State::Waiting("1 of 3 hosts have their labels".to_owned()),
            ),
            (
                Md,
                5,
                leaving(hosts(3, 3, 3, 3), &["why"], &[]),
                State::Waiting("why".to_owned()),
            ),
            (Md, 5, failed(hosts(3, 3, 3, 3)), State::Waiting("f".to_owned())),
            (Md, 3, failed(hosts(3, 3, 3, 2)), State::Synced),
            (
                Md,
                3,
                leaving(hosts(3, 3, 3, 3), &[], &["it goes"]),
                State::Waiting("it goes".to_owned()),
            ),
            (
                Kcp,
                3,
                hosts(4, 4, 4, 3),
                State::Even(
                    "count.active is 4, but a KubeadmControlPlane must have an odd number of replicas: it keeps 3"
                        .to_owned(),
                ),
            ),
            (
                Kcp,
                3,
                hosts(0, 0, 0, 0),
                State::Even(
                    "count.active is 0, but a KubeadmControlPlane must have an odd number of replicas: it keeps 3"
                        .to_owned(),
                ),
            ),
        ] {
            assert_eq!(state(kind, replicas, &hosts), expected);
        }
    }

    /// Whatever the hosts are like: no even control plane is written, none below what is used, nothing above what is wanted or labelled,
    /// and nothing is lowered before every Machine that is to go is marked.
    #[test]
    fn no_write_breaks_a_rule_however_hosts_are() {
        let mut writes = 0;
        for kind in [Md, Kcp] {
            for number in 0..6_u32.pow(6) {
                let digit = |place: u32| number / 6_u32.pow(place) % 6;
                let (unmarked, marked): (&[&str], &[&str]) = match digit(5) {
                    0 | 1 => (&[], &[]),
                    2 | 3 => (&[], &["h"]),
                    4 => (&["h"], &[]),
                    _ => (&["h"], &["i"]),
                };
                let (active, replicas) = (digit(0), digit(1));
                let one = leaving(hosts(active, digit(2), digit(3), digit(4)), unmarked, marked);
                let Some(to) = due(kind, replicas, &one) else {
                    continue;
                };
                writes += 1;
                assert_ne!(to, replicas, "{one:?}");
                assert!(to <= active, "{one:?}");
                assert!(kind == Md || to % 2 == 1, "{one:?}");
                if to > replicas {
                    assert!(to <= one.labelled && marked.is_empty(), "{one:?}");
                } else {
                    assert!(unmarked.is_empty() && one.staying <= one.wanted, "{one:?}");
                    assert!(kind == Md || to >= one.used, "{one:?}");
                }
                let again = due(kind, to, &one);
                assert!(again.is_none() || again > Some(to), "{one:?}");
            }
        }
        assert!(writes > 10_000, "{writes}");
    }
}
