//! Where things are in etcd.
//!
//! | key, after the prefix | value |
//! |---|---|
//! | `leader` | address of the scheduler that may write, bound to its lease |
//! | `schema` | version of this layout, decimal |
//! | `position` | [`proto::ledger::v1::Position`]; written by every commit |
//! | `records/NAMESPACE/NAME/SITE` | [`proto::ledger::v1::Record`] |
//! | `removals/SITE` | commit of the last removal of a record, decimal |
//! | `histories/SITE` | [`proto::ledger::v1::SiteHistory`] |
//! | `fences/SITE` | [`proto::ledger::v1::SiteFence`] |
//! | `slots/SECONDS` | first commit that was written in a slot of the log's clock, decimal |
//! | `decisions/COMMIT`, 20 digits | [`proto::placement::v1::Decision`] |

use etcd_client::KeyValue;

use crate::ledger::{Commit, Error, RecordKey};

/// The keys under a prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: format!("{}/", prefix.trim_end_matches('/')),
        }
    }

    /// What all keys begin with.
    pub(super) fn root(&self) -> &str {
        &self.prefix
    }

    /// The keys of a copy of a ledger of that version.
    pub(super) fn backup(&self, version: u64, number: u32) -> Self {
        let prefix = self.prefix.trim_end_matches('/');
        Self::new(&match number {
            1 => format!("{prefix}-schema-{version}"),
            _ => format!("{prefix}-schema-{version}.{number}"),
        })
    }

    pub(super) fn leader(&self) -> String {
        format!("{}leader", self.prefix)
    }

    pub(super) fn schema(&self) -> String {
        format!("{}schema", self.prefix)
    }

    pub(super) fn position(&self) -> String {
        format!("{}position", self.prefix)
    }

    pub(super) fn records(&self) -> String {
        format!("{}records/", self.prefix)
    }

    /// The site comes last: it alone may contain a slash.
    pub(super) fn record(&self, key: &RecordKey) -> String {
        let RecordKey { site, cluster } = key;
        let (namespace, name) = (cluster.namespace().as_str(), cluster.name());
        format!("{}records/{namespace}/{name}/{site}", self.prefix)
    }

    pub(super) fn removals(&self) -> String {
        format!("{}removals/", self.prefix)
    }

    pub(super) fn removal(&self, site: &str) -> String {
        format!("{}removals/{site}", self.prefix)
    }

    pub(super) fn histories(&self) -> String {
        format!("{}histories/", self.prefix)
    }

    pub(super) fn history(&self, site: &str) -> String {
        format!("{}histories/{site}", self.prefix)
    }

    pub(super) fn fences(&self) -> String {
        format!("{}fences/", self.prefix)
    }

    pub(super) fn fence(&self, site: &str) -> String {
        format!("{}fences/{site}", self.prefix)
    }

    pub(super) fn slots(&self) -> String {
        format!("{}slots/", self.prefix)
    }

    pub(super) fn slot(&self, seconds: u64) -> String {
        format!("{}slots/{seconds}", self.prefix)
    }

    /// The entry of a commit; entries sort as their numbers.
    pub(super) fn decision(&self, commit: Commit) -> String {
        format!("{}decisions/{:020}", self.prefix, commit.number())
    }

    /// What of a key comes after one of the prefixes above.
    pub(super) fn rest<'a>(key: &'a [u8], prefix: &str) -> Result<&'a str, Error> {
        let text = std::str::from_utf8(key).ok();
        text.and_then(|key| key.strip_prefix(prefix))
            .ok_or_else(|| Error::Corrupt {
                what: format!("key {}", String::from_utf8_lossy(key)),
                rule: format!("does not begin with {prefix} or is not UTF-8"),
            })
    }
}

/// Site, namespace and name of a record.
pub(super) fn named(rest: &str) -> Result<(&str, &str, &str), Error> {
    let mut parts = rest.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(namespace), Some(name), Some(site)) => Ok((site, namespace, name)),
        _ => Err(Error::Corrupt {
            what: format!("key of record {rest}"),
            rule: "is not NAMESPACE/NAME/SITE".to_owned(),
        }),
    }
}

/// The first key after all that begin with a prefix, which ends with `/`.
pub(super) fn prefix_end(prefix: &str) -> String {
    format!("{}0", prefix.trim_end_matches('/'))
}

/// The commit of an entry of the log.
pub(super) fn number(keys: &Keys, entry: &KeyValue) -> Result<Commit, Error> {
    let zero = keys.decision(Commit::NONE);
    let prefix = zero.trim_end_matches('0');
    let digits = Keys::rest(entry.key(), prefix)?;
    digits.parse().map(Commit::new).map_err(|_| Error::Corrupt {
        what: format!("key of decision {digits}"),
        rule: "is not a commit".to_owned(),
    })
}
