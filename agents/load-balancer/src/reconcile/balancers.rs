//! The load balancers that a spec asks for, and the members behind each.

use std::collections::BTreeMap;

use api::{Cluster, ControlPlaneBalancer, NetworkId, Placement, Service, WorkerBalancer};
use kit::placement;
use render::load_balancer::{Member, Objects, Plan};

use super::apply::Lack;

/// SIP's names of the roles that are balanced to.
const CONTROL_PLANE: &str = "ControlPlane";
const WORKER: &str = "Worker";

/// One load balancer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Balancer<'a> {
    ControlPlane(&'a ControlPlaneBalancer),
    Worker(&'a WorkerBalancer),
}

/// Objects, and members that could not be put in.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) objects: Objects,
    /// Members without an address in the network that the entry names, as `namespace/name`.
    pub(super) without_address: Vec<String>,
    /// How many members are in.
    pub(super) balanced: usize,
    /// What is wrong with the template that it should be rendered by.
    pub(super) template: Option<Lack>,
}

impl Balancer<'_> {
    /// What its entry has in common with every service.
    pub(super) fn entry(&self) -> &Service {
        match self {
            Self::ControlPlane(balancer) => balancer.service(),
            Self::Worker(balancer) => balancer.service(),
        }
    }

    /// Name of its objects.
    pub(super) fn name(&self) -> &str {
        self.entry().object_name().as_str()
    }

    fn role(&self) -> &'static str {
        match self {
            Self::ControlPlane(_) => CONTROL_PLANE,
            Self::Worker(_) => WORKER,
        }
    }

    /// What it is, but for its members.
    pub(super) fn plan<'b>(&'b self, cluster: &'b Cluster) -> Plan<'b> {
        match self {
            Self::ControlPlane(balancer) => Plan::control_plane(cluster, balancer),
            Self::Worker(balancer) => Plan::worker(cluster, balancer),
        }
    }

    /// The members of its role, and those of them that could not be put in.
    pub(super) fn members(
        &self,
        members: &BTreeMap<&str, Vec<&placement::Member>>,
    ) -> (Vec<Member>, Vec<String>) {
        let network = self.entry().network_id();
        let (mut balanced, mut without_address) = (Vec::new(), Vec::new());
        for placed in members.get(self.role()).into_iter().flatten() {
            match member(placed, network) {
                Ok(member) => balanced.push(member),
                Err(host) => without_address.push(host),
            }
        }
        (balanced, without_address)
    }
}

fn member(placed: &placement::Member, network: &NetworkId) -> Result<Member, String> {
    let host = placed.host();
    match placed.address(network) {
        Some(address) => Ok(Member {
            namespace: host.key().namespace.clone(),
            name: host.key().name.clone(),
            address,
        }),
        None => Err(host.to_string()),
    }
}

/// The load balancers of a spec, in its order.
pub(super) fn wanted(cluster: &Cluster) -> Vec<Balancer<'_>> {
    let control_plane = cluster
        .load_balancers_control_plane()
        .iter()
        .map(Balancer::ControlPlane);
    control_plane
        .chain(cluster.load_balancers_worker().iter().map(Balancer::Worker))
        .collect()
}

/// The revision that is served when every member of the status is: that of the newest claim or release. It stays when
/// hosts are bound, so that agents do not answer each other's answers.
pub(super) fn revision(held: &Placement) -> u64 {
    held.members
        .iter()
        .map(|member| member.revision)
        .max()
        .unwrap_or_default()
}

/// The members to balance to, by role: those that the status holds and that are not on their way out. Nothing acts on a
/// claim before the status holds it.
pub(super) fn members<'a>(
    held: &Placement,
    placement: &'a placement::Placement,
) -> BTreeMap<&'a str, Vec<&'a placement::Member>> {
    let mut by_role: BTreeMap<&str, Vec<&placement::Member>> = BTreeMap::new();
    for member in placement.members() {
        let known = held.members.iter().any(|held| held.uid == member.host().uid());
        if known && !member.is_releasing() {
            by_role.entry(member.role()).or_default().push(member);
        }
    }
    by_role
}
