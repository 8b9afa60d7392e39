//! Where things are in the file.

use redb::TableDefinition;

/// `schema`, `commit`: the number of the last one, and `log bytes`: the sizes of all values in [`DECISIONS`].
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
/// Site, namespace and name of a cluster → [`proto::ledger::v1::Record`].
pub(super) const RECORDS: TableDefinition<'static, (&str, &str, &str), &[u8]> =
    TableDefinition::new("records");
/// Site → commit of the last removal of a record.
pub(super) const REMOVALS: TableDefinition<'static, &str, u64> = TableDefinition::new("removals");
/// Site → [`proto::ledger::v1::SiteHistory`].
pub(super) const HISTORIES: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("histories");
/// Site → [`proto::ledger::v1::SiteFence`].
pub(super) const FENCES: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("fences");
/// Commit → [`proto::placement::v1::Decision`].
pub(super) const DECISIONS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("decisions");
