//! Which members get connections only where no other answers, since their Node in the tenant's cluster is not ready. The cluster agent determines
//! them, and writes them to the status.

use std::collections::BTreeMap;

use api::{NotPreferred, SIPCluster, conditions::load_balancer::NODES_NOT_READY};
use kit::service::Remark;
use render::load_balancer::{Member, Sidecar};

/// Members that a message names at most.
const MAX_NAMED_MEMBERS: usize = 5;

/// The members that are not preferred, by the uid of their host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preference<'a>(BTreeMap<&'a str, &'a NotPreferred>);

impl<'a> Preference<'a> {
    /// The members in a status. Without a sidecar every change starts new pods, and so ends connections to healthy members: then every member is
    /// preferred.
    pub(crate) fn new(object: &'a SIPCluster, sidecar: Option<&Sidecar>) -> Self {
        let nodes = object.status.iter().flat_map(|status| &status.tenant_nodes);
        let nodes = nodes.filter(|_| sidecar.is_some());
        let members = nodes.flat_map(|nodes| &nodes.not_preferred);
        Self(members.map(|member| (member.uid.as_str(), member)).collect())
    }

    /// Whether the member on the host with this uid is not preferred.
    pub(crate) fn is_backup(&self, uid: &str) -> bool {
        self.0.contains_key(uid)
    }

    /// What the condition states of the members of a load balancer, if any of them is not preferred.
    pub(crate) fn remark(&self, members: &[Member]) -> Option<Remark> {
        let backups = members.iter().filter(|member| member.is_backup);
        let known = backups.filter_map(|backup| {
            let mut known = self.0.values();
            known.find(|known| known.namespace == backup.namespace && known.name == backup.name)
        });
        let named: Vec<String> = known
            .map(|known| {
                let NotPreferred {
                    namespace,
                    name,
                    uid: _,
                    node,
                    reason,
                } = known;
                format!("{namespace}/{name} (Node {node}: {reason})")
            })
            .collect();
        if named.is_empty() {
            return None;
        }
        let more = named.len().saturating_sub(MAX_NAMED_MEMBERS);
        let mut text = named
            .into_iter()
            .take(MAX_NAMED_MEMBERS)
            .collect::<Vec<_>>()
            .join(", ");
        if more > 0 {
            text = format!("{text} and {more} more");
        }
        Some(Remark {
            reason: NODES_NOT_READY,
            text: format!("connections go to {text} only if no other member answers").into(),
        })
    }
}

/// Prefers all members, if none would be preferred.
pub(crate) fn prefer_all_if_none(members: &mut [Member]) {
    if members.iter().all(|member| member.is_backup) {
        for member in members {
            member.is_backup = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(hosts: &[&str]) -> SIPCluster {
        let hosts: Vec<_> = hosts
            .iter()
            .map(|host| {
                json!({
                    "namespace": "metal", "name": host, "uid": format!("uid-{host}"), "node": format!("n-{host}"),
                    "reason": "KubeletNotReady",
                })
            })
            .collect();
        let status = json!({"tenantNodes": {"notPreferred": hosts}});
        serde_json::from_value(json!({"metadata": {"name": "shop"}, "spec": {}, "status": status})).unwrap()
    }

    fn members(backups: &[bool]) -> Vec<Member> {
        let members = backups.iter().enumerate().map(|(index, is_backup)| Member {
            namespace: "metal".to_owned(),
            name: format!("h{}", index + 1),
            address: [192, 0, 2, 1].into(),
            is_backup: *is_backup,
        });
        members.collect()
    }

    #[test]
    fn only_a_sidecar_makes_backups_of_members() {
        let object = cluster(&["h1"]);
        let sidecar = Sidecar {
            image: "sidecar:1".parse().unwrap(),
        };
        let with = Preference::new(&object, Some(&sidecar));
        assert!(with.is_backup("uid-h1") && !with.is_backup("uid-h2"));
        assert!(!Preference::new(&object, None).is_backup("uid-h1"));
    }

    #[test]
    fn where_no_member_is_preferred_all_are() {
        for (backups, expected) in [
            (&[true, false][..], &[true, false][..]),
            (&[true, true], &[false, false]),
            (&[false, false], &[false, false]),
            (&[], &[]),
        ] {
            let mut members = members(backups);
            prefer_all_if_none(&mut members);
            let found: Vec<bool> = members.iter().map(|member| member.is_backup).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_condition_names_members_and_why() {
        let names = ["h1", "h2", "h3", "h4", "h5", "h6", "h7"];
        let object = cluster(&names);
        let sidecar = Sidecar {
            image: "sidecar:1".parse().unwrap(),
        };
        let preference = Preference::new(&object, Some(&sidecar));
        assert_eq!(preference.remark(&members(&[false, false])), None);
        let text = |backups: &[bool]| preference.remark(&members(backups)).unwrap().text;
        assert_eq!(
            text(&[false, true]),
            "connections go to metal/h2 (Node n-h2: KubeletNotReady) only if no other member answers"
        );
        assert!(text(&[true; 7]).contains("metal/h5 (Node n-h5: KubeletNotReady) and 2 more only if"));
    }
}
