//! Everything out of etcd, and everything into it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
};

use etcd_client::{GetOptions, KeyValue, ResponseHeader};
use proto::ledger::v1 as disk;

use super::{
    Etcd, Written,
    batch::{self, Part},
    keys::{self, Keys},
    pages::{self, Pages},
    schema::{IMPORTING, SCHEMA},
};
use crate::ledger::{
    Commit, Contents, Error, History, TooLarge, codec, export, parts, removals::Removals, retention, weight,
};

/// Site and commit of a removal.
fn removal<'a>(keys: &Keys, entry: &'a KeyValue) -> Result<(&'a str, Commit), Error> {
    let site = Keys::rest(entry.key(), &keys.removals())?;
    let commit = std::str::from_utf8(entry.value()).ok();
    let commit = commit.and_then(|commit| commit.parse().ok());
    Ok((
        site,
        commit.map(Commit::new).ok_or_else(|| Error::Corrupt {
            what: format!("last removal of site {site}"),
            rule: "is not a number".to_owned(),
        })?,
    ))
}

impl Etcd {
    /// All that there is but the log.
    pub(super) async fn read(&self) -> Result<Contents, Error> {
        let keys = &self.location.keys;
        let mut contents = Contents {
            commit: self.written().last,
            ..Contents::default()
        };
        let now = self.location.get(keys.position(), GetOptions::new()).await?;
        let revision = now.header().map_or(0, ResponseHeader::revision);
        let _held = self.location.holds.hold(revision);
        for entry in pages::all(&self.location, &keys.histories(), revision).await? {
            let site = Keys::rest(entry.key(), &keys.histories())?;
            let history = codec::decode_history(site, entry.value())?;
            contents.histories.insert(site.to_owned(), history);
        }
        for entry in pages::all(&self.location, &keys.records(), revision).await? {
            let name = keys::named(Keys::rest(entry.key(), &keys.records())?)?;
            let (key, record) = codec::decode(name, entry.value())?;
            contents.records.insert(key, Arc::new(record));
        }
        for entry in pages::all(&self.location, &keys.removals(), revision).await? {
            let (site, commit) = removal(keys, &entry)?;
            contents.removals.insert(site.to_owned(), commit);
        }
        for entry in pages::all(&self.location, &keys.fences(), revision).await? {
            let site = Keys::rest(entry.key(), &keys.fences())?;
            let fence = codec::decode_fence(site, entry.value())?;
            contents.fences.insert(site.to_owned(), fence);
        }
        Ok(contents)
    }

    /// The log as it was at one revision of etcd. It may be larger than all the rest: its pages are handed on.
    fn log_pages(&self, revision: i64) -> Pages<'_> {
        let (keys, location) = (&self.location.keys, &self.location);
        Pages::new(
            location,
            keys.decision(Commit::NONE),
            keys.decision(Commit::MAX),
            revision,
        )
    }

    /// Reads each entry of the log, from the oldest.
    pub(super) async fn each_entry(
        &self,
        revision: i64,
        take: &mut impl FnMut(Commit, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut pages = self.log_pages(revision);
        while let Some(entries) = pages.next().await? {
            for entry in &entries {
                take(keys::number(&self.location.keys, entry)?, entry.value())?;
            }
        }
        Ok(())
    }

    /// Brings an older layout to the present one. The schema's key is written last: cut off, this begins anew.
    pub(super) async fn migrate(&self, from: u64) -> Result<(), Error> {
        let keys = &self.location.keys;
        let Written { last, epoch, .. } = self.written();
        let mut writes = Vec::new();
        if from < 2 {
            let mut removals = Removals::default();
            // As it is now: nobody else may write.
            self.each_entry(0, &mut |commit, entry| {
                removals.add(commit, entry);
                Ok(())
            })
            .await?;
            for (site, commit) in removals.by_site() {
                writes.push((keys.removal(&site), batch::removal(commit)));
            }
        }
        let mut contents = self.read().await?;
        let mut sites: BTreeSet<String> = contents.records.keys().map(|key| key.site.clone()).collect();
        sites.extend(contents.removals.into_keys());
        sites.extend(std::mem::take(&mut contents.fences).into_keys());
        let removed = keys.removals();
        let removals = writes.iter().filter_map(|(key, _)| key.strip_prefix(&removed));
        sites.extend(removals.map(str::to_owned));
        // Each site gets the position that all sites had in common: no number that was issued changes.
        let history = codec::encode_history(&History::of_region(epoch));
        writes.extend(sites.iter().map(|site| (keys.history(site), history.clone())));
        let mut part = Part {
            last,
            epoch,
            ..Part::default()
        };
        let (limits, mut bytes) = (self.location.limits, 0);
        for (key, value) in writes {
            let size = batch::size(&key, Some(&value));
            if limits.exceeded(part.writes.len() + 1, bytes + size) {
                self.append(&part).await?;
                part.writes.clear();
                bytes = 0;
            }
            bytes += size;
            part.writes.insert(key, Some(value));
        }
        let schema = Some(SCHEMA.to_string().into_bytes());
        part.writes.insert(keys.schema(), schema);
        part.epoch = 0;
        self.append(&part).await?;
        tracing::info!(from, to = SCHEMA, "the ledger is migrated");
        Ok(())
    }

    /// Hands on the keys of pages, a page at a time: all records of a region may need more memory than is left. They are taken between
    /// requests, not during one: who takes them may wait.
    fn each_key(
        &self,
        mut pages: Pages<'_>,
        take: &mut dyn FnMut(&KeyValue) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while let Some(entries) = self.runtime.block_on(pages.next())? {
            for entry in &entries {
                take(entry)?;
            }
        }
        Ok(())
    }

    /// Everything at one moment.
    pub(super) fn export_all(
        &self,
        take: &mut (dyn FnMut(disk::Entry) -> Result<(), Error> + '_),
    ) -> Result<(), Error> {
        let keys = &self.location.keys;
        let now = self.location.get(keys.position(), GetOptions::new());
        let mut now = self.runtime.block_on(now)?;
        let revision = now.header().map_or(0, ResponseHeader::revision);
        let _held = self.location.holds.hold(revision);
        let value = now.take_kvs().pop();
        let value = value.as_ref().map(KeyValue::value).unwrap_or_default();
        let disk::Position {
            epoch: _,
            commit,
            log_bytes: _,
            commit_id: _,
            log_bytes_by_site: _,
            log_is_counted: _,
            log_clock_seconds: _,
        } = prost::Message::decode(value).map_err(|error: prost::DecodeError| Error::Corrupt {
            what: "position".to_owned(),
            rule: error.to_string(),
        })?;
        take(export::header(Commit::new(commit)))?;
        let pages = |prefix: &str| Pages::below(&self.location, prefix, revision);
        self.each_key(pages(&keys.histories()), &mut |entry| {
            let site = Keys::rest(entry.key(), &keys.histories())?;
            take(export::history(site, entry.value())?)
        })?;
        self.each_key(pages(&keys.records()), &mut |entry| {
            let name = keys::named(Keys::rest(entry.key(), &keys.records())?)?;
            take(export::record(name, entry.value())?)
        })?;
        self.each_key(pages(&keys.removals()), &mut |entry| {
            let (site, commit) = removal(keys, entry)?;
            take(export::removal(site, commit))
        })?;
        self.each_key(pages(&keys.fences()), &mut |entry| {
            let site = Keys::rest(entry.key(), &keys.fences())?;
            take(export::fence(site, entry.value())?)
        })?;
        self.each_key(self.log_pages(revision), &mut |entry| {
            take(export::decision(keys::number(keys, entry)?, entry.value())?)
        })
    }

    /// Parts are written one after the other; the schema's key states that they are not all there until they are.
    pub(super) async fn import_all(
        &self,
        entries: &mut (dyn Iterator<Item = Result<disk::Entry, Error>> + '_),
    ) -> Result<(), Error> {
        export::require_empty(&self.read().await?)?;
        let keys = &self.location.keys;
        let schema = |value: String| BTreeMap::from([(keys.schema(), Some(value.into_bytes()))]);
        let mut written = self.written();
        let empty = written.last;
        let begin = Part {
            writes: schema(IMPORTING.to_owned()),
            last: empty,
            ..Part::default()
        };
        written = self.write(written, &begin).await?;
        let mut last = empty;
        let mut part = Part::default();
        let mut bytes = 0;
        for found in parts::parts(entries) {
            let mut logged = None;
            let (key, value) = match found? {
                Some(parts::Part::Header(found)) => {
                    last = found;
                    continue;
                }
                Some(parts::Part::History { site, value }) => (keys.history(&site), value),
                Some(parts::Part::Record {
                    site,
                    namespace,
                    name,
                    value,
                }) => {
                    let (key, record) = codec::decode((&site, &namespace, &name), &value)?;
                    weight::require(&site, None, &record, Some(self.location.limits.bytes))?;
                    (keys.record(&key), value)
                }
                Some(parts::Part::Removal { site, commit }) => (keys.removal(&site), batch::removal(commit)),
                Some(parts::Part::Fence { site, value }) => (keys.fence(&site), value),
                Some(parts::Part::Decision { commit, value }) => {
                    logged = Some((retention::site(&value), commit, retention::size(&value)));
                    (keys.decision(commit), value)
                }
                None => continue,
            };
            let (limits, size) = (self.location.limits, batch::size(&key, Some(&value)));
            if limits.exceeded(1, size) {
                return Err(Error::TooLarge(TooLarge {
                    what: key,
                    place: weight::LEDGER,
                    bytes: size,
                    limit: limits.bytes,
                }));
            }
            // The schema comes on top of the last one.
            if limits.exceeded(part.writes.len() + 1, bytes + size) {
                part.last = empty;
                written = self.write(written, &std::mem::take(&mut part)).await?;
                bytes = 0;
            }
            bytes += size;
            part.added.extend(logged);
            part.writes.insert(key, Some(value));
        }
        part.last = last;
        part.writes.extend(schema(SCHEMA.to_string()));
        written = self.write(written, &part).await?;
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = written;
        Ok(())
    }
}
