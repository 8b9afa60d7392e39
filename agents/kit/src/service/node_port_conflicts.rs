//! Node ports that another Service has, or that an older cluster with hosts in the same namespace has asked for.

use std::collections::BTreeMap;

use api::{PortSet, SIPCluster};
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Time};
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};

use super::{
    made_for,
    node_ports::node_ports,
    observed::is_placed,
    problem::{PORT_CONFLICT, Problem, REFUSED},
    site::Site,
};

/// Owners that a message names; each with all of its ports.
const MAX_NAMED_OWNERS: usize = 10;
/// The owner of ports in a message to a tenant who may not know it: names of another namespace are not shown.
const OTHER_NAMESPACE: &str = "another namespace";

/// The conflict that is known before anything is applied: with ports of other Services, and with ports that older placed clusters of the
/// same namespace ask for, whether they have them yet or not. Clusters of other namespaces reserve nothing by asking, since their
/// Services may be refused for ever: there the API server decides, which gives a port to one Service. A cluster that is not placed may
/// wait for ever, and reserves nothing. The ports that the Service has already are its own. Of the cluster's other Services the watch may show
/// one that this pass has deleted, or ports that it has moved: these count where the API server refuses them.
pub(super) fn conflict(site: &Site, object: &SIPCluster, service: &Service) -> Option<Problem> {
    let held = site.stores.services.get(&ObjectRef::from_obj(service));
    let held = held.as_deref().map(node_ports).unwrap_or_default();
    let wanted: PortSet = node_ports(service)
        .iter()
        .filter(|port| !held.contains(*port))
        .collect();
    if wanted.is_empty() {
        return None;
    }
    let services = site.stores.services.state();
    let services = services.iter().map(AsRef::as_ref);
    let others = services.filter(|other| !made_for::is_of(other, object));
    let by_services = taken(&wanted, service, others);
    let clusters = site.stores.clusters.state();
    let asked = clusters.iter().filter_map(|other| {
        // The ports of a cluster that is being deleted end with its Services.
        if other.metadata.namespace != object.metadata.namespace
            || !is_placed(other)
            || other.metadata.deletion_timestamp.is_some()
            || precedence(other) >= precedence(object)
        {
            return None;
        }
        let ports = site.spec_ports(other)?;
        let ports: PortSet = ports.iter().filter(|port| wanted.contains(*port)).collect();
        let owner = format!(
            "SIPCluster {}/{}, which is older",
            other.namespace().unwrap_or_default(),
            other.name_any()
        );
        Some((owner, ports))
    });
    problem(service, &with_asked(by_services, asked))
}

/// The conflict with Services of the same cluster that other agents have made: these may stay though the spec gives their ports to this one.
pub(super) fn conflict_with_other_agents(
    site: &Site,
    object: &SIPCluster,
    service: &Service,
) -> Option<Problem> {
    let services = site.stores.services.state();
    let others = services
        .iter()
        .map(AsRef::as_ref)
        .filter(|other: &&Service| made_for::is_of(other, object) && !site.identity.owns(&other.name_any()));
    problem(service, &taken(&node_ports(service), service, others))
}

/// With the ports that clusters ask for, by owner, but for those of a cluster that a Service has all. In whatever order the clusters come, it
/// is the same.
fn with_asked(
    by_services: BTreeMap<String, PortSet>,
    asked: impl Iterator<Item = (String, PortSet)>,
) -> BTreeMap<String, PortSet> {
    let has_all = |held: &PortSet, ports: &PortSet| ports.iter().all(|port| held.contains(port));
    let is_new = |ports: &PortSet| !by_services.values().any(|held| has_all(held, ports));
    let asked: BTreeMap<String, PortSet> = asked
        .filter(|(_, ports)| !ports.is_empty() && is_new(ports))
        .collect();
    by_services.into_iter().chain(asked).collect()
}

/// Why the API server refuses a Service: who has its node ports, as the watch of Services has shown them, or else the API server's message.
/// A list of all Services for every refusal would let one tenant load the API server.
pub(super) fn explain(site: &Site, service: &Service, message: &str) -> Problem {
    let all = site.stores.services.state();
    let taken = taken(&node_ports(service), service, all.iter().map(AsRef::as_ref));
    let refused = || Problem::new(REFUSED, format!("the API server refuses the Service: {message}"));
    problem(service, &taken).unwrap_or_else(refused)
}

fn problem(service: &Service, taken: &BTreeMap<String, PortSet>) -> Option<Problem> {
    if taken.is_empty() {
        return None;
    }
    let named: Vec<String> = taken
        .iter()
        .take(MAX_NAMED_OWNERS)
        .map(|(owner, ports)| format!("{ports} by {owner}"))
        .collect();
    let more = match taken.len().saturating_sub(MAX_NAMED_OWNERS) {
        0 => String::new(),
        more => format!("; and more by {more} others"),
    };
    let message = format!(
        "{}: node ports are taken: {}{more}",
        service.name_any(),
        named.join("; ")
    );
    Some(Problem::new(PORT_CONFLICT, message))
}

/// The wanted ports that other Services have, by owner.
fn taken<'a>(
    wanted: &PortSet,
    service: &Service,
    all: impl Iterator<Item = &'a Service>,
) -> BTreeMap<String, PortSet> {
    let own = (service.namespace(), service.name_any());
    let mut taken: BTreeMap<String, PortSet> = BTreeMap::new();
    for other in all.filter(|other| (other.namespace(), other.name_any()) != own) {
        for port in node_ports(other).iter().filter(|port| wanted.contains(*port)) {
            let is_near = other.namespace() == own.0;
            let owner = if is_near {
                owner(other)
            } else {
                OTHER_NAMESPACE.to_owned()
            };
            taken.entry(owner).or_default().add(port);
        }
    }
    taken
}

/// Older clusters come first, as the scheduler orders pending ones.
fn precedence(cluster: &SIPCluster) -> (Option<Time>, Option<String>, String) {
    (
        cluster.creation_timestamp(),
        cluster.namespace(),
        cluster.name_any(),
    )
}

/// The Service, and the `SIPCluster` that it belongs to if it is one's.
fn owner(service: &Service) -> String {
    let namespace = service.namespace().unwrap_or_default();
    let cluster = service
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "SIPCluster");
    let cluster = cluster
        .map(|cluster| format!(" of SIPCluster {namespace}/{}", cluster.name))
        .unwrap_or_default();
    format!("Service {namespace}/{}{cluster}", service.name_any())
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use api::Cluster;
    use kube::{
        Client,
        client::Body,
        runtime::{reflector::store, watcher::Event},
    };
    use serde_json::json;

    use super::{
        super::{
            identity::BALANCERS, parsed_ports::ParsedPorts, stores::Stores, tenant_watches::TenantAccess,
        },
        *,
    };
    use crate::config::ServiceOverrides;

    /// A site with these clusters and no Services, whose API server is not called.
    fn site(clusters: &[SIPCluster], node_ports: fn(&Cluster) -> PortSet) -> Site {
        let server = tower::service_fn(|_: http::Request<Body>| {
            std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(
                Vec::<u8>::new(),
            ))))
        });
        let (read, mut writer) = store();
        for cluster in clusters {
            writer.apply_watcher_event(&Event::Apply(cluster.clone()));
        }
        Site {
            client: Client::new(server, "tenant"),
            identity: BALANCERS,
            stores: Stores {
                clusters: read,
                services: store().0,
                deployments: super::super::TenantStore::default(),
                pods: super::super::TenantStore::default(),
                versions: std::sync::Arc::default(),
                access: TenantAccess::default(),
            },
            last_applied: std::sync::Arc::default(),
            node_ports,
            parsed_ports: ParsedPorts::default(),
            overrides: ServiceOverrides::default(),
        }
    }

    #[tokio::test]
    async fn specs_of_others_are_parsed_once_for_all_conflicts() {
        static PARSED: AtomicUsize = AtomicUsize::new(0);
        fn count(_: &Cluster) -> PortSet {
            PARSED.fetch_add(1, Ordering::Relaxed);
            [30_000].into_iter().collect()
        }
        let cluster = |name: &str, hour: u8| -> SIPCluster {
            let condition = json!({
                "type": "Scheduled", "status": "True", "reason": "Scheduled", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let cluster = json!({
                "metadata": {
                    "namespace": "tenant", "name": name, "uid": name, "resourceVersion": "1",
                    "creationTimestamp": format!("2026-01-01T{hour:02}:00:00Z"),
                },
                "spec": {"nodes": {}}, "status": {"conditions": [condition]},
            });
            serde_json::from_value(cluster).unwrap()
        };
        let clusters = [cluster("a", 1), cluster("b", 2), cluster("new", 3)];
        let site = site(&clusters, count);
        for entry in 0..3 {
            let service = json!({
                "metadata": {"namespace": "tenant", "name": format!("loadbalancer-worker-new-{entry}")},
                "spec": {"type": "NodePort", "ports": [{"port": 1, "nodePort": 30_000}]},
            });
            let service: Service = serde_json::from_value(service).unwrap();
            let problem = conflict(&site, &clusters[2], &service).unwrap();
            let taken = "30000 by SIPCluster tenant/a, which is older";
            assert!(problem.message.contains(taken), "{}", problem.message);
        }
        assert_eq!(PARSED.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn owners_of_ports_are_the_same_in_any_order() {
        let entry =
            |owner: &str, ports: &[u16]| (owner.to_owned(), ports.iter().copied().collect::<PortSet>());
        let by_services = BTreeMap::from([entry("Service a", &[1, 2])]);
        let mut asked = [
            entry("SIPCluster a", &[1]),
            entry("SIPCluster b", &[3, 4]),
            entry("SIPCluster c", &[3]),
            entry("SIPCluster d", &[3]),
            entry("SIPCluster e", &[]),
        ];
        let expected = BTreeMap::from([
            entry("Service a", &[1, 2]),
            entry("SIPCluster b", &[3, 4]),
            entry("SIPCluster c", &[3]),
            entry("SIPCluster d", &[3]),
        ]);
        for _ in 0..asked.len() {
            asked.rotate_left(1);
            let found = with_asked(by_services.clone(), asked.iter().cloned());
            assert_eq!(found, expected, "{asked:?}");
        }
    }
}
