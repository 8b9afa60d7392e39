//! Renders the objects of an entry, and reports what of the entry is not in them. Pure.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use api::{
    Endpoint, Image, JumpHost, MemberState,
    conditions::{
        jump_host::{HOST_KEY_INVALID, INVALID_KEY},
        load_balancer::NO_ADDRESS,
    },
};
use kit::{
    placement::{HostId, Member},
    service::{Findings, Kind, Members, Objects, Prepared, Problem, Rendered, Scope},
};
use render::{
    api_access::Access,
    jump_host::{
        self, Plan, PowerService,
        authorized_keys::{Authority, AuthorizedKey, Error as KeyError},
        host_keys::HostKeys,
        nodes::Node,
    },
};

use crate::balancers::ApiBalancer;

/// SIP's name of the role that has API servers.
const CONTROL_PLANE: &str = "ControlPlane";
/// Pause after which the agent reads the Secrets of a tenant again: it cannot watch them.
const SECRET_RESYNC_PERIOD: Duration = Duration::from_secs(30);

/// Settings of the site for every jump host.
#[derive(Clone, Debug)]
pub(crate) struct SiteSettings {
    /// The image with our programs.
    pub(crate) tools: Image,
    pub(crate) name_servers: Vec<IpAddr>,
}

/// What rendering needs of the API server.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) host_keys: HostKeys,
    /// Of the site.
    pub(crate) api_servers: Vec<SocketAddr>,
    /// Of the tenant.
    pub(crate) api_balancers: Vec<ApiBalancer>,
    pub(crate) power: PowerService,
    /// What is wrong with Secrets that the entry names.
    pub(crate) problems: Vec<Problem>,
}

/// The objects of a jump host.
pub(crate) fn render(
    scope: Scope<'_>,
    jump_host: &JumpHost,
    site: &SiteSettings,
    inputs: Inputs,
) -> Rendered {
    let Inputs {
        host_keys,
        api_servers,
        api_balancers,
        power,
        problems: of_secrets,
    } = inputs;
    let (nodes, without_address) = nodes(scope, jump_host);
    let (keys, bad_keys) = parsed(
        "sshAuthorizedKeys",
        jump_host.ssh_authorized_keys(),
        AuthorizedKey::parse,
    );
    let (authorities, bad_authorities) = parsed("sshUserCA", jump_host.ssh_user_ca(), Authority::parse);
    let plan = Plan {
        cluster: scope.cluster,
        jump_host,
        tools: &site.tools,
        power: &power,
        keys,
        authorities,
        host_keys: &host_keys,
        nodes,
        api_endpoints: api_balancers
            .iter()
            .flat_map(|balancer| balancer.addresses.iter().copied())
            .collect(),
        api_balancers: api_balancers.into_iter().map(|balancer| balancer.name).collect(),
        site_api_servers: &api_servers,
        name_servers: &site.name_servers,
    };
    let objects = prepared(plan.objects());
    let bad: Vec<String> = bad_keys.into_iter().chain(bad_authorities).collect();
    let bad = (!bad.is_empty()).then(|| Problem::new(INVALID_KEY, bad.join("; ")));
    let network = jump_host.service().network_id();
    let missing = without_address.into_iter();
    let missing =
        missing.map(|host| Problem::new(NO_ADDRESS, format!("{host} has no address in network {network}")));
    let names_secrets =
        jump_host.node_ssh_private_keys().is_some() || jump_host.kubeconfig_secret().is_some();
    Rendered {
        objects,
        findings: Findings {
            warnings: Vec::new(),
            problems: missing.chain(host_key_problem(&host_keys)).collect(),
            substitutes: bad.into_iter().chain(of_secrets).collect(),
            requeue: names_secrets.then_some(SECRET_RESYNC_PERIOD),
            endpoint: Endpoint {
                host_keys: host_keys.public(),
                host_key_fingerprints: host_keys.fingerprints(),
                ..Endpoint::default()
            },
        },
    }
}

/// Every member with its address; and those, as `namespace/name`, that have none in the entry's network.
fn nodes(scope: Scope<'_>, jump_host: &JumpHost) -> (Vec<Node>, Vec<String>) {
    let network = jump_host.service().network_id();
    let numbers = numbers(scope.members);
    let (mut nodes, mut without_address) = (Vec::new(), Vec::new());
    for member in scope.members.iter() {
        let key = member.host().key();
        match member.address(network) {
            Some(address) => {
                let control_plane = member.role() == CONTROL_PLANE;
                let node = Node::new(&key.namespace, &key.name, address, control_plane);
                nodes.extend(node.map(|node| match numbers.get(member.host()) {
                    Some(number) => node.numbered(member.role(), *number),
                    None => node,
                }));
            }
            None => without_address.push(member.host().to_string()),
        }
    }
    (nodes, without_address)
}

/// Members by their numbers in their roles. While a replacement is not bound, two members have one number: it counts for the one that Cluster API
/// may use.
fn numbers(members: &Members) -> BTreeMap<&HostId, u32> {
    let mut holders: BTreeMap<(&str, u32), &Member> = BTreeMap::new();
    for member in members.iter() {
        let Some(number) = member.ordinal() else {
            continue;
        };
        let holder = holders.entry((member.role(), number)).or_insert(member);
        if member.state() == MemberState::Bound {
            *holder = member;
        }
    }
    let holders = holders.into_iter();
    holders
        .map(|((_, number), member)| (member.host(), number))
        .collect()
}

/// The lines that can be used, and why others cannot, by their index.
fn parsed<K>(
    field: &str,
    lines: &[String],
    parse: impl Fn(&str) -> Result<K, KeyError>,
) -> (Vec<K>, Vec<String>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (index, line) in lines.iter().enumerate() {
        match parse(line) {
            Ok(key) => good.push(key),
            Err(error) => bad.push(format!("{field}[{index}]: {error}")),
        }
    }
    (good, bad)
}

/// Without a usable key new pods do not start, and sshd in those that run reads no other configuration.
fn host_key_problem(host_keys: &HostKeys) -> Option<Problem> {
    let unusable = host_keys.unusable();
    let message = if !unusable.is_empty() {
        format!(
            "the Secret has values that are no private keys without passphrase: {}",
            unusable.join(", ")
        )
    } else if host_keys.is_empty() {
        "the Secret has no host key".to_owned()
    } else {
        return None;
    };
    Some(Problem::new(HOST_KEY_INVALID, message))
}

fn prepared(rendered: jump_host::Objects) -> Objects<Prepared> {
    let jump_host::Objects {
        config,
        deployment,
        service,
        budget,
        policy,
        access: Access {
            account,
            role,
            binding,
        },
        digest,
    } = rendered;
    Objects::new(service, deployment, digest)
        .configuration(config)
        .access(account)
        .access(role)
        .access(binding)
        .guard(policy)
        .guard_or_none(Kind::PodDisruptionBudget, budget)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_jump_host_without_host_key_is_not_ready() {
        let broken = [("ssh_host_rsa_key".to_owned(), ByteString(b"broken".to_vec()))];
        for (keys, expected) in [
            (HostKeys::default(), "has no host key"),
            (HostKeys::read(&broken.into()), "ssh_host_rsa_key"),
        ] {
            let problem = host_key_problem(&keys).unwrap();
            assert!(problem.message.contains(expected), "{}", problem.message);
        }
    }
}
