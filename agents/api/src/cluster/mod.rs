//! A `SIPCluster` that has been checked: everything an agent acts on.

mod auth;
mod limits;
mod names;
mod ports;
mod role;
mod scaled;
mod selector;
mod service;
pub(crate) mod size;

use std::collections::BTreeSet;

use vocabulary::{LabelValue, NetworkId};

pub use auth::{
    BoundRole, Connector, DEFAULT_CLIENT, Expiry, Github, GithubOrganization, GroupBinding, GroupSearch,
    HttpsUrl, KUBELOGIN_REDIRECTS, Ldap, LdapAddress, OidcClient, Provider, Search, SecretKey, Source,
    UpstreamOidc, UserSearch,
};
pub(crate) use limits::{MAX_ITEMS, MAX_ROLES};
pub use names::MadePorts;
pub use ports::{MAX_PORTS_PER_RANGE, PortRange, PortSet};
pub use role::Role;
pub use scaled::{Scaled, ScaledKind};
pub use service::{
    Auth, BadImage, Balance, ControlPlaneBalancer, Exposure, Image, JumpHost, MAX_REPLICAS, ObjectName,
    Override, Resources, Service, WorkerBalancer,
};

use self::names::Takeover;
use crate::cluster_api::ClusterApiCluster;
use crate::fault::{Fault, Invalid};
use crate::sip_cluster::{SIPCluster, SIPClusterSpec};

/// Which SIPCluster, and which incarnation of it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClusterReference {
    namespace: String,
    name: String,
    uid: String,
}

impl ClusterReference {
    /// Namespace of the SIPCluster.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the SIPCluster; also a valid label value.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

/// A checked SIPCluster. Only [`Cluster::parse`] makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    reference: ClusterReference,
    generation: i64,
    deleting: bool,
    /// Which Cluster it serves, if its annotation names one.
    served: Option<ClusterApiCluster>,
    roles: Vec<Role>,
    load_balancers_control_plane: Vec<ControlPlaneBalancer>,
    load_balancers_worker: Vec<WorkerBalancer>,
    jump_hosts: Vec<JumpHost>,
    auth: Vec<Auth>,
    scaled: Vec<Scaled>,
    other_bytes: u32,
}

impl Cluster {
    /// Checks a SIPCluster as it came from the API server.
    ///
    /// # Errors
    /// Everything that is wrong with it, not only the first fault.
    pub fn parse(object: &SIPCluster) -> Result<Self, Invalid> {
        if let Some(empty) = &object.spec.left_out.spec {
            return Err(empty.faults().clone());
        }
        let mut faults = Vec::new();
        let reference = reference(object, &mut faults);
        let served = served(object, &mut faults);
        let excess = limits::check(&object.spec);
        if !excess.is_empty() {
            faults.extend(excess);
            return Err(invalid(&reference, faults));
        }
        let SIPClusterSpec {
            nodes,
            services,
            cluster_api,
            left_out: _,
        } = &object.spec;
        let roles: Vec<Role> = nodes
            .iter()
            .filter_map(|(name, set)| role::parse(name, set, &mut faults))
            .collect();
        let services = service::parse(services.as_ref(), &reference.name, &mut faults);
        let scaled = scaled::parse(cluster_api.as_ref(), &roles, &mut faults);
        let size = if faults.is_empty() {
            size::check(object, &services)
        } else {
            Ok(0)
        };
        let other_bytes = size.unwrap_or_else(|fault| {
            faults.push(fault);
            0
        });
        if faults.is_empty() {
            let service::Parsed {
                load_balancers_control_plane,
                load_balancers_worker,
                jump_hosts,
                auth,
            } = services;
            Ok(Self {
                reference,
                generation: object.metadata.generation.unwrap_or_default(),
                deleting: object.metadata.deletion_timestamp.is_some(),
                served,
                roles,
                load_balancers_control_plane,
                load_balancers_worker,
                jump_hosts,
                auth,
                scaled,
                other_bytes,
            })
        } else {
            Err(invalid(&reference, faults))
        }
    }

    /// The same with every entry of a service under the name of what was made for it. Entries that the spec gives no name are
    /// known by their ports: who has other ports than anything that exists is named by its index.
    #[must_use]
    pub fn keep_names(mut self, made: &MadePorts) -> Self {
        let cluster = self.reference.name.as_str();
        let entries = self.load_balancers_control_plane.iter_mut();
        let entries = entries.map(ControlPlaneBalancer::entry_mut);
        service::keep_names(
            (service::CONTROL_PLANE, cluster, Takeover::AnyEntry),
            entries,
            made,
        );
        let entries = self.load_balancers_worker.iter_mut();
        let entries = entries.map(WorkerBalancer::entry_mut);
        service::keep_names((service::WORKER, cluster, Takeover::AnyEntry), entries, made);
        let entries = self.jump_hosts.iter_mut().map(JumpHost::entry_mut);
        service::keep_names((service::JUMP_HOST, cluster, Takeover::SameIndex), entries, made);
        let entries = self.auth.iter_mut().map(Auth::entry_mut);
        service::keep_names((service::AUTH, cluster, Takeover::SameIndex), entries, made);
        self
    }

    /// Which SIPCluster this is.
    #[must_use]
    pub fn reference(&self) -> &ClusterReference {
        &self.reference
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.reference.namespace
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.reference.name
    }

    /// Its `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.reference.uid
    }

    /// Name of the Cluster API cluster that it serves: what its annotation names, or else its own name.
    #[must_use]
    pub fn cluster_api_name(&self) -> &str {
        self.served.as_ref().map_or(self.name(), ClusterApiCluster::name)
    }

    /// Its `metadata.generation`; 0 for an object that never was in an API server.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// The roles, by name.
    #[must_use]
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// Load balancers in front of the API servers, in the order of the spec.
    #[must_use]
    pub fn load_balancers_control_plane(&self) -> &[ControlPlaneBalancer] {
        &self.load_balancers_control_plane
    }

    /// Load balancers in front of the workers, in the order of the spec.
    #[must_use]
    pub fn load_balancers_worker(&self) -> &[WorkerBalancer] {
        &self.load_balancers_worker
    }

    /// Jump hosts, in the order of the spec.
    #[must_use]
    pub fn jump_hosts(&self) -> &[JumpHost] {
        &self.jump_hosts
    }

    /// The Secret with a kubeconfig of the tenant's cluster, where an entry names one: of identity providers first, whose kubeconfig an agent
    /// uses already, then of jump hosts.
    #[must_use]
    pub fn kubeconfig_secret(&self) -> Option<&str> {
        let auth = self.auth().iter();
        let mut named = auth.filter_map(|entry| entry.provider().kubeconfig_secret().as_deref());
        let jump_hosts = self.jump_hosts.iter();
        let mut of_jump_hosts = jump_hosts.filter_map(JumpHost::kubeconfig_secret);
        named.next().or_else(|| of_jump_hosts.next())
    }

    /// Identity providers, in the order of the spec.
    #[must_use]
    pub fn auth(&self) -> &[Auth] {
        &self.auth
    }

    /// Objects of Cluster API whose replicas follow a role, by role.
    #[must_use]
    pub fn scaled(&self) -> &[Scaled] {
        &self.scaled
    }

    /// What all service entries have in common, in the order of the sections above.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        let control_plane = self
            .load_balancers_control_plane
            .iter()
            .map(ControlPlaneBalancer::service);
        let worker = self.load_balancers_worker.iter().map(WorkerBalancer::service);
        let jump_hosts = self.jump_hosts.iter().map(JumpHost::service);
        let auth = self.auth.iter().map(Auth::service);
        control_plane.chain(worker).chain(jump_hosts).chain(auth)
    }

    /// The most bytes that the object takes besides its members, with what its services need in the status; 0 where that is no more than
    /// what is reserved for every cluster.
    #[must_use]
    pub fn other_bytes(&self) -> u32 {
        self.other_bytes
    }

    /// Ids of the networks in which every member must have an address, because a service connects there.
    #[must_use]
    pub fn network_ids(&self) -> BTreeSet<&NetworkId> {
        self.services().map(Service::network_id).collect()
    }
}

/// What is wrong with an object of which this cannot be read.
pub(crate) fn unreadable(object: &SIPCluster, fault: Fault) -> Invalid {
    let mut faults = Vec::new();
    let reference = reference(object, &mut faults);
    let _ = served(object, &mut faults);
    faults.push(fault);
    invalid(&reference, faults)
}

fn invalid(reference: &ClusterReference, faults: Vec<Fault>) -> Invalid {
    let object = format!("SIPCluster {}/{}", reference.namespace, reference.name);
    Invalid::new(&object, faults)
}

fn served(object: &SIPCluster, faults: &mut Vec<Fault>) -> Option<ClusterApiCluster> {
    ClusterApiCluster::parse(object).unwrap_or_else(|fault| {
        faults.push(fault);
        None
    })
}

fn reference(object: &SIPCluster, faults: &mut Vec<Fault>) -> ClusterReference {
    let mut required = |value: Option<&String>, path: &str| match value {
        Some(text) if !text.is_empty() => text.clone(),
        Some(_) | None => {
            faults.push(Fault::absent(path, "must be set"));
            String::new()
        }
    };
    let reference = ClusterReference {
        namespace: required(object.metadata.namespace.as_ref(), "metadata.namespace"),
        name: required(object.metadata.name.as_ref(), "metadata.name"),
        uid: required(object.metadata.uid.as_ref(), "metadata.uid"),
    };
    if reference.name.parse::<LabelValue>().is_err() {
        let rule = format!(
            "must be at most 63 characters, since hosts carry it as the label {}",
            crate::labels::CLUSTER_NAME
        );
        faults.push(Fault::text("metadata.name", &reference.name, rule));
    }
    reference
}

#[cfg(test)]
mod tests;
