//! Consumers and owners of hosts that are gone: their Machines still exist, and an owner that is gone explains why the host was deleted.
//!
//! Only hosts whose deletion this process has observed are recorded.

use std::collections::{BTreeMap, VecDeque};

use api::ConsumerReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kit::placement::{HostId, ObjectKey};

/// Hosts that are recorded at most. The scheduler replaces a member whose host is gone within seconds, unless no host is free.
const MAX_GONE_HOSTS: usize = 1_024;

/// Why a host is gone, as far as its owners show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All its owners were gone, so the garbage collector has deleted it. Kind, namespace and name of the first owner.
    Collected(String),
    /// An owner still existed, or it had none: a person or program has deleted it.
    Deleted,
}

/// A host as it was when it was deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct GoneHost {
    /// Which incarnation of the host it was.
    pub id: HostId,
    /// What used it.
    pub consumer: Option<ConsumerReference>,
    /// Its owners: the garbage collector deletes an object when all of them are gone.
    pub owners: Vec<OwnerReference>,
    /// Why it is gone, as judged once, in the first pass that misses it. Owners that a person deletes in consequence do not change the verdict.
    pub verdict: Option<Verdict>,
}

/// The hosts that were deleted last, one of each name.
#[derive(Debug, Default)]
pub(super) struct GoneHosts {
    hosts: BTreeMap<ObjectKey, GoneHost>,
    order: VecDeque<ObjectKey>,
}

impl GoneHosts {
    /// Records a host, if it had a consumer or an owner.
    pub(super) fn add(&mut self, host: GoneHost) {
        if host.consumer.is_none() && host.owners.is_empty() {
            return;
        }
        let key = host.id.key().clone();
        self.forget(&key);
        self.order.push_back(key.clone());
        self.hosts.insert(key, host);
        if self.order.len() > MAX_GONE_HOSTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.hosts.remove(&oldest);
        }
    }

    /// Removes the host of this name, which was made again.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        if self.hosts.remove(key).is_some() {
            self.order.retain(|other| other != key);
        }
    }

    /// Records why a host is gone; the first verdict stays.
    pub(super) fn judge(&mut self, host: &HostId, verdict: Verdict) {
        let known = self.hosts.get_mut(host.key()).filter(|gone| gone.id == *host);
        if let Some(gone) = known {
            gone.verdict.get_or_insert(verdict);
        }
    }

    pub(super) fn get(&self, host: &HostId) -> Option<&GoneHost> {
        self.hosts.get(host.key()).filter(|gone| gone.id == *host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::key;

    fn used(name: &str, uid: &str) -> GoneHost {
        GoneHost {
            id: HostId::new(key(name), uid),
            consumer: Some(ConsumerReference::default()),
            owners: Vec::new(),
            verdict: None,
        }
    }

    #[test]
    fn the_first_verdict_about_a_gone_host_stays() {
        let mut gone = GoneHosts::default();
        let (first, collected) = (used("h1", "a"), Verdict::Collected("Metal3Machine m".to_owned()));
        gone.add(first.clone());
        gone.judge(&HostId::new(key("h1"), "b"), collected.clone());
        assert_eq!(gone.get(&first.id), Some(&first), "it is another host");
        for verdict in [Verdict::Deleted, collected] {
            gone.judge(&first.id, verdict);
            let known = gone.get(&first.id).and_then(|gone| gone.verdict.clone());
            assert_eq!(known, Some(Verdict::Deleted));
        }
    }

    #[test]
    fn a_used_host_is_remembered_until_it_is_made_again() {
        let mut gone = GoneHosts::default();
        let unused = GoneHost {
            consumer: None,
            ..used("h0", "a")
        };
        gone.add(unused.clone());
        assert_eq!(gone.get(&unused.id), None);
        let first = used("h1", "a");
        gone.add(first.clone());
        assert_eq!(gone.get(&first.id), Some(&first));
        assert_eq!(gone.get(&HostId::new(key("h1"), "b")), None, "it is another host");
        gone.forget(&key("h1"));
        assert_eq!(gone.get(&first.id), None);
        assert!(gone.order.is_empty());
    }

    #[test]
    fn the_oldest_is_forgotten_beyond_the_limit() {
        let mut gone = GoneHosts::default();
        for number in 0..=MAX_GONE_HOSTS {
            gone.add(used(&format!("h{number}"), "a"));
        }
        assert_eq!(
            (gone.hosts.len(), gone.order.len()),
            (MAX_GONE_HOSTS, MAX_GONE_HOSTS)
        );
        assert_eq!(gone.get(&used("h0", "a").id), None);
        assert!(gone.get(&used("h1", "a").id).is_some());
    }
}
