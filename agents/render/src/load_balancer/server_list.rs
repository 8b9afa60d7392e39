//! The part of a configuration that may change while HAProxy runs: the servers behind its ports.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::member::Member;
use super::plan::Plan;
use super::{config, servers};

/// The servers of a configuration, and a digest of the rest, by which the sidecar finds whether another configuration differs in the servers
/// only. Stored as JSON beside the configuration, for the sidecar that makes a running HAProxy follow it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ServerList {
    /// SHA-256, in hexadecimal digits, of the configuration without servers, but with the names of those that are backups.
    pub frame: String,
    /// Keywords that follow each server's address.
    pub keywords: String,
    /// Every backend has every server.
    pub backends: Vec<Backend>,
    /// The servers, sorted by the members' names.
    pub servers: Vec<Server>,
}

/// A backend, and the port of the servers in it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Backend {
    /// Name of the backend.
    pub name: String,
    /// Port of the servers in the backend.
    pub port: u16,
}

/// A server of every backend.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Server {
    /// Its name in every backend: one word.
    pub name: String,
    /// Its address, IPv6 in brackets.
    pub address: String,
}

/// Displays as JSON.
impl fmt::Display for ServerList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&json)
    }
}

pub(super) fn server_list(plan: &Plan<'_>, members: &[&Member]) -> ServerList {
    let mut frame = config::Config { plan, members: &[] }.to_string();
    let servers = servers::servers(members, plan.ports.len());
    // No command makes a server of a running process a backup, or the reverse: that takes another configuration.
    for backup in servers.iter().filter(|server| server.is_backup) {
        frame.push_str("# backup ");
        frame.push_str(backup.name());
        frame.push('\n');
    }
    ServerList {
        frame: hex::encode(Sha256::digest(frame.as_bytes())),
        keywords: config::server_keywords(plan),
        backends: plan
            .ports
            .iter()
            .map(|port| Backend {
                name: port.backend(),
                port: port.number,
            })
            .collect(),
        servers: servers
            .into_iter()
            .map(|server| Server {
                name: server.name().to_owned(),
                address: server.address,
            })
            .collect(),
    }
}
