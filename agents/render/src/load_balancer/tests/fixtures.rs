//! A cluster and its members.

use api::{Cluster, SIPCluster};

use crate::load_balancer::Member;

pub(super) const SITE: &str = "
apiVersion: airship.airshipit.org/v1
kind: SIPCluster
metadata: {name: wordpress, namespace: tenants, uid: 7d1c, generation: 4}
spec:
  nodes:
    ControlPlane: {labelSelector: {}, count: {active: 3}}
    Worker: {labelSelector: {}, count: {active: 2, standby: 1}}
  services:
    loadBalancerControlPlane:
    - image: haproxy:2.3.2
      nodeLabels: {kubernetes.io/os: linux}
      nodeInterfaceId: oam-ipv4
      nodePort: 30001
    loadBalancerWorker:
    - image: haproxy:2.3.2
      nodeInterfaceId: oam-ipv4
      replicas: 3
      nodePortRange:
        start: 30002
        end: 30003
";

/// With what tenants may choose chosen otherwise.
pub(super) fn otherwise() -> String {
    SITE.replace("nodePort: 30001", "nodePort: 30001\n      balance: leastconn")
        .replace(
            "replicas: 3",
            "replicas: 3\n      balance: leastconn\n      proxyProtocol: true",
        )
}

pub(super) fn cluster(yaml: &str) -> Cluster {
    let object: SIPCluster = serde_saphyr::from_str(yaml).unwrap();
    Cluster::parse(&object).unwrap()
}

pub(super) fn member(namespace: &str, name: &str, address: &str) -> Member {
    Member {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        address: address.parse().unwrap(),
        is_backup: false,
    }
}

/// Two hosts of one name in different namespaces, one with IPv6.
pub(super) fn members() -> Vec<Member> {
    vec![
        member("rack-a", "node-1", "192.0.2.11"),
        member("rack-a", "node-2", "192.0.2.12"),
        member("rack-b", "node-1", "2001:db8::11"),
    ]
}
