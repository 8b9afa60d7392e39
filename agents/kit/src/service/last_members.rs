//! The members with which the instances of clusters were applied last, for use while the scheduler does not answer.
//!
//! Some changes of a spec take rights away, such as the removal of a key that may log in. They must not wait for the scheduler, which does not
//! decide on them. The agent then uses the members of the scheduler's last answer, which give access to no host beyond what is applied already.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use api::{Placement, SIPCluster};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};

use super::members::Members;

/// The last members of every cluster that exists, with its uid.
#[derive(Debug, Default)]
pub(super) struct LastMembers(Mutex<HashMap<ObjectRef<SIPCluster>, (String, Members)>>);

impl LastMembers {
    /// The instances of a cluster are applied with these members.
    pub(super) fn remember(&self, cluster: &SIPCluster, members: Members, clusters: &Store<SIPCluster>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = cluster.uid().unwrap_or_default();
        if all.insert(ObjectRef::from_obj(cluster), (uid, members)).is_none() {
            all.retain(|key, _| clusters.get(key).is_some());
        }
    }

    /// Those of the cluster's last members that its status still holds and does not release; `None` if this process has applied nothing for the
    /// cluster.
    pub(super) fn still_held(&self, cluster: &SIPCluster, held: &Placement) -> Option<Members> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (uid, members) = all.get(&ObjectRef::from_obj(cluster))?;
        (cluster.metadata.uid.as_ref() == Some(uid)).then(|| members.still_held(held))
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector::store, watcher::Event};
    use serde_json::json;

    use super::*;
    use crate::service::members::tests::{answer, held, uids};

    fn cluster(name: &str, uid: &str) -> SIPCluster {
        let object = json!({"metadata": {"namespace": "tenant", "name": name, "uid": uid}, "spec": {}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn last_members_reach_no_further_than_the_status() {
        let (last, (clusters, mut writer)) = (LastMembers::default(), store());
        let (shop, bank) = (cluster("shop", "1"), cluster("bank", "2"));
        for cluster in [&shop, &bank] {
            writer.apply_watcher_event(&Event::Apply(cluster.clone()));
        }
        let all = Placement {
            members: ["a", "b", "c"].map(|uid| held(uid, "Bound")).into(),
            ..Placement::default()
        };
        assert_eq!(last.still_held(&shop, &all), None);
        last.remember(&shop, Members::new(&all, &answer(&["a", "b", "c"])), &clusters);
        assert_eq!(uids(&last.still_held(&shop, &all).unwrap()), ["a", "b", "c"]);

        let fewer = Placement {
            members: vec![held("a", "Bound"), held("b", "Releasing"), held("d", "Bound")],
            ..Placement::default()
        };
        assert_eq!(uids(&last.still_held(&shop, &fewer).unwrap()), ["a"]);
        let again = cluster("shop", "3");
        assert_eq!(last.still_held(&again, &all), None, "another cluster of the name");

        writer.apply_watcher_event(&Event::Delete(shop.clone()));
        last.remember(&bank, Members::default(), &clusters);
        assert_eq!(last.still_held(&shop, &all), None, "deleted");
    }
}
