//! A cluster as it was observed: its status, and the instances that exist for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{Applied, Drained, Endpoint, MadePorts, Placement, SIPCluster, conditions::SCHEDULED};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::ResourceExt as _;

use super::{
    endpoints, existing_ports, identity::Identity, kinds::Kind, last_applied::Written, made_for,
    readiness::has_served, site::Site,
};
use crate::conditions::find;

/// A cluster as it was observed.
#[derive(Debug)]
pub struct Observed<'a> {
    object: &'a SIPCluster,
    identity: &'static Identity,
    services: Vec<Arc<Service>>,
    names: BTreeSet<String>,
    /// Names of the Deployments whose pods have served.
    served: BTreeSet<String>,
    /// The resource versions of the instances' `ConfigMap`s, by name.
    config_maps: BTreeMap<String, String>,
    /// What pods read, by instance, as this process has written it, where that is the newest that is known.
    written: BTreeMap<String, Written>,
}

impl<'a> Observed<'a> {
    /// A cluster, with what the watches have shown of its instances, and what this process has written of them.
    pub(super) fn new(object: &'a SIPCluster, site: &Site) -> Self {
        let (identity, stores) = (site.identity, &site.stores);
        let namespace = object.namespace().unwrap_or_default();
        let deployments = stores.deployments.within(&namespace);
        let mut observed = Self::among(object, identity, stores.services.state(), &deployments);
        let (uid, name) = (object.uid().unwrap_or_default(), object.name_any());
        let cluster = (&*uid, &*name);
        let left = stores.instances_with_children(identity, &namespace, cluster);
        observed.names.extend(left);
        observed.take_newer(|name, shown| site.last_applied.newer_service(&namespace, name, shown));
        let suffixes = identity.children.iter();
        let suffixes = suffixes.filter(|children| children.kind == Kind::ConfigMap);
        for suffix in suffixes.map(|children| children.suffix) {
            let names = observed.names.iter().map(|name| format!("{name}{suffix}"));
            let versions = names.filter_map(|name| {
                let version = stores.config_map_version(&namespace, &name, cluster)?;
                Some((name, version))
            });
            observed.config_maps.extend(versions);
        }
        let written = observed.names.iter().filter_map(|name| {
            let shown = observed.config_map_version(name);
            let written = site.last_applied.written(&namespace, name, shown)?;
            Some((name.clone(), written))
        });
        observed.written = written.collect();
        observed
    }

    /// By Services and Deployments: the Airship SIP operator made these too. Of a name that it used the owner of the Service is not
    /// known yet.
    pub(super) fn among(
        object: &'a SIPCluster,
        identity: &'static Identity,
        mut services: Vec<Arc<Service>>,
        deployments: &[Arc<Deployment>],
    ) -> Self {
        services.retain(|service| {
            is_own(&**service, object, identity) || is_unowned(&**service, object, identity)
        });
        let deployments = deployments.iter();
        let deployments = deployments.filter(|deployment| {
            is_own(&***deployment, object, identity) || is_unowned(&***deployment, object, identity)
        });
        let mut names: BTreeSet<String> = services.iter().map(|service| service.name_any()).collect();
        let mut served = BTreeSet::new();
        for deployment in deployments {
            let name = deployment.name_any();
            if has_served(deployment) {
                served.insert(name.clone());
            }
            names.insert(name);
        }
        // A watch may not have shown these yet.
        let applied = object.status.iter().flat_map(|status| &status.applied);
        let applied = applied.map(|applied| &applied.service);
        names.extend(applied.filter(|name| identity.owns(name)).cloned());
        Self {
            object,
            identity,
            services,
            names,
            served,
            config_maps: BTreeMap::new(),
            written: BTreeMap::new(),
        }
    }

    /// Takes Services as this process has applied them, in place of those that a watch shows as they were before: the ports of
    /// Services say which of the entries without a name is which.
    fn take_newer(&mut self, newer: impl Fn(&str, Option<&str>) -> Option<Arc<Service>>) {
        for name in &self.names {
            let shown = self.services.iter_mut();
            let mut shown = shown.filter(|service| service.metadata.name.as_ref() == Some(name));
            match shown.next() {
                Some(shown) => {
                    if let Some(newer) = newer(name, shown.metadata.resource_version.as_deref()) {
                        *shown = newer;
                    }
                }
                None => self.services.extend(newer(name, None)),
            }
        }
    }

    /// The cluster.
    #[must_use]
    pub fn object(&self) -> &'a SIPCluster {
        self.object
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.object.namespace().unwrap_or_default()
    }

    /// The Services of the cluster's instances.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.iter().map(AsRef::as_ref)
    }

    /// Names of the instances that exist, and of those that are applied by the status.
    #[must_use]
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// Names of the instances that serve, or have served: those with a Service, and a Deployment whose pods were available. Of an entry that is
    /// refused there can be less.
    pub(super) fn made(&self) -> BTreeSet<&str> {
        let exposed: BTreeSet<&str> = self
            .services()
            .filter_map(|service| service.metadata.name.as_deref())
            .collect();
        let served = self.served.iter().map(String::as_str);
        served.filter(|name| exposed.contains(name)).collect()
    }

    /// The instances of this agent with their node ports; empty where these are not known.
    #[must_use]
    pub fn made_ports(&self) -> MadePorts {
        self.made_ports_by(existing_ports::node_ports, existing_ports::recorded_on_nodes)
    }

    /// The instances of this agent with the ports that tell them from each other: those of its Services, and what the status has recorded
    /// where no watch has shown a Service yet. Empty where they are not known.
    #[must_use]
    pub fn made_ports_by(
        &self,
        of_service: impl Fn(&Service) -> BTreeSet<u16>,
        of_endpoint: impl Fn(&Endpoint) -> BTreeSet<u16>,
    ) -> MadePorts {
        let mut made = existing_ports::recorded_ports(self.object, of_endpoint);
        made.retain(|name, _| self.identity.owns(name));
        for name in &self.names {
            made.entry(name.clone()).or_default();
        }
        let services = self.services();
        made.extend(services.map(|service| (service.name_any(), of_service(service))));
        made
    }

    /// The resource version that a `ConfigMap` of an instance had when the pass began.
    pub(super) fn config_map_version(&self, name: &str) -> Option<&str> {
        self.config_maps.get(name).map(String::as_str)
    }

    /// The configuration in the `ConfigMap` of an instance, as its objects were rendered with it, and the resource version that it has
    /// there: if this process has written it, and the watch has shown no other since. A write on the condition of this version is refused
    /// if there is another by now.
    #[must_use]
    pub fn written_configuration(&self, instance: &str) -> Option<(&str, &str)> {
        let written = self.written.get(instance)?;
        Some((&written.digest, &written.version))
    }

    /// Whether the cluster is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// What the cluster holds; `None` as long as its own agent has written no placement.
    #[must_use]
    pub fn placement(&self) -> Option<&'a Placement> {
        self.object.status.as_ref()?.placement.as_ref()
    }

    /// Whether there is a placement that cannot be read.
    pub(super) fn has_unreadable_placement(&self) -> bool {
        self.object.spec.left_out.placement.is_some()
    }

    /// This agent's `status.drained`.
    #[must_use]
    pub fn drained(&self) -> Option<Drained> {
        let status = self.object.status.as_ref();
        status
            .filter(|_| self.identity.reports_drained)
            .and_then(|status| status.drained)
    }

    pub(super) fn generation(&self) -> i64 {
        self.object.metadata.generation.unwrap_or_default()
    }

    /// This agent's entries of `status.applied`.
    pub(super) fn applied(&self) -> Vec<Applied> {
        let applied = self.object.status.iter().flat_map(|status| &status.applied);
        applied
            .filter(|applied| self.identity.owns(&applied.service))
            .cloned()
            .collect()
    }

    /// This agent's entries of `status.endpoints`.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let endpoints = self.object.status.iter().flat_map(|status| &status.endpoints);
        endpoints
            .filter(|endpoint| self.identity.owns(&endpoint.name))
            .cloned()
            .collect()
    }

    /// Those of an instance that has a Service: users still reach it there.
    pub(super) fn endpoints_of_service(&self, instance: &str) -> Vec<Endpoint> {
        let mut services = self.services();
        let exists = services.any(|service| service.metadata.name.as_deref() == Some(instance));
        let mut endpoints = self.endpoints();
        endpoints.retain(|endpoint| exists && endpoints::instance(endpoint) == instance);
        endpoints
    }

    pub(super) fn conditions(&self) -> &'a [Condition] {
        let status = self.object.status.as_ref();
        status.map(|status| &*status.conditions).unwrap_or_default()
    }

    /// Whether the condition of this service tells of the present spec.
    pub(super) fn has_condition_of_generation(&self) -> bool {
        let condition = self.condition();
        condition.is_some_and(|condition| condition.observed_generation == Some(self.generation()))
    }

    /// This agent's condition.
    pub(super) fn condition(&self) -> Option<&'a Condition> {
        find(self.conditions(), self.identity.condition)
    }
}

/// Whether the cluster agent has reported the scheduler's decision.
pub(super) fn is_decided(object: &SIPCluster) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| find(&status.conditions, SCHEDULED).is_some())
}

/// Whether every role has its hosts, as the cluster agent has reported it.
pub(super) fn is_placed(object: &SIPCluster) -> bool {
    let status = object.status.as_ref();
    let scheduled = status.and_then(|status| find(&status.conditions, SCHEDULED));
    scheduled.is_some_and(|condition| condition.status == "True")
}

/// Whether this incarnation of the cluster owns it, and it is an instance's of this agent.
fn is_own(object: &impl kube::ResourceExt, cluster: &SIPCluster, identity: &Identity) -> bool {
    let uid = cluster.metadata.uid.as_deref();
    let owners = object.owner_references().iter();
    object.namespace() == cluster.namespace()
        && identity.owns(&object.name_any())
        && owners
            .filter(|owner| owner.kind == "SIPCluster")
            .any(|owner| Some(owner.uid.as_str()) == uid)
}

/// Whether it was made for a cluster of this name and has lost its owner, as by `kubectl delete --cascade=orphan`, or the Airship SIP operator
/// may have made it.
fn is_unowned(object: &impl kube::ResourceExt, cluster: &SIPCluster, identity: &Identity) -> bool {
    let owned = object.owner_references().iter();
    let mut owned = owned.filter(|owner| owner.kind == "SIPCluster");
    object.namespace() == cluster.namespace()
        && owned.next().is_none()
        && match made_for::cluster(object.labels()) {
            Some(named) => {
                let name = object.name_any();
                named == cluster.name_any()
                    && identity.owns(&name)
                    && made_for::is_of_instance(object.meta(), &name)
            }
            None => identity.is_sip_name(&object.name_any(), &cluster.name_any()),
        }
}

#[cfg(test)]
mod tests {
    use api::labels;
    use serde_json::{Value, json};

    use super::{
        super::{identity::BALANCERS, watches::trim_deployment},
        *,
    };

    #[test]
    fn a_moved_entry_keeps_its_ports_while_the_watch_lags() {
        let cluster: SIPCluster = serde_json::from_value(json!({
            "metadata": {"namespace": "tenant", "name": "shop", "uid": "u"}, "spec": {},
        }))
        .unwrap();
        let service = |version: &str, port: u16| {
            let mut service = metadata("tenant", "loadbalancer-worker-shop", Some("u"));
            service["metadata"]["resourceVersion"] = json!(version);
            service["spec"] = json!({"ports": [{"port": port, "nodePort": port}]});
            Arc::new(serde_json::from_value::<Service>(service).unwrap())
        };
        let mut observed = Observed::among(&cluster, BALANCERS, vec![service("5", 31_325)], &[]);
        observed.take_newer(|_, shown| {
            assert_eq!(shown, Some("5"));
            Some(service("6", 31_326))
        });
        let made = observed.made_ports();
        assert_eq!(made["loadbalancer-worker-shop"], [31_326].into());
        observed.take_newer(|_, _| None);
        assert_eq!(observed.made_ports(), made, "the watch shows the newest");
    }

    fn metadata(namespace: &str, name: &str, owner: Option<&str>) -> Value {
        let owner = owner.map(|uid| {
            json!([{"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": "shop", "uid": uid}])
        });
        json!({"metadata": {"namespace": namespace, "name": name, "ownerReferences": owner}})
    }

    fn service(namespace: &str, name: &str, owner: Option<&str>) -> Arc<Service> {
        Arc::new(serde_json::from_value(metadata(namespace, name, owner)).unwrap())
    }

    fn deployment(name: &str, owner: Option<&str>) -> Arc<Deployment> {
        let mut object = metadata("tenant", name, owner);
        object["spec"] = json!({"selector": {}, "template": {}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    /// Without an owner.
    fn labelled(name: &str, part_of: &str, cluster: &str) -> Arc<Service> {
        let mut object = metadata("tenant", name, None);
        object["metadata"]["labels"] =
            json!({labels::PART_OF: part_of, labels::CLUSTER_NAME: cluster, labels::INSTANCE: name});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn instances_without_an_owner_are_found_by_their_labels() {
        let cluster = json!({"metadata": {"namespace": "tenant", "name": "shop", "uid": "now"}, "spec": {}});
        let cluster: SIPCluster = serde_json::from_value(cluster).unwrap();
        let mut copied = metadata("tenant", "loadbalancer-worker-shop-stats", None);
        copied["metadata"]["labels"] = json!({
            labels::PART_OF: labels::PART_OF_SIP, labels::CLUSTER_NAME: "shop", labels::INSTANCE: "loadbalancer-worker-shop",
        });
        let services = vec![
            labelled("loadbalancer-worker-shop-a", labels::PART_OF_SIP, "shop"),
            Arc::new(serde_json::from_value(copied).unwrap()),
            // Of another cluster, another section, somebody else.
            labelled("loadbalancer-worker-shop-b", labels::PART_OF_SIP, "shop-b"),
            labelled("loadbalancer-worker-shop", labels::PART_OF_SIP, "bank"),
            labelled("jumphost-shop-c", labels::PART_OF_SIP, "shop"),
            labelled("loadbalancer-worker-shop-d", "shop", "shop"),
            service("tenant", "loadbalancer-worker-shop-e", None),
        ];
        let mut left = deployment("loadbalancer-worker-shop-f", None);
        let left_labels = [
            (labels::PART_OF, labels::PART_OF_SIP),
            (labels::CLUSTER_NAME, "shop"),
            (labels::INSTANCE, "loadbalancer-worker-shop-f"),
        ];
        let left_labels = left_labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let kept = Arc::make_mut(&mut left);
        kept.metadata.labels = Some(left_labels.into());
        trim_deployment(kept);
        let observed = Observed::among(&cluster, BALANCERS, services, &[left]);
        let names: Vec<_> = observed.names().iter().collect();
        assert_eq!(
            names,
            ["loadbalancer-worker-shop-a", "loadbalancer-worker-shop-f"]
        );
    }

    #[test]
    fn instances_are_found_by_owner_sip_name_or_status() {
        let cluster = json!({
            "metadata": {"namespace": "tenant", "name": "shop", "uid": "now"}, "spec": {},
            "status": {"applied": [
                {"service": "loadbalancer-worker-shop-6", "epoch": 1, "revision": 1, "generation": 1},
                {"service": "jumphost-shop", "epoch": 1, "revision": 1, "generation": 1},
            ]},
        });
        let cluster: SIPCluster = serde_json::from_value(cluster).unwrap();
        let services = vec![
            service("tenant", "loadbalancer-worker-shop-1", Some("now")),
            // Of an earlier SIPCluster, another section, another namespace, a stranger.
            service("tenant", "loadbalancer-worker-shop-2", Some("before")),
            service("tenant", "jumphost-shop", Some("now")),
            service("elsewhere", "loadbalancer-worker-shop-3", Some("now")),
            service("tenant", "loadbalancer-worker-bank", None),
            // As SIP left it.
            service("tenant", "loadbalancer-controlplane-shop", None),
            service("tenant", "loadbalancer-worker-shop-7", Some("before")),
        ];
        let deployments = [
            deployment("loadbalancer-worker-shop-4", Some("now")),
            deployment("loadbalancer-worker-shop-5", None),
            // As SIP left it, without its Service.
            deployment("loadbalancer-worker-shop", None),
        ];
        let observed = Observed::among(&cluster, BALANCERS, services, &deployments);
        assert_eq!(
            observed.names().iter().collect::<Vec<_>>(),
            [
                "loadbalancer-controlplane-shop",
                "loadbalancer-worker-shop",
                "loadbalancer-worker-shop-1",
                "loadbalancer-worker-shop-4",
                "loadbalancer-worker-shop-6",
            ]
        );
        assert_eq!(observed.applied().len(), 1);
        assert_eq!(observed.services().count(), 2);
    }

    #[test]
    fn recorded_ports_count_until_a_service_is_seen() {
        let cluster: SIPCluster = serde_json::from_value(json!({
            "metadata": {"namespace": "tenant", "name": "shop", "uid": "now"}, "spec": {},
            "status": {
                "applied": [
                    {"service": "loadbalancer-worker-shop", "epoch": 1, "revision": 1, "generation": 1},
                    {"service": "loadbalancer-worker-shop-1", "epoch": 1, "revision": 1, "generation": 1},
                ],
                "endpoints": [
                    {"name": "loadbalancer-worker-shop", "port": 1},
                    {"name": "loadbalancer-worker-shop-1:2", "port": 2},
                    {"name": "loadbalancer-worker-shop-1:3", "port": 3, "nodePort": 4},
                    {"name": "jumphost-shop", "port": 5},
                ],
            },
        }))
        .unwrap();
        let seen = vec![service("tenant", "loadbalancer-worker-shop", Some("now"))];
        let observed = Observed::among(&cluster, BALANCERS, seen, &[]);
        let made = observed.made_ports_by(
            |_| [9].into(),
            |endpoint| {
                let ports = [endpoint.port, endpoint.node_port].into_iter().flatten();
                ports.filter_map(|port| u16::try_from(port).ok()).collect()
            },
        );
        let expected: MadePorts = [
            ("loadbalancer-worker-shop".to_owned(), [9].into()),
            ("loadbalancer-worker-shop-1".to_owned(), [2, 3, 4].into()),
        ]
        .into();
        assert_eq!(made, expected);
    }
}
