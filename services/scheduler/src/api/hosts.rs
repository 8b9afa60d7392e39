//! Hosts of a site, page by page.

use std::ops::Bound;

use ::placement::{Holder, HostName, Selector};
use proto::inventory::v1::{self as wire, HostRecord};

use super::page::{Entries, Filling};
use crate::{convert, site::Site};

/// Number of hosts that are compared with the selector while the site is locked: many more pass between two pages of a selector that few
/// hosts match.
const HOSTS_PER_SLICE: usize = 256;

/// Fills a page with the hosts that a selector wants, a slice at a time. Between two slices the site may change.
#[derive(Debug)]
pub(super) struct Walk {
    from: Bound<HostName>,
    selector: Option<Selector>,
    page: Filling<HostName, HostRecord>,
}

/// What a slice has found.
#[derive(Debug)]
pub(super) enum Walked {
    /// There are more hosts.
    More(Walk),
    /// The page is full, or there are no more.
    All(Entries<HostName, HostRecord>),
}

impl Walk {
    /// Of so many hosts at most; no selector: of all of them.
    pub(super) fn new(from: Bound<HostName>, selector: Option<Selector>, size: usize) -> Self {
        Self {
            from,
            selector,
            page: Filling::new(size),
        }
    }

    /// Continues with the next hosts.
    pub(super) fn advance(mut self, site: &Site) -> Walked {
        let mut hosts = site.hosts().range((self.from.clone(), Bound::Unbounded));
        for _ in 0..HOSTS_PER_SLICE {
            let Some((name, host)) = hosts.next() else {
                return Walked::All(self.page.end(false));
            };
            let labels = &host.facts().labels;
            let is_wanted = self
                .selector
                .as_ref()
                .is_none_or(|selector| selector.matches(labels));
            if is_wanted {
                if self.page.is_full() {
                    return Walked::All(self.page.end(true));
                }
                if let Some(record) = host_record(site, name) {
                    self.page.push(name.clone(), record);
                }
            }
            self.from = Bound::Excluded(name.clone());
        }
        Walked::More(self)
    }
}

/// A host and who holds it.
pub(super) fn host_record(site: &Site, name: &HostName) -> Option<HostRecord> {
    let host = site.hosts().get(name)?;
    let holder = match site.holder(host.id()) {
        Some(Holder::Cluster { cluster, role, state }) => Some(wire::Holder {
            cluster: site
                .record(cluster)
                .map(|record| convert::cluster_ref(&record.id())),
            role: role.to_string(),
            state: convert::state(*state).into(),
        }),
        Some(Holder::Orphaned) | None => None,
    };
    Some(HostRecord {
        host: Some(convert::host(host)),
        holder,
    })
}
