//! Configurations by a template of the site's operators, in place of the built-in one. A template is Jinja, gets the same data as the built-in
//! configuration, and can neither read files nor run without end.

mod go;

use std::io;

use minijinja::{
    AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value, syntax::SyntaxConfig, value::Serde,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::config::{InternalListener, MAX_CONNECTIONS, TIMEOUTS, Timeouts, hard_stop_seconds};
use super::member::Member;
use super::plan::Plan;
use super::servers::{self, Server};

/// Maximum size of a template, in bytes: several are kept in one `ConfigMap`, which holds 1 MiB.
pub const MAX_TEMPLATE_BYTES: usize = 65_536;
/// Maximum size of a configuration that a template makes, in bytes: it is kept in a `ConfigMap`, which holds 1 MiB.
const MAX_OUTPUT_BYTES: usize = 900_000;
/// Maximum number of instructions of the engine. A template runs several for each server and port; 500 workers × 1,000 ports need fewer.
const MAX_INSTRUCTIONS: u64 = 20_000_000;

/// A template that was parsed. It may still fail for some members.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Template {
    text: String,
    digest: String,
}

/// Why a template makes no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The template is too long.
    #[error("the template has {bytes} bytes: must have at most {MAX_TEMPLATE_BYTES}")]
    TooLong {
        /// Size of the template, in bytes.
        bytes: usize,
    },
    /// It is written in Go's `text/template`, as SIP's were.
    #[error(
        "line {line}: {{{{ {found} }}}} is Go's text/template, as those of Airship SIP were; write {instead} (docs/load-balancers.md translates the rest)"
    )]
    Go {
        /// Line of the template, from 1.
        line: usize,
        /// The action of Go in that line.
        found: String,
        /// What to write in its place.
        instead: &'static str,
    },
    /// The engine refuses the template, or fails.
    #[error("line {line}: {what}")]
    Engine {
        /// Line of the template, from 1.
        line: usize,
        /// The error of the engine.
        what: String,
    },
    /// The configuration is too long.
    #[error("the configuration that the template generates has more than {MAX_OUTPUT_BYTES} bytes")]
    OutputTooLong,
}

impl Error {
    /// Adds to the message with which servers the engine fails.
    pub(super) fn with_servers(self, servers: &str) -> Self {
        match self {
            Self::Engine { line, what } => Self::Engine {
                line,
                what: format!("{what}{servers}"),
            },
            long @ Self::TooLong { .. } => long,
            go @ Self::Go { .. } => go,
            Self::OutputTooLong => Self::OutputTooLong,
        }
    }
}

/// The data for a template. Every text in it is one word without quotes, so that no name adds a line or an argument.
#[derive(Serialize)]
struct TemplateData<'a> {
    /// Name of the load balancer's objects.
    name: &'a str,
    cluster: ClusterData<'a>,
    servers: Vec<ServerData<'a>>,
    /// Whether a server is a backup.
    has_backups: bool,
    ports: Vec<PortData<'a>>,
    balance: &'static str,
    /// Always false for API servers.
    proxy_protocol: bool,
    timeouts: Timeouts,
    max_connections: u32,
    hard_stop_seconds: i64,
    /// A port that the template must not use: the added listener has it.
    internal_port: u16,
}

#[derive(Serialize)]
struct ClusterData<'a> {
    namespace: &'a str,
    name: &'a str,
}

#[derive(Serialize)]
struct ServerData<'a> {
    /// Name of the server in HAProxy.
    name: &'a str,
    /// `NAMESPACE.NAME` of its host; the same, unless there are very many servers.
    full_name: &'a str,
    /// IPv6 in brackets.
    address: &'a str,
    /// Whether it gets connections only where no other server answers.
    is_backup: bool,
}

#[derive(Serialize)]
struct PortData<'a> {
    name: &'a str,
    number: u16,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// The first fault, with its line.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_TEMPLATE_BYTES {
            return Err(Error::TooLong { bytes: text.len() });
        }
        go::refuse_go_actions(text)?;
        environment()?
            .template_from_str(text)
            .map_err(|error| engine_error(&error))?;
        Ok(Self {
            text: text.to_owned(),
            digest: hex::encode(Sha256::digest(text.as_bytes())),
        })
    }

    /// The text as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// SHA-256 of the text, in hexadecimal digits.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The configuration. The listener for probes and metrics requests is added behind the template's output, so that no template can lose it.
    pub(super) fn config(&self, plan: &Plan<'_>, members: &[&Member]) -> Result<String, Error> {
        let servers = servers::servers(members, plan.ports.len());
        let data = TemplateData {
            name: plan.entry.object_name().as_str(),
            cluster: ClusterData {
                namespace: plan.cluster.namespace(),
                name: plan.cluster.name(),
            },
            servers: servers.iter().map(server_data).collect(),
            has_backups: servers.iter().any(|server| server.is_backup),
            ports: plan
                .ports
                .iter()
                .map(|port| PortData {
                    name: &port.name,
                    number: port.number,
                })
                .collect(),
            balance: plan.balance.as_str(),
            proxy_protocol: plan.proxy_protocol,
            timeouts: TIMEOUTS,
            max_connections: MAX_CONNECTIONS,
            hard_stop_seconds: hard_stop_seconds(plan),
            internal_port: plan.internal_port(),
        };
        let mut made = BoundedWriter::default();
        let environment = environment()?;
        let template = environment
            .template_from_str(&self.text)
            .map_err(|error| engine_error(&error))?;
        let rendered = template.render_captured_to(Value::from(Serde(&data)), &mut made);
        if made.full {
            return Err(Error::OutputTooLong);
        }
        rendered.map_err(|error| engine_error(&error))?;
        // What the engine writes is text. Nothing is before it, so that haproxy counts its lines as its author does.
        let text = String::from_utf8_lossy(&made.bytes);
        Ok(format!(
            "{text}

# Written by the load balancer agent, by the template {}; changes are overwritten. What follows is always there.
defaults internal
  log global
  maxconn {MAX_CONNECTIONS}

{}",
            self.digest,
            InternalListener(plan),
        ))
    }
}

fn server_data(server: &Server) -> ServerData<'_> {
    ServerData {
        name: server.name(),
        full_name: server.full_name(),
        address: &server.address,
        is_backup: server.is_backup,
    }
}

/// One text, without includes or macros, in which whatever is unknown is refused. White space is as in Go's templates, so that
/// those of SIP can be translated action by action.
fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .keep_trailing_newline(true)
        .build()
        .map_err(|error| engine_error(&error))?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_debug(true);
    environment.set_fuel(Some(MAX_INSTRUCTIONS));
    Ok(environment)
}

fn engine_error(error: &minijinja::Error) -> Error {
    let what = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "the template does not end within the limit of instructions".to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    Error::Engine {
        line: error.line().unwrap_or(1),
        what,
    }
}

/// Collects output up to the limit.
#[derive(Default)]
struct BoundedWriter {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for BoundedWriter {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > MAX_OUTPUT_BYTES {
            self.full = true;
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
