//! The site's configuration: one YAML file, the same for every agent of a site.

mod identity_providers;
pub mod page;
mod reserved_networks;
mod service_overrides;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt, net::IpAddr, ops::RangeInclusive, path::Path, time::Duration};

use api::{BadImage, Image};
use http::Uri;
use runtime::identity::{Name, Realm};
use schemars::JsonSchema;
use serde::Deserialize;

pub use self::identity_providers::IdentityProviders;
use self::{identity_providers::IdentityProvidersSection, service_overrides::ServiceOverridesSection};
pub use self::{reserved_networks::ReservedNetworks, service_overrides::ServiceOverrides};

/// Where an agent works. Parsed by [`SiteConfig::read`] only.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    realm: Realm,
    site: Name,
    scheduler: Uri,
    host_namespaces: BTreeSet<String>,
    not_installed: BTreeSet<Section>,
    haproxy_sidecar_image: Option<Image>,
    jump_host_tools_image: Option<Image>,
    claims_in_flight: Duration,
    tenant_drain: Duration,
    ownerless_services: Duration,
    identity_providers: IdentityProviders,
    service_overrides: ServiceOverrides,
    reserved_networks: ReservedNetworks,
    name_servers: Vec<IpAddr>,
}

/// Time that a claim may be in flight, by default. The slowest claim of the real CAPM3 that was measured, on a loaded machine, took 0.8 s from the
/// choice of a host to the patch.
const DEFAULT_CLAIMS_IN_FLIGHT: Duration = Duration::from_mins(1);
/// The largest value that may be configured: every release waits for as long.
const MAX_CLAIMS_IN_FLIGHT: Duration = Duration::from_hours(1);

/// Time for which a host that leaves waits for the drain of its Node in the tenant's cluster, by default.
const DEFAULT_TENANT_DRAIN: Duration = Duration::from_mins(10);
/// The largest value that may be configured: a tenant can make its own releases take as long.
const MAX_TENANT_DRAIN: Duration = Duration::from_hours(1);

/// Time for which services without an owner are kept, by default: a restore creates Services before the `SIPCluster`s that they were made for.
const DEFAULT_OWNERLESS_SERVICES: Duration = Duration::from_mins(10);
/// The largest value that may be configured.
const MAX_OWNERLESS_SERVICES: Duration = Duration::from_hours(24);

/// A section of `spec.services`, and so the agent that serves it.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[serde(rename_all = "camelCase")]
pub enum Section {
    /// `loadBalancerControlPlane` and `loadBalancerWorker`.
    LoadBalancer,
    /// `jumpHost`.
    JumpHost,
    /// `auth`.
    Auth,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LoadBalancer => "loadBalancer",
            Self::JumpHost => "jumpHost",
            Self::Auth => "auth",
        })
    }
}

/// The file. Its comments are the text of `docs/site-configuration.md`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    /// Name of the region, as in the certificates.
    region: String,
    /// Name of the site, as in the certificates of its agents.
    site: String,
    /// Trust domain of the certificates, such as `sip.example`.
    trust_domain: String,
    scheduler: SchedulerSection,
    /// Namespaces with `BareMetalHost`s and the Secrets of their networkData. Each needs the component `deploy/agents/host-namespace`, in a
    /// kustomization with its `namespace:`, such as `deploy/examples/one-site/hosts`. The cluster agent does not start if a namespace is missing in
    /// which `SIPCluster`s hold hosts ([how to remove one](install.md#remove-a-host-namespace)).
    host_namespaces: BTreeSet<String>,
    /// Services that no agent of this site provides; `loadBalancer` means the sections `loadBalancerControlPlane` and `loadBalancerWorker` of
    /// `spec.services`. A `SIPCluster` with one of them becomes `Ready` without it, and the condition `ServicesSkipped` names it. With
    /// `loadBalancer` a host that leaves waits for no pod: list it only in a site without pods of load balancers
    /// ([exceptions](load-balancers.md#exceptions)).
    #[serde(default)]
    not_installed: BTreeSet<Section>,
    /// Image of the sidecar that applies changes to a running HAProxy. Without it, new pods start for every change of members
    /// ([details](load-balancers.md#when-members-or-the-configuration-change)).
    haproxy_sidecar_image: Option<String>,
    /// Image with the programs that every [jump host](jump-host.md) runs beside the image of its entry. Without it the site has no jump hosts.
    jump_host_tools_image: Option<String>,
    /// Where the admission policy `sip-host-consumers` is not in force: for how long a released host must have no consumer before the release
    /// is confirmed ([late claims](cluster-api.md#late-claims)). From 1 to 3600, default 60.
    claims_in_flight_seconds: Option<u64>,
    /// For how long the cluster agent drains the Node of a host that leaves, in the tenant's cluster ([drains](tenant-nodes.md#drains)). Then it
    /// deletes the Node without waiting for the pods, and the host waits for that deletion for at most three more minutes. With 0 it
    /// neither cordons, drains nor deletes Nodes. From 0 to 3600, default 600.
    tenant_drain_seconds: Option<u64>,
    /// For how long load balancers, jump hosts and identity providers without an owner stay after their `SIPCluster` is gone, for example because
    /// it was deleted with `--cascade=orphan` while the agent did not run ([objects without an owner](load-balancers.md#objects-without-an-owner)).
    /// Then their agents delete them. The agents log when they find them and when they delete them. A `SIPCluster` that is created again takes them
    /// over, but not if its spec is invalid. The time begins when an agent finds them, and again when it restarts. In a namespace without any
    /// `SIPCluster`, an agent finds only those that still have a Service. From 1 to 86400, default 600.
    ownerless_services_seconds: Option<u64>,
    #[serde(default)]
    identity_providers: IdentityProvidersSection,
    #[serde(default)]
    service_overrides: ServiceOverridesSection,
    /// Networks in which no host has an address, such as that of Services. The cluster agent ignores a host's address in one of them and reports
    /// it by the Event `InvalidHost`; a cluster that needs this address cannot claim the host. The address of the site's API server is reserved
    /// in any case.
    #[serde(default)]
    reserved_networks: Vec<String>,
    /// Addresses of name servers that are no pods of the site's DNS, such as a cache on each node: each `NetworkPolicy` of a service allows them.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    name_servers: Vec<IpAddr>,
}

/// How long claims may be in flight, how long Nodes are drained, and how long services without an owner are kept; or the field that is wrong, its
/// value, and the rule.
fn durations(
    claims_in_flight: Option<u64>,
    tenant_drain: Option<u64>,
    ownerless_services: Option<u64>,
) -> Result<[Duration; 3], (&'static str, String, String)> {
    let of = |field, value: Option<u64>, default: Duration, allowed: RangeInclusive<Duration>| {
        let value = value.map_or(default, Duration::from_secs);
        let (least, most) = (allowed.start().as_secs(), allowed.end().as_secs());
        let rule = || format!("must be from {least} to {most}");
        let is_allowed = allowed.contains(&value).then_some(value);
        is_allowed.ok_or_else(|| (field, value.as_secs().to_string(), rule()))
    };
    let second = Duration::from_secs(1);
    Ok([
        of(
            "claimsInFlightSeconds",
            claims_in_flight,
            DEFAULT_CLAIMS_IN_FLIGHT,
            second..=MAX_CLAIMS_IN_FLIGHT,
        )?,
        of(
            "tenantDrainSeconds",
            tenant_drain,
            DEFAULT_TENANT_DRAIN,
            Duration::ZERO..=MAX_TENANT_DRAIN,
        )?,
        of(
            "ownerlessServicesSeconds",
            ownerless_services,
            DEFAULT_OWNERLESS_SERVICES,
            second..=MAX_OWNERLESS_SERVICES,
        )?,
    ])
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SchedulerSection {
    /// URL of the region's scheduler, such as `https://sip-scheduler.sip-system.svc:7443`.
    endpoint: String,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("the site configuration {path} cannot be read")]
    Read {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It is no YAML of the expected form.
    #[error("the site configuration {path} is not of the expected form")]
    Form {
        /// The file.
        path: String,
        /// Where and what.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A value breaks a rule.
    #[error("the site configuration {path}: {field} {value:?}: {rule}")]
    Value {
        /// The file.
        path: String,
        /// Path of the field.
        field: &'static str,
        /// What it holds.
        value: String,
        /// The rule.
        rule: String,
    },
}

impl SiteConfig {
    /// Reads and parses the file.
    ///
    /// # Errors
    /// [`Error`] names the file, the field, the value and the rule.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let path = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|source| Error::Read {
            path: path.clone(),
            source,
        })?;
        Self::parse(&text, &path)
    }

    fn parse(text: &str, path: &str) -> Result<Self, Error> {
        let File {
            region,
            site,
            trust_domain,
            scheduler,
            host_namespaces,
            not_installed,
            haproxy_sidecar_image,
            jump_host_tools_image,
            claims_in_flight_seconds,
            tenant_drain_seconds,
            ownerless_services_seconds,
            identity_providers,
            service_overrides,
            reserved_networks,
            name_servers,
        } = serde_saphyr::from_str(text).map_err(|source| Error::Form {
            path: path.to_owned(),
            source: source.into(),
        })?;
        let bad = |field: &'static str, value: &str, rule: String| Error::Value {
            path: path.to_owned(),
            field,
            value: value.to_owned(),
            rule,
        };
        let region_name: Name = region
            .parse()
            .map_err(|error: runtime::identity::NameError| bad("region", &region, error.to_string()))?;
        let site_name: Name = site
            .parse()
            .map_err(|error: runtime::identity::NameError| bad("site", &site, error.to_string()))?;
        let trust = trust_domain
            .parse()
            .map_err(|error: runtime::identity::TrustDomainError| {
                bad("trustDomain", &trust_domain, error.to_string())
            })?;
        let endpoint: Uri = scheduler
            .endpoint
            .parse()
            .map_err(|error: http::uri::InvalidUri| {
                bad("scheduler.endpoint", &scheduler.endpoint, error.to_string())
            })?;
        if host_namespaces.is_empty() {
            return Err(bad(
                "hostNamespaces",
                "",
                "name at least one namespace with BareMetalHosts".to_owned(),
            ));
        }
        let image = |field: &'static str, image: Option<String>| {
            let parsed = image.map(|image| {
                let parsed = image.parse::<Image>();
                parsed.map_err(|error: BadImage| bad(field, &image, error.to_string()))
            });
            parsed.transpose()
        };
        let haproxy_sidecar_image = image("haproxySidecarImage", haproxy_sidecar_image)?;
        let jump_host_tools_image = image("jumpHostToolsImage", jump_host_tools_image)?;
        let durations = durations(
            claims_in_flight_seconds,
            tenant_drain_seconds,
            ownerless_services_seconds,
        );
        let [claims_in_flight, tenant_drain, ownerless_services] =
            durations.map_err(|(field, value, rule)| bad(field, &value, rule))?;
        let identity_providers = IdentityProviders::parse(identity_providers);
        let identity_providers =
            identity_providers.map_err(|(field, value, rule)| bad(field, &value, rule))?;
        let service_overrides = ServiceOverrides::parse(service_overrides)
            .map_err(|(field, value, rule)| bad(field, &value, rule))?;
        let reserved_networks = ReservedNetworks::parse(reserved_networks)
            .map_err(|(field, value, rule)| bad(field, &value, rule))?;
        Ok(Self {
            realm: Realm::new(trust, region_name),
            site: site_name,
            scheduler: endpoint,
            host_namespaces,
            not_installed,
            haproxy_sidecar_image,
            jump_host_tools_image,
            claims_in_flight,
            tenant_drain,
            ownerless_services,
            identity_providers,
            service_overrides,
            reserved_networks,
            name_servers,
        })
    }

    /// Trust domain and region.
    #[must_use]
    pub fn realm(&self) -> &Realm {
        &self.realm
    }

    /// Name of the site.
    #[must_use]
    pub fn site(&self) -> &str {
        self.site.as_str()
    }

    /// Where the region's scheduler is.
    #[must_use]
    pub fn scheduler(&self) -> &Uri {
        &self.scheduler
    }

    /// Namespaces that hold `BareMetalHost`s and their networkData Secrets.
    #[must_use]
    pub fn host_namespaces(&self) -> &BTreeSet<String> {
        &self.host_namespaces
    }

    /// Sections that no agent of this site serves: they gate nothing.
    #[must_use]
    pub fn not_installed(&self) -> &BTreeSet<Section> {
        &self.not_installed
    }

    /// For how long a claim of Cluster API's provider may be in flight, from its choice of a host to its patch. Where no policy
    /// refuses late claims, a release is confirmed only after this time.
    #[must_use]
    pub fn claims_in_flight(&self) -> Duration {
        self.claims_in_flight
    }

    /// For how long a host that leaves waits for the drain of its Node in the tenant's cluster. Zero: such Nodes are neither drained nor
    /// deleted.
    #[must_use]
    pub fn tenant_drain(&self) -> Duration {
        self.tenant_drain
    }

    /// For how long services are kept that a cluster that is gone has left without an owner.
    #[must_use]
    pub fn ownerless_services(&self) -> Duration {
        self.ownerless_services
    }

    /// What is set for identity providers.
    #[must_use]
    pub fn identity_providers(&self) -> &IdentityProviders {
        &self.identity_providers
    }

    /// Addresses that no host of the site has, besides those of its API server.
    #[must_use]
    pub fn reserved_networks(&self) -> &ReservedNetworks {
        &self.reserved_networks
    }

    /// Name servers of the site that are no pods of its DNS, such as a cache on each node.
    #[must_use]
    pub fn name_servers(&self) -> &[IpAddr] {
        &self.name_servers
    }

    /// What `override.service` of an entry may change.
    #[must_use]
    pub fn service_overrides(&self) -> &ServiceOverrides {
        &self.service_overrides
    }

    /// Image of the container that makes a running HAProxy follow its configuration. `None`: new pods start for every change
    /// of members.
    #[must_use]
    pub fn haproxy_sidecar_image(&self) -> Option<&Image> {
        self.haproxy_sidecar_image.as_ref()
    }

    /// Image with what every jump host gets besides the image that its entry names: the programs that run sshd and keep its files
    /// current, and the client of `PowerService`. `None`: jump hosts cannot be served.
    #[must_use]
    pub fn jump_host_tools_image(&self) -> Option<&Image> {
        self.jump_host_tools_image.as_ref()
    }
}
