//! The load balancers of a spec, and the members behind each.

use api::{Cluster, ControlPlaneBalancer, Service, WorkerBalancer};
use kit::service::Members;
use render::load_balancer::{Member, Plan, Sidecar};

use crate::preference::{self, Preference};

/// Names of the roles behind load balancers, as SIP has them.
const CONTROL_PLANE: &str = "ControlPlane";
const WORKER: &str = "Worker";

/// One load balancer.
#[derive(Clone, Debug)]
pub(crate) enum Balancer {
    ControlPlane(ControlPlaneBalancer),
    Worker(WorkerBalancer),
}

impl Balancer {
    /// The load balancers of a spec, in its order.
    pub(crate) fn all(cluster: &Cluster) -> Vec<Self> {
        let control_plane = cluster.load_balancers_control_plane().iter().cloned();
        let worker = cluster.load_balancers_worker().iter().cloned();
        control_plane
            .map(Self::ControlPlane)
            .chain(worker.map(Self::Worker))
            .collect()
    }

    /// The fields that every service entry has.
    pub(crate) fn entry(&self) -> &Service {
        match self {
            Self::ControlPlane(balancer) => balancer.service(),
            Self::Worker(balancer) => balancer.service(),
        }
    }

    /// Name of its objects.
    pub(crate) fn name(&self) -> &str {
        self.entry().object_name().as_str()
    }

    fn role(&self) -> &'static str {
        match self {
            Self::ControlPlane(_) => CONTROL_PLANE,
            Self::Worker(_) => WORKER,
        }
    }

    /// All that rendering needs of it besides its members.
    pub(crate) fn plan<'a>(&'a self, cluster: &'a Cluster, sidecar: Option<&'a Sidecar>) -> Plan<'a> {
        let plan = match self {
            Self::ControlPlane(balancer) => Plan::control_plane(cluster, balancer),
            Self::Worker(balancer) => Plan::worker(cluster, balancer),
        };
        plan.with_sidecar(sidecar)
    }

    /// The members of its role, some of them as backups; and, as `namespace/name`, those without an address in its network.
    pub(crate) fn members(
        &self,
        members: &Members,
        preference: &Preference<'_>,
    ) -> (Vec<Member>, Vec<String>) {
        let network = self.entry().network_id();
        let (mut balanced, mut without_address) = (Vec::new(), Vec::new());
        for member in members.of_role(self.role()) {
            match member.address(network) {
                Some(address) => balanced.push(Member {
                    namespace: member.host().key().namespace.clone(),
                    name: member.host().key().name.clone(),
                    address,
                    is_backup: preference.is_backup(member.host().uid()),
                }),
                None => without_address.push(member.host().to_string()),
            }
        }
        preference::prefer_all_if_none(&mut balanced);
        (balanced, without_address)
    }
}
