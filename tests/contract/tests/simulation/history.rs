//! What was answered, and whether it contradicts itself.

use std::collections::{BTreeMap, BTreeSet};

use proto::placement::v1::Placement;
use scheduler::ledger::Contents;

/// Every answer that reached anybody.
#[derive(Default)]
pub(crate) struct History {
    /// By cluster and revision: hosts, with the revision of the claim or release.
    answers: BTreeMap<String, BTreeMap<u64, BTreeMap<String, u64>>>,
    count: usize,
    /// Cluster, host and revision of every release whose confirmation was sent.
    given: BTreeSet<(String, String, u64)>,
}

#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) answers: usize,
    pub(crate) moved: usize,
    pub(crate) double_holds: Vec<String>,
    pub(crate) lost_claims: Vec<String>,
}

impl History {
    pub(crate) fn answered(&mut self, cluster: &str, placement: &Placement) {
        self.count += 1;
        let revision = placement.revision.unwrap_or_default().revision;
        let members = placement.members.iter().map(|member| {
            let host = member.host.clone().unwrap_or_default().name;
            (host, member.revision)
        });
        self.answers
            .entry(cluster.to_owned())
            .or_default()
            .insert(revision, members.collect());
    }

    pub(crate) fn gives(&mut self, cluster: &str, host: &str, revision: u64) {
        self.given.insert((cluster.to_owned(), host.to_owned(), revision));
    }

    /// Compares all answers with each other, and with what the ledger holds in the end.
    pub(crate) fn verdict(&self, ledger: &Contents) -> Verdict {
        let mut held: BTreeMap<&str, BTreeSet<(u64, u64, &str)>> = BTreeMap::new();
        let mut lost_claims = Vec::new();
        for (cluster, answers) in &self.answers {
            for (revision, members) in answers {
                for (host, from) in members {
                    held.entry(host).or_default().insert((*from, *revision, cluster));
                }
            }
            let now = ledger
                .records
                .iter()
                .find(|(key, _)| key.cluster.name() == *cluster);
            let last: BTreeMap<String, u64> = now
                .iter()
                .flat_map(|(_, record)| &record.members)
                .map(|(id, member)| (id.name.name().to_owned(), member.revision))
                .collect();
            let at = ledger.commit.number();
            let order: Vec<_> = answers
                .iter()
                .map(|(at, m)| (*at, m))
                .chain([(at, &last)])
                .collect();
            for pair in order.windows(2) {
                let ((before, had), (after, has)) = (pair[0], pair[1]);
                for (host, from) in had {
                    let given =
                        (*from..=after).any(|at| self.given.contains(&(cluster.clone(), host.clone(), at)));
                    if !has.contains_key(host) && !given {
                        lost_claims.push(format!("{cluster}: {host}, held at {before}, is gone at {after}"));
                    }
                }
            }
        }
        let mut double_holds = Vec::new();
        let mut moved = 0;
        for (host, held) in held {
            let mut latest: Option<(u64, u64, &str)> = None;
            for hold in held {
                if let Some(before) = latest.filter(|before| before.2 != hold.2) {
                    moved += 1;
                    if hold.0 <= before.1 {
                        double_holds.push(format!("{host}: {before:?} and {hold:?}"));
                    }
                }
                if latest.is_none_or(|before| before.1 <= hold.1) {
                    latest = Some(hold);
                }
            }
        }
        Verdict {
            answers: self.count,
            moved,
            double_holds,
            lost_claims,
        }
    }
}
