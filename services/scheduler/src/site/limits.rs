//! How much one site may have here: memory and time are shared by all sites of the region.

use crate::error::Error;

/// Limits of each site, on the command line.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Limits of each site")]
#[allow(clippy::struct_field_names, reason = "they are the names of the options")]
pub struct LimitArgs {
    /// Hosts that a site may report
    #[arg(long, env = "SIP_SITE_HOSTS", value_name = "NUMBER", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    site_hosts: u32,
    /// `SIPCluster`s that a site may report, and records that the ledger may have of it
    #[arg(long, env = "SIP_SITE_CLUSTERS", value_name = "NUMBER", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    site_clusters: u32,
    /// Hosts that the status of one `SIPCluster` may name
    #[arg(long, env = "SIP_SITE_MEMBERS", value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    site_members: u32,
    /// Mebibytes of hosts and `SIPCluster`s that a site may report
    #[arg(long, env = "SIP_SITE_INVENTORY_MIB", value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    site_inventory_mib: u32,
    /// Mebibytes of records that the ledger may have of a site
    #[arg(long, env = "SIP_SITE_RECORDS_MIB", value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    site_records_mib: u32,
}

/// How much one site may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
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
            site_hosts,
            site_clusters,
            site_members,
            site_inventory_mib,
            site_records_mib,
        } = *self;
        Limits {
            hosts: size(site_hosts),
            clusters: size(site_clusters),
            members: size(site_members),
            inventory: size(site_inventory_mib) << 20,
            records: size(site_records_mib) << 20,
        }
    }
}

/// What a site has too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
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
            Self::Hosts => {
                "report fewer host namespaces, divide the site, or start the scheduler with a higher --site-hosts"
            }
            Self::Clusters | Self::Records => {
                "delete SIPClusters that nobody needs, or start the scheduler with a higher --site-clusters"
            }
            Self::Members => "divide the SIPCluster, or start the scheduler with a higher --site-members",
            Self::Inventory => {
                "shorten labels and problems of hosts, divide the site, or start the scheduler with a higher --site-inventory-mib"
            }
            Self::RecordBytes => {
                "delete SIPClusters that nobody needs, shorten their selectors, or start the scheduler with a higher --site-records-mib"
            }
        }
    }

    /// Refuses what makes `found` of it, of which `most` are allowed.
    ///
    /// # Errors
    /// [`Error::SiteFull`].
    pub(super) fn require(self, site: &str, found: usize, most: usize) -> Result<(), Error> {
        if found <= most {
            return Ok(());
        }
        let what = match self {
            Self::Hosts => "hosts that it reports",
            Self::Clusters => "SIPClusters that it reports",
            Self::Members => "hosts that the status of one SIPCluster names",
            Self::Inventory => "bytes of hosts and SIPClusters that it reports",
            Self::Records => "clusters in the ledger",
            Self::RecordBytes => "bytes of its clusters in the ledger",
        };
        Err(Error::SiteFull {
            site: site.to_owned(),
            limit: self.name(),
            why: format!(
                "{most} {what} are allowed, and this would be {found}: {}",
                self.help()
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        limits: LimitArgs,
    }

    #[test]
    fn the_defaults_are_those_of_the_command_line() {
        let parsed = Program::parse_from(["program"]).limits;
        assert_eq!(parsed.limits(), Limits::default());
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
