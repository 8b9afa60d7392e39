//! What a page of `ListPlacements` is made of: as changes of its sites have left it, also where one is at work, and answered once it is
//! durable.

use std::{ops::Bound, sync::Arc};

use ::placement::ClusterName;
use proto::{inventory::v1 as inventory, placement::v1::ListPlacementsResponse};

use super::page::{self, Listing};
use crate::{
    convert,
    error::Error,
    record::Record,
    region::{Region, Resets, SharedSite, SiteState},
};

/// Which placements a page has.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Of this site; empty: of all of them.
    pub(super) site: String,
    /// In this namespace; empty: in all of them.
    pub(super) namespace: String,
    /// Those after this one.
    pub(super) after: Option<(String, ClusterName)>,
}

/// What was found, and the sites that it was read from.
#[derive(Debug, Default)]
pub(super) struct Found {
    records: Vec<(String, u64, Arc<Record>)>,
    states: Vec<inventory::SiteState>,
    read: Vec<(Arc<SharedSite>, Resets)>,
}

/// Reads a page and one placement more.
///
/// # Errors
/// [`Error::Stopped`](crate::error::Error::Stopped) when the process ends.
pub(super) async fn read(
    region: &Region,
    caller: &str,
    wanted: &Wanted,
    size: usize,
) -> Result<Found, Error> {
    let Wanted {
        site,
        namespace,
        after,
    } = wanted;
    let mut found = Found::default();
    for (name, shared) in region.sites() {
        let is_wanted = site.is_empty() || *site == name;
        if !is_wanted || after.as_ref().is_some_and(|(after, _)| name < *after) {
            continue;
        }
        let lower = after.as_ref().filter(|(after, _)| *after == name);
        let from = lower.map_or(Bound::Unbounded, |(_, cluster)| Bound::Excluded(cluster));
        let resets = shared.resets();
        let from = from.cloned();
        let (namespace, of, durable) = (
            namespace.clone(),
            Arc::clone(&shared),
            region.committer().last_durable(),
        );
        let room = size + 1 - found.records.len();
        let page = move || of.page(from, &namespace, room, durable);
        let (records, epoch, position, synced) = region.compute(caller, page).await?;
        let state = SiteState {
            site: name.clone(),
            position,
            synced,
        };
        found.states.push(state.into());
        let records = records.into_iter();
        found
            .records
            .extend(records.map(|record| (name.clone(), epoch, record)));
        found.read.push((shared, resets));
        if found.records.len() > size {
            break;
        }
    }
    Ok(found)
}

impl Found {
    /// Refuses to return what was read of a site before it was reset. Other sites do not matter.
    ///
    /// # Errors
    /// [`Error::SiteReset`].
    pub(super) fn require_kept(&self) -> Result<(), Error> {
        if self.read.iter().all(|(site, since)| site.resets() == *since) {
            return Ok(());
        }
        Err(Error::SiteReset {
            cause: "the storage has refused a change of a site".to_owned(),
        })
    }

    /// The page.
    pub(super) fn page(self, listing: &Listing, size: usize) -> ListPlacementsResponse {
        let placements = self.records.iter().map(|(site, epoch, record)| {
            let key = (site, &record.cluster);
            (key, convert::placement(site, *epoch, record))
        });
        let page::Entries { entries, next } = page::take(placements, size);
        let next_page_token = next.map_or_else(String::new, |(site, last)| {
            listing.token(&[site, last.namespace().as_str(), last.name()])
        });
        ListPlacementsResponse {
            placements: entries,
            next_page_token,
            site_states: self.states,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ledger::{Commit, Refusal},
        region::fixtures::{contents_of, region_of, region_with},
    };

    #[tokio::test]
    async fn a_page_of_all_sites_does_not_wait_for_one_at_work() {
        let (region, _writer) = region_of(&["a", "b"]);
        let site = region.site("a").unwrap();
        let at_work = site.lock();
        let wanted = Wanted {
            site: String::new(),
            namespace: String::new(),
            after: None,
        };
        let read = read(&region, "reader/one", &wanted, 10);
        let found = tokio::time::timeout(std::time::Duration::from_secs(5), read).await;
        assert_eq!(found.unwrap().unwrap().states.len(), 2);
        drop(at_work);
    }

    #[tokio::test]
    async fn a_page_stands_when_a_site_that_it_is_not_of_is_reset() {
        let contents = contents_of(&["a", "b"]);
        let (region, _writer) = region_with(contents.clone());
        let wanted = Wanted {
            site: "a".to_owned(),
            namespace: String::new(),
            after: None,
        };
        let found = read(&region, "reader/one", &wanted, 10).await.unwrap();
        let reset = |site| {
            region.undo().reset(&Refusal {
                site,
                commit: Commit::new(1),
                cause: "it is too large",
                durable: &contents,
            })
        };
        reset("b");
        found.require_kept().unwrap();
        reset("a");
        assert!(matches!(found.require_kept(), Err(Error::SiteReset { cause: _ })));
    }
}
