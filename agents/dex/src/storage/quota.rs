//! Keeps room in the storage for every provider. Anybody who reaches a provider can begin logins there without credentials, and Dex stores each
//! with the texts of its request until it expires. A full etcd accepts no write from any provider until it is repaired.
//!
//! So the number and size of a provider's unfinished logins are limited. While half of etcd's quota or more is in use, the agent removes the oldest
//! logins of the provider that uses most room; then it compacts and defragments etcd, and disarms the alarm. It removes nothing else here. A
//! failure or a slow answer for one provider does not keep the agent from doing this for the others.

use std::{collections::BTreeMap, time::Duration};

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, GetOptions};
use tokio::time::{self, Instant};

use super::{
    Error,
    connection::{Etcd, message_contains},
    etcd,
    logins::{self, Logins, UnfinishedLogins},
};
use crate::metrics::StorageMetrics;

/// Minimum size, in bytes, of unfinished logins that the agent removes to make room: with smaller ones something else uses the room.
const EXEMPT_LOGIN_BYTES: u64 = 1 << 20;
/// The agent defragments after removing logins only if these are at least this fraction, 1/n, of etcd's file.
const DEFRAGMENT_DIVISOR: u64 = 16;
/// Maximum number of times that the agent removes the oldest half of the largest kind in one pass.
const MAX_REMOVAL_ROUNDS: usize = 16;
/// How long a compaction, or a defragmentation of one member, may take.
const REPAIR_TIMEOUT: Duration = Duration::from_mins(1);
/// How long reading or removing the unfinished logins of one provider may take.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long reading those of all providers may take.
const ALL_PROVIDERS_TIMEOUT: Duration = Duration::from_secs(40);
/// How long a whole pass may take.
const PASS_TIMEOUT: Duration = Duration::from_mins(4);

/// How full etcd is, by its fullest member.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Space {
    /// Bytes of the file: at the quota etcd accepts no write.
    size: u64,
    /// Bytes of these that are in use.
    in_use: u64,
    /// `None`: a member does not report it.
    quota: Option<u64>,
    /// Whether the alarm is on.
    is_full: bool,
}

impl Space {
    /// The fuller of two members in each respect.
    fn fuller(self, other: Self) -> Self {
        Self {
            size: self.size.max(other.size),
            in_use: self.in_use.max(other.in_use),
            quota: [self.quota, other.quota].into_iter().flatten().min(),
            is_full: self.is_full || other.is_full,
        }
    }

    fn reaches_half_of_quota(self, bytes: u64) -> bool {
        self.quota.is_some_and(|quota| bytes >= quota / 2)
    }

    /// Whether the agent has to remove unfinished logins.
    fn is_half_used(self) -> bool {
        self.reaches_half_of_quota(self.in_use)
    }

    /// Whether the file has unused room that only a defragmentation gives back, and that etcd will soon need.
    fn is_fragmented(self) -> bool {
        (self.is_full || self.reaches_half_of_quota(self.size)) && self.in_use < self.size / 4 * 3
    }
}

/// Providers for which a step failed, with the first error of each.
#[derive(Debug, Default)]
struct FailedProviders(BTreeMap<String, Error>);

impl FailedProviders {
    /// Waits for a step for one provider, until `end` and for [`PROVIDER_TIMEOUT`] at most; records its failure.
    async fn check<T>(
        &mut self,
        user: &str,
        end: Instant,
        done: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        let within = end
            .saturating_duration_since(Instant::now())
            .min(PROVIDER_TIMEOUT);
        let done = time::timeout(within, done).await;
        match done.unwrap_or(Err(Error::Timeout { within })) {
            Ok(done) => Some(done),
            Err(error) => {
                self.0.entry(user.to_owned()).or_insert(error);
                None
            }
        }
    }

    fn result(mut self) -> Result<(), Error> {
        let Some((user, source)) = self.0.pop_first() else {
            return Ok(());
        };
        Err(Error::Provider {
            user,
            others: self.0.len(),
            source: Box::new(source),
        })
    }
}

/// Removes unfinished logins beyond the limits, and makes room.
pub(super) async fn keep_free(etcd: &Etcd, metrics: &StorageMetrics) -> Result<(), Error> {
    let pass = Box::pin(pass(etcd, metrics));
    let done = time::timeout(PASS_TIMEOUT, pass).await;
    done.map_err(|_| Error::Timeout { within: PASS_TIMEOUT })?
}

async fn pass(etcd: &Etcd, metrics: &StorageMetrics) -> Result<(), Error> {
    let mut client = etcd.connect().await?;
    let mut members = etcd.connect_members(REPAIR_TIMEOUT).await?;
    let users = logins::providers(&mut client).await?;
    let mut logins = Logins::new(&client, metrics);
    let mut failed = FailedProviders::default();
    let (end, before) = (Instant::now() + ALL_PROVIDERS_TIMEOUT, metrics.removed_logins());
    for user in &users {
        failed.check(user, end, logins.remove_surplus(user)).await;
    }
    let mut space = measure_space(&mut members, metrics).await?;
    if space.is_half_used() || space.is_fragmented() || space.is_full {
        // The history of what was removed takes room too.
        let history = History::since(before, metrics);
        space = make_room(&mut members, space, history, metrics).await?;
    }
    if space.is_half_used() {
        remove_largest(&users, &mut logins, &mut members, metrics, &mut failed).await?;
    }
    metrics.set_unchecked(failed.0.len());
    failed.result()
}

/// Removes the oldest unfinished logins of the provider that has most, until etcd is less than half full.
async fn remove_largest(
    users: &[String],
    logins: &mut Logins<'_>,
    members: &mut [Client],
    metrics: &StorageMetrics,
    failed: &mut FailedProviders,
) -> Result<(), Error> {
    let mut all: Vec<UnfinishedLogins> = Vec::new();
    let (end, before) = (Instant::now() + ALL_PROVIDERS_TIMEOUT, metrics.removed_logins());
    for user in users {
        let unfinished = failed.check(user, end, logins.list(user)).await;
        all.extend(unfinished.unwrap_or_default());
    }
    // Some were removed instead of listed.
    let history = History::since(before, metrics);
    let mut space = measure_space(members, metrics).await?;
    space = make_room(members, space, history, metrics).await?;
    for _ in 0..MAX_REMOVAL_ROUNDS {
        if !space.is_half_used() {
            break;
        }
        let by_size = all.iter().enumerate();
        let largest = by_size.max_by_key(|(_, unfinished)| unfinished.size());
        let Some((largest, _)) = largest.filter(|(_, unfinished)| unfinished.size() >= EXEMPT_LOGIN_BYTES)
        else {
            tracing::warn!(
                in_use = space.in_use,
                "the storage of identity providers is half full with other data than unfinished logins: raise its quota"
            );
            break;
        };
        let mut unfinished = all.swap_remove(largest);
        let (user, half) = (unfinished.user.clone(), unfinished.half());
        // A defragmentation blocks a member for a moment, so it is not done for a little room, which anybody can fill again.
        let is_relevant = space.is_full || unfinished.size() / 2 >= space.size / DEFRAGMENT_DIVISOR;
        let history = if is_relevant {
            History::RemovedLogins
        } else {
            History::OtherWrites
        };
        let end = Instant::now() + PROVIDER_TIMEOUT;
        let removed = failed.check(&user, end, logins.remove_oldest(&mut unfinished, half));
        // Where it fails, another provider is the largest next.
        if removed.await.is_some() {
            all.push(unfinished);
            space = make_room(members, space, history, metrics).await?;
        }
    }
    Ok(())
}

/// What the history of etcd contains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum History {
    /// Unfinished logins that were removed just now. etcd counts their bytes as in use until it has written twice more, and while it is full it
    /// writes nothing.
    RemovedLogins,
    /// Other writes.
    OtherWrites,
}

impl History {
    /// The history since the agent had removed `before` logins.
    fn since(before: u64, metrics: &StorageMetrics) -> Self {
        if metrics.removed_logins() > before {
            Self::RemovedLogins
        } else {
            Self::OtherWrites
        }
    }
}

/// Compacts the history, defragments the members, and disarms the alarm.
async fn make_room(
    members: &mut [Client],
    before: Space,
    history: History,
    metrics: &StorageMetrics,
) -> Result<Space, Error> {
    compact(members).await?;
    let mut now = measure_space(members, metrics).await?;
    now.is_full = before.is_full || now.is_full;
    let is_counted_late = history == History::RemovedLogins && (now.is_full || now.is_half_used());
    if now.is_fragmented() || is_counted_late {
        // One after the other: a member answers nothing during a defragmentation.
        for member in &mut *members {
            member.defragment().await.map_err(etcd("defragment"))?;
        }
        now = measure_space(members, metrics).await?;
    }
    if now.is_full && now.quota.is_none_or(|quota| now.size < quota) {
        disarm(members).await?;
        now = measure_space(members, metrics).await?;
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
        Err(error) if message_contains(&error, "has been compacted") => Ok(()),
        compacted => compacted.map(drop).map_err(etcd("compact")),
    }
}

async fn measure_space(members: &mut [Client], metrics: &StorageMetrics) -> Result<Space, Error> {
    let mut space = Space::default();
    for member in &mut *members {
        let status = member.status().await.map_err(etcd("report its size"))?;
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
        space = space.fuller(Space {
            size: bytes(status.db_size()),
            in_use: bytes(status.raft_used_db_size()),
            // Releases before 3.6 do not report it.
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
        ended.await.map_err(etcd("disarm an alarm"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn providers_that_fail_or_hang_delay_no_other() {
        let mut failed = FailedProviders::default();
        let end = Instant::now() + ALL_PROVIDERS_TIMEOUT;
        let fails = async || Err::<(), _>(Error::Foreign { count: 1 });
        assert_eq!(failed.check("a", end, fails()).await, None);
        let hangs = std::future::pending::<Result<(), Error>>();
        assert_eq!(failed.check("b", end, hangs).await, None);
        // One that fails twice is one.
        assert_eq!(failed.check("a", end, fails()).await, None);
        for _ in 0..9 {
            let hangs = std::future::pending::<Result<(), Error>>();
            failed.check("c", end, hangs).await;
        }
        assert!(Instant::now() <= end);
        assert_eq!(failed.check("d", end, async { Ok(7) }).await, Some(7));
        let error = failed.result().unwrap_err();
        let text = runtime::error_chain::chain(&error);
        let expected = "the agent could not check the unfinished logins of the provider a and of 2 others: this etcd holds keys of others";
        assert!(text.starts_with(expected), "{text}");
        assert!(FailedProviders::default().result().is_ok());
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
                (space.is_half_used(), space.is_fragmented()),
                (short, fragmented),
                "{space:?}"
            );
        }
        let two = space(10, 5, false).fuller(Space {
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
