//! Condition types of a SIPCluster and the reasons of `Ready`. Each type has one owner (field manager).

/// Every role has the hosts that it asks for. Owner: cluster agent.
pub const SCHEDULED: &str = "Scheduled";
/// Every member carries the cluster's labels. Owner: cluster agent.
pub const HOSTS_LABELED: &str = "HostsLabeled";
/// The cluster is as its spec asks. Owner: cluster agent.
pub const READY: &str = "Ready";
/// Sections of the spec whose agent this site does not have. Owner: cluster agent.
pub const SERVICES_SKIPPED: &str = "ServicesSkipped";
/// Load balancers are as the spec asks. Owner: load balancer agent.
pub const LOAD_BALANCER_READY: &str = "LoadBalancerReady";
/// Jump hosts are as the spec asks. Owner: jump host agent.
pub const JUMP_HOST_READY: &str = "JumpHostReady";
/// Identity providers are as the spec asks. Owner: Dex agent.
pub const AUTH_READY: &str = "AuthReady";

/// Reasons of [`READY`], those of SIP.
pub mod ready {
    /// Work is going on.
    pub const PROGRESSING: &str = "Progressing";
    /// No hosts can be found for every role.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// A load balancer, jump host or identity provider is not as asked.
    pub const INFRA_SERVICE_FAILURE: &str = "InfraServiceFailure";
    /// A member could not be labelled.
    pub const UNABLE_TO_APPLY_LABELS: &str = "UnableToApplyLabels";
    /// The cluster is being deleted, and that is held up.
    pub const UNABLE_TO_DECOMMISSION: &str = "UnableToDecommission";
    /// All is as asked.
    pub const RECONCILIATION_SUCCEEDED: &str = "ReconciliationSucceeded";
}

/// Reasons of [`LOAD_BALANCER_READY`], besides [`ready::PROGRESSING`].
pub mod load_balancer {
    /// All is as asked.
    pub const AVAILABLE: &str = "Available";
    /// All is as asked, and no member answers, as HAProxy sees it: mostly since nothing runs on them yet. The condition is
    /// True: a cluster is Ready before anybody can provision it.
    pub const NO_REACHABLE_BACKEND: &str = "NoReachableBackend";
    /// Somebody else has node ports that the spec asks for, or asked for them earlier.
    pub const PORT_CONFLICT: &str = "PortConflict";
    /// Somebody else has an object of a name that is needed.
    pub const NAME_CONFLICT: &str = "NameConflict";
    /// The API server refuses an object.
    pub const REFUSED: &str = "Refused";
    /// A member has no address in the network that the entry names.
    pub const NO_ADDRESS: &str = "NoAddress";
    /// A pod's image cannot be had.
    pub const IMAGE_PULL: &str = "ImagePull";
    /// Pods end or cannot be started.
    pub const PODS_FAIL: &str = "PodsFail";
    /// The site's template cannot be used, and the last one that could still is.
    pub const BAD_TEMPLATE: &str = "BadTemplate";
    /// A `NetworkAttachmentDefinition` does not exist, or a pod has not joined its network.
    pub const NETWORK_ATTACHMENT_MISSING: &str = "NetworkAttachmentMissing";
}
