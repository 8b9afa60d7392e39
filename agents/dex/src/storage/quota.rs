//! Keeps room in the storage for every provider. Whoever reaches one can begin logins there without a name or a password, and Dex stores
//! each with the texts of its request until it expires. An etcd that is full takes nothing from anybody, until somebody repairs it.
//!
//! So a provider has a most of begun logins. From half of etcd's quota on, the oldest of the provider that takes most room go, until less
//! is in use; then the room is given back and the alarm is ended. Nothing else is ever removed here.

use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, GetOptions, KeyValue, Txn, TxnOp,
};
use tokio::time;

use super::{
    Error,
    connection::{Etcd, mentions},
    etcd,
    names::PREFIX,
};
use crate::metrics::StorageMetrics;

/// What the names of keys begin with, after a provider's prefix, that Dex writes before anybody has logged in.
const BEGUN: [&str; 3] = ["auth_req/", "device_req/", "device_token/"];
/// Begun logins that a provider may have. People complete one within minutes, and then it is gone.
const MOST: u64 = 10_000;
/// Bytes that those of a provider may take. Dex reads all of them at once to find those that have expired.
const MOST_BYTES: u64 = 32 << 20;
/// With fewer than so many it is not determined how large they are.
const FEW: u64 = 256;
/// A provider whose begun logins take less keeps them, however little room there is: then it is something else that takes it.
const LITTLE: u64 = 1 << 20;
/// The size of so many is measured. Their names are random, so the first are as large as the others.
const SAMPLE: i64 = 16;
/// Largest answer with a sample: etcd takes at most 1.5 MiB in a request, if nothing else is configured.
const LARGEST_ANSWER: usize = 64 << 20;
/// Keys in one answer: etcd reads their values too.
const PAGE: i64 = 256;
/// Keys that are deleted in one transaction; etcd takes 128.
const BATCH: usize = 100;
/// How often the oldest half of the largest goes in one pass.
const ROUNDS: usize = 16;
/// Within this time etcd has compacted its history, or a member its file.
const REPAIR: Duration = Duration::from_mins(1);
/// Within this time all is done, or it begins anew.
const PASS: Duration = Duration::from_mins(3);

/// How full etcd is, by its fullest member.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Space {
    /// Bytes of the file: at the quota etcd takes nothing more.
    size: u64,
    /// Of these in use.
    in_use: u64,
    /// `None`: a member does not tell.
    quota: Option<u64>,
    /// Whether the alarm is on.
    is_full: bool,
}

impl Space {
    /// Of two members, as one.
    fn and(self, other: Self) -> Self {
        Self {
            size: self.size.max(other.size),
            in_use: self.in_use.max(other.in_use),
            quota: [self.quota, other.quota].into_iter().flatten().min(),
            is_full: self.is_full || other.is_full,
        }
    }

    fn is_half(self, bytes: u64) -> bool {
        self.quota.is_some_and(|quota| bytes >= quota / 2)
    }

    /// Whether begun logins have to go.
    fn is_short(self) -> bool {
        self.is_half(self.in_use)
    }

    /// Whether the file has room that nothing but a defragmentation gives back, and that is missing soon.
    fn is_fragmented(self) -> bool {
        (self.is_full || self.is_half(self.size)) && self.in_use < self.size / 4 * 3
    }
}

/// The begun logins of a provider, or one kind of them.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Begun {
    /// What their keys begin with.
    prefix: String,
    count: u64,
    /// Of one, on average; 0: not determined.
    bytes: u64,
}

/// Whose size is determined.
#[derive(Clone, Copy, Debug)]
enum Measure {
    /// Of all.
    All,
    /// Of those that may be too large.
    Many,
}

impl Begun {
    fn size(&self) -> u64 {
        self.count.saturating_mul(self.bytes)
    }

    /// How many are too many, whatever room there is.
    fn surplus(&self) -> u64 {
        let most = MOST_BYTES.checked_div(self.bytes).unwrap_or(MOST).min(MOST);
        self.count.saturating_sub(most)
    }
}

/// Removes begun logins that are too many, and makes room.
pub(super) async fn keep_free(etcd: &Etcd, metrics: &StorageMetrics) -> Result<(), Error> {
    let pass = Box::pin(pass(etcd, metrics));
    time::timeout(PASS, pass).await.map_err(|_| Error::Late)?
}

async fn pass(etcd: &Etcd, metrics: &StorageMetrics) -> Result<(), Error> {
    let mut client = etcd.connect().await?;
    let mut members = etcd.members(REPAIR).await?;
    for begun in all_begun(&mut client, Measure::Many).await? {
        remove_oldest(&mut client, &begun, begun.surplus(), metrics).await?;
    }
    let mut space = space(&mut members, metrics).await?;
    if space.is_short() || space.is_fragmented() || space.is_full {
        // The history of what was removed takes room too.
        space = make_room(&mut members, space, metrics).await?;
    }
    for _ in 0..ROUNDS {
        if !space.is_short() {
            break;
        }
        let begun = all_begun(&mut client, Measure::All).await?;
        let largest = begun.iter().max_by_key(|begun| begun.size());
        let Some(largest) = largest.filter(|largest| largest.size() >= LITTLE) else {
            tracing::warn!(
                in_use = space.in_use,
                "the storage of identity providers is half full with other data than unfinished logins: raise its quota"
            );
            break;
        };
        remove_oldest(&mut client, largest, largest.count.div_ceil(2), metrics).await?;
        space = make_room(&mut members, space, metrics).await?;
    }
    Ok(())
}

/// Of every provider, also those of other sites: etcd is full for all.
async fn all_begun(client: &mut Client, measure: Measure) -> Result<Vec<Begun>, Error> {
    let users = client.user_list().await.map_err(etcd("list users"))?;
    let mut all = Vec::new();
    for user in users.users() {
        if !user.starts_with(&format!("{PREFIX}/")) {
            continue;
        }
        for kind in BEGUN {
            let prefix = format!("{user}/{kind}");
            let counted = GetOptions::new().with_prefix().with_count_only();
            let counted = client.get(&*prefix, Some(counted)).await;
            let count = counted.map_err(etcd("count keys"))?.count();
            let count = u64::try_from(count).unwrap_or_default();
            let bytes = match measure {
                Measure::Many if count < FEW => 0,
                Measure::Many | Measure::All => average(client, &prefix).await?,
            };
            all.push(Begun { prefix, count, bytes });
        }
    }
    Ok(all)
}

/// Bytes of one, by a sample.
async fn average(client: &Client, prefix: &str) -> Result<u64, Error> {
    let sample = GetOptions::new().with_prefix().with_limit(SAMPLE);
    let mut client = client.kv_client().max_decoding_message_size(LARGEST_ANSWER);
    let sample = client.get(prefix, Some(sample)).await;
    let sample = sample.map_err(etcd("read keys"))?;
    let sizes = sample
        .kvs()
        .iter()
        .map(|pair| pair.key().len() + pair.value().len());
    let sum = u64::try_from(sizes.sum::<usize>()).unwrap_or(u64::MAX);
    let count = u64::try_from(sample.kvs().len()).unwrap_or_default();
    Ok(sum.checked_div(count).unwrap_or_default())
}

/// Removes so many, those first that were begun first.
async fn remove_oldest(
    client: &mut Client,
    begun: &Begun,
    count: u64,
    metrics: &StorageMetrics,
) -> Result<(), Error> {
    if count == 0 {
        return Ok(());
    }
    let mut keys = keys(client, &begun.prefix).await?;
    keys.sort_unstable();
    keys.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    for batch in keys.chunks(BATCH) {
        // A plain deletion of a key that is gone meanwhile deletes nothing.
        let deletions: Vec<TxnOp> = batch
            .iter()
            .map(|(_, key)| TxnOp::delete(key.clone(), None))
            .collect();
        let deleted = client.txn(Txn::new().and_then(deletions)).await;
        deleted.map_err(etcd("delete keys"))?;
    }
    let removed = keys.len();
    metrics.removed(removed.try_into().unwrap_or_default());
    tracing::warn!(
        prefix = begun.prefix,
        begun = begun.count,
        removed,
        "removed the oldest unfinished logins of an identity provider: it had too many, or etcd is half full"
    );
    Ok(())
}

/// The keys with this prefix, and when each was made. They are read in pages, since etcd reads every value to sort them itself.
async fn keys(client: &mut Client, prefix: &str) -> Result<Vec<(i64, Vec<u8>)>, Error> {
    let mut keys = Vec::new();
    let mut from = prefix.as_bytes().to_vec();
    // The last character of every prefix is a slash.
    let end = format!("{}0", prefix.trim_end_matches('/'));
    loop {
        let page = GetOptions::new()
            .with_range(end.as_str())
            .with_keys_only()
            .with_limit(PAGE);
        let page = client.get(from, Some(page)).await.map_err(etcd("list keys"))?;
        let made = |pair: &KeyValue| (pair.create_revision(), pair.key().to_vec());
        keys.extend(page.kvs().iter().map(made));
        let Some(last) = page.kvs().last().filter(|_| page.more()) else {
            return Ok(keys);
        };
        // The next key that there can be.
        from = last.key().to_vec();
        from.push(0);
    }
}

/// Drops the history, gives the room of what is gone back, and ends the alarm.
async fn make_room(members: &mut [Client], before: Space, metrics: &StorageMetrics) -> Result<Space, Error> {
    compact(members).await?;
    let mut now = space(members, metrics).await?;
    now.is_full = before.is_full || now.is_full;
    if now.is_fragmented() {
        // One after the other: a member answers nothing meanwhile.
        for member in &mut *members {
            member.defragment().await.map_err(etcd("defragment"))?;
        }
        now = space(members, metrics).await?;
    }
    if now.is_full && now.quota.is_none_or(|quota| now.size < quota) {
        disarm(members).await?;
        now = space(members, metrics).await?;
        tracing::warn!("the storage of identity providers was full and takes logins again");
    }
    Ok(now)
}

/// Drops what was written before now.
async fn compact(members: &mut [Client]) -> Result<(), Error> {
    let Some(member) = members.first_mut() else {
        return Ok(());
    };
    let now = member.get("\0", Some(GetOptions::new().with_count_only())).await;
    let now = now.map_err(etcd("read the revision"))?;
    let Some(revision) = now.header().map(etcd_client::ResponseHeader::revision) else {
        return Ok(());
    };
    let all = CompactionOptions::new().with_physical();
    match member.compact(revision, Some(all)).await {
        Err(error) if mentions(&error, "has been compacted") => Ok(()),
        compacted => compacted.map(drop).map_err(etcd("compact")),
    }
}

async fn space(members: &mut [Client], metrics: &StorageMetrics) -> Result<Space, Error> {
    let mut space = Space::default();
    for member in &mut *members {
        let status = member.status().await.map_err(etcd("tell its size"))?;
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
        space = space.and(Space {
            size: bytes(status.db_size()),
            in_use: bytes(status.raft_used_db_size()),
            // Releases before 3.6 do not tell it.
            quota: Some(bytes(status.db_size_quota())).filter(|quota| *quota > 0),
            is_full: false,
        });
    }
    if let Some(member) = members.first_mut() {
        let alarms = member.alarm(AlarmAction::Get, AlarmType::Nospace, None).await;
        let alarms = alarms.map_err(etcd("list alarms"))?;
        space.is_full = alarms
            .alarms()
            .iter()
            .any(|alarm| alarm.alarm() == AlarmType::Nospace);
    }
    metrics.set_space(space.in_use, space.quota.unwrap_or_default());
    Ok(space)
}

/// Ends the alarm that etcd is full, of every member.
async fn disarm(members: &mut [Client]) -> Result<(), Error> {
    let Some(member) = members.first_mut() else {
        return Ok(());
    };
    let alarms = member.alarm(AlarmAction::Get, AlarmType::Nospace, None).await;
    let alarms = alarms.map_err(etcd("list alarms"))?;
    for alarm in alarms.alarms() {
        let mut of_member = AlarmOptions::new();
        of_member.with_member(alarm.member_id());
        let ended = member.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(of_member));
        ended.await.map_err(etcd("end an alarm"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_has_a_most_of_begun_logins() {
        let begun = |count: u64, bytes: u64| Begun {
            prefix: String::new(),
            count,
            bytes,
        };
        for (count, bytes, surplus) in [
            (0, 0, 0),
            (FEW - 1, 0, 0),
            (MOST, 1_000, 0),
            (MOST + 5, 1_000, 5),
            // By their size.
            (1_000, 64 << 10, 1_000 - 512),
            (512, 64 << 10, 0),
            (300, MOST_BYTES * 2, 300),
        ] {
            assert_eq!(begun(count, bytes).surplus(), surplus, "{count} of {bytes}");
        }
    }

    #[test]
    fn room_is_made_from_half_the_quota_on() {
        let space = |size: u64, in_use: u64, is_full: bool| Space {
            size,
            in_use,
            quota: Some(100),
            is_full,
        };
        for (space, short, fragmented) in [
            (space(49, 10, false), false, false),
            (space(60, 10, false), false, true),
            (space(60, 49, false), false, false),
            (space(60, 50, false), true, false),
            (space(100, 90, true), true, false),
            (space(40, 10, true), false, true),
            (
                Space {
                    quota: None,
                    ..space(900, 100, false)
                },
                false,
                false,
            ),
        ] {
            assert_eq!(
                (space.is_short(), space.is_fragmented()),
                (short, fragmented),
                "{space:?}"
            );
        }
        let two = space(10, 5, false).and(Space {
            quota: Some(50),
            ..space(8, 7, true)
        });
        assert_eq!(
            two,
            Space {
                quota: Some(50),
                ..space(10, 7, true)
            }
        );
    }
}
