//! `sipctl ssh-config` and `sipctl ssh`: from one's own machine to the nodes of a cluster, through its jump host.
//!
//! Where the jump host is and by which keys it is recognised is in the status of the `SIPCluster`; the nodes are in the `ConfigMap` of the
//! jump host. Neither holds a secret, and whoever may view a namespace may read both.

mod block;
mod nodes;

use std::{net::IpAddr, process::Command};

use anyhow::{Context as _, bail, ensure};
use api::{Endpoint, SIPCluster};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use placement::ClusterName;

use crate::region::{executor::block_on, maintenance::Access, outcome::Outcome};
use block::JumpHost;

/// Prefix of the names of jump hosts' objects; the name of the cluster follows.
const JUMP_HOST_PREFIX: &str = "jumphost-";

/// How a cluster's jump host is found.
#[derive(Debug, clap::Args)]
pub struct JumpHostArgs {
    /// The SIPCluster
    #[arg(value_name = "NS/NAME")]
    cluster: ClusterName,
    /// Address of the jump host, such as that of any node of the site's Kubernetes cluster. Required if the status has no address
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// Name of the jump host, as in status.endpoints [default: jumphost-CLUSTER if there is one, else the first one]
    #[arg(long, value_name = "NAME")]
    jump_host: Option<String>,
    #[command(flatten)]
    access: Access,
}

/// Runs ssh.
#[derive(Debug, clap::Args)]
pub struct Ssh {
    #[command(flatten)]
    through: JumpHostArgs,
    /// A node, by any name that `sipctl ssh-config` prints [default: the jump host]
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Arguments for ssh, such as a command
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Prints what ssh needs in its configuration.
///
/// # Errors
/// When the API server cannot be asked, or the cluster has no jump host.
pub fn config(through: JumpHostArgs) -> anyhow::Result<Outcome> {
    Ok(Outcome::done(text(through)?))
}

/// Runs ssh with this configuration, and returns its exit code.
///
/// # Errors
/// As [`config`]; and when ssh cannot be run.
pub fn run(command: Ssh) -> anyhow::Result<u8> {
    let Ssh {
        through,
        node,
        arguments,
    } = command;
    let cluster = block::suffix(&through.cluster);
    let text = text(through)?;
    let destination = match node {
        Some(node) => format!("{node}.{cluster}"),
        None => format!("{}.{cluster}", block::JUMP_ALIAS),
    };
    ensure!(
        block::names(&text).any(|name| name == destination),
        "the cluster has no node {destination:?}; known are {}",
        block::names(&text).collect::<Vec<_>>().join(", ")
    );
    let directory = tempfile::tempdir().context("a temporary directory cannot be made")?;
    let file = directory.path().join("ssh_config");
    std::fs::write(&file, text).context("the configuration of ssh cannot be written")?;
    let status = Command::new("ssh")
        .arg("-F")
        .arg(&file)
        .arg(destination)
        .args(arguments)
        .status()
        .context("ssh cannot be run")?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX))
}

fn text(through: JumpHostArgs) -> anyhow::Result<String> {
    let JumpHostArgs {
        cluster,
        address,
        jump_host: wanted,
        access,
    } = through;
    let (endpoints, map) = block_on(read(&cluster, wanted.as_deref(), access))?;
    let mut endpoints = endpoints.into_iter();
    let first = endpoints.next().context("the status has no jump host")?;
    let first = jump_host(first, address)?;
    // One that is not served yet is no obstacle on the way through another.
    let others = endpoints.filter_map(|endpoint| jump_host(endpoint, address).ok());
    let jump_hosts: Vec<JumpHost> = std::iter::once(first).chain(others).collect();
    let data = map.and_then(|map| map.data).unwrap_or_default();
    let nodes = nodes::parse(data.get("ssh_config").map_or("", String::as_str));
    Ok(block::text(&cluster, &jump_hosts, &nodes))
}

/// The endpoints of a cluster's jump hosts, and the `ConfigMap` of the first one.
async fn read(
    cluster: &ClusterName,
    wanted: Option<&str>,
    access: Access,
) -> anyhow::Result<(Vec<Endpoint>, Option<ConfigMap>)> {
    let client = access.client().await?;
    let namespace = cluster.namespace().as_str();
    let object = Api::<SIPCluster>::namespaced(client.clone(), namespace)
        .get(cluster.name())
        .await
        .with_context(|| format!("SIPCluster {cluster} cannot be read"))?;
    let endpoints = object.status.map(|status| status.endpoints).unwrap_or_default();
    let endpoints = of_jump_hosts(cluster.name(), wanted, endpoints);
    let Some(first) = endpoints.first() else {
        bail!("SIPCluster {cluster} has no jump host in its status");
    };
    if let Some(wanted) = wanted.filter(|wanted| first.name != *wanted) {
        let known: Vec<&str> = endpoints.iter().map(|endpoint| &*endpoint.name).collect();
        bail!(
            "SIPCluster {cluster} has no jump host {wanted:?}; known are {}",
            known.join(", ")
        );
    }
    let map = Api::<ConfigMap>::namespaced(client, namespace)
        .get_opt(&first.name)
        .await
        .with_context(|| format!("the ConfigMap {} cannot be read", first.name))?;
    Ok((endpoints, map))
}

/// Those of jump hosts: first the wanted one, else the one which is called as SIP's is, else the first of them: an entry keeps the name of its
/// objects when others are removed.
fn of_jump_hosts(cluster: &str, wanted: Option<&str>, endpoints: Vec<Endpoint>) -> Vec<Endpoint> {
    let named = format!("{JUMP_HOST_PREFIX}{cluster}");
    let first = wanted.unwrap_or(&named);
    let mut of_jump_hosts: Vec<Endpoint> = endpoints
        .into_iter()
        .filter(|endpoint| endpoint.name.starts_with(JUMP_HOST_PREFIX) && block::is_name(&endpoint.name))
        .collect();
    of_jump_hosts.sort_by_key(|endpoint| endpoint.name != first);
    of_jump_hosts
}

/// The status is an agent's, and whoever may write it could put anything there: only what has its form is used.
fn jump_host(endpoint: Endpoint, given: Option<IpAddr>) -> anyhow::Result<JumpHost> {
    let address = match (given, endpoint.address) {
        (Some(given), _) => given.to_string(),
        (None, Some(address)) => address,
        (None, None) => bail!("the status has no address of the jump host: name that of a node by --address"),
    };
    ensure!(
        address.parse::<IpAddr>().is_ok() || block::is_name(&address),
        "{address:?} is neither an IP address nor a host name"
    );
    let port = endpoint.port.and_then(|port| u16::try_from(port).ok());
    let keys = endpoint.host_keys.into_iter();
    let keys: Vec<_> = keys
        .filter(|(algorithm, key)| block::is_word(algorithm) && block::is_word(key))
        .collect();
    ensure!(!keys.is_empty(), "the status has no host key of the jump host");
    Ok(JumpHost {
        name: endpoint.name,
        address,
        port: port.context("the status has no port of the jump host")?,
        keys,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_host_is_found_under_the_name_that_it_keeps() {
        for (names, wanted, expected) in [
            (&["loadbalancer-controlplane-shop"][..], None, &[][..]),
            (
                &["jumphost-shop-1", "jumphost-shop"],
                None,
                &["jumphost-shop", "jumphost-shop-1"],
            ),
            (
                &["auth-shop", "jumphost-shop-2", "jumphost-shop-1"],
                None,
                &["jumphost-shop-2", "jumphost-shop-1"],
            ),
            (
                &["jumphost-shop", "jumphost-shop-1"],
                Some("jumphost-shop-1"),
                &["jumphost-shop-1", "jumphost-shop"],
            ),
            (&["jumphost-../secrets/x"], None, &[]),
        ] {
            let endpoints = names.iter().map(|name| Endpoint {
                name: (*name).to_owned(),
                ..Endpoint::default()
            });
            let found = of_jump_hosts("shop", wanted, endpoints.collect());
            let found: Vec<&str> = found.iter().map(|endpoint| &*endpoint.name).collect();
            assert_eq!(found, expected);
        }
    }
}
