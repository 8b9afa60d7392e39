//! The load balancers that exist for a cluster: found by their owner and names, not by what the status remembers.

use std::collections::BTreeSet;

use api::{MadePorts, SIPCluster};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kit::load_balancers::is_of_sip;
use kube::ResourceExt;
use render::load_balancer::API_SERVER_PORT;

/// Names of the load balancers that exist for a cluster. A Service is made before everything else of its load balancer, and
/// deleted after it. Of a name that the Airship SIP operator used it is not known yet whose the Service is.
pub(super) fn names<'a>(
    cluster: &SIPCluster,
    services: impl Iterator<Item = &'a Service>,
    deployments: impl Iterator<Item = &'a Deployment>,
) -> BTreeSet<String> {
    let services = services.filter(|service| is_own(*service, cluster) || is_unowned(service, cluster));
    let deployments = deployments.filter(|deployment| is_own(*deployment, cluster));
    let services = services.map(ResourceExt::name_any);
    services.chain(deployments.map(ResourceExt::name_any)).collect()
}

/// The ports of the cluster's load balancers that exist, by their names.
pub(super) fn ports<'a>(cluster: &SIPCluster, services: impl Iterator<Item = &'a Service>) -> MadePorts {
    let own = services.filter(|service| is_own(*service, cluster) || is_unowned(service, cluster));
    own.map(|service| (service.name_any(), numbers(service)))
        .collect()
}

/// What tells one load balancer from another of its kind: the port of API servers is that of all.
fn numbers(service: &Service) -> BTreeSet<u16> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let numbers = ports.flat_map(|port| [Some(port.port), port.node_port]).flatten();
    numbers
        .filter_map(|number| u16::try_from(number).ok())
        .filter(|number| *number != API_SERVER_PORT)
        .collect()
}

/// Whether this incarnation of the cluster owns it, and it is a load balancer's.
fn is_own(object: &impl ResourceExt, cluster: &SIPCluster) -> bool {
    let uid = cluster.metadata.uid.as_deref();
    let owners = object.owner_references().iter();
    object.namespace() == cluster.namespace()
        && super::status::is_own(&object.name_any())
        && owners
            .filter(|owner| owner.kind == "SIPCluster")
            .any(|owner| Some(owner.uid.as_str()) == uid)
}

/// Whether the Airship SIP operator may have made it for the cluster.
fn is_unowned(service: &Service, cluster: &SIPCluster) -> bool {
    let owned = service.owner_references().iter();
    let mut owned = owned.filter(|owner| owner.kind == "SIPCluster");
    service.namespace() == cluster.namespace()
        && owned.next().is_none()
        && is_of_sip(&service.name_any(), &cluster.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn metadata(namespace: &str, name: &str, owner: Option<&str>) -> Value {
        let owner = owner.map(|uid| {
            json!([{"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": "shop", "uid": uid}])
        });
        json!({"metadata": {"namespace": namespace, "name": name, "ownerReferences": owner}})
    }

    fn service(namespace: &str, name: &str, owner: Option<&str>) -> Service {
        serde_json::from_value(metadata(namespace, name, owner)).unwrap()
    }

    fn deployment(name: &str, owner: Option<&str>) -> Deployment {
        let mut object = metadata("tenant", name, owner);
        object["spec"] = json!({"selector": {}, "template": {}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn load_balancers_are_found_by_owner_or_by_sips_name() {
        let cluster = json!({"metadata": {"namespace": "tenant", "name": "shop", "uid": "now"}, "spec": {}});
        let cluster: SIPCluster = serde_json::from_value(cluster).unwrap();
        let services = [
            service("tenant", "loadbalancer-worker-shop-1", Some("now")),
            // Of the SIPCluster before, of another section, of another namespace, of somebody else.
            service("tenant", "loadbalancer-worker-shop-2", Some("before")),
            service("tenant", "jumphost-shop", Some("now")),
            service("elsewhere", "loadbalancer-worker-shop-3", Some("now")),
            service("tenant", "loadbalancer-worker-bank", None),
            // As SIP left it.
            service("tenant", "loadbalancer-controlplane-shop", None),
            service("tenant", "loadbalancer-worker-shop", Some("before")),
        ];
        let deployments = [
            deployment("loadbalancer-worker-shop-4", Some("now")),
            deployment("loadbalancer-worker-shop-5", None),
        ];
        assert_eq!(
            names(&cluster, services.iter(), deployments.iter())
                .into_iter()
                .collect::<Vec<_>>(),
            [
                "loadbalancer-controlplane-shop",
                "loadbalancer-worker-shop-1",
                "loadbalancer-worker-shop-4",
            ]
        );
    }
}
