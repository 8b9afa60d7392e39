//! What this process knows of the templates of load balancers. Tenants choose the names of load balancers, so it is kept only for names that the
//! specs of existing clusters list: a name that is refused and dropped again leaves no object whose deletion would end it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use api::SIPCluster;
use kube::runtime::reflector::{ObjectRef, Store};
use render::load_balancer::template::Template;

/// The templates of one load balancer that were checked last.
#[derive(Clone, Debug, Default)]
pub(crate) struct TemplateRecord {
    pub(crate) accepted: Option<AcceptedTemplate>,
    /// The check that refused a template last, and its message.
    pub(crate) refused: Option<(String, String)>,
}

/// A template, and the image whose haproxy has accepted it.
#[derive(Clone, Debug)]
pub(crate) struct AcceptedTemplate {
    pub(crate) template: Template,
    pub(crate) image: String,
}

/// The records of the load balancers of one cluster.
#[derive(Debug)]
struct ClusterRecords {
    /// Another cluster of the same name has another one.
    uid: Option<String>,
    by_name: BTreeMap<String, TemplateRecord>,
}

/// The records of the load balancers of every existing cluster.
#[derive(Debug, Default)]
pub(crate) struct KnownTemplates(Mutex<HashMap<ObjectRef<SIPCluster>, ClusterRecords>>);

impl KnownTemplates {
    /// The record of a load balancer of a cluster.
    pub(crate) fn get(&self, cluster: &SIPCluster, name: &str) -> Option<TemplateRecord> {
        let all = self.lock();
        let of_cluster = all.get(&ObjectRef::from_obj(cluster))?;
        let is_same = of_cluster.uid == cluster.metadata.uid;
        of_cluster.by_name.get(name).filter(|_| is_same).cloned()
    }

    /// Replaces the record of a load balancer. `clusters`: the existing ones; what is known of others is removed.
    pub(crate) fn remember(
        &self,
        clusters: &Store<SIPCluster>,
        cluster: &SIPCluster,
        name: &str,
        now: TemplateRecord,
    ) {
        let mut all = self.lock();
        let (key, uid) = (ObjectRef::from_obj(cluster), &cluster.metadata.uid);
        if all.get(&key).is_none_or(|of_cluster| of_cluster.uid != *uid) {
            all.remove(&key);
            all.retain(|key, of_cluster| {
                let existing = clusters.get(key);
                existing.is_some_and(|existing| existing.metadata.uid == of_cluster.uid)
            });
        }
        let of_cluster = all.entry(key).or_insert_with(|| ClusterRecords {
            uid: uid.clone(),
            by_name: BTreeMap::new(),
        });
        of_cluster.by_name.insert(name.to_owned(), now);
    }

    /// Forgets one load balancer of a cluster.
    pub(crate) fn forget(&self, cluster: &SIPCluster, name: &str) {
        self.retain_of(cluster, |known| known != name);
    }

    /// Forgets the load balancers of a cluster that have none of these names.
    pub(crate) fn retain(&self, cluster: &SIPCluster, names: &[&str]) {
        self.retain_of(cluster, |known| names.contains(&known));
    }

    /// Also forgets a former cluster of the same name.
    fn retain_of(&self, cluster: &SIPCluster, stays: impl Fn(&str) -> bool) {
        let mut all = self.lock();
        let key = ObjectRef::from_obj(cluster);
        let Some(of_cluster) = all.get_mut(&key) else {
            return;
        };
        of_cluster.by_name.retain(|name, _| stays(name));
        if of_cluster.by_name.is_empty() || of_cluster.uid != cluster.metadata.uid {
            all.remove(&key);
        }
    }

    /// The digests of all accepted templates.
    pub(crate) fn accepted(&self) -> BTreeSet<String> {
        let all = self.lock();
        let known = all.values().flat_map(|of_cluster| of_cluster.by_name.values());
        let accepted = known.filter_map(|known| known.accepted.as_ref());
        accepted
            .map(|accepted| accepted.template.digest().to_owned())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<SIPCluster>, ClusterRecords>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector::store, watcher::Event};
    use serde_json::json;

    use super::*;

    fn cluster(name: &str, uid: &str) -> SIPCluster {
        let cluster = json!({"metadata": {"namespace": "tenant", "name": name, "uid": uid}, "spec": {}});
        serde_json::from_value(cluster).unwrap()
    }

    fn accepted(text: &str) -> TemplateRecord {
        TemplateRecord {
            accepted: Some(AcceptedTemplate {
                template: Template::parse(text).unwrap(),
                image: "haproxy:2.8".to_owned(),
            }),
            refused: None,
        }
    }

    /// How many load balancers something is known for.
    fn count(known: &KnownTemplates) -> usize {
        known
            .lock()
            .values()
            .map(|of_cluster| of_cluster.by_name.len())
            .sum()
    }

    #[test]
    fn names_that_a_spec_drops_are_forgotten() {
        let (clusters, mut writer) = store();
        let (shop, bank) = (cluster("shop", "1"), cluster("bank", "2"));
        for cluster in [&shop, &bank] {
            writer.apply_watcher_event(&Event::Apply(cluster.clone()));
        }
        let known = KnownTemplates::default();
        known.remember(&clusters, &bank, "lb-stays", TemplateRecord::default());
        known.remember(&clusters, &shop, "lb-stays", TemplateRecord::default());
        // Each edit has another name, whose entry is refused.
        for edit in 0..100 {
            let name = format!("lb-{edit}");
            known.retain(&shop, &["lb-stays", &name]);
            known.remember(&clusters, &shop, &name, TemplateRecord::default());
            assert!(known.get(&shop, &name).is_some());
        }
        assert_eq!(count(&known), 3);
        assert!(known.get(&shop, "lb-98").is_none());
        known.retain(&shop, &[]);
        assert!(known.get(&shop, "lb-stays").is_none());
        assert!(known.get(&bank, "lb-stays").is_some(), "another cluster's");
        known.forget(&bank, "lb-stays");
        assert!(known.lock().is_empty());
    }

    #[test]
    fn templates_of_deleted_clusters_are_forgotten() {
        let (clusters, mut writer) = store();
        let known = KnownTemplates::default();
        for number in 0..100 {
            let shop = cluster(&format!("shop-{number}"), "1");
            writer.apply_watcher_event(&Event::Apply(shop.clone()));
            known.remember(&clusters, &shop, "lb", TemplateRecord::default());
            assert_eq!(count(&known), 1);
            writer.apply_watcher_event(&Event::Delete(shop));
        }
    }

    #[test]
    fn another_cluster_of_a_name_inherits_nothing() {
        let (clusters, mut writer) = store();
        let (former, shop) = (cluster("shop", "1"), cluster("shop", "2"));
        writer.apply_watcher_event(&Event::Apply(former.clone()));
        let known = KnownTemplates::default();
        let digest = |text: &str| Template::parse(text).unwrap().digest().to_owned();
        for name in ["lb-a", "lb-b"] {
            known.remember(&clusters, &former, name, accepted("global\n"));
        }
        assert_eq!(known.accepted(), BTreeSet::from([digest("global\n")]));
        assert!(known.get(&shop, "lb-a").is_none());
        writer.apply_watcher_event(&Event::Apply(shop.clone()));
        known.remember(&clusters, &shop, "lb-a", accepted("defaults\n"));
        assert_eq!(count(&known), 1);
        assert_eq!(known.accepted(), BTreeSet::from([digest("defaults\n")]));

        let again = cluster("shop", "3");
        known.retain(&again, &["lb-a"]);
        assert!(known.lock().is_empty(), "of a former one nothing is left");
    }
}
