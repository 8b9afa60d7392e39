//! Label keys and values that users script against. They are SIP's, letter for letter.

/// Labels of a placed host. The scheduler reads them, too.
pub use vocabulary::labels::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE};

/// On a host that Cluster API uses: name of the Cluster that the Machine on it belongs to. CAPM3 writes it with the consumer.
pub const CLUSTER_API: &str = "cluster.x-k8s.io/cluster-name";

/// On a host, by CAPM3 where a template sets `nodeReuse`: the owner for whose Machines CAPM3 keeps the host. The label stays when the Machine is
/// gone. CAPM3 then does not choose the host for any other owner, and reports no reason.
pub const NODE_REUSE: &str = "infrastructure.cluster.x-k8s.io/node-reuse";

/// On a child of a SIPCluster: always [`PART_OF_SIP`].
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// On a child of a SIPCluster: kind of service, for example [`COMPONENT_LOAD_BALANCER`].
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// On a child of a SIPCluster: the software, for example [`NAME_HAPROXY`].
pub const NAME: &str = "app.kubernetes.io/name";
/// On a child of a SIPCluster: name of the object itself.
pub const INSTANCE: &str = "app.kubernetes.io/instance";

/// On a child of a SIPCluster, but not on its pods: always [`MANAGED_BY_SIP`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`].
pub const MANAGED_BY_SIP: &str = "sip";

/// On a child of a SIPCluster, but not on its pods: the tag of its image, where a label can have it.
pub const VERSION: &str = "app.kubernetes.io/version";

/// Value of [`PART_OF`].
pub const PART_OF_SIP: &str = "sip";
/// Value of [`COMPONENT`] on a load balancer.
pub const COMPONENT_LOAD_BALANCER: &str = "loadbalancer";
/// Value of [`NAME`] on a load balancer.
pub const NAME_HAPROXY: &str = "haproxy";
/// Value of [`COMPONENT`] and of [`NAME`] on a jump host.
pub const JUMP_HOST: &str = "jumphost";
/// Value of [`NAME`] on a pod that checks a template: no selector of a load balancer finds it.
pub const NAME_CHECK: &str = "haproxy-check";
/// On a pod that checks a template: which check it is.
pub const TEMPLATE_CHECK: &str = "sip.airshipit.org/template-check";

/// On a namespace of the site, with the value [`TRUE`]: its pods may read the metrics of load balancers.
pub const SCRAPES: &str = "sip.airshipit.org/scrapes-metrics";
/// Value of a label that is set.
pub const TRUE: &str = "true";
