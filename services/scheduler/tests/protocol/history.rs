//! What the ledger keeps.

use placement::MemberState::Claimed;
use proptest::prelude::*;
use scheduler::{
    ledger::{Commit, Ledger as _, SitePosition, redb::Redb},
    region::Region,
};

use crate::fixtures::{SITE, Stage, host, labelled, members, released, with_status};

#[tokio::test]
async fn a_restart_loses_no_answered_change() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2"), host("h3")]).await;
    stage.apply("one", 1, 2).await.unwrap();
    stage.report(&session, &[labelled("h1", "one")]).await;
    stage.apply("one", 2, 1).await.unwrap();
    let before = stage.record("one").await.unwrap();

    let stage = stage.restart();

    assert_eq!(stage.record("one").await.unwrap(), before);
    stage.sync(&[labelled("h1", "one"), host("h2"), host("h3")]).await;
    assert_eq!(
        members(&stage.apply("two", 1, 1).await.unwrap()),
        [("h3".to_owned(), Claimed)]
    );
}

#[tokio::test]
async fn the_history_continues_after_a_restart_with_a_removal_last() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    let releasing = stage.release("one").await.unwrap();
    stage
        .report(&session, &[released("h1", releasing.revision)])
        .await;
    assert!(stage.confirm(&releasing).await.is_none());
    let before = stage.ledger.load().unwrap().commit;
    let waits_for_its_children = with_status(&releasing, 1);

    let stage = stage.restart();
    let seen = SitePosition::new(1, releasing.revision);
    stage
        .sync_with(
            &[released("h1", releasing.revision)],
            &[waits_for_its_children],
            Some(seen),
        )
        .await;

    let after = stage.ledger.load().unwrap().commit;
    assert_eq!(after, before, "nothing is lost, so no epoch is raised");
}

#[tokio::test]
async fn the_log_tells_who_did_what_newest_first() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.apply("two", 1, 1).await.unwrap();

    let all = stage.ledger.decisions(Commit::MAX, 10, &|_| true).unwrap();

    let actions: Vec<_> = all
        .iter()
        .map(|entry| {
            (
                entry.cluster.as_ref().map_or("", |cluster| &cluster.name),
                &*entry.action,
                entry.taken.len(),
                entry.reason.is_empty(),
            )
        })
        .collect();
    assert_eq!(
        actions,
        [
            ("two", "apply", 0, false),
            ("one", "apply", 1, true),
            ("", "fence", 0, false)
        ]
    );
    let older = stage
        .ledger
        .decisions(Commit::new(all[0].commit), 10, &|_| true)
        .unwrap();
    assert_eq!(older, all[1..]);
    assert_eq!(
        stage
            .ledger
            .decisions(Commit::MAX, 1, &|entry| entry.taken.len() == 1)
            .unwrap(),
        all[1..2]
    );
}

#[test]
fn a_new_ledger_appears_whole_and_leaves_nothing_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.redb");

    let made = Redb::open(&path).unwrap();

    let entries: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(entries, ["ledger.redb"]);
    assert!(Redb::open(&path).is_err(), "one process at a time");
    drop(made);
    assert_eq!(Redb::open(&path).unwrap().load().unwrap().commit, Commit::NONE);
}

#[derive(Clone, Debug)]
enum Step {
    Apply { cluster: u8, workers: u32 },
    Release { cluster: u8 },
    Confirm { cluster: u8 },
    Label { cluster: u8 },
    Unlabel { cluster: u8 },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let cluster = 0..3u8;
    prop_oneof![
        4 => (cluster.clone(), 0..4u32).prop_map(|(cluster, workers)| Step::Apply { cluster, workers }),
        2 => cluster.clone().prop_map(|cluster| Step::Release { cluster }),
        2 => cluster.clone().prop_map(|cluster| Step::Confirm { cluster }),
        2 => cluster.clone().prop_map(|cluster| Step::Label { cluster }),
        3 => cluster.prop_map(|cluster| Step::Unlabel { cluster }),
        1 => Just(Step::Restart),
    ]
}

/// What the API server would hold: each host's label, and the mark of its last release.
#[derive(Clone, Default)]
struct Hosts([(Option<u8>, u64); 5]);

impl Hosts {
    fn all(&self) -> Vec<proto::inventory::v1::Host> {
        let one = |(index, (label, mark)): (usize, &(Option<u8>, u64))| {
            let name = format!("h{index}");
            let host = label.map_or_else(|| host(&name), |cluster| labelled(&name, &format!("c{cluster}")));
            proto::inventory::v1::Host {
                release_mark: *mark,
                ..host
            }
        };
        self.0.iter().enumerate().map(one).collect()
    }
}

/// No host is in two records, in memory or on disk, and memory and disk agree once all is durable.
fn check(region: &Region, stage: &Stage) {
    let on_disk = stage.ledger.load().unwrap();
    let site = region.site(SITE).unwrap();
    let site = site.lock();
    let durable: Vec<_> = on_disk.records.values().cloned().collect();
    assert_eq!(site.records().values().cloned().collect::<Vec<_>>(), durable);
    let mut held: Vec<_> = durable.iter().flat_map(|record| record.members.keys()).collect();
    let all = held.len();
    held.sort();
    held.dedup();
    assert_eq!(held.len(), all, "a host is held twice");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_host_is_held_twice_and_memory_equals_the_ledger(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut stage = Stage::empty();
            let mut hosts = Hosts::default();
            let mut session = stage.sync(&hosts.all()).await;
            for (generation, step) in (1i64..).zip(steps) {
                match step {
                    Step::Apply { cluster, workers } => {
                        // Refused while it is being released.
                        let _ = stage.apply(&format!("c{cluster}"), generation, workers).await;
                    }
                    Step::Release { cluster } => {
                        stage.release(&format!("c{cluster}")).await;
                    }
                    Step::Confirm { cluster } => {
                        if let Some(record) = stage.record(&format!("c{cluster}")).await {
                            stage.confirm(&record).await;
                        }
                    }
                    Step::Label { cluster } | Step::Unlabel { cluster } => {
                        let Some(record) = stage.record(&format!("c{cluster}")).await else { continue };
                        for (id, member) in &record.members {
                            let index: usize = id.name.name()[1..].parse().unwrap();
                            let releasing = member.state == placement::MemberState::Releasing;
                            match step {
                                Step::Label { .. } if !releasing => hosts.0[index].0 = Some(cluster),
                                Step::Unlabel { .. } if releasing => hosts.0[index] = (None, member.revision),
                                _ => {}
                            }
                        }
                        stage.report(&session, &hosts.all()).await;
                    }
                    Step::Restart => {
                        stage = stage.restart();
                        session = stage.sync(&hosts.all()).await;
                    }
                }
                let committer = stage.region.committer();
                committer.durable(committer.staged()).await.unwrap();
                check(&stage.region, &stage);
            }
        });
    }
}
