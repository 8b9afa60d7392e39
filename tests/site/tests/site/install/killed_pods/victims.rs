//! Kinds of pods that are killed, and what tenants are promised when one is.

use std::fmt;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::Api;
use sandbox::{
    region::{AGENTS_NAMESPACE, Agent},
    site::Site,
};

use super::{
    ONE_POD_LEFT, RECOVERY, TENANT,
    traffic::Report,
    workloads::{Container, pods_of},
};

/// Whose container is killed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Victim {
    /// Nobody's, which shows what the others add.
    Nothing,
    Scheduler,
    /// The replica that holds the agent's Lease.
    LeaseHolder(Agent),
    /// So many of the two pods of a load balancer.
    LoadBalancer(usize),
    JumpHost,
}

/// Each kind of pod that the site of the installation has.
pub(super) const VICTIMS: [Victim; 8] = [
    Victim::Nothing,
    Victim::Scheduler,
    Victim::LeaseHolder(Agent::Cluster),
    Victim::LeaseHolder(Agent::LoadBalancer),
    Victim::LeaseHolder(Agent::JumpHost),
    Victim::LoadBalancer(1),
    Victim::LoadBalancer(2),
    Victim::JumpHost,
];

impl fmt::Display for Victim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => formatter.write_str("nothing"),
            Self::Scheduler => formatter.write_str("the scheduler"),
            Self::LeaseHolder(agent) => write!(formatter, "the Lease holder of {}", agent.program()),
            Self::LoadBalancer(count) => write!(formatter, "{count} of 2 pods of the load balancer"),
            Self::JumpHost => formatter.write_str("the jump host"),
        }
    }
}

impl Victim {
    /// The containers to kill, which run.
    pub(super) async fn containers(self, site: &Site) -> Vec<Container> {
        let (pods, name) = match self {
            Self::Nothing => return Vec::new(),
            Self::Scheduler => {
                let pods = pods_of(site, AGENTS_NAMESPACE, "sip-scheduler").await;
                (pods, "scheduler")
            }
            Self::LeaseHolder(agent) => {
                let leases: Api<Lease> = Api::namespaced(site.client(), AGENTS_NAMESPACE);
                let lease = leases.get(agent.program()).await.unwrap();
                let holder = lease.spec.unwrap().holder_identity.unwrap();
                let pods: Api<Pod> = Api::namespaced(site.client(), AGENTS_NAMESPACE);
                (vec![pods.get(&holder).await.unwrap()], "agent")
            }
            Self::LoadBalancer(count) => {
                let mut pods = pods_of(site, TENANT, "loadbalancer-worker-orders").await;
                assert_eq!(pods.len(), 2);
                pods.truncate(count);
                (pods, "loadbalancer")
            }
            Self::JumpHost => (pods_of(site, TENANT, "jumphost-orders").await, "jumphost"),
        };
        assert!(!pods.is_empty(), "{self} has no pod");
        pods.iter().map(|pod| Container::find(pod, name)).collect()
    }

    /// Asserts what tenants are promised when it is killed.
    pub(super) fn judge(self, report: &Report) {
        let (failures, stopped) = (&report.failures, report.stopped);
        match self {
            Self::Nothing | Self::Scheduler | Self::LeaseHolder(_) | Self::JumpHost => {
                assert!(failures.is_empty(), "killed {self}: {failures:#?}");
            }
            Self::LoadBalancer(1) => assert!(stopped < ONE_POD_LEFT, "{stopped:?}: {failures:#?}"),
            Self::LoadBalancer(_) => assert!(stopped < RECOVERY, "{stopped:?}: {failures:#?}"),
        }
    }
}
