//! Configurations, and the `ConfigMap`s that hold them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use haproxy_sidecar::config_map::Source;
use haproxy_sidecar::wanted::Wanted;
use k8s_openapi::api::core::v1::ConfigMap;
use render::load_balancer::server_list::{Backend, Server, ServerList};
use render::load_balancer::{CONFIG_FILE, MEMBERSHIP_FILE};

/// Checked often, so that a member is used soon.
const KEYWORDS: &str = "check inter 100ms fastinter 100ms downinter 100ms fall 2 rise 1";
/// Of members.
pub(crate) const PORT: u16 = 7_000;

/// A configuration as an agent would write it.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    pub(crate) front: Ipv4Addr,
    /// The first balanced port, and how many there are.
    pub(crate) ports: u16,
    pub(crate) members: BTreeMap<String, Ipv4Addr>,
    /// Something that is no server.
    pub(crate) note: String,
    /// Whether it is an operator's template that made it: nobody says what in it are servers.
    pub(crate) template: bool,
    pub(crate) keywords: String,
    /// What becomes of a connection to a member that does not answer: it fails, unless a test is about that.
    pub(crate) retries: String,
}

impl Configuration {
    pub(crate) fn new(front: Ipv4Addr) -> Self {
        Self {
            front,
            ports: 1,
            members: BTreeMap::new(),
            note: "# first".to_owned(),
            template: false,
            keywords: KEYWORDS.to_owned(),
            retries: "retries 0".to_owned(),
        }
    }

    pub(crate) fn with(mut self, name: &str, address: Ipv4Addr) -> Self {
        self.members.insert(name.to_owned(), address);
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.members.remove(name).unwrap();
        self
    }

    pub(crate) fn noting(mut self, note: &str) -> Self {
        note.clone_into(&mut self.note);
        self
    }

    fn numbers(&self) -> impl Iterator<Item = u16> {
        PORT..PORT + self.ports
    }

    fn text(&self, members: &BTreeMap<String, Ipv4Addr>) -> String {
        let Self {
            note,
            keywords,
            retries,
            ..
        } = self;
        let mut text = format!(
            "global
  log stdout format raw local0 notice
  maxconn 2000
  no strict-limits
  hard-stop-after 3600s
{note}
defaults
  mode tcp
  {retries}
  timeout queue 3s
  timeout connect 3s
  timeout client 60s
  timeout server 60s
  timeout check 2s
  default-server {keywords}
"
        );
        for port in self.numbers() {
            write!(
                text,
                "frontend f{port}\n  bind {}:{port}\n  default_backend b{port}\nbackend b{port}\n  option tcp-check\n",
                self.front
            )
            .unwrap();
            for (name, address) in members {
                writeln!(text, "  server {name} {address}:{port}").unwrap();
            }
        }
        text
    }

    pub(crate) fn membership(&self) -> ServerList {
        let server = |(name, address): (&String, &Ipv4Addr)| Server {
            name: name.clone(),
            address: address.to_string(),
        };
        ServerList {
            frame: self.text(&BTreeMap::new()),
            keywords: self.keywords.clone(),
            backends: self
                .numbers()
                .map(|port| Backend {
                    name: format!("b{port}"),
                    port,
                })
                .collect(),
            servers: self.members.iter().map(server).collect(),
        }
    }

    pub(crate) fn config_map(&self) -> ConfigMap {
        let config = self.text(&self.members);
        let membership = (!self.template).then(|| serde_json::to_string(&self.membership()).unwrap());
        config_map(config, membership)
    }

    pub(crate) fn digest(&self) -> String {
        digest(&self.config_map())
    }
}

/// By what it is told that this runs.
pub(crate) fn digest(config_map: &ConfigMap) -> String {
    let mut source = Source::default();
    source.take(config_map);
    Wanted::digest(&source.newest.unwrap()).to_owned()
}

pub(crate) fn config_map(config: String, membership: Option<String>) -> ConfigMap {
    let membership = membership.map(|json| (MEMBERSHIP_FILE.to_owned(), json));
    let config = (CONFIG_FILE.to_owned(), config);
    ConfigMap {
        data: Some(std::iter::once(config).chain(membership).collect()),
        ..ConfigMap::default()
    }
}
