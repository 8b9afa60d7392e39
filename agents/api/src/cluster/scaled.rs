//! Objects of Cluster API whose replicas follow the count of a role.

use std::collections::BTreeMap;
use std::fmt;

use vocabulary::{RoleName, dns};

use super::role::Role;
use crate::fault::Fault;
use crate::sip_cluster::{ClusterApiSpec, ReplicasSpec};

/// A kind of Cluster API that has replicas.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ScaledKind {
    /// Of group `cluster.x-k8s.io`.
    MachineDeployment,
    /// Of group `controlplane.cluster.x-k8s.io`. Its replicas are odd.
    KubeadmControlPlane,
}

impl ScaledKind {
    /// `kind` as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MachineDeployment => "MachineDeployment",
            Self::KubeadmControlPlane => "KubeadmControlPlane",
        }
    }
}

impl fmt::Display for ScaledKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An object of Cluster API whose replicas follow the count of a role. It names no namespace: it is in that of the hosts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Scaled {
    role: RoleName,
    active: u32,
    wanted: u32,
    kind: ScaledKind,
    name: String,
}

impl Scaled {
    /// The role that it follows.
    #[must_use]
    pub fn role(&self) -> &RoleName {
        &self.role
    }

    /// The hosts of the role that are to be in use: what the replicas follow.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.active
    }

    /// All hosts that the role wants, with its spare ones.
    #[must_use]
    pub fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ScaledKind {
        self.kind
    }

    /// Its name: a DNS subdomain.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Parses the objects that a spec names, by role. A role that is not in `spec.nodes` has a count of 0, so removing a role there scales its object
/// down. For a misspelt role nothing is scaled: the template of the object names the right one.
pub(super) fn parse(spec: Option<&ClusterApiSpec>, roles: &[Role], faults: &mut Vec<Fault>) -> Vec<Scaled> {
    let Some(ClusterApiSpec { replicas }) = spec else {
        return Vec::new();
    };
    let mut parsed = Vec::new();
    let mut named: BTreeMap<(ScaledKind, &str), &str> = BTreeMap::new();
    for (role, object) in replicas {
        let path = format!("spec.clusterAPI.replicas[{role}]");
        let Some((kind, name)) = named_object(object, &path, faults) else {
            continue;
        };
        if let Some(other) = named.insert((kind, name), role) {
            let rule = format!("must be the {kind} of one role; that of {other} is the same");
            faults.push(Fault::text(&path, name, rule));
        }
        let counted = roles.iter().find(|counted| counted.name().as_str() == role);
        match RoleName::new(role) {
            Ok(role) => parsed.push(Scaled {
                role,
                active: counted.map_or(0, Role::active),
                wanted: counted.map_or(0, Role::wanted),
                kind,
                name: name.to_owned(),
            }),
            Err(error) => faults.push(Fault::text(
                &path,
                role,
                format!("must be the name of a role: {}", error.rule),
            )),
        }
    }
    parsed
}

const ONE_OBJECT: &str = "must name exactly one of machineDeployment and kubeadmControlPlane";

fn named_object<'a>(
    spec: &'a ReplicasSpec,
    path: &str,
    faults: &mut Vec<Fault>,
) -> Option<(ScaledKind, &'a str)> {
    let ReplicasSpec {
        machine_deployment,
        kubeadm_control_plane,
    } = spec;
    let (kind, field, name) = match (machine_deployment, kubeadm_control_plane) {
        (Some(name), None) => (ScaledKind::MachineDeployment, "machineDeployment", name),
        (None, Some(name)) => (ScaledKind::KubeadmControlPlane, "kubeadmControlPlane", name),
        (None, None) => {
            faults.push(Fault::absent(path, ONE_OBJECT));
            return None;
        }
        (Some(name), Some(_)) => {
            faults.push(Fault::text(path, name, ONE_OBJECT));
            return None;
        }
    };
    if !dns::is_subdomain(name) {
        let rule = "must be the name of an object in the namespace of the hosts: a DNS subdomain of at most 253 lowercase letters, \
                    digits, '-' and '.'";
        faults.push(Fault::text(&format!("{path}.{field}"), name, rule));
        return None;
    }
    Some((kind, name))
}
