//! Positions of sites.

use proto::inventory::v1 as inventory;

use crate::ledger::SitePosition;

impl From<SitePosition> for inventory::Revision {
    fn from(position: SitePosition) -> Self {
        Self {
            epoch: position.epoch(),
            revision: position.revision(),
        }
    }
}

impl From<inventory::Revision> for SitePosition {
    fn from(inventory::Revision { epoch, revision }: inventory::Revision) -> Self {
        Self::new(epoch, revision)
    }
}
