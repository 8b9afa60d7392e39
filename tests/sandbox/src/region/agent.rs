//! The region's agents in a site: each a process with its own `ServiceAccount` and its own certificate.

use std::{fs, time::Duration};

use serde::Serialize;

use super::{Error, PATIENCE, Region, file_error};
use crate::{
    authority::Caller,
    node::Image,
    port,
    process::{Process, Program},
    programs, readiness, repository,
    site::{self, Site},
};

/// The namespace that the agents' `ServiceAccounts` and `Leases` are in.
pub const AGENTS_NAMESPACE: &str = "sip-system";
/// Where the sandbox keeps its hosts, as in `deploy/sandbox`.
pub const HOSTS_NAMESPACE: &str = "metal";

/// A real node has it, when a site is prepared.
const HAPROXY_SIDECAR_IMAGE: &str = "localhost/sip-haproxy-sidecar:1";

/// The same, of what every jump host gets.
pub(crate) const JUMP_HOST_TOOLS_IMAGE: &str = "localhost/sip-jump-host-sidecar:1";

/// For how long a replica holds its `Lease`, where a test does not say otherwise.
const LEASE: Duration = Duration::from_secs(15);

const PATIENT_LEASE: Duration = Duration::from_mins(3);

/// One of the programs that act in a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agent {
    /// Reports hosts, asks for placements, labels hosts.
    Cluster,
    /// Runs HAProxy in front of placed hosts.
    LoadBalancer,
    /// Runs sshd in front of placed hosts.
    JumpHost,
    /// Runs identity providers.
    Dex,
}

impl Agent {
    /// Its name in identities.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::LoadBalancer => "load-balancer",
            Self::JumpHost => "jump-host",
            Self::Dex => "dex",
        }
    }

    /// Its program, which is also its `ServiceAccount`.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Cluster => "sip-cluster-agent",
            Self::LoadBalancer => "sip-load-balancer-agent",
            Self::JumpHost => "sip-jump-host-agent",
            Self::Dex => "sip-dex-agent",
        }
    }
}

/// What a site's agents are told about their site: the file of `--site-config`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SiteConfig {
    region: String,
    site: String,
    trust_domain: &'static str,
    scheduler: SchedulerConfig,
    /// Where the site's `BareMetalHosts` are.
    pub host_namespaces: Vec<String>,
    /// Sections of a `SIPCluster` that no agent of this site answers.
    pub not_installed: Vec<String>,
    /// Image of the container beside HAProxy; fake nodes run none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub haproxy_sidecar_image: Option<String>,
    /// Image with the programs of jump hosts; fake nodes run none.
    pub jump_host_tools_image: String,
    /// For how long claims of hosts may be in flight; without it, the agents' default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claims_in_flight_seconds: Option<u64>,
    /// For how long services are kept that a cluster that is gone has left without an owner; without it, the agents' default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ownerless_services_seconds: Option<u64>,
    /// What identity providers may need besides: everything of a sandbox is on loopback.
    pub identity_providers: IdentityProviders,
    /// Networks without hosts.
    pub reserved_networks: Vec<String>,
    /// What `override.service` of an entry may change.
    pub service_overrides: ServiceOverrides,
}

/// What a site's operators set for identity providers.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityProviders {
    /// Networks that the agent may connect to where a tenant names the host.
    pub allowed_networks: Vec<String>,
    /// `ClusterIssuer` of cert-manager for their certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_issuer: Option<String>,
}

/// What a site's operators let tenants change in Services.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceOverrides {
    /// Prefixes of keys.
    pub annotations: Vec<String>,
    /// Prefixes of keys.
    pub labels: Vec<String>,
    /// Values of `loadBalancerClass`.
    pub load_balancer_classes: Vec<String>,
    /// Whether a Service of type `LoadBalancer` may name no class.
    pub default_load_balancer: bool,
    /// Values of `externalTrafficPolicy`.
    pub external_traffic_policies: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct SchedulerConfig {
    endpoint: String,
}

impl SiteConfig {
    /// With another way to the scheduler: through a proxy.
    #[must_use]
    pub fn by(mut self, endpoint: String) -> Self {
        self.scheduler = SchedulerConfig { endpoint };
        self
    }
}

/// One of several processes of an agent.
#[derive(Clone, Copy, Debug)]
pub struct Replica<'a> {
    /// Its name, of its own among those of the site.
    pub name: &'a str,
    /// The time after which another replica acts when it is not heard of.
    pub lease: Duration,
    /// The URL by which it reaches the API server.
    pub api_server: &'a str,
}

/// A running agent. Dropping it kills it.
#[derive(Debug)]
pub struct AgentProcess {
    process: Process,
    health: u16,
}

impl AgentProcess {
    /// The process, to crash, pause and restart it.
    #[must_use]
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its number, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// The port of `/readyz` and `/metrics`.
    #[must_use]
    pub fn health_port(&self) -> u16 {
        self.health
    }

    /// Waits until the agent is ready.
    ///
    /// # Errors
    /// When it does not become ready: with the end of its log.
    pub async fn is_ready(&mut self) -> Result<(), Error> {
        Ok(readiness::http(&mut self.process, self.health, "/readyz", PATIENCE).await?)
    }
}

impl Site {
    /// Applies what the agents need: `deploy/sandbox`, with their `ServiceAccounts` and rights; and the image of theirs that a real node runs.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn prepare_for_agents(&self) -> Result<(), Error> {
        self.create_namespace(HOSTS_NAMESPACE).await?;
        self.apply_kustomization(&repository::deploy().join("sandbox"))
            .await?;
        if let Some(node) = self.node() {
            let sidecar = Image::new(HAPROXY_SIDECAR_IMAGE, programs::path("sip-haproxy-sidecar")?);
            node.import(&sidecar).await.map_err(site::Error::from)?;
        }
        Ok(())
    }
}

impl Region {
    /// What the agents of a site of this region are told: hosts in the namespace `metal`, no jump hosts, no identity
    /// providers. Change what a test needs to be different.
    #[must_use]
    pub fn site_config(&self, site: &Site) -> SiteConfig {
        SiteConfig {
            region: self.name.clone(),
            site: site.name().to_owned(),
            trust_domain: crate::authority::TRUST_DOMAIN,
            scheduler: SchedulerConfig {
                endpoint: self.endpoint(),
            },
            host_namespaces: vec![HOSTS_NAMESPACE.to_owned()],
            not_installed: vec!["jumpHost".to_owned(), "auth".to_owned()],
            claims_in_flight_seconds: None,
            ownerless_services_seconds: None,
            identity_providers: IdentityProviders {
                allowed_networks: ["127.0.0.0/8", "::1/128", "0.0.0.0/0", "::/0"]
                    .map(str::to_owned)
                    .to_vec(),
                cluster_issuer: None,
            },
            reserved_networks: vec!["172.31.0.0/16".to_owned()],
            service_overrides: ServiceOverrides {
                annotations: vec!["metallb.universe.tf/".to_owned()],
                labels: vec!["team".to_owned()],
                load_balancer_classes: vec!["example.org/metallb".to_owned()],
                default_load_balancer: true,
                external_traffic_policies: vec!["Local".to_owned()],
            },
            jump_host_tools_image: JUMP_HOST_TOOLS_IMAGE.to_owned(),
            haproxy_sidecar_image: site.node().map(|_| HAPROXY_SIDECAR_IMAGE.to_owned()),
        }
    }

    /// Starts an agent in a site, under the `ServiceAccount` of its name. It ends with the site.
    ///
    /// The site must be prepared. Call [`AgentProcess::is_ready`] to wait for it.
    ///
    /// # Errors
    /// When the agent was not built, or its `ServiceAccount` does not exist.
    pub async fn start_agent(
        &self,
        site: &Site,
        agent: Agent,
        config: &SiteConfig,
    ) -> Result<AgentProcess, Error> {
        self.start_agent_with(site, agent, config, &[]).await
    }

    /// The same with variables in its environment.
    ///
    /// # Errors
    /// As [`Region::start_agent`].
    pub async fn start_agent_with(
        &self,
        site: &Site,
        agent: Agent,
        config: &SiteConfig,
        variables: &[(&str, String)],
    ) -> Result<AgentProcess, Error> {
        let replica = Replica {
            name: agent.program(),
            lease: LEASE,
            api_server: site.server(),
        };
        let program = self.program(site, agent, config, replica).await?;
        let program = variables
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value));
        Self::spawn(site, program)
    }

    /// The same for an agent that reaches the site's API server by another URL: through a proxy. It holds its `Lease` for
    /// longer: what it does when calls fail is looked at, not how it loses the `Lease` on a machine that stands still.
    ///
    /// # Errors
    /// As [`Region::start_agent`].
    pub async fn start_agent_by(
        &self,
        site: &Site,
        agent: Agent,
        config: &SiteConfig,
        api_server: &str,
    ) -> Result<AgentProcess, Error> {
        let replica = Replica {
            name: agent.program(),
            lease: PATIENT_LEASE,
            api_server,
        };
        self.start_as(site, agent, config, replica).await
    }

    /// The same for one of several: under a name of its own, and with the time after which another replica acts when it
    /// is not heard of.
    ///
    /// # Errors
    /// As [`Region::start_agent`].
    pub async fn start_replica(
        &self,
        site: &Site,
        agent: Agent,
        config: &SiteConfig,
        replica: &str,
        lease: Duration,
    ) -> Result<AgentProcess, Error> {
        let replica = Replica {
            name: replica,
            lease,
            api_server: site.server(),
        };
        self.start_as(site, agent, config, replica).await
    }

    /// Starts a replica in the way that it says.
    ///
    /// # Errors
    /// As [`Region::start_agent`].
    pub async fn start_as(
        &self,
        site: &Site,
        agent: Agent,
        config: &SiteConfig,
        replica: Replica<'_>,
    ) -> Result<AgentProcess, Error> {
        let program = self.program(site, agent, config, replica).await?;
        Self::spawn(site, program)
    }

    async fn program(
        &self,
        site: &Site,
        agent: Agent,
        config: &SiteConfig,
        replica: Replica<'_>,
    ) -> Result<Program, Error> {
        let Replica {
            name: replica,
            lease,
            api_server,
        } = replica;
        let config_file = site.directory().join(format!("{replica}.yaml"));
        let failed = || file_error("write", &config_file);
        let text = serde_saphyr::to_string(config).map_err(|error| failed()(std::io::Error::other(error)))?;
        fs::write(&config_file, text).map_err(failed())?;
        let identity = self.authority.issue(&Caller::Agent {
            site: site.name(),
            name: agent.name(),
        })?;
        let kubeconfig = site
            .service_account_kubeconfig_by(AGENTS_NAMESPACE, agent.program(), api_server)
            .await?;
        Ok(Program::new(replica, programs::path(agent.program())?)
            .env("KUBECONFIG", kubeconfig)
            .arg("--site-config")
            .arg(&config_file)
            .args(["--replica", replica, "--lease-namespace", AGENTS_NAMESPACE])
            .args(["--lease-seconds".to_owned(), lease.as_secs().to_string()])
            .arg("--tls-cert")
            .arg(&identity.certificate)
            .arg("--tls-key")
            .arg(&identity.key)
            .arg("--tls-ca")
            .arg(&identity.authority))
    }

    fn spawn(site: &Site, program: Program) -> Result<AgentProcess, Error> {
        let health = port::reserve().map_err(Error::Port)?;
        let program = program.args(["--health-listen".to_owned(), format!("127.0.0.1:{health}")]);
        Ok(AgentProcess {
            process: site.spawn(program)?,
            health,
        })
    }
}
