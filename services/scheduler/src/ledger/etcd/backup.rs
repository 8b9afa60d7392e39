//! A copy of a ledger's keys before they are migrated: an earlier version of the program runs on it with `--etcd-prefix`.

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, Txn, TxnOp};

use super::{
    Etcd, batch,
    keys::{self, Keys},
    pages::Pages,
};
use crate::ledger::Error;

/// Maximum number of copies beside a ledger.
const MAX_COPIES: u32 = 9;

impl Etcd {
    /// Copies all keys of that version, the schema's last: a copy without it is not whole. Returns the copy's prefix.
    pub(super) async fn back_up(&self, version: u64) -> Result<String, Error> {
        let keys = &self.location.keys;
        let now = self.value(keys.position()).await?;
        for number in 1..=MAX_COPIES {
            let copy = keys.backup(version, number);
            if self.value(copy.schema()).await?.is_none() {
                self.copy(&copy).await?;
                return Ok(copy.root().trim_end_matches('/').to_owned());
            }
            // Each position is unlike every other: this copy was made before a migration that was cut off.
            if self.value(copy.position()).await? == now {
                return Ok(copy.root().trim_end_matches('/').to_owned());
            }
        }
        Err(Error::storage("back the ledger up before it is migrated")(
            format!(
                "there are {MAX_COPIES} backups already, up to {}: remove those that are not needed",
                keys.backup(version, MAX_COPIES).root()
            ),
        ))
    }

    async fn value(&self, key: String) -> Result<Option<Vec<u8>>, Error> {
        let mut found = self.location.get(key, GetOptions::new()).await?;
        Ok(found.take_kvs().pop().map(|entry| entry.value().to_vec()))
    }

    async fn copy(&self, copy: &Keys) -> Result<(), Error> {
        let (keys, limits) = (&self.location.keys, self.location.limits);
        // A copy of another time may have been cut off here: what was removed since would be in this one.
        let all = DeleteOptions::new().with_range(keys::prefix_end(copy.root()));
        self.put(vec![TxnOp::delete(copy.root(), Some(all))]).await?;
        let mut pages = Pages::below(&self.location, keys.root(), 0);
        let mut schema = Vec::new();
        let mut writes: Vec<TxnOp> = Vec::new();
        let mut bytes = 0;
        while let Some(entries) = pages.next().await? {
            for entry in &entries {
                let rest = Keys::rest(entry.key(), keys.root())?;
                if rest == "schema" {
                    schema = entry.value().to_vec();
                }
                if ["leader", "schema"].contains(&rest) {
                    continue;
                }
                let key = format!("{}{rest}", copy.root());
                let size = batch::size(&key, Some(entry.value()));
                if !writes.is_empty() && limits.exceeded(writes.len() + 1, bytes + size) {
                    self.put(std::mem::take(&mut writes)).await?;
                    bytes = 0;
                }
                bytes += size;
                writes.push(TxnOp::put(key, entry.value(), None));
            }
        }
        self.put(writes).await?;
        self.put(vec![TxnOp::put(copy.schema(), schema, None)]).await
    }

    /// Writes or deletes what is no part of the ledger, as its owner.
    async fn put(&self, writes: Vec<TxnOp>) -> Result<(), Error> {
        let leads = Compare::create_revision(self.location.keys.leader(), CompareOp::Equal, self.elected);
        let written = self
            .send_transaction(Txn::new().when([leads]).and_then(writes))
            .await?;
        if written.succeeded() {
            Ok(())
        } else {
            Err(Error::Fenced {
                by: "another scheduler".to_owned(),
            })
        }
    }
}
