//! Checks the entries of `spec.services`.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use serde_json::Value;
use vocabulary::dns;

use super::{
    AUTH, Auth, CONTROL_PLANE, ControlPlaneBalancer, JUMP_HOST, JumpHost, MAX_REPLICAS, ObjectName, Parsed,
    Service, WORKER, WorkerBalancer, exposure, fields, indexed, resources, unique_names,
};
use crate::cluster::ports::{self, Claims};
use crate::cluster::selector::{label_key, label_value};
use crate::fault::Fault;
use crate::sip_cluster::{
    AuthSpec, BmcSpec, JumpHostSpec, LoadBalancerControlPlaneSpec, LoadBalancerWorkerSpec, ResourcesSpec,
    Services,
};

/// One entry while it is parsed.
struct Entry<'a> {
    cluster: &'a str,
    prefix: &'static str,
    index: usize,
    path: String,
    default_replicas: u8,
}

impl<'a> Entry<'a> {
    fn field(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// Entries of a section, which is called `section` in the spec and whose objects' names begin with `prefix`.
    fn all<T>(
        items: Option<&'a Vec<T>>,
        cluster: &'a str,
        (section, prefix, default_replicas): (&'a str, &'static str, u8),
    ) -> impl Iterator<Item = (Entry<'a>, &'a T)> {
        items.into_iter().flatten().enumerate().map(move |(index, item)| {
            let path = format!("spec.services.{section}[{index}]");
            (
                Entry {
                    cluster,
                    prefix,
                    index,
                    path,
                    default_replicas,
                },
                item,
            )
        })
    }
}

/// The fields that every entry has, as they were written.
struct Common<'a> {
    name: Option<&'a str>,
    image: Option<&'a str>,
    node_labels: Option<&'a BTreeMap<String, String>>,
    node_interface_id: Option<&'a str>,
    cluster_ip: Option<&'a str>,
    replicas: Option<i64>,
    resources: Option<&'a ResourcesSpec>,
    network_attachments: Option<&'a Vec<String>>,
    changes: Option<&'a Value>,
}

pub(in crate::cluster) fn parse(
    services: Option<&Services>,
    cluster: &str,
    faults: &mut Vec<Fault>,
) -> Parsed {
    let Some(services) = services else {
        return Parsed::default();
    };
    unique_names::check(services, faults);
    let Services {
        load_balancer_control_plane,
        load_balancer_worker,
        jump_host,
        auth,
    } = services;
    let mut claims = Claims::default();
    let section = ("loadBalancerControlPlane", CONTROL_PLANE, 2);
    let load_balancers_control_plane = Entry::all(load_balancer_control_plane.as_ref(), cluster, section)
        .filter_map(|(entry, item)| control_plane_balancer(&entry, item, &mut claims, faults))
        .collect();
    let section = ("loadBalancerWorker", WORKER, 2);
    let load_balancers_worker = Entry::all(load_balancer_worker.as_ref(), cluster, section)
        .filter_map(|(entry, item)| worker_balancer(&entry, item, &mut claims, faults))
        .collect();
    let jump_hosts = Entry::all(jump_host.as_ref(), cluster, ("jumpHost", JUMP_HOST, 1))
        .filter_map(|(entry, item)| self::jump_host(&entry, item, &mut claims, faults))
        .collect();
    let auth = Entry::all(auth.as_ref(), cluster, ("auth", AUTH, 2))
        .filter_map(|(entry, item)| self::auth(&entry, item, &mut claims, faults))
        .collect();
    Parsed {
        load_balancers_control_plane,
        load_balancers_worker,
        jump_hosts,
        auth,
    }
}

fn control_plane_balancer(
    entry: &Entry<'_>,
    spec: &LoadBalancerControlPlaneSpec,
    claims: &mut Claims,
    faults: &mut Vec<Fault>,
) -> Option<ControlPlaneBalancer> {
    let LoadBalancerControlPlaneSpec {
        name,
        image,
        node_labels,
        node_interface_id,
        cluster_ip,
        replicas,
        resources,
        network_attachments,
        changes,
        balance,
        node_port,
    } = spec;
    let common = Common {
        name: name.as_deref(),
        image: image.as_deref(),
        node_labels: node_labels.as_ref(),
        node_interface_id: node_interface_id.as_deref(),
        cluster_ip: cluster_ip.as_deref(),
        replicas: *replicas,
        resources: resources.as_ref(),
        network_attachments: network_attachments.as_ref(),
        changes: changes.as_ref(),
    };
    let service = self::service(entry, &common, faults);
    let balance = fields::balance(balance.as_deref(), &entry.field("balance"), faults);
    let node_port = self::node_port(entry, *node_port, claims, faults);
    Some(ControlPlaneBalancer {
        service: service?,
        balance: balance?,
        node_port,
    })
}

fn worker_balancer(
    entry: &Entry<'_>,
    spec: &LoadBalancerWorkerSpec,
    claims: &mut Claims,
    faults: &mut Vec<Fault>,
) -> Option<WorkerBalancer> {
    let LoadBalancerWorkerSpec {
        name,
        image,
        node_labels,
        node_interface_id,
        cluster_ip,
        replicas,
        resources,
        network_attachments,
        changes,
        balance,
        proxy_protocol,
        // treasuremap's schema required it; the range alone determines the ports.
        node_port: _,
        node_port_range,
    } = spec;
    let common = Common {
        name: name.as_deref(),
        image: image.as_deref(),
        node_labels: node_labels.as_ref(),
        node_interface_id: node_interface_id.as_deref(),
        cluster_ip: cluster_ip.as_deref(),
        replicas: *replicas,
        resources: resources.as_ref(),
        network_attachments: network_attachments.as_ref(),
        changes: changes.as_ref(),
    };
    let service = self::service(entry, &common, faults);
    let balance = fields::balance(balance.as_deref(), &entry.field("balance"), faults);
    let path = entry.field("nodePortRange");
    let ports = ports::range(node_port_range.as_ref(), &path, faults)?;
    let service = service?;
    if service.changes.exposure().has_node_ports() {
        claims.add(ports.ports(), &path, faults);
    }
    Some(WorkerBalancer {
        service,
        balance: balance?,
        proxy_protocol: proxy_protocol.unwrap_or_default(),
        ports,
    })
}

fn jump_host(
    entry: &Entry<'_>,
    spec: &JumpHostSpec,
    claims: &mut Claims,
    faults: &mut Vec<Fault>,
) -> Option<JumpHost> {
    let JumpHostSpec {
        name,
        image,
        node_labels,
        node_interface_id,
        cluster_ip,
        replicas,
        resources,
        network_attachments,
        changes,
        node_port,
        bmc,
        ssh_authorized_keys,
        ssh_user_ca,
        node_ssh_private_keys,
        kubeconfig_secret,
    } = spec;
    let common = Common {
        name: name.as_deref(),
        image: image.as_deref(),
        node_labels: node_labels.as_ref(),
        node_interface_id: node_interface_id.as_deref(),
        cluster_ip: cluster_ip.as_deref(),
        replicas: *replicas,
        resources: resources.as_ref(),
        network_attachments: network_attachments.as_ref(),
        changes: changes.as_ref(),
    };
    let service = self::service(entry, &common, faults);
    let node_port = self::node_port(entry, *node_port, claims, faults);
    let node_ssh_private_keys = secret_name(
        entry,
        "nodeSSHPrivateKeys",
        node_ssh_private_keys.as_deref(),
        faults,
    );
    let kubeconfig_secret = secret_name(entry, "kubeconfigSecret", kubeconfig_secret.as_deref(), faults);
    Some(JumpHost {
        service: service?,
        node_port,
        bmc_proxy: bmc
            .as_ref()
            .and_then(|BmcSpec { proxy }| *proxy)
            .unwrap_or_default(),
        ssh_authorized_keys: trimmed(ssh_authorized_keys.as_deref()),
        ssh_user_ca: trimmed(ssh_user_ca.as_deref()),
        node_ssh_private_keys,
        kubeconfig_secret,
    })
}

/// Keys without the line break that a block of YAML ends with. The rest of a key is for the jump host agent to check: one that cannot be
/// used is no reason to keep the others from working.
fn trimmed(keys: Option<&[String]>) -> Vec<String> {
    let keys = keys.unwrap_or_default().iter();
    keys.map(|key| key.trim_end().to_owned()).collect()
}

fn auth(entry: &Entry<'_>, spec: &AuthSpec, claims: &mut Claims, faults: &mut Vec<Fault>) -> Option<Auth> {
    let AuthSpec {
        name,
        image,
        node_labels,
        node_interface_id,
        cluster_ip,
        replicas,
        resources,
        network_attachments,
        changes,
        node_port,
        ca_secret,
        // What the provider is to do has a parser of its own.
        hostname: _,
        issuer: _,
        connectors: _,
        clients: _,
        expiry: _,
        groups: _,
        kubeconfig_secret: _,
        certificate_issuer: _,
        static_passwords: _,
    } = spec;
    let common = Common {
        name: name.as_deref(),
        image: image.as_deref(),
        node_labels: node_labels.as_ref(),
        node_interface_id: node_interface_id.as_deref(),
        cluster_ip: cluster_ip.as_deref(),
        replicas: *replicas,
        resources: resources.as_ref(),
        network_attachments: network_attachments.as_ref(),
        changes: changes.as_ref(),
    };
    let service = self::service(entry, &common, faults);
    let node_port = self::node_port(entry, *node_port, claims, faults);
    let ca_secret = secret_name(entry, "caSecret", ca_secret.as_deref(), faults);
    let provider = crate::cluster::auth::parse(spec, &entry.path, faults);
    Some(Auth {
        service: service?,
        node_port,
        ca_secret,
        provider: provider?,
    })
}

fn service(entry: &Entry<'_>, common: &Common<'_>, faults: &mut Vec<Fault>) -> Option<Service> {
    let Common {
        name,
        image,
        node_labels,
        node_interface_id,
        cluster_ip,
        replicas,
        resources,
        network_attachments,
        changes,
    } = common;
    let object_name = object_name(entry, *name, faults);
    let image = fields::image(*image, &entry.field("image"), faults);
    let node_labels = node_labels
        .iter()
        .copied()
        .flatten()
        .filter_map(|(key, value)| {
            let path = entry.field(&format!("nodeLabels[{key}]"));
            let key = label_key(key, &path, faults);
            let value = label_value(value, &path, faults);
            Some((key?, value?))
        })
        .collect();
    let network_id = fields::network_id(*node_interface_id, &entry.field("nodeInterfaceId"), faults);
    let cluster_ip = fields::cluster_ip(*cluster_ip, &entry.field("clusterIP"), faults);
    let replicas = self::replicas(*replicas, entry, faults);
    let resources = resources.map(|resources| resources::parse(resources, &entry.field("resources"), faults));
    let network_attachments =
        fields::network_attachments(*network_attachments, &entry.field("networkAttachments"), faults);
    let changes = exposure::parse(*changes, &entry.field("override"), faults);
    Some(Service {
        object_name: object_name?,
        is_named: name.is_some(),
        image: image?,
        node_labels,
        network_id: network_id?,
        cluster_ip,
        replicas: replicas?,
        resources,
        network_attachments,
        changes,
    })
}

/// The `name` of the entry, or SIP's name for the first entry; later entries get their index, so that no two names are equal.
fn object_name(entry: &Entry<'_>, own: Option<&str>, faults: &mut Vec<Fault>) -> Option<ObjectName> {
    if let Some(own) = own.filter(|own| own.is_empty() || own.bytes().all(|byte| byte.is_ascii_digit())) {
        let rule = "must not be empty or only digits: such names are for entries that have none";
        faults.push(Fault::text(&entry.field("name"), own, rule));
        return None;
    }
    let name = match (own, entry.index) {
        (Some(own), _) => format!("{}-{}-{own}", entry.prefix, entry.cluster),
        (None, index) => indexed(entry.prefix, entry.cluster, index),
    };
    if dns::is_label(&name) {
        return Some(ObjectName(name));
    }
    let rule = format!(
        "the Service of {} would be named \"{name}\", which must be at most 63 lowercase letters, digits and '-'",
        entry.path
    );
    match own {
        Some(own) => faults.push(Fault::text(&entry.field("name"), own, rule)),
        None => faults.push(Fault::text("metadata.name", entry.cluster, rule)),
    }
    None
}

fn replicas(value: Option<i64>, entry: &Entry<'_>, faults: &mut Vec<Fault>) -> Option<u8> {
    let Some(value) = value else {
        return Some(entry.default_replicas);
    };
    let replicas = u8::try_from(value)
        .ok()
        .filter(|replicas| *replicas <= MAX_REPLICAS);
    if replicas.is_none() {
        faults.push(Fault::new(
            &entry.field("replicas"),
            value,
            format!("must be 0 to {MAX_REPLICAS}"),
        ));
    }
    replicas
}

fn node_port(
    entry: &Entry<'_>,
    value: Option<i64>,
    claims: &mut Claims,
    faults: &mut Vec<Fault>,
) -> Option<NonZeroU16> {
    let path = entry.field("nodePort");
    let port = ports::port(value?, &path, faults)?;
    claims.add(std::iter::once(port), &path, faults);
    Some(port)
}

/// As in SIP, empty is absent.
fn secret_name(
    entry: &Entry<'_>,
    field: &str,
    text: Option<&str>,
    faults: &mut Vec<Fault>,
) -> Option<String> {
    let text = text.filter(|text| !text.is_empty())?;
    if dns::is_subdomain(text) {
        return Some(text.to_owned());
    }
    let rule = "must be the name of a Secret: at most 253 lowercase letters, digits, '-' and '.'";
    faults.push(Fault::text(&entry.field(field), text, rule));
    None
}
