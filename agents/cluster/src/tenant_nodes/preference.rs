//! Which members load balancers should not prefer, since their Node is not ready. Pure; the time is an argument.
//!
//! A Node that becomes not ready counts at once, one that becomes ready or is missing only after a while. So a Node that alternates keeps its
//! state, and does not change a configuration each time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use api::{NotPreferred, TenantNodes};

use super::{
    Wanted, WantedMember,
    node::{Node, Readiness},
};

/// Time for which a Node has to be ready before its member is preferred again.
const READY_FOR: Duration = Duration::from_mins(1);
/// Time for which the tenant's API server may not answer, or a Node be missing, before the last known state is dropped.
const UNKNOWN_AFTER: Duration = Duration::from_mins(1);

/// What is known of the Nodes of one cluster.
#[derive(Debug, Default)]
pub(super) struct Preference {
    /// By the uid of the host: the members whose Node was not ready, and since when it is ready again.
    not_ready: BTreeMap<String, NotReady>,
    /// By the uid of the host: when the Nodes of the others were last ready, of those that serve their role by it.
    last_ready: BTreeMap<String, Instant>,
    failing_since: Option<Instant>,
}

#[derive(Debug)]
struct NotReady {
    node: String,
    reason: String,
    ready_since: Option<Instant>,
}

/// Members that are not preferred.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NotPreferredMembers {
    pub(super) members: Vec<NotPreferred>,
    /// Whether there are more than a status can name; it then names none. The cause is then the cluster rather than single hosts.
    pub(super) are_too_many: bool,
}

impl Preference {
    /// Begins with the members in the status, which an earlier process has written. The status names members of a role only if another member of
    /// the role serves.
    pub(super) fn resumed(wanted: &Wanted, now: Instant) -> Self {
        let not_ready = wanted.known.not_preferred.iter().map(|known| {
            let NotPreferred {
                namespace: _,
                name: _,
                uid,
                node,
                reason,
            } = known.clone();
            let ready_since = None;
            (
                uid,
                NotReady {
                    node,
                    reason,
                    ready_since,
                },
            )
        });
        let not_ready: BTreeMap<String, NotReady> = not_ready.collect();
        let is_known = |member: &&WantedMember| not_ready.contains_key(member.host.uid());
        let served: BTreeSet<&str> = wanted
            .members
            .iter()
            .filter(is_known)
            .map(|member| &*member.role)
            .collect();
        let others = wanted.members.iter().filter(|member| !is_known(member));
        let serve = others.filter(|member| served.contains(&*member.role));
        Self {
            last_ready: serve.map(|member| (member.host.uid().to_owned(), now)).collect(),
            not_ready,
            failing_since: None,
        }
    }

    /// Takes the Nodes that the tenant's API server has answered with, by the uid of their host. Returns the members that are not preferred.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        wanted: &Wanted,
        nodes: &BTreeMap<String, &Node>,
    ) -> NotPreferredMembers {
        self.failing_since = None;
        for member in wanted.members.iter().filter(|member| member.is_balanced) {
            let uid = member.host.uid();
            let node = nodes.get(uid);
            match node.map(|node| &node.readiness) {
                Some(Readiness::NotReady(reason)) => {
                    let known = self.not_ready.entry(uid.to_owned());
                    let known = known.or_insert_with(|| NotReady {
                        node: node.map(|node| node.name.clone()).unwrap_or_default(),
                        reason: reason.clone(),
                        ready_since: None,
                    });
                    known.ready_since = None;
                    self.last_ready.remove(uid);
                }
                // A Node whose state is not known, or that is missing, does not count as "not ready". A member that was not ready is preferred
                // again after a while, as with a ready Node.
                readiness @ (Some(Readiness::Ready | Readiness::Unknown) | None) => {
                    if let Some(known) = self.not_ready.get_mut(uid) {
                        let since = *known.ready_since.get_or_insert(now);
                        if now.saturating_duration_since(since) >= READY_FOR {
                            self.not_ready.remove(uid);
                        }
                    }
                    if readiness == Some(&Readiness::Ready) && !self.not_ready.contains_key(uid) {
                        self.last_ready.insert(uid.to_owned(), now);
                    }
                }
            }
        }
        let balanced = wanted.members.iter().filter(|member| member.is_balanced);
        let balanced: BTreeMap<&str, &str> = balanced
            .map(|member| (member.host.uid(), &*member.role))
            .collect();
        self.not_ready.retain(|uid, _| balanced.contains_key(&**uid));
        self.last_ready.retain(|uid, last| {
            balanced.contains_key(&**uid) && now.saturating_duration_since(*last) < UNKNOWN_AFTER
        });
        let served = self.last_ready.keys().filter_map(|uid| balanced.get(&**uid));
        let served: BTreeSet<&str> = served.copied().collect();
        self.listed(wanted, |role| served.contains(role))
    }

    /// Records that the tenant's API server has not answered. `None`: the last answer still counts.
    pub(super) fn failed(&mut self, now: Instant) -> Option<NotPreferredMembers> {
        let since = *self.failing_since.get_or_insert(now);
        if now.saturating_duration_since(since) < UNKNOWN_AFTER {
            return None;
        }
        self.not_ready.clear();
        self.last_ready.clear();
        Some(NotPreferredMembers::default())
    }

    /// The members that are not preferred. `is_served`: whether a member of the role is preferred and has a Node that is ready, or was a moment
    /// ago. In a role without such a member every member is preferred.
    fn listed(&self, wanted: &Wanted, is_served: impl Fn(&str) -> bool) -> NotPreferredMembers {
        let members = wanted.members.iter().filter(|member| is_served(&member.role));
        let members: Vec<NotPreferred> = members
            .filter_map(|member| {
                let NotReady {
                    node,
                    reason,
                    ready_since: _,
                } = self.not_ready.get(member.host.uid())?;
                Some(NotPreferred {
                    namespace: member.host.key().namespace.clone(),
                    name: member.host.key().name.clone(),
                    uid: member.host.uid().to_owned(),
                    node: node.clone(),
                    reason: reason.clone(),
                })
            })
            .collect();
        let are_too_many = members.len() > TenantNodes::MAX_NOT_PREFERRED;
        NotPreferredMembers {
            members: if are_too_many { Vec::new() } else { members },
            are_too_many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant_nodes::{
        fixtures::{node, wanted},
        matching::nodes_by_host,
    };

    /// `R`eady, `N`ot ready, `U`nknown, or no Node: one character for each of the members h1, h2 and so on.
    fn nodes(states: &str) -> Vec<Node> {
        let nodes = states.chars().enumerate().filter_map(|(index, state)| {
            let number = index + 1;
            let mut node = node(&format!("n{number}"), "", &[&format!("192.0.2.{number}")]);
            node.readiness = match state {
                'R' => Readiness::Ready,
                'N' => Readiness::NotReady("KubeletNotReady".to_owned()),
                'U' => Readiness::Unknown,
                _ => return None,
            };
            Some(node)
        });
        nodes.collect()
    }

    struct Case {
        preference: Preference,
        wanted: Wanted,
        start: Instant,
    }

    impl Case {
        fn new(hosts: &[&str]) -> Self {
            Self {
                preference: Preference::default(),
                wanted: wanted(hosts),
                start: Instant::now(),
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn after(&mut self, seconds: u64, states: &str) -> Vec<String> {
            let (now, nodes) = (self.at(seconds), nodes(states));
            let listed = self
                .preference
                .answered(now, &self.wanted, &nodes_by_host(&self.wanted, &nodes));
            names(listed)
        }
    }

    fn names(listed: NotPreferredMembers) -> Vec<String> {
        let members = listed.members.into_iter();
        members.map(|member| member.name).collect()
    }

    #[test]
    fn members_whose_node_is_not_ready_are_not_preferred() {
        for (states, expected) in [
            ("RR", &[][..]),
            ("RN", &["h2"]),
            ("NR", &["h1"]),
            // No Node is ready: all stay as they are.
            ("NN", &[]),
            ("NU", &[]),
            ("N-", &[]),
            ("--", &[]),
            // Unknown is not "not ready".
            ("RU", &[]),
            ("R-", &[]),
        ] {
            assert_eq!(Case::new(&["h1", "h2"]).after(0, states), expected, "{states}");
        }
    }

    #[test]
    fn a_node_counts_at_once_and_again_when_it_is_steady() {
        let mut case = Case::new(&["h1", "h2"]);
        for (seconds, states, expected) in [
            (0, "RR", &[][..]),
            (10, "RN", &["h2"]),
            // It comes and goes: the configuration stays.
            (20, "RR", &["h2"]),
            (70, "RR", &["h2"]),
            (75, "RN", &["h2"]),
            (80, "R-", &["h2"]),
            (85, "RN", &["h2"]),
            (90, "RR", &["h2"]),
            (149, "RR", &["h2"]),
            (150, "RR", &[]),
            (160, "RR", &[]),
        ] {
            assert_eq!(case.after(seconds, states), expected, "after {seconds} s");
        }
    }

    #[test]
    fn a_node_that_is_missing_is_missed_after_a_minute() {
        let mut case = Case::new(&["h1", "h2"]);
        for (seconds, states, expected) in [
            (0, "RN", &["h2"][..]),
            // It comes and goes: the configuration stays.
            (10, "-N", &["h2"]),
            (20, "RN", &["h2"]),
            (30, "UN", &["h2"]),
            (40, "-N", &["h2"]),
            (79, "-N", &["h2"]),
            (80, "-N", &[]),
            (90, "RN", &["h2"]),
            // It says itself that it is not ready.
            (100, "NN", &[]),
            (110, "-N", &[]),
        ] {
            assert_eq!(case.after(seconds, states), expected, "after {seconds} s");
        }
    }

    #[test]
    fn roles_have_their_own_preference() {
        let mut case = Case::new(&["h1", "h2", "h3"]);
        "ControlPlane".clone_into(&mut case.wanted.members[2].role);
        assert_eq!(case.after(0, "RNN"), ["h2"], "the only control plane stays");
    }

    #[test]
    fn members_that_leave_are_not_named() {
        let mut case = Case::new(&["h1", "h2"]);
        assert_eq!(case.after(0, "RN"), ["h2"]);
        case.wanted.members[1].is_balanced = false;
        assert!(case.after(10, "RN").is_empty());
    }

    #[test]
    fn an_api_server_that_is_away_leaves_nothing_known_in_the_end() {
        let mut case = Case::new(&["h1", "h2"]);
        assert_eq!(case.after(0, "RN"), ["h2"]);
        assert_eq!(case.preference.failed(case.at(10)), None);
        assert_eq!(case.after(60, "RN"), ["h2"], "it answers again");
        assert_eq!(case.preference.failed(case.at(70)), None);
        assert_eq!(case.preference.failed(case.at(129)), None);
        let now = case.at(130);
        assert_eq!(case.preference.failed(now), Some(NotPreferredMembers::default()));
        assert_eq!(case.after(140, "RN"), ["h2"]);
    }

    #[test]
    fn another_process_goes_on_from_the_status() {
        let mut case = Case::new(&["h1", "h2"]);
        let wanted = case.wanted.clone();
        let nodes = nodes("RN");
        let known = case
            .preference
            .answered(case.start, &wanted, &nodes_by_host(&wanted, &nodes));
        let mut wanted = wanted;
        wanted.known.not_preferred = known.members;
        case.preference = Preference::resumed(&wanted, case.start);
        assert_eq!(case.after(0, "RR"), ["h2"], "it is not steady yet");
        assert!(case.after(60, "RR").is_empty());
        // Another one served when the status was written.
        case.preference = Preference::resumed(&wanted, case.start);
        assert_eq!(case.after(0, "-N"), ["h2"]);
        assert!(case.after(60, "-N").is_empty());
    }

    #[test]
    fn too_many_are_not_named() {
        let hosts: Vec<String> = (1..=66).map(|number| format!("h{number}")).collect();
        let mut case = Case::new(&hosts.iter().map(String::as_str).collect::<Vec<_>>());
        let states = format!("R{}", "N".repeat(65));
        let (now, nodes) = (case.start, nodes(&states));
        let wanted = case.wanted.clone();
        let listed = case
            .preference
            .answered(now, &wanted, &nodes_by_host(&wanted, &nodes));
        assert!(listed.members.is_empty() && listed.are_too_many);
    }
}
