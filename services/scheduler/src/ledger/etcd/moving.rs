//! Everything out of etcd, and everything into it.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use etcd_client::{GetOptions, KeyValue, ResponseHeader};
use proto::ledger::v1 as disk;

use super::{
    Etcd, SCHEMA,
    batch::{self, Part},
    keys::{self, Keys},
};
use crate::ledger::{
    Contents, Error, Position, codec, export,
    removals::Told,
    weight::{self, TooLarge},
};

/// In the place of the schema's version while an import is not finished.
const IMPORTING: &str = "importing";

/// The version of a layout, which this version understands.
pub(super) fn schema(value: &[u8]) -> Result<u64, Error> {
    let text = String::from_utf8_lossy(value);
    match text.parse() {
        Ok(found @ 1..=SCHEMA) => Ok(found),
        Ok(found) => Err(Error::Schema {
            found,
            understood: SCHEMA,
        }),
        Err(_) => Err(Error::Corrupt {
            what: "schema".to_owned(),
            rule: if text == IMPORTING {
                "says that an import was not finished: delete all keys of the prefix and import again"
                    .to_owned()
            } else {
                format!("is {text:?}, not a number")
            },
        }),
    }
}

/// Site and revision of a removal.
fn removal<'a>(keys: &Keys, entry: &'a KeyValue) -> Result<(&'a str, u64), Error> {
    let site = Keys::rest(entry.key(), &keys.removals())?;
    let revision = std::str::from_utf8(entry.value()).ok();
    let revision = revision.and_then(|revision| revision.parse().ok());
    Ok((
        site,
        revision.ok_or_else(|| Error::Corrupt {
            what: format!("last removal of site {site}"),
            rule: "is not a number".to_owned(),
        })?,
    ))
}

impl Etcd {
    /// All that there is but the log.
    pub(super) async fn read(&self) -> Result<Contents, Error> {
        let keys = &self.place.keys;
        let mut contents = Contents {
            position: self.written().position,
            ..Contents::default()
        };
        let now = self.place.get(keys.position(), GetOptions::new()).await?;
        let revision = now.header().map_or(0, ResponseHeader::revision);
        for entry in self.place.range(&keys.records(), revision).await? {
            let name = keys::named(Keys::rest(entry.key(), &keys.records())?)?;
            let (key, record) = codec::decode(name, entry.value())?;
            contents.records.insert(key, Arc::new(record));
        }
        for entry in self.place.range(&keys.removals(), revision).await? {
            let (site, revision) = removal(keys, &entry)?;
            contents.removals.insert(site.to_owned(), revision);
        }
        for entry in self.place.range(&keys.fences(), revision).await? {
            let site = Keys::rest(entry.key(), &keys.fences())?;
            let fence = codec::decode_fence(site, entry.value())?;
            contents.fences.insert(site.to_owned(), fence);
        }
        Ok(contents)
    }

    /// Hands out the log as it was at one revision of etcd, from its oldest entry. It may be larger than all the rest: it is read
    /// in pages that are handed on.
    async fn hand_out_log(
        &self,
        revision: i64,
        take: &mut impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let keys = &self.place.keys;
        let mut from = keys.decision(0);
        let end = keys.decision(u64::MAX);
        loop {
            let options = GetOptions::new()
                .with_range(&*end)
                .with_limit(super::PAGE)
                .with_revision(revision);
            let mut page = self.place.get(from, options).await?;
            let more = page.more();
            let entries = page.take_kvs();
            for entry in &entries {
                take(super::number(keys, entry)?, entry.value())?;
            }
            match entries.last() {
                Some(last) if more => from = format!("{}\0", Keys::rest(last.key(), "")?),
                _ => return Ok(()),
            }
        }
    }

    /// Brings an older layout to the present one. The schema's key is written last: cut off, this begins anew.
    pub(super) async fn migrate(&self, from: u64) -> Result<(), Error> {
        let keys = &self.place.keys;
        let mut told = Told::default();
        // As it is now: nobody else may write.
        self.hand_out_log(0, &mut |revision, entry| {
            told.look(revision, entry);
            Ok(())
        })
        .await?;
        let position = self.written().position;
        let mut part = Part {
            position,
            ..Part::default()
        };
        for (site, revision) in told.by_site() {
            if self.place.limits.exceeded(part.writes.len() + 1, 0) {
                self.append(&part).await?;
                part.writes.clear();
            }
            let value = Some(batch::removal(revision));
            part.writes.insert(keys.removal(&site), value);
        }
        let schema = Some(SCHEMA.to_string().into_bytes());
        part.writes.insert(keys.schema(), schema);
        self.append(&part).await?;
        tracing::info!(from, to = SCHEMA, "the ledger is migrated");
        Ok(())
    }

    /// Writes a part on top of all before.
    async fn append(&self, part: &Part) -> Result<(), Error> {
        let after = self.write(self.written(), part, None).await?;
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = after;
        Ok(())
    }

    pub(super) async fn hand_out(
        &self,
        take: &mut (dyn FnMut(disk::Entry) -> Result<(), Error> + '_),
    ) -> Result<(), Error> {
        let keys = &self.place.keys;
        let mut now = self.place.get(keys.position(), GetOptions::new()).await?;
        let revision = now.header().map_or(0, ResponseHeader::revision);
        let value = now.take_kvs().pop();
        let value = value.as_ref().map(KeyValue::value).unwrap_or_default();
        let disk::Position {
            epoch,
            revision: reached,
            ..
        } = prost::Message::decode(value).map_err(|error: prost::DecodeError| Error::Corrupt {
            what: "position".to_owned(),
            rule: error.to_string(),
        })?;
        take(export::header(Position {
            epoch,
            revision: reached,
        }))?;
        for entry in self.place.range(&keys.records(), revision).await? {
            let name = keys::named(Keys::rest(entry.key(), &keys.records())?)?;
            take(export::record(name, entry.value())?)?;
        }
        for entry in self.place.range(&keys.removals(), revision).await? {
            let (site, revision) = removal(keys, &entry)?;
            take(export::removal(site, revision))?;
        }
        for entry in self.place.range(&keys.fences(), revision).await? {
            let site = Keys::rest(entry.key(), &keys.fences())?;
            take(export::fence(site, entry.value())?)?;
        }
        self.hand_out_log(revision, &mut |revision, entry| {
            take(export::decision(revision, entry)?)
        })
        .await
    }

    /// Parts are written one after the other; the schema's key says that they are not all there until they are.
    pub(super) async fn take_in(
        &self,
        entries: &mut (dyn Iterator<Item = Result<disk::Entry, Error>> + '_),
    ) -> Result<(), Error> {
        export::require_empty(&self.read().await?)?;
        let keys = &self.place.keys;
        let schema = |value: String| BTreeMap::from([(keys.schema(), Some(value.into_bytes()))]);
        let mut written = self.written();
        let empty = written.position;
        let begin = Part {
            writes: schema(IMPORTING.to_owned()),
            position: empty,
            ..Part::default()
        };
        written = self.write(written, &begin, None).await?;
        let mut position = empty;
        let mut part = Part::default();
        let mut bytes = 0;
        for entry in entries {
            let mut logged = 0;
            let (key, value) = match export::Part::of(entry?) {
                Some(export::Part::Header(found)) => {
                    position = found;
                    continue;
                }
                Some(export::Part::Record {
                    site,
                    namespace,
                    name,
                    value,
                }) => {
                    let (key, record) = codec::decode((&site, &namespace, &name), &value)?;
                    weight::require(&site, None, &record, Some(self.place.limits.bytes))?;
                    (keys.record(&key), value)
                }
                Some(export::Part::Removal { site, revision }) => {
                    (keys.removal(&site), batch::removal(revision))
                }
                Some(export::Part::Fence { site, value }) => (keys.fence(&site), value),
                Some(export::Part::Decision { revision, value }) => {
                    logged = u64::try_from(value.len()).unwrap_or(u64::MAX);
                    (keys.decision(revision), value)
                }
                None => continue,
            };
            let (limits, size) = (self.place.limits, batch::size(&key, Some(&value)));
            if limits.exceeded(1, size) {
                return Err(Error::TooLarge(TooLarge {
                    what: key,
                    bytes: size,
                    limit: limits.bytes,
                }));
            }
            // The schema comes on top of the last one.
            if limits.exceeded(part.writes.len() + 1, bytes + size) {
                part.position = empty;
                written = self.write(written, &std::mem::take(&mut part), None).await?;
                bytes = 0;
            }
            bytes += size;
            part.logged += logged;
            part.writes.insert(key, Some(value));
        }
        part.position = position;
        part.writes.extend(schema(SCHEMA.to_string()));
        written = self.write(written, &part, None).await?;
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = written;
        Ok(())
    }
}
