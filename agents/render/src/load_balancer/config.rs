//! The text of `haproxy.cfg`. Only directives of HAProxy 2.2 and later, since the image is the user's.
//! <https://docs.haproxy.org/2.2/configuration.html>

use std::fmt;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::interface::MEMBERS_PATH;
use super::member::Member;
use super::plan::{Health, Plan, Port};
use super::servers::{self, Server};

/// HAProxy would otherwise derive its limit, and allocate, from the container's limit of open files, which may be a
/// billion. Falling short of it is a warning, not a failure to start.
pub(super) const MAX_CONNECTIONS: u32 = 20_000;

/// The timeouts of Airship SIP, except that of checks.
pub(super) const TIMEOUTS: Timeouts = Timeouts {
    queue: "30s",
    connect: "30s",
    client: "600s",
    server: "600s",
    check: "2s",
};

/// Timeouts of connections to and from members.
#[derive(Serialize)]
pub(super) struct Timeouts {
    queue: &'static str,
    connect: &'static str,
    client: &'static str,
    server: &'static str,
    check: &'static str,
}

/// How long HAProxy lets connections end after it is asked to stop, if the image's stop signal asks for that.
pub(super) const HARD_STOP_SECONDS: i64 = 25;
/// The same for configurations that are reloaded: each reload stops workers whose connections do not have to end. It bounds the number of such
/// workers if connections never end.
const RELOADED_HARD_STOP_SECONDS: i64 = 3_600;

pub(super) fn hard_stop_seconds(plan: &Plan<'_>) -> i64 {
    match plan.sidecar {
        Some(_) => RELOADED_HARD_STOP_SECONDS,
        None => HARD_STOP_SECONDS,
    }
}

/// If no other server answers, all backups share the connections, not only the first. Left out without backups, so that the text of such a
/// configuration stays the same.
const ALL_BACKUPS: &str = "  option allbackups\n";

/// SHA-256 of a configuration, in hexadecimal digits.
#[must_use]
pub fn digest(config: &str) -> String {
    hex::encode(Sha256::digest(config.as_bytes()))
}

/// Displays as the configuration.
pub(super) struct Config<'a> {
    pub(super) plan: &'a Plan<'a>,
    /// Sorted; each host once.
    pub(super) members: &'a [&'a Member],
}

impl fmt::Display for Config<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, members } = self;
        let Timeouts {
            queue,
            connect,
            client,
            server,
            check,
        } = TIMEOUTS;
        write!(
            f,
            "# Written by the load balancer agent; changes are overwritten.
global
  log stdout format raw local0 notice
  maxconn {MAX_CONNECTIONS}
  no strict-limits
  hard-stop-after {}s

defaults
  mode tcp
  log global
  maxconn {MAX_CONNECTIONS}
  option tcplog
  option dontlognull
  option log-health-checks
  option redispatch 1
  retries 1
  balance {}
  timeout queue {queue}
  timeout connect {connect}
  timeout client {client}
  timeout server {server}
  timeout check {check}
  default-server {}

{}",
            hard_stop_seconds(plan),
            plan.balance.as_str(),
            server_keywords(plan),
            InternalListener(plan),
        )?;
        let servers = servers::servers(members, plan.ports.len());
        for (short, full) in servers.iter().filter_map(Server::abbreviated) {
            writeln!(f, "# {short} is {full}")?;
        }
        let backups = if servers.iter().any(|server| server.is_backup) {
            ALL_BACKUPS
        } else {
            ""
        };
        for port in &plan.ports {
            let Port {
                name,
                number,
                at_nodes: _,
            } = port;
            let backend = port.backend();
            write!(
                f,
                "
frontend {name}-frontend
  bind :::{number} v4v6
  default_backend {backend}

backend {backend}
{}{backups}",
                backend_checks(plan.health),
            )?;
            for server in &servers {
                let backup = if server.is_backup { " backup" } else { "" };
                writeln!(
                    f,
                    "  server {} {}:{number}{backup}",
                    server.name(),
                    server.address
                )?;
            }
        }
        Ok(())
    }
}

/// Displays as the listener that answers probes and metrics requests.
pub(super) struct InternalListener<'a>(pub(super) &'a Plan<'a>);

impl fmt::Display for InternalListener<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(plan) = self;
        write!(
            f,
            "frontend internal
  mode http
  bind :::{} v4v6
  option httplog
  timeout client 10s
  monitor-uri /healthz
  http-request set-log-level silent
  http-request use-service prometheus-exporter if {{ path /metrics }}
  stats enable
  stats hide-version
  stats uri /stats
",
            plan.internal_port(),
        )?;
        // Lines of one name are alternatives.
        for backend in plan.ports.iter().map(Port::backend) {
            writeln!(f, "  acl served nbsrv({backend}) gt 0")?;
        }
        write!(
            f,
            "  http-request return status 200 content-type text/plain string served if {{ path {MEMBERS_PATH} }} served
  http-request return status 503 content-type text/plain string unserved if {{ path {MEMBERS_PATH} }}
"
        )
    }
}

/// Keywords that follow each server's address. HAProxy notices an address that does not answer after at most 2 s + 2 × 1 s between checks and 3 ×
/// 2 s of waiting. Checks use the PROXY protocol if connections do.
pub(super) fn server_keywords(plan: &Plan<'_>) -> String {
    let checks = match plan.health {
        Health::ApiServer => {
            "check check-ssl verify none inter 2s fastinter 1s downinter 2s fall 3 rise 2 on-marked-down shutdown-sessions"
        }
        Health::Connect => "check inter 2s fastinter 1s downinter 2s fall 3 rise 2",
    };
    let proxy_protocol = if plan.proxy_protocol { " send-proxy-v2" } else { "" };
    format!("{checks}{proxy_protocol}")
}

fn backend_checks(health: Health) -> &'static str {
    match health {
        Health::ApiServer => "  option httpchk GET /readyz\n  http-check expect status 200\n",
        Health::Connect => "  option tcp-check\n",
    }
}
