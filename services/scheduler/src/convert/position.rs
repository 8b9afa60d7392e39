//! Positions of sites.

use proto::inventory::v1 as inventory;

use crate::{ledger::SitePosition, region::SiteState};

impl From<SitePosition> for inventory::Revision {
    fn from(position: SitePosition) -> Self {
        Self {
            epoch: position.epoch(),
            revision: position.revision(),
        }
    }
}

impl From<SiteState> for inventory::SiteState {
    fn from(state: SiteState) -> Self {
        let SiteState {
            site,
            position,
            synced,
        } = state;
        Self {
            site,
            revision: Some(position.into()),
            synced,
        }
    }
}

impl From<inventory::Revision> for SitePosition {
    fn from(inventory::Revision { epoch, revision }: inventory::Revision) -> Self {
        Self::new(epoch, revision)
    }
}
