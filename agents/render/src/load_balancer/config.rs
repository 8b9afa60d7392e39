//! The text of `haproxy.cfg`. Only directives of HAProxy 2.2 and later, since the image is the user's.
//! <https://docs.haproxy.org/2.2/configuration.html>

use std::fmt;
use std::net::SocketAddr;

use sha2::{Digest as _, Sha256};

use super::{Check, Member, Plan, Port};

/// HAProxy would otherwise derive its limit, and allocate, from the container's limit of open files, which may be a
/// billion. Falling short of it is a warning, not a failure to start.
const MAX_CONNECTIONS: u32 = 20_000;

/// How long HAProxy lets connections end once it is asked to stop, where the image's stop signal is the one that lets them.
pub(super) const HARD_STOP_SECONDS: i64 = 25;

/// Bytes of a server's name; names of Kubernetes objects stay below. HAProxy reads lines of 2,048 bytes.
const NAME_BYTES: usize = 384;

/// Displays as the configuration.
pub(super) struct Config<'a> {
    pub(super) plan: &'a Plan<'a>,
    /// Sorted; each host once.
    pub(super) members: &'a [&'a Member],
}

impl fmt::Display for Config<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, members } = self;
        write!(
            f,
            "# Written by the load balancer agent; changes are overwritten.
global
  log stdout format raw local0 notice
  maxconn {MAX_CONNECTIONS}
  no strict-limits
  hard-stop-after {HARD_STOP_SECONDS}s

defaults
  mode tcp
  log global
  maxconn {MAX_CONNECTIONS}
  option tcplog
  option dontlognull
  option log-health-checks
  option redispatch 1
  retries 1
  balance roundrobin
  timeout queue 30s
  timeout connect 30s
  timeout client 600s
  timeout server 600s
  timeout check 2s
  {}

frontend internal
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
            checks(plan.check),
            plan.internal_port(),
        )?;
        let servers: Vec<_> = members
            .iter()
            .map(|member| (server_name(member), member.address))
            .collect();
        for Port {
            name,
            number,
            at_nodes: _,
        } in &plan.ports
        {
            write!(
                f,
                "
frontend {name}-frontend
  bind :::{number} v4v6
  default_backend {name}-backend

backend {name}-backend
{}",
                backend_checks(plan.check),
            )?;
            for (server, address) in &servers {
                // A socket address displays IPv6 in brackets.
                writeln!(f, "  server {server} {}", SocketAddr::new(*address, *number))?;
            }
        }
        Ok(())
    }
}

/// An address that does not answer is noticed after at most 2 s + 2 × 1 s between checks and 3 × 2 s of waiting.
fn checks(check: Check) -> &'static str {
    match check {
        Check::ApiServer => {
            "default-server check check-ssl verify none inter 2s fastinter 1s downinter 2s fall 3 rise 2 on-marked-down shutdown-sessions"
        }
        Check::Connect => "default-server check inter 2s fastinter 1s downinter 2s fall 3 rise 2",
    }
}

fn backend_checks(check: Check) -> &'static str {
    match check {
        Check::ApiServer => "  option httpchk GET /readyz\n  http-check expect status 200\n",
        Check::Connect => "  option tcp-check\n",
    }
}

/// `NAMESPACE.NAME`: the namespace too, because two namespaces may hold hosts of one name. A namespace has no dot, so this
/// is unique.
fn server_name(
    Member {
        namespace,
        name,
        address: _,
    }: &Member,
) -> String {
    let name = format!(
        "{}.{}",
        Escaped {
            text: namespace,
            dots: false
        },
        Escaped {
            text: name,
            dots: true
        }
    );
    if name.len() <= NAME_BYTES {
        return name;
    }
    let digest = format!("{:x}", Sha256::digest(name.as_bytes()));
    // Only ASCII is left, so every byte is a boundary.
    format!(
        "{}_{digest}",
        name.get(..NAME_BYTES - digest.len() - 1).unwrap_or_default()
    )
}

/// Names of Kubernetes objects pass unchanged. Whatever else there is becomes `_` and two hexadecimal digits per byte, so
/// that it stays one word and two names stay two.
struct Escaped<'a> {
    text: &'a str,
    dots: bool,
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.bytes().try_for_each(|byte| {
            if byte.is_ascii_alphanumeric() || byte == b'-' || (self.dots && byte == b'.') {
                write!(f, "{}", char::from(byte))
            } else {
                write!(f, "_{byte:02x}")
            }
        })
    }
}
