//! How many hosts and clusters, and how much memory, one site may have: all sites of the region share the process.

use ::placement::Namespace;

use crate::error::Error;

/// Limits of each site, on the command line.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Limits of each site")]
#[allow(clippy::struct_field_names, reason = "they are the names of the options")]
pub struct LimitArgs {
    /// Maximum number of sites of the region
    #[arg(long = "sites", env = "SIP_SITES", value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    site_number: u32,
    /// Mebibytes of memory that the process may use. The scheduler does not start if the memory that all sites (--sites) may use, together
    /// with a fixed reserve, exceeds this
    #[arg(long = "memory-mib", env = "SIP_MEMORY_MIB", value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    site_memory_mib: Option<u32>,
    /// Maximum number of hosts that a site reports
    #[arg(long, env = "SIP_SITE_HOSTS", value_name = "NUMBER", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    site_hosts: u32,
    /// Maximum number of `SIPCluster`s that a site reports, and of its records in the ledger
    #[arg(long, env = "SIP_SITE_CLUSTERS", value_name = "NUMBER", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    site_clusters: u32,
    /// Maximum number of hosts in the status of one `SIPCluster`
    #[arg(long, env = "SIP_SITE_MEMBERS", value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    site_members: u32,
    /// Maximum size in MiB of the hosts and `SIPCluster`s that a site reports
    #[arg(long, env = "SIP_SITE_INVENTORY_MIB", value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    site_inventory_mib: u32,
    /// Maximum size in MiB of the records of a site in the ledger
    #[arg(long, env = "SIP_SITE_RECORDS_MIB", value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    site_records_mib: u32,
}

/// How much one site may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sites of the region, each of which may have all of the following.
    pub sites: usize,
    /// Hosts.
    pub hosts: usize,
    /// `SIPCluster`s, and records.
    pub clusters: usize,
    /// Hosts that one status names.
    pub members: usize,
    /// Bytes of hosts and `SIPCluster`s.
    pub inventory: usize,
    /// Bytes of records.
    pub records: usize,
}

impl Default for Limits {
    /// As without options on the command line: twice what a site is meant to have.
    fn default() -> Self {
        Self {
            sites: 4,
            hosts: 200_000,
            clusters: 20_000,
            members: 10_000,
            inventory: 512 << 20,
            records: 256 << 20,
        }
    }
}

impl LimitArgs {
    /// The limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let Self {
            site_number,
            site_memory_mib: _,
            site_hosts,
            site_clusters,
            site_members,
            site_inventory_mib,
            site_records_mib,
        } = *self;
        Limits {
            sites: size(site_number),
            hosts: size(site_hosts),
            clusters: size(site_clusters),
            members: size(site_members),
            inventory: size(site_inventory_mib) << 20,
            records: size(site_records_mib) << 20,
        }
    }
}

/// Bytes of memory for everything but sites: calls in progress, the ledger's queue and caches, the program.
const RESERVED_BYTES: usize = 512 << 20;

impl Limits {
    /// Memory that the process takes at most: of each site its share, whatever the others have; copies of sites for questions; and the
    /// rest.
    #[must_use]
    pub fn memory(&self) -> usize {
        let site = self.inventory.saturating_add(self.records);
        let sites = self.sites.saturating_mul(site);
        sites
            .saturating_add(self.inventory)
            .saturating_add(RESERVED_BYTES)
    }
}

impl LimitArgs {
    /// Refuses limits that do not fit into the memory that the process may have.
    ///
    /// # Errors
    /// What would help.
    pub fn require_memory(&self) -> anyhow::Result<()> {
        let (limits, mebi) = (self.limits(), |bytes: usize| bytes.div_ceil(1 << 20));
        let needed = mebi(limits.memory());
        let Some(memory) = self.site_memory_mib else {
            return Ok(());
        };
        anyhow::ensure!(
            usize::try_from(memory).is_ok_and(|memory| memory >= needed),
            "{} sites with {} MiB of inventory and {} MiB of records each need {needed} MiB together, with copies of hosts for FindCapacity and PlanCluster and with memory for calls; the process may have {memory} MiB (--memory-mib): raise it, or lower --sites, --site-inventory-mib or --site-records-mib",
            limits.sites,
            mebi(limits.inventory),
            mebi(limits.records),
        );
        Ok(())
    }
}

/// What a site has too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Sites of the region, before this one.
    Sites,
    /// Hosts.
    Hosts,
    /// `SIPCluster`s that it reports.
    Clusters,
    /// Hosts that one status names.
    Members,
    /// Bytes of what it reports.
    Inventory,
    /// Clusters with a record.
    Records,
    /// Bytes of records.
    RecordBytes,
}

impl Limit {
    /// Its name in answers and in the documentation.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sites => "sites",
            Self::Hosts => "hosts",
            Self::Clusters => "clusters",
            Self::Members => "members",
            Self::Inventory => "inventory",
            Self::Records => "records",
            Self::RecordBytes => "record-bytes",
        }
    }

    /// What would help.
    fn help(self) -> &'static str {
        match self {
            Self::Sites => "start the scheduler with a higher --sites, and memory for them",
            Self::Hosts => {
                "report fewer host namespaces, divide the site, or start the scheduler with a higher --site-hosts"
            }
            Self::Clusters | Self::Records => {
                "delete SIPClusters that are not needed, or start the scheduler with a higher --site-clusters"
            }
            Self::Members => "divide the SIPCluster, or start the scheduler with a higher --site-members",
            Self::Inventory => {
                "shorten labels and problems of hosts, divide the site, or start the scheduler with a higher --site-inventory-mib"
            }
            Self::RecordBytes => {
                "delete SIPClusters that are not needed, shorten their selectors, or start the scheduler with a higher --site-records-mib"
            }
        }
    }

    /// Refuses what makes `found` of it, of which `most` are allowed.
    ///
    /// # Errors
    /// [`Error::SiteFull`].
    pub(crate) fn require(self, site: &str, found: usize, most: usize) -> Result<(), Error> {
        if found <= most {
            return Ok(());
        }
        let why = format!(
            "{most} {} are allowed, and this would be {found}: {}",
            self.counted(),
            self.help()
        );
        Err(self.full(site, why))
    }

    /// Refuses what makes `all` of it, `own` of them in one namespace. A namespace may have as much as it leaves free for the others: so
    /// one that has little is refused only when there is no room at all.
    ///
    /// # Errors
    /// [`Error::SiteFull`] says whether the namespace has more than its share.
    pub(crate) fn require_share(
        self,
        site: &str,
        namespace: &Namespace,
        all: usize,
        own: usize,
        most: usize,
    ) -> Result<(), Error> {
        if all.saturating_add(own) <= most {
            return Ok(());
        }
        let (what, others) = (self.counted(), all - own);
        let help = self.help();
        let why = if own > others {
            format!(
                "{what}: at most {most} may be in the site plus, once more, in namespace {namespace}; with this there would be {all} in the site, {others} of them in other namespaces, and {own} in this one, so namespace {namespace} has more than its share. For this namespace: delete SIPClusters of namespace {namespace} that are not needed. For the site: {help}"
            )
        } else {
            format!(
                "{what}: at most {most} may be in the site plus, once more, in namespace {namespace}; with this there would be {all} in the site, {others} of them in other namespaces, and {own} in this one. For the site: {help}"
            )
        };
        Err(self.full(site, why))
    }

    /// Whether the error is a refusal by this limit.
    pub(super) fn is_of(self, error: &Error) -> bool {
        matches!(error, Error::SiteFull { limit, .. } if *limit == self.name())
    }

    fn counted(self) -> &'static str {
        match self {
            Self::Sites => "sites of the region",
            Self::Hosts => "hosts that it reports",
            Self::Clusters => "SIPClusters that it reports",
            Self::Members => "hosts that the status of one SIPCluster names",
            Self::Inventory => "bytes of hosts and SIPClusters that it reports",
            Self::Records => "clusters in the ledger",
            Self::RecordBytes => "bytes of its clusters in the ledger",
        }
    }

    fn full(self, site: &str, why: String) -> Error {
        Error::SiteFull {
            site: site.to_owned(),
            limit: self.name(),
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::parse_options;

    #[test]
    fn default_size_limits_are_those_of_the_options() {
        let parsed: LimitArgs = parse_options(&[]);
        assert_eq!(parsed.limits(), Limits::default());
    }

    #[test]
    fn limits_that_do_not_fit_into_the_memory_are_refused() {
        let program = |memory: &str, more: &[&str]| {
            let options = [&["--memory-mib", memory][..], more].concat();
            parse_options::<LimitArgs>(&options).require_memory()
        };
        program("4096", &[]).unwrap();
        let refused = program("4095", &[]).unwrap_err().to_string();
        assert!(
            refused.contains("need 4096 MiB") && refused.contains("--sites"),
            "{refused}"
        );
        program("2048", &["--sites=1"]).unwrap();
        assert!(program("4096", &["--sites", "5"]).is_err());
        assert!(parse_options::<LimitArgs>(&[]).require_memory().is_ok());
    }

    /// The manifests give the process as much as its limits need, and tell it so.
    #[test]
    fn the_default_limits_fit_into_the_memory_of_the_manifests() {
        let manifest = include_str!("../../../../deploy/scheduler/base/statefulset.yaml");
        let needed = format!("limits: {{memory: {}Gi}}", Limits::default().memory() >> 30);
        assert!(manifest.contains(&needed), "{needed}");
        assert!(manifest.contains("name: SIP_MEMORY_MIB"));
    }

    #[test]
    fn a_refusal_says_what_would_help() {
        assert!(Limit::Hosts.require("a", 5, 5).is_ok());
        let refused = Limit::Hosts.require("a", 6, 5).unwrap_err().to_string();
        assert!(
            refused.contains("site a: 5 hosts") && refused.contains("--site-hosts"),
            "{refused}"
        );
    }
}
