//! Names that Cluster API, CAPM3 and metal3 write on objects.

/// On a host: the Cluster API cluster whose Machine uses it. On a Machine and its `Metal3Machine`: its Cluster.
pub const CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
/// On a Machine: it is one of the control plane.
pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
/// On a Machine: it goes first when its owner is scaled down.
pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// On a `Metal3Machine`: the template that it was made from.
pub const CLONED_FROM: &str = "cluster.x-k8s.io/cloned-from-name";
/// On a host: it is kept for the Machines of this owner.
pub const NODE_REUSE: &str = "infrastructure.cluster.x-k8s.io/node-reuse";
/// On a host: the failure domain that Machines may ask for.
pub const FAILURE_DOMAIN: &str = "infrastructure.cluster.x-k8s.io/failure-domain";
/// On a `Metal3Machine`: its host, as NAMESPACE/NAME.
pub const HOST: &str = "metal3.io/BareMetalHost";
/// On a host: remediation gave up on it.
pub const UNHEALTHY: &str = "capm3.metal3.io/unhealthy";
/// The same before CAPM3 1.10.
pub const UNHEALTHY_BEFORE: &str = "capi.metal3.io/unhealthy";
/// On a host: the baremetal-operator leaves it alone.
pub const PAUSED: &str = "baremetalhost.metal3.io/paused";
/// Finalizer of Machines.
pub const MACHINE_FINALIZER: &str = "machine.cluster.x-k8s.io";
/// Finalizer of `Metal3Machine`s.
pub const METAL3_MACHINE_FINALIZER: &str = "metal3machine.infrastructure.cluster.x-k8s.io";

/// Finalizer of `HostClaim`s.
pub const HOST_CLAIM_FINALIZER: &str = "hostclaim.metal3.io";

/// API version of Cluster API's own kinds.
pub const CLUSTER_API_VERSION: &str = "cluster.x-k8s.io/v1beta1";
/// API version of CAPM3's kinds.
pub const INFRASTRUCTURE_VERSION: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
/// API version of the baremetal-operator's kinds.
pub const METAL3_VERSION: &str = "metal3.io/v1alpha1";
