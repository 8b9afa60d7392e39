//! Annotation keys. As in metal3, an annotation that marks a host is in effect while it is present, whatever its value.

/// On a host: metal3 does not reconcile it.
pub const PAUSED: &str = "baremetalhost.metal3.io/paused";
/// On a host: metal3 stops managing it and leaves the machine as it is.
pub const DETACHED: &str = "baremetalhost.metal3.io/detached";
/// On a host: Cluster API's metal3 provider found the machine on it unhealthy.
pub const UNHEALTHY: &str = "capm3.metal3.io/unhealthy";
/// The same, as CAPM3 before 1.10 writes it. CAPM3 does not choose a host with either annotation.
pub const UNHEALTHY_BEFORE: &str = "capi.metal3.io/unhealthy";
/// On a host: an operator declares it failed; a member on it is replaced.
pub const FAILED: &str = "sip.airshipit.org/failed";
/// On a host: no new claim may take it, and the scheduler replaces a member on it, which stays until its replacement is bound.
pub const REPLACE: &str = "sip.airshipit.org/replace";
/// On a host: no new claim may take it. A member on it stays.
pub const CORDONED: &str = "sip.airshipit.org/cordoned";
/// On a host: its tenant may change its power state even while baremetal-operator is changing the host.
pub const POWER_WHILE_BUSY: &str = "sip.airshipit.org/power-while-busy";
/// On a host: revision of the release that last removed its SIP labels. The cluster agent does not label the host for an older claim.
pub const PLACEMENT_REVISION: &str = "sip.airshipit.org/placement-revision";
/// On a SIPCluster, and by the cluster agent on each of its hosts: the Cluster API cluster whose Machines may use the hosts, as
/// `NAME` or `NAMESPACE/NAME`. Absent: the one of the SIPCluster's own name.
pub const CLUSTER_API_CLUSTER: &str = "sip.airshipit.org/cluster-api-cluster";
/// On a Secret with a kubeconfig that Cluster API wrote: name of the SIPCluster that may use it, where that has another name than the Cluster.
pub const USED_BY: &str = "sip.airshipit.org/used-by";
/// On a host: name of the Secret, in the host's namespace, that its `networkData` named when it was given to a SIPCluster. CAPM3 with a
/// data template replaces `networkData`, and deletes what it wrote.
pub const NETWORK_DATA: &str = "sip.airshipit.org/network-data";
/// On a Node of a tenant's cluster that the cluster agent has cordoned: the uid of the host that leaves the cluster.
pub const CORDONED_FOR: &str = "sip.airshipit.org/cordoned-for";
/// On a pod template: hash of everything that the pod was rendered from, so that a change rolls out.
pub const CONFIG_HASH: &str = "sip.airshipit.org/config-hash";
/// On the Deployment of a load balancer: SHA-256 of the template by which the agent renders it. Absent: the built-in configuration.
pub const TEMPLATE: &str = "sip.airshipit.org/template";
/// Beside [`TEMPLATE`]: the image whose haproxy has accepted the template.
pub const TEMPLATE_IMAGE: &str = "sip.airshipit.org/template-image";
/// On the `ConfigMap` of a load balancer: position (`EPOCH.REVISION`) of the placement for which the agent rendered it. So every claim and every
/// release changes the object, and the API server refuses a write that is based on an earlier version of it.
pub const PLACEMENT: &str = "sip.airshipit.org/placement";
/// On the `ConfigMap` of a load balancer without a sidecar: distinguishes its configuration from an equal earlier one that another one has
/// replaced in between. The [`CONFIG_HASH`] of the pods contains it, too.
pub const CONFIG_MARK: &str = "sip.airshipit.org/config-mark";
/// On the Service of a load balancer or identity provider: `true` once its pods have been available since it was last to have none, otherwise `false`.
/// While it is `false` for an entry that is to have pods, what an edit removes from the same list stays.
pub const SERVED: &str = "sip.airshipit.org/served";
/// On a pod: the Multus networks that it joins, as a JSON list.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// On a pod, by Multus: the networks that it has joined, and its addresses in them.
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
