//! Regions whose ledgers hold nothing else, for tests.

use super::Region;
use crate::{
    ledger::{Contents, History, commit},
    policy::Policies,
};

/// What a ledger holds of these sites while they have no clusters.
pub(crate) fn contents_of(sites: &[&str]) -> Contents {
    let histories = sites.iter().map(|site| ((*site).to_owned(), History::default()));
    Contents {
        histories: histories.collect(),
        ..Contents::default()
    }
}

/// A region with these contents; with what keeps its ledger open.
pub(crate) fn region_with(contents: Contents) -> (Region, commit::Writer) {
    let (committer, writer) = commit::committer(contents.commit);
    (Region::new(contents, Policies::new(), committer), writer)
}

/// A region of these sites, which have no clusters; with what keeps its ledger open.
pub(crate) fn region_of(sites: &[&str]) -> (Region, commit::Writer) {
    region_with(contents_of(sites))
}
