//! Everything out of etcd, and everything into it.

use std::collections::BTreeMap;

use etcd_client::GetOptions;
use proto::ledger::v1 as disk;

use super::{
    Etcd, SCHEMA,
    batch::{self, Part},
    keys::{self, Keys},
};
use crate::ledger::{Error, Position, RecordKey, export};

/// In the place of the schema's version while an import is not finished.
const IMPORTING: &str = "importing";

/// Refuses what this version does not understand.
pub(super) fn require_schema(value: &[u8]) -> Result<(), Error> {
    let text = String::from_utf8_lossy(value);
    match text.parse() {
        Ok(SCHEMA) => Ok(()),
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

impl Etcd {
    pub(super) async fn hand_out(
        &self,
        take: &mut (dyn FnMut(disk::Entry) -> Result<(), Error> + '_),
    ) -> Result<(), Error> {
        let keys = &self.place.keys;
        let mut now = self.place.get(keys.position(), GetOptions::new()).await?;
        let revision = now.header().map_or(0, etcd_client::ResponseHeader::revision);
        let value = now.take_kvs().pop();
        let value = value
            .as_ref()
            .map(etcd_client::KeyValue::value)
            .unwrap_or_default();
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
        for entry in self.place.range(&keys.fences(), revision).await? {
            let site = Keys::rest(entry.key(), &keys.fences())?;
            take(export::fence(site, entry.value())?)?;
        }
        // The log may be larger than all the rest: it is read in pages that are handed on.
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
                take(export::decision(super::number(keys, entry)?, entry.value())?)?;
            }
            match entries.last() {
                Some(last) if more => from = format!("{}\0", Keys::rest(last.key(), "")?),
                _ => return Ok(()),
            }
        }
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
                    let cluster =
                        placement::ClusterName::new(&namespace, &name).map_err(|error| Error::Corrupt {
                            what: format!("record {site}/{namespace}/{name}"),
                            rule: error.to_string(),
                        })?;
                    (keys.record(&RecordKey { site, cluster }), value)
                }
                Some(export::Part::Fence { site, value }) => (keys.fence(&site), value),
                Some(export::Part::Decision { revision, value }) => {
                    part.logged += u64::try_from(value.len()).unwrap_or(u64::MAX);
                    (keys.decision(revision), value)
                }
                None => continue,
            };
            bytes += key.len() + value.len();
            part.writes.insert(key, Some(value));
            if part.writes.len() >= batch::OPERATIONS || bytes >= batch::BYTES {
                part.position = empty;
                written = self.write(written, &std::mem::take(&mut part), None).await?;
                bytes = 0;
            }
        }
        part.position = position;
        part.writes.extend(schema(SCHEMA.to_string()));
        written = self.write(written, &part, None).await?;
        *self
            .written
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = written;
        Ok(())
    }
}
