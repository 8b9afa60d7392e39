//! Names, labels and owner of every object of an instance. They are SIP's, so that the agents can take over its objects: the selector of a
//! Deployment can never change.

use std::collections::BTreeMap;

use api::{Cluster, SIPCluster, Service as Entry, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource as _;

/// One entry of a section of a cluster's services: what is rendered for it is one instance of the service.
#[derive(Clone, Copy, Debug)]
pub struct Instance<'a> {
    cluster: &'a Cluster,
    entry: &'a Entry,
    component: &'a str,
    software: &'a str,
}

impl<'a> Instance<'a> {
    /// The instance of an entry. `component` and `software`: values of the labels [`labels::COMPONENT`] and [`labels::NAME`].
    #[must_use]
    pub fn new(cluster: &'a Cluster, entry: &'a Entry, component: &'a str, software: &'a str) -> Self {
        Self {
            cluster,
            entry,
            component,
            software,
        }
    }

    /// The SIPCluster of the instance.
    #[must_use]
    pub fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// What its entry has in common with those of every service.
    #[must_use]
    pub fn entry(&self) -> &'a Entry {
        self.entry
    }

    /// Name of its objects.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.entry.object_name().as_str()
    }

    /// Labels of its objects, by which its pods are selected too.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        [
            (labels::PART_OF, labels::PART_OF_SIP),
            (labels::COMPONENT, self.component),
            (labels::NAME, self.software),
            (labels::INSTANCE, self.name()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    /// Labels of its pods: those of the selector, and the name of its cluster, by which pods without an owner are found.
    #[must_use]
    pub fn pod_labels(&self) -> BTreeMap<String, String> {
        let mut on_pod = self.labels();
        on_pod.insert(labels::CLUSTER_NAME.to_owned(), self.cluster.name().to_owned());
        on_pod
    }

    /// Selects its pods.
    #[must_use]
    pub fn selector(&self) -> LabelSelector {
        LabelSelector {
            match_labels: Some(self.labels()),
            match_expressions: None,
        }
    }

    /// Metadata of an object of its name. The owner reference is the safety net behind the agents' own deletion.
    #[must_use]
    pub fn metadata(&self) -> ObjectMeta {
        let mut on_object = self.pod_labels();
        on_object.insert(labels::MANAGED_BY.to_owned(), labels::MANAGED_BY_SIP.to_owned());
        let version = self.entry.image().version();
        on_object.extend(version.map(|version| (labels::VERSION.to_owned(), version.as_str().to_owned())));
        ObjectMeta {
            name: Some(self.name().to_owned()),
            namespace: Some(self.cluster.namespace().to_owned()),
            labels: Some(on_object),
            owner_references: Some(vec![OwnerReference {
                api_version: SIPCluster::api_version(&()).into_owned(),
                kind: SIPCluster::kind(&()).into_owned(),
                name: self.cluster.name().to_owned(),
                uid: self.cluster.uid().to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        }
    }
}
