//! Which hosts a cluster holds at this moment. Nothing is cached: a host that has left a second ago is not a member.

use std::collections::BTreeSet;

use api::MemberState;
use kit::{
    placement::{ClusterId, HostId, Placement},
    scheduler_client::Scheduler,
};

use crate::error::{Error, clipped};

/// A host that a cluster holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which host.
    pub host: HostId,
    /// Role that it serves.
    pub role: String,
    /// Its number in the role.
    pub ordinal: Option<u32>,
    /// The state of the claim.
    pub state: MemberState,
}

impl Member {
    /// Whether the cluster releases it.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        self.state == MemberState::Releasing
    }

    /// Its role in lower case and its number in it, such as `worker-3`.
    #[must_use]
    pub fn ordinal_name(&self) -> Option<String> {
        let number = self.ordinal?;
        Some(format!("{}-{number}", self.role.to_ascii_lowercase()))
    }
}

/// Source of the hosts that a cluster holds.
pub trait Membership: Send + Sync + 'static {
    /// The hosts that this incarnation of a cluster holds now, by a read of the ledger.
    ///
    /// # Errors
    /// [`Error::Scheduler`] when that cannot be read; the caller must then treat no host as a member.
    fn members(&self, cluster: &ClusterId) -> impl Future<Output = Result<Vec<Member>, Error>> + Send;
}

impl Membership for Scheduler {
    async fn members(&self, cluster: &ClusterId) -> Result<Vec<Member>, Error> {
        let placement = self.placement(cluster, None).await;
        let placement = placement.map_err(|status| Error::Scheduler(Box::new(status)))?;
        let members = placement.iter().flat_map(Placement::members);
        Ok(members
            .map(|member| Member {
                host: member.host().clone(),
                role: member.role().to_owned(),
                ordinal: member.ordinal(),
                state: member.state(),
            })
            .collect())
    }
}

/// Whether the caller reads or changes the host that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It reads the host.
    Read,
    /// It changes the power state of the host.
    Change,
}

/// Prefix of an ordinal name. No name of a host or namespace begins with it.
const ORDINAL_PREFIX: char = '@';

/// Finds the member that a user names: by `NAMESPACE/NAME`, its name, or `@` and its ordinal name. For a read also by the first label of its
/// name where that is unique, or by the ordinal name alone. Another host may have such a text as its name, even one that has left the cluster a
/// second ago, so they are not accepted for changes.
///
/// # Errors
/// [`Error::NotAMember`]; [`Error::Invalid`] for a name that several members have, or that is accepted for reads only.
pub(crate) fn named<'a>(
    members: &'a [Member],
    cluster: &ClusterId,
    name: &str,
    intent: Intent,
) -> Result<&'a Member, Error> {
    let not_a_member = || Error::NotAMember {
        cluster: cluster.key().to_string(),
        host: clipped(name),
    };
    if let Some(ordinal) = name.strip_prefix(ORDINAL_PREFIX) {
        return with_ordinal(members, ordinal)?.ok_or_else(not_a_member);
    }
    let full = |member: &&Member| {
        let key = member.host.key();
        name.split_once('/') == Some((&key.namespace, &key.name))
    };
    let own = |member: &&Member| member.host.key().name == name;
    let short = |member: &&Member| {
        let label = member.host.key().name.split_once('.');
        label.is_some_and(|(first, _)| first == name)
    };
    if let Some(member) = unique(members, name, full)? {
        return Ok(member);
    }
    if let Some(member) = unique(members, name, own)? {
        return Ok(member);
    }
    let derived = match unique(members, name, short)? {
        Some(member) => Some(member),
        None => with_ordinal(members, name)?,
    };
    match derived {
        Some(member) if intent == Intent::Change => Err(only_for_reads(member, name)),
        derived => derived.ok_or_else(not_a_member),
    }
}

/// The error for a name that is accepted for reads only.
fn only_for_reads(member: &Member, name: &str) -> Error {
    let ordinal = member.ordinal_name();
    let ordinal = ordinal.map(|ordinal| format!(" or {ORDINAL_PREFIX}{ordinal}"));
    Error::Invalid {
        field: "host",
        value: clipped(name),
        rule: format!(
            "a name that is shortened, or an ordinal without {ORDINAL_PREFIX}, changes no host, since it may mean another one: use {host}{}",
            ordinal.unwrap_or_default(),
            host = member.host
        ),
    }
}

/// The one member that `is_named` selects; `None` without one.
fn unique<'a>(
    members: &'a [Member],
    name: &str,
    is_named: impl Fn(&&Member) -> bool,
) -> Result<Option<&'a Member>, Error> {
    let found: Vec<&Member> = members.iter().filter(|member| is_named(member)).collect();
    match found[..] {
        [] => Ok(None),
        [member] => Ok(Some(member)),
        // Both incarnations of a host that was made again may be members: the one that is not being released counts.
        [first, second]
            if first.host.key() == second.host.key() && first.is_releasing() != second.is_releasing() =>
        {
            Ok(Some(if first.is_releasing() { second } else { first }))
        }
        _ => {
            let names: Vec<String> = found.iter().map(|member| member.host.to_string()).collect();
            Err(Error::Invalid {
                field: "host",
                value: clipped(name),
                rule: format!("must name one host: {} have this name", names.join(", ")),
            })
        }
    }
}

/// The member with an ordinal name. While a replacement is not bound, it and the replaced member have the same number.
fn with_ordinal<'a>(members: &'a [Member], name: &str) -> Result<Option<&'a Member>, Error> {
    let numbered: Vec<&Member> = members
        .iter()
        .filter(|member| member.ordinal_name().as_deref() == Some(name))
        .collect();
    let roles: BTreeSet<&str> = numbered.iter().map(|member| &*member.role).collect();
    if roles.len() > 1 {
        let roles: Vec<&str> = roles.into_iter().collect();
        return Err(Error::Invalid {
            field: "host",
            value: clipped(name),
            rule: format!(
                "must be the host's name: the roles {} differ only in case",
                roles.join(", ")
            ),
        });
    }
    let numbered = numbered.into_iter().filter(|member| !member.is_releasing());
    Ok(numbered.min_by_key(|member| member.state != MemberState::Bound))
}

#[cfg(test)]
mod tests {
    use kit::placement::ObjectKey;

    use super::*;

    fn member(namespace: &str, name: &str, uid: &str, releasing: bool) -> Member {
        let key = ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Member {
            host: HostId::new(key, uid),
            role: "Worker".to_owned(),
            ordinal: None,
            state: if releasing {
                MemberState::Releasing
            } else {
                MemberState::Bound
            },
        }
    }

    fn cluster() -> ClusterId {
        let key = ObjectKey {
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
        };
        ClusterId::new(key, "u")
    }

    #[test]
    fn an_ordinal_means_the_bound_member_then_the_claimed_one() {
        let numbered = |uid: &str, ordinal, state| Member {
            ordinal: Some(ordinal),
            state,
            ..member("metal", uid, uid, false)
        };
        let members = [
            numbered("claimed", 3, MemberState::Claimed),
            numbered("bound", 3, MemberState::Bound),
            numbered("releasing", 4, MemberState::Releasing),
            numbered("replacement", 4, MemberState::Claimed),
            numbered("leaving", 5, MemberState::Releasing),
        ];
        let found = |name: &str| {
            named(&members, &cluster(), name, Intent::Read).map(|member| member.host.uid().to_owned())
        };
        assert_eq!(found("worker-3").unwrap(), "bound");
        assert_eq!(found("worker-4").unwrap(), "replacement");
        for name in ["worker-5", "worker-6", "Worker-3", "worker-03"] {
            let error = found(name).unwrap_err();
            assert!(matches!(error, Error::NotAMember { .. }), "{name}: {error}");
        }
    }

    #[test]
    fn an_ordinal_of_roles_that_differ_in_case_names_no_host() {
        let of_role = |uid: &str, role: &str, number| Member {
            role: role.to_owned(),
            ordinal: Some(number),
            ..member("metal", uid, uid, false)
        };
        let members = [
            of_role("a", "Worker", 0),
            of_role("b", "WORKER", 0),
            of_role("c", "WORKER", 1),
        ];
        let found = |name: &str| {
            named(&members, &cluster(), name, Intent::Read).map(|member| member.host.uid().to_owned())
        };
        let error = found("worker-0").unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains("the host's name"), "{error}");
        assert_eq!(found("worker-1").unwrap(), "c");
        assert_eq!(found("a").unwrap(), "a");
    }

    #[test]
    fn a_host_is_named_in_full_by_its_name_or_by_its_first_label() {
        let members = [
            member("metal", "a", "1", false),
            member("metal", "r1.example", "2", false),
            member("metal", "r2.example", "3", false),
            member("metal", "r2.test", "4", false),
            member("metal", "same", "5", false),
            member("other", "same", "6", false),
            member("metal", "again", "7", true),
            member("metal", "again", "8", false),
        ];
        let found = |name: &str| {
            named(&members, &cluster(), name, Intent::Read).map(|member| member.host.uid().to_owned())
        };
        for (name, uid) in [
            ("a", "1"),
            ("metal/a", "1"),
            ("r1", "2"),
            ("r1.example", "2"),
            ("other/same", "6"),
            ("again", "8"),
        ] {
            assert_eq!(found(name).unwrap(), uid, "{name}");
        }
        for name in ["", "b", "other/a", "metal/r1", "r1.", "A", "a/../a"] {
            let error = found(name).unwrap_err();
            assert!(matches!(error, Error::NotAMember { .. }), "{name}: {error}");
        }
        for name in ["same", "r2"] {
            let error = found(name).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
        }
    }

    #[test]
    fn a_host_is_changed_by_names_that_no_other_host_can_have() {
        let numbered = |name: &str, ordinal| Member {
            ordinal: Some(ordinal),
            ..member("metal", name, name, false)
        };
        let members = [numbered("worker-5", 1), numbered("r1.example", 2)];
        let found = |name: &str| {
            let found = named(&members, &cluster(), name, Intent::Change);
            found.map(|member| member.host.uid().to_owned())
        };
        for (name, uid) in [
            ("worker-5", "worker-5"),
            ("metal/worker-5", "worker-5"),
            ("@worker-1", "worker-5"),
            ("r1.example", "r1.example"),
            ("@worker-2", "r1.example"),
        ] {
            assert_eq!(found(name).unwrap(), uid, "{name}");
        }
        for (name, rule) in [
            ("worker-1", "use metal/worker-5 or @worker-1"),
            ("r1", "use metal/r1.example or @worker-2"),
        ] {
            let error = found(name).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
            assert!(error.to_string().contains(rule), "{name}: {error}");
        }
        for name in [
            "@worker-5",
            "@",
            "@@worker-1",
            "@metal/worker-5",
            "metal/@worker-1",
        ] {
            let error = found(name).unwrap_err();
            assert!(matches!(error, Error::NotAMember { .. }), "{name}: {error}");
        }
    }
}
