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
