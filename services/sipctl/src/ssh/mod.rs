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

use crate::{executor::block_on, maintenance::Access, outcome::Outcome};
use block::JumpHost;

/// What the names of jump hosts' objects begin with; the name of the cluster follows.
const PREFIX: &str = "jumphost-";

/// How a cluster's jump host is found.
#[derive(Debug, clap::Args)]
pub struct Through {
    /// The SIPCluster
    #[arg(value_name = "NS/NAME")]
    cluster: ClusterName,
    /// Address of the jump host, if the status has none: the address of any node of the site
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    #[command(flatten)]
    access: Access,
}

/// Runs ssh.
#[derive(Debug, clap::Args)]
pub struct Ssh {
    #[command(flatten)]
    through: Through,
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
pub fn config(through: Through) -> anyhow::Result<Outcome> {
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
        None => format!("jump.{cluster}"),
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

fn text(through: Through) -> anyhow::Result<String> {
    let Through {
        cluster,
        address,
        access,
    } = through;
    let (endpoint, map) = block_on(read(&cluster, access))?;
    let data = map.and_then(|map| map.data).unwrap_or_default();
    let nodes = nodes::parse(data.get("ssh_config").map_or("", String::as_str));
    Ok(block::text(&cluster, &jump_host(endpoint, address)?, &nodes))
}

/// The endpoint of a cluster's jump host, and the `ConfigMap` of the same name.
async fn read(cluster: &ClusterName, access: Access) -> anyhow::Result<(Endpoint, Option<ConfigMap>)> {
    let client = access.client().await?;
    let namespace = cluster.namespace().as_str();
    let object = Api::<SIPCluster>::namespaced(client.clone(), namespace)
        .get(cluster.name())
        .await
        .with_context(|| format!("SIPCluster {cluster} cannot be read"))?;
    let endpoints = object.status.map(|status| status.endpoints).unwrap_or_default();
    let Some(endpoint) = of_jump_host(cluster.name(), endpoints) else {
        bail!("SIPCluster {cluster} has no jump host in its status");
    };
    let map = Api::<ConfigMap>::namespaced(client, namespace)
        .get_opt(&endpoint.name)
        .await
        .with_context(|| format!("the ConfigMap {} cannot be read", endpoint.name))?;
    Ok((endpoint, map))
}

/// That of the jump host which is called as SIP's is; without one, the first: an entry keeps the name of its objects when others are removed.
fn of_jump_host(cluster: &str, endpoints: Vec<Endpoint>) -> Option<Endpoint> {
    let named = format!("{PREFIX}{cluster}");
    let mut of_jump_hosts: Vec<Endpoint> = endpoints
        .into_iter()
        .filter(|endpoint| endpoint.name.starts_with(PREFIX) && block::is_name(&endpoint.name))
        .collect();
    of_jump_hosts.sort_by_key(|endpoint| endpoint.name != named);
    of_jump_hosts.into_iter().next()
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
        for (names, expected) in [
            (&["loadbalancer-controlplane-shop"][..], None),
            (&["jumphost-shop-1", "jumphost-shop"], Some("jumphost-shop")),
            (
                &["auth-shop", "jumphost-shop-2", "jumphost-shop-1"],
                Some("jumphost-shop-2"),
            ),
            (&["jumphost-../secrets/x"], None),
        ] {
            let endpoints = names.iter().map(|name| Endpoint {
                name: (*name).to_owned(),
                ..Endpoint::default()
            });
            let found = of_jump_host("shop", endpoints.collect()).map(|endpoint| endpoint.name);
            assert_eq!(found.as_deref(), expected);
        }
    }
}
