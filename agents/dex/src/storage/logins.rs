//! The unfinished logins of a provider: what Dex stores before a person has logged in. A tenant can read the password of its provider in etcd, and so
//! store keys with any names, sizes and number. The agent therefore reads a bounded amount at once, and removes what Dex would never have stored
//! without listing it.

use etcd_client::{
    Client, CompactionOptions, DeleteOptions, GetOptions, GetResponse, KvClient, ResponseHeader, Txn, TxnOp,
};

use super::{Error, connection::message_contains, etcd, names::NAME_PREFIX};
use crate::metrics::StorageMetrics;

/// Prefixes, after a provider's own, of the keys that Dex writes before a person has logged in. Each ends with a slash.
const LOGIN_PREFIXES: [&str; 3] = ["auth_req/", "device_req/", "device_token/"];
/// Maximum number of unfinished logins of one kind that a provider may keep. People complete a login within minutes, and then Dex removes it.
const MAX_LOGINS: usize = 10_000;
/// Maximum size of them, in bytes. Dex reads all of them at once to find those that have expired.
const MAX_LOGIN_BYTES: u64 = 32 << 20;
/// Maximum number of logins that the agent lists.
const MAX_LISTED_LOGINS: usize = 4 * MAX_LOGINS;
/// Maximum size of the logins that the agent lists, in bytes.
const MAX_LISTED_BYTES: u64 = 4 * MAX_LOGIN_BYTES;
/// Maximum length of a login's name, in bytes. Those of Dex have fewer than 64.
const MAX_NAME_BYTES: usize = 256;
/// With fewer logins than this, the agent does not determine their size unless etcd is short of room.
const MIN_MEASURED_LOGINS: usize = 256;
/// Number of logins whose size is measured as a sample.
const SAMPLE_LOGINS: i64 = 16;
/// Maximum number of bytes of deleted names before the agent compacts the history.
const MAX_UNCOMPACTED_NAME_BYTES: usize = 16 << 20;
/// Number of keys in one answer: etcd reads their values even if it does not send them. At etcd's default limit of requests, each value has at most
/// 1.5 MiB.
const PAGE_KEYS: i64 = 40;
/// Maximum size of an answer, in bytes: one page of keys with their values.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// An unfinished login.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Login {
    /// The revision of etcd that created it.
    made: i64,
    /// Size of its key and value.
    bytes: u64,
}

/// The unfinished logins of one kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct UnfinishedLogins {
    /// The provider's user.
    pub(super) user: String,
    prefix: String,
    /// The oldest first.
    logins: Vec<Login>,
}

impl UnfinishedLogins {
    /// Size of all, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.logins.iter().map(|login| login.bytes).sum()
    }

    /// How many logins are half, rounded up.
    pub(super) fn half(&self) -> usize {
        self.logins.len().div_ceil(2)
    }

    /// How many of the oldest exceed the limits, however much space there is.
    fn surplus(&self) -> usize {
        let mut bytes = 0;
        let newest = self.logins.iter().rev().take(MAX_LOGINS);
        let kept = newest.take_while(|login| {
            bytes += login.bytes;
            bytes <= MAX_LOGIN_BYTES
        });
        self.logins.len() - kept.count()
    }
}

/// The users of providers, also those of other sites: etcd is full for all.
pub(super) async fn providers(client: &mut Client) -> Result<Vec<String>, Error> {
    let users = client.user_list().await.map_err(etcd("list users"))?;
    let users = users.users().iter();
    let of_providers = users.filter(|user| user.starts_with(&format!("{NAME_PREFIX}/")));
    Ok(of_providers.cloned().collect())
}

/// Reads, counts and removes unfinished logins.
#[derive(Clone)]
pub(super) struct Logins<'a> {
    keys: KvClient,
    metrics: &'a StorageMetrics,
}

impl<'a> Logins<'a> {
    pub(super) fn new(client: &Client, metrics: &'a StorageMetrics) -> Self {
        Self {
            keys: client.kv_client().max_decoding_message_size(MAX_ANSWER_BYTES),
            metrics,
        }
    }

    /// Removes the logins of this provider beyond the limits, the oldest first.
    pub(super) async fn remove_surplus(&mut self, user: &str) -> Result<(), Error> {
        for kind in LOGIN_PREFIXES {
            let prefix = format!("{user}/{kind}");
            if !self.may_be_too_much(&prefix).await? {
                continue;
            }
            if let Some(mut unfinished) = self.list_kind(user, prefix).await? {
                let surplus = unfinished.surplus();
                self.remove_oldest(&mut unfinished, surplus).await?;
            }
        }
        Ok(())
    }

    /// The logins of a provider, by kind. Kinds with too many or too large keys for a list are removed.
    pub(super) async fn list(&mut self, user: &str) -> Result<Vec<UnfinishedLogins>, Error> {
        let mut all = Vec::new();
        for kind in LOGIN_PREFIXES {
            all.extend(self.list_kind(user, format!("{user}/{kind}")).await?);
        }
        Ok(all)
    }

    /// Removes the `count` oldest logins, also from this list.
    pub(super) async fn remove_oldest(
        &mut self,
        unfinished: &mut UnfinishedLogins,
        count: usize,
    ) -> Result<(), Error> {
        let oldest = unfinished.logins.drain(..count.min(unfinished.logins.len()));
        let Some(until) = oldest.map(|login| login.made).max() else {
            return Ok(());
        };
        let (mut pages, mut removed) = (Pages::new(&unfinished.prefix), 0);
        while let Some(page) = pages.next(&mut self.keys, Values::Without).await? {
            let page = match page {
                Page::Listed(page) => page,
                Page::Unlisted(why) => return self.remove_all(&unfinished.prefix, why).await,
            };
            let old = page.into_iter().filter(|(login, _)| login.made <= until);
            // A login that is gone by now is not deleted, which is no error.
            let deletions: Vec<TxnOp> = old.map(|(_, key)| TxnOp::delete(key, None)).collect();
            if deletions.is_empty() {
                continue;
            }
            let count = u64::try_from(deletions.len()).unwrap_or_default();
            let deleted = self.keys.txn(Txn::new().and_then(deletions)).await;
            deleted.map_err(etcd("delete keys"))?;
            self.metrics.count_removed(count);
            removed += count;
        }
        tracing::warn!(
            prefix = unfinished.prefix,
            removed,
            "removed the oldest unfinished logins of an identity provider: it had too many, or etcd is half full"
        );
        Ok(())
    }

    /// Whether there may be more than [`MAX_LOGINS`] logins or [`MAX_LOGIN_BYTES`], by the size of the first ones: Dex chooses names at random.
    async fn may_be_too_much(&mut self, prefix: &str) -> Result<bool, Error> {
        let counted = GetOptions::new().with_prefix().with_count_only();
        let counted = self.keys.get(prefix, Some(counted)).await;
        let count = counted.map_err(etcd("count keys"))?.count();
        let count = usize::try_from(count).unwrap_or_default();
        if !(MIN_MEASURED_LOGINS..=MAX_LOGINS).contains(&count) {
            return Ok(count > MAX_LOGINS);
        }
        let sample = GetOptions::new().with_prefix().with_limit(SAMPLE_LOGINS);
        let Some(sample) = read(&mut self.keys, prefix.as_bytes().to_vec(), sample).await? else {
            return Ok(true);
        };
        let bytes: u64 = sample
            .kvs()
            .iter()
            .map(|pair| size(pair.key(), pair.value()))
            .sum();
        let average = bytes / u64::try_from(sample.kvs().len()).unwrap_or(1).max(1);
        Ok(average.saturating_mul(count.try_into().unwrap_or(u64::MAX)) > MAX_LOGIN_BYTES)
    }

    async fn list_kind(&mut self, user: &str, prefix: String) -> Result<Option<UnfinishedLogins>, Error> {
        let (mut pages, mut logins) = (Pages::new(&prefix), Vec::new());
        while let Some(page) = pages.next(&mut self.keys, Values::With).await? {
            match page {
                Page::Listed(page) => logins.extend(page.into_iter().map(|(login, _)| login)),
                Page::Unlisted(why) => {
                    self.remove_all(&prefix, why).await?;
                    return Ok(None);
                }
            }
        }
        logins.sort_unstable();
        Ok(Some(UnfinishedLogins {
            user: user.to_owned(),
            prefix,
            logins,
        }))
    }

    async fn remove_all(&mut self, prefix: &str, why: UnlistedReason) -> Result<(), Error> {
        let removed = match why {
            UnlistedReason::TooMany => self.remove_range(prefix).await?,
            UnlistedReason::TooLarge => self.remove_each(prefix).await?,
        };
        tracing::warn!(
            prefix,
            removed,
            "removed all unfinished logins of an identity provider: there were far too many, or keys that Dex does not write"
        );
        Ok(())
    }

    async fn remove_range(&mut self, prefix: &str) -> Result<u64, Error> {
        let all = DeleteOptions::new().with_prefix();
        let deleted = self.keys.delete(prefix, Some(all)).await;
        let removed = deleted.map_err(etcd("delete keys"))?.deleted();
        let removed = removed.try_into().unwrap_or_default();
        self.metrics.count_removed(removed);
        Ok(removed)
    }

    /// Removes keys one by one: a request with more than one of the longest names is too large. etcd keeps the name of a deleted key until a
    /// compaction after the next change, so without compactions the removal would take twice the room.
    async fn remove_each(&mut self, prefix: &str) -> Result<u64, Error> {
        let (mut removed, mut names) = (0, 0);
        loop {
            let first = GetOptions::new()
                .with_prefix()
                .with_keys_only()
                .with_limit(PAGE_KEYS);
            let Some(page) = read(&mut self.keys, prefix.as_bytes().to_vec(), first).await? else {
                return Ok(removed + self.remove_range(prefix).await?);
            };
            if page.kvs().is_empty() {
                return Ok(removed);
            }
            for pair in page.kvs() {
                let deleted = self.keys.delete(pair.key(), None).await;
                let deleted = deleted.map_err(etcd("delete a key"))?;
                self.metrics.count_removed(1);
                removed += 1;
                names += pair.key().len();
                let revision = deleted.header().map(ResponseHeader::revision);
                if let Some(revision) = revision.filter(|_| names >= MAX_UNCOMPACTED_NAME_BYTES) {
                    self.compact(revision).await?;
                    names = 0;
                }
            }
        }
    }

    async fn compact(&mut self, revision: i64) -> Result<(), Error> {
        let all = CompactionOptions::new().with_physical();
        match self.keys.compact(revision, Some(all)).await {
            Err(error) if message_contains(&error, "has been compacted") => Ok(()),
            compacted => compacted.map(drop).map_err(etcd("compact")),
        }
    }
}

/// Whether values are needed, for the size of a login.
#[derive(Clone, Copy, Debug)]
enum Values {
    With,
    Without,
}

#[derive(Debug)]
enum Page {
    Listed(Vec<(Login, Vec<u8>)>),
    /// The agent does not list the keys.
    Unlisted(UnlistedReason),
}

/// Why the agent does not list keys.
#[derive(Clone, Copy, Debug)]
enum UnlistedReason {
    /// More than [`MAX_LISTED_LOGINS`] or [`MAX_LISTED_BYTES`].
    TooMany,
    /// They are larger than Dex makes them.
    TooLarge,
}

/// Reads the keys with a prefix page by page, since etcd reads every value to sort them itself.
struct Pages<'a> {
    prefix: &'a str,
    /// The next key that there can be; `None`: there are no more.
    from: Option<Vec<u8>>,
    count: usize,
    bytes: u64,
}

impl<'a> Pages<'a> {
    fn new(prefix: &'a str) -> Self {
        Self {
            prefix,
            from: Some(prefix.as_bytes().to_vec()),
            count: 0,
            bytes: 0,
        }
    }

    /// The next page. The pages end even if somebody writes keys as fast as they are read.
    async fn next(&mut self, keys: &mut KvClient, values: Values) -> Result<Option<Page>, Error> {
        let Some(from) = self.from.take() else {
            return Ok(None);
        };
        // The last character of the prefix is a slash.
        let end = format!("{}0", self.prefix.trim_end_matches('/'));
        let options = GetOptions::new().with_range(end).with_limit(PAGE_KEYS);
        let options = match values {
            Values::With => options,
            Values::Without => options.with_keys_only(),
        };
        let Some(page) = read(keys, from, options).await? else {
            return Ok(Some(Page::Unlisted(UnlistedReason::TooLarge)));
        };
        let longest = self.prefix.len() + MAX_NAME_BYTES;
        if page.kvs().iter().any(|pair| pair.key().len() > longest) {
            return Ok(Some(Page::Unlisted(UnlistedReason::TooLarge)));
        }
        let logins = page.kvs().iter().map(|pair| {
            let login = Login {
                made: pair.create_revision(),
                bytes: size(pair.key(), pair.value()),
            };
            (login, pair.key().to_vec())
        });
        let logins: Vec<_> = logins.collect();
        self.count += logins.len();
        self.bytes += logins.iter().map(|(login, _)| login.bytes).sum::<u64>();
        if self.count > MAX_LISTED_LOGINS || self.bytes > MAX_LISTED_BYTES {
            return Ok(Some(Page::Unlisted(UnlistedReason::TooMany)));
        }
        if let Some((_, last)) = logins.last().filter(|_| page.more()) {
            let mut next = last.clone();
            next.push(0);
            self.from = Some(next);
        }
        Ok(Some(Page::Listed(logins)))
    }
}

fn size(key: &[u8], value: &[u8]) -> u64 {
    u64::try_from(key.len() + value.len()).unwrap_or(u64::MAX)
}

/// Reads a page; `None` if the answer is larger than [`MAX_ANSWER_BYTES`], which an etcd with a higher limit of requests may send.
async fn read(keys: &mut KvClient, from: Vec<u8>, options: GetOptions) -> Result<Option<GetResponse>, Error> {
    match keys.get(from, Some(options)).await {
        Err(error) if message_contains(&error, "decoded message length too large") => Ok(None),
        read => read.map(Some).map_err(etcd("read keys")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_keeps_a_bounded_number_of_logins() {
        let unfinished = |count: usize, bytes: u64| UnfinishedLogins {
            user: String::new(),
            prefix: String::new(),
            logins: vec![Login { made: 1, bytes }; count],
        };
        for (count, bytes, surplus) in [
            (0, 0, 0),
            (MAX_LOGINS, 1_000, 0),
            (MAX_LOGINS + 5, 1_000, 5),
            // By their size.
            (1_000, 64 << 10, 1_000 - 512),
            (512, 64 << 10, 0),
            (300, MAX_LOGIN_BYTES * 2, 300),
        ] {
            assert_eq!(unfinished(count, bytes).surplus(), surplus, "{count} of {bytes}");
        }
    }

    #[test]
    fn large_old_logins_are_too_many_and_small_new_ones_are_not() {
        let login = |made: i64, bytes: u64| Login { made, bytes };
        let unfinished = UnfinishedLogins {
            user: String::new(),
            prefix: String::new(),
            logins: vec![
                login(1, 10),
                login(2, MAX_LOGIN_BYTES),
                login(3, 1_000),
                login(4, 10),
            ],
        };
        assert_eq!(unfinished.surplus(), 2);
        assert_eq!(unfinished.half(), 2);
    }
}
