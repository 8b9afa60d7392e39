//! Which clusters are polled at what time. Pure; the time is an argument.
//!
//! Namespaces share the concurrent polls, and the pause of a cluster depends on how long its poll took. Both are kept by the key of the
//! `SIPCluster`: one that is forgotten and wanted again, or that names another Secret, is polled no earlier, and not while a poll of it runs.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kit::placement::ObjectKey;

use super::{Action, Problem, Report, Wanted, cluster::Cluster, deletions::Deletions, poll::Observation};

/// Pause after a poll for a cluster that was forgotten, at least.
const MIN_FORGOTTEN_PAUSE: Duration = Duration::from_secs(10);
/// The pause after a poll is at least so many times its duration, so that one cluster uses at most a tenth of a slot.
const PAUSE_FACTOR: u32 = 9;

/// A poll to run.
#[derive(Debug, PartialEq)]
pub(super) struct Begun {
    pub(super) cluster: ObjectKey,
    pub(super) wanted: Wanted,
    /// How many polls of the cluster there were before.
    pub(super) turn: usize,
    /// Generation of what is wanted: the result of a poll for an earlier generation is dropped.
    generation: u64,
}

/// The wanted clusters, and forgotten ones whose pause is not over.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    entries: BTreeMap<ObjectKey, Entry>,
    generation: u64,
}

#[derive(Debug)]
struct Entry {
    /// `None`: forgotten.
    cluster: Option<Cluster>,
    /// Since when it is wanted.
    since: Instant,
    deletions: Deletions,
    is_polling: bool,
    /// When the last poll has ended, and its duration.
    last: Option<(Instant, Duration)>,
}

impl Entry {
    fn new(now: Instant) -> Self {
        Self {
            cluster: None,
            since: now,
            deletions: Deletions::default(),
            is_polling: false,
            last: None,
        }
    }

    /// When the next poll may begin, at least this pause after the last one.
    fn earliest_poll(&self, pause: Duration) -> Instant {
        let Some((ended, took)) = self.last else {
            return self.since;
        };
        ended + pause.max(took.saturating_mul(PAUSE_FACTOR))
    }

    fn forget(&mut self) {
        self.cluster = None;
        self.deletions = Deletions::default();
    }

    /// Whether the entry is needed: the cluster is wanted or polled, or its pause must hold when it is wanted again.
    fn is_kept(&self, now: Instant) -> bool {
        let rests = self.last.is_some() && self.earliest_poll(MIN_FORGOTTEN_PAUSE) > now;
        self.cluster.is_some() || self.is_polling || rests
    }
}

impl Clusters {
    /// Takes what a pass wants of a cluster's Nodes. Returns whether that differs from before.
    pub(super) fn set_wanted(&mut self, key: &ObjectKey, wanted: Wanted, now: Instant) -> bool {
        let entries = &mut self.entries;
        let entry = entries.entry(key.clone()).or_insert_with(|| Entry::new(now));
        entry.deletions.set_wanted(&wanted.members, now);
        match &mut entry.cluster {
            Some(cluster) if cluster.is_of(&wanted) => cluster.set_wanted(wanted),
            Some(_) | None => {
                self.generation = self.generation.wrapping_add(1);
                entry.cluster = Some(Cluster::new(wanted, self.generation, now));
                entry.since = now;
                true
            }
        }
    }

    /// Forgets what is wanted of a cluster.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.forget();
        }
    }

    /// What is known of a cluster now.
    pub(super) fn report(&self, key: &ObjectKey, now: Instant) -> Report {
        let entry = self.entries.get(key);
        let known = entry.and_then(|entry| Some((entry, entry.cluster.as_ref()?)));
        known.map_or_else(Report::default, |(entry, cluster)| Report {
            deletions: entry.deletions.remaining(now),
            ..cluster.report().clone()
        })
    }

    /// What to do now to the Node of a host, for a poll that began with this.
    pub(super) fn action(&self, key: &ObjectKey, began: &Wanted, host: &str) -> Option<Action> {
        let cluster = self.entries.get(key)?.cluster.as_ref()?;
        cluster.action(began, host)
    }

    /// The clusters to poll now, with what is wanted of each, and when the next one is due. At most `free` of them, and of each namespace
    /// no more than `of_namespace` at once.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        free: usize,
        of_namespace: usize,
    ) -> (Vec<Begun>, Option<Instant>) {
        self.entries.retain(|_, entry| entry.is_kept(now));
        let mut running: BTreeMap<String, usize> = BTreeMap::new();
        for (key, _) in self.entries.iter().filter(|(_, entry)| entry.is_polling) {
            *running.entry(key.namespace.clone()).or_default() += 1;
        }
        // Those that have waited longest are first.
        let waiting = self.entries.iter().filter(|(_, entry)| !entry.is_polling);
        let mut waiting: Vec<(Instant, ObjectKey)> = waiting
            .filter_map(|(key, entry)| {
                let cluster = entry.cluster.as_ref()?;
                Some((entry.earliest_poll(cluster.pause()), key.clone()))
            })
            .collect();
        waiting.sort();
        let mut begun = Vec::new();
        let mut next = None;
        for (due, key) in waiting {
            if due > now {
                next = Some(due);
                break;
            }
            let running = running.entry(key.namespace.clone()).or_default();
            // The end of a running poll triggers the next call.
            if begun.len() == free || *running == of_namespace {
                continue;
            }
            if let Some(entry) = self.entries.get_mut(&key)
                && let Some(cluster) = &mut entry.cluster
            {
                *running += 1;
                entry.is_polling = true;
                let (wanted, turn) = cluster.begin();
                begun.push(Begun {
                    generation: cluster.generation(),
                    cluster: key,
                    wanted,
                    turn,
                });
            }
        }
        (begun, next)
    }

    /// Takes the result of a poll that ran from the first to the second time. Returns whether the report on the cluster has changed.
    pub(super) fn end(
        &mut self,
        begun: &Begun,
        (began, now): (Instant, Instant),
        found: Result<Observation, Problem>,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(&begun.cluster) else {
            return false;
        };
        entry.is_polling = false;
        entry.last = Some((now, now.saturating_duration_since(began)));
        let same = entry.cluster.as_mut();
        let Some(cluster) = same.filter(|cluster| cluster.generation() == begun.generation) else {
            return false;
        };
        let is_tried = entry.deletions.end(&begun.wanted, began, &found);
        cluster.end(&begun.wanted, now, found) || is_tried
    }

    /// Ends a poll that was not run, since the `SIPCluster` no longer exists, and forgets the cluster.
    pub(super) fn is_gone(&mut self, begun: &Begun) {
        if let Some(entry) = self.entries.get_mut(&begun.cluster) {
            entry.is_polling = false;
            entry.forget();
        }
    }
}
