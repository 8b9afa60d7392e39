//! Which hosts a cluster holds, in place of a scheduler.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{BareMetalHost, MemberState, SIPCluster};
use kit::placement::{ClusterId, HostId, ObjectKey};
use kube::ResourceExt as _;
use power::{Membership, error::Error, members::Member};

/// Who holds which hosts, as a scheduler would say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    /// By uid of the cluster.
    held: BTreeMap<String, Vec<Member>>,
    /// How long each answer takes.
    delay: Duration,
}

impl Ledger {
    /// Every answer takes this long from now on.
    pub(crate) fn slow(&self, delay: Duration) {
        self.0.lock().unwrap().delay = delay;
    }

    pub(crate) fn hold(&self, cluster: &SIPCluster, host: &BareMetalHost, releasing: bool) {
        let member = Member {
            host: HostId::new(ObjectKey::for_object(host), host.uid().unwrap()),
            role: "Worker".to_owned(),
            ordinal: None,
            state: if releasing {
                MemberState::Releasing
            } else {
                MemberState::Bound
            },
        };
        let mut entries = self.0.lock().unwrap();
        let members = entries.held.entry(cluster.uid().unwrap()).or_default();
        members.retain(|other| other.host != member.host);
        let number = u32::try_from(members.len()).unwrap();
        members.push(Member {
            ordinal: Some(number),
            ..member
        });
    }

    pub(crate) fn free(&self, host: &BareMetalHost) {
        for members in self.0.lock().unwrap().held.values_mut() {
            members.retain(|member| Some(member.host.uid()) != host.uid().as_deref());
        }
    }
}

impl Membership for Ledger {
    async fn members(&self, cluster: &ClusterId) -> Result<Vec<Member>, Error> {
        let (members, delay) = {
            let entries = self.0.lock().unwrap();
            let members = entries.held.get(cluster.uid()).cloned();
            (members.unwrap_or_default(), entries.delay)
        };
        tokio::time::sleep(delay).await;
        Ok(members)
    }
}
