//! Positions belong to sites: what one site shows moves no other, and no number stops releases.

mod by_hand;
mod poisoned;

use std::{collections::BTreeMap, sync::Arc};

use placement::{HostId, MemberState};
use proto::inventory::v1 as wire;
use scheduler::{
    convert,
    ledger::{Commit, Fence, SitePosition, position::MAX_REPORTED},
    record::Record,
    region::Reporter,
    site::Apply,
};

use crate::fixtures::{Stage, cluster, host, labelled, members, observed, released, spec};

/// One site of a stage, with its reporter.
struct Site<'a> {
    stage: &'a Stage,
    name: &'static str,
    reporter: Reporter,
}

impl<'a> Site<'a> {
    /// A site that reports these hosts, by a reporter that has seen this position.
    async fn sync(
        stage: &'a Stage,
        name: &'static str,
        hosts: &[wire::Host],
        seen: Option<SitePosition>,
    ) -> Self {
        let fence = Fence {
            lease: "lease".to_owned(),
            transitions: 1,
        };
        let caller = format!("site/{name}/agent/cluster");
        let reporter = stage
            .region
            .open_session(name, &fence, seen, &caller)
            .await
            .unwrap();
        let site = Self {
            stage,
            name,
            reporter,
        };
        site.report(hosts).await;
        let session = &site.reporter.session().id;
        stage.region.complete_snapshot(name, session).await.unwrap();
        site
    }

    async fn report(&self, hosts: &[wire::Host]) {
        let changes = wire::HostChanges {
            hosts: hosts.to_vec(),
            ..wire::HostChanges::default()
        };
        let session = &self.reporter.session().id;
        self.stage
            .region
            .report(
                self.name,
                session,
                scheduler::convert::changes(self.name, changes),
            )
            .await
            .unwrap();
    }

    async fn apply(&self, name: &str, generation: i64, workers: u32) -> Arc<Record> {
        let apply = Apply {
            cluster: cluster(name),
            uid: "uid".to_owned(),
            generation,
            created: None,
            spec: scheduler::convert::parse_spec(spec(workers), "spec").unwrap(),
        };
        let told = self.stage.region.apply(self.name, apply, "agent").await.unwrap();
        told.record.unwrap()
    }

    /// The record of a cluster; `None` when nothing is held for it.
    async fn record(&self, name: &str) -> Option<Arc<Record>> {
        let told = self
            .stage
            .region
            .placement(self.name, &cluster(name), "", None)
            .await;
        told.ok().and_then(|(told, _)| told.record)
    }

    /// Releases a cluster of one host as its agent does: the unlabel write carries the mark, then it is confirmed.
    async fn release(&self, name: &str, host: &str) -> Option<Arc<Record>> {
        let region = &self.stage.region;
        let told = region
            .release(self.name, &cluster(name), "uid", "agent")
            .await
            .unwrap();
        let releasing = told.record?;
        let numbers: BTreeMap<HostId, u64> = releasing
            .members
            .iter()
            .filter(|(_, member)| member.state == MemberState::Releasing)
            .map(|(id, member)| (id.clone(), member.revision))
            .collect();
        let mark = *numbers.values().next().unwrap();
        self.report(&[released(host, mark)]).await;
        region
            .confirm(self.name, &cluster(name), "uid", &numbers, "agent")
            .await
            .unwrap();
        self.record(name).await
    }
}

/// Claims, labels and releases one host.
async fn live(site: &Site<'_>, name: &str, host: &str) {
    let held = site.apply(name, 1, 1).await;
    assert_eq!(held.members.len(), 1, "{}/{name}: {held:?}", site.name);
    site.report(&[labelled(host, name)]).await;
    let left = site.release(name, host).await;
    assert_eq!(left, None, "{}/{name}: the host is not freed", site.name);
}

#[tokio::test]
async fn forged_mark_does_not_stop_releases() {
    let stage = Stage::empty();
    let a = Site::sync(&stage, "a", &[host("h1"), host("h9")], None).await;
    let b = Site::sync(&stage, "b", &[host("h1")], None).await;

    a.report(&[released("h9", MAX_REPORTED)]).await;

    live(&b, "one", "h1").await;
    live(&a, "one", "h1").await;
}

#[tokio::test]
async fn hello_moves_no_other_site() {
    let stage = Stage::empty();
    let b = Site::sync(&stage, "b", &[host("h1")], None).await;
    let seen = SitePosition::new(MAX_REPORTED, MAX_REPORTED);
    let a = Site::sync(&stage, "a", &[host("h1")], Some(seen)).await;

    let claimed = b.apply("one", 1, 1).await;
    assert!(claimed.revision < 100, "b stands at {}", claimed.revision);
    b.report(&[labelled("h1", "one")]).await;
    assert_eq!(b.release("one", "h1").await, None, "the host in b is not freed");
    live(&a, "one", "h1").await;
}

/// Every border of the numbers on the wire.
const BORDERS: [u64; 6] = [0, 1, MAX_REPORTED - 1, MAX_REPORTED, MAX_REPORTED + 1, u64::MAX];

/// Where a site's report carries a position.
#[derive(Clone, Copy, Debug)]
enum Place {
    HelloEpoch,
    HelloRevision,
    FirstMark,
    LaterMark,
    StatusEpoch,
    StatusRevision,
    MemberRevision,
}

const PLACES: [Place; 7] = [
    Place::HelloEpoch,
    Place::HelloRevision,
    Place::FirstMark,
    Place::LaterMark,
    Place::StatusEpoch,
    Place::StatusRevision,
    Place::MemberRevision,
];

/// A status that shows these numbers, of a cluster that is not used.
fn forged_status(epoch: u64, revision: u64, member: u64) -> wire::ObservedCluster {
    wire::ObservedCluster {
        revision: Some(wire::Revision { epoch, revision }),
        members: vec![wire::ObservedMember {
            host: host("h9").r#ref,
            role: "Worker".to_owned(),
            state: wire::MemberState::Releasing.into(),
            revision: member,
            domain: None,
            ordinal: u32::try_from(member).ok(),
            replaces: None,
            release_reason: String::new(),
        }],
        ..observed("forged")
    }
}

#[tokio::test]
async fn no_reported_number_stops_a_site() {
    for place in PLACES {
        for number in BORDERS {
            println!("{place:?} {number}");
            let stage = Stage::empty();
            let b = Site::sync(&stage, "b", &[host("h1")], None).await;
            let seen = match place {
                Place::HelloEpoch => Some(SitePosition::new(number, 1)),
                Place::HelloRevision => Some(SitePosition::new(1, number)),
                _ => None,
            };
            let mark = if matches!(place, Place::FirstMark) {
                number
            } else {
                0
            };
            let first = [host("h1"), host("h2"), released("h9", mark)];
            let a = Site::sync(&stage, "a", &first, seen).await;
            let status = match place {
                Place::StatusEpoch => Some(forged_status(number, 1, 1)),
                Place::StatusRevision => Some(forged_status(1, number, 1)),
                Place::MemberRevision => Some(forged_status(1, 1, number)),
                Place::LaterMark => {
                    a.report(&[released("h9", number)]).await;
                    None
                }
                Place::HelloEpoch | Place::HelloRevision | Place::FirstMark => None,
            };
            let changes = wire::HostChanges {
                clusters: status.into_iter().collect(),
                ..wire::HostChanges::default()
            };
            let session = &a.reporter.session().id;
            stage
                .region
                .report("a", session, scheduler::convert::changes("a", changes))
                .await
                .unwrap();
            live(&a, "one", "h1").await;
            live(&b, "one", "h1").await;
            let claimed = b.apply("two", 1, 1).await;
            assert!(claimed.revision < 100, "b stands at {}", claimed.revision);

            // The same is so after the scheduler has started again.
            drop((a, b));
            let stage = stage.restart();
            let two = Site::sync(&stage, "b", &[host("h1")], None).await;
            assert_eq!(members(&two.record("two").await.unwrap()).len(), 1);
            let a = Site::sync(&stage, "a", &first, seen).await;
            live(&a, "one", "h1").await;
        }
    }
}

#[tokio::test]
async fn no_requested_revision_waits_for_ever() {
    let stage = Stage::empty();
    let a = Site::sync(&stage, "a", &[host("h1")], None).await;
    let held = a.apply("one", 1, 1).await;
    for number in BORDERS {
        for asked in [SitePosition::new(number, 1), SitePosition::new(1, number)] {
            let reached = number <= 1;
            let told = stage
                .region
                .placement("a", &cluster("one"), "", Some(asked))
                .await;
            assert_eq!(told.is_ok(), reached, "{asked}: {told:?}");
        }
        let id = convert::host_id(&host("h1").r#ref.unwrap()).unwrap();
        let released = BTreeMap::from([(id, number)]);
        let told = stage
            .region
            .confirm("a", &cluster("one"), "uid", &released, "agent")
            .await;
        assert_eq!(told.unwrap().record.unwrap(), held, "nothing was released");
    }
}

#[tokio::test]
async fn forged_mark_is_reported_and_only_its_host_waits() {
    let stage = Stage::empty();
    let a = Site::sync(&stage, "a", &[host("h1"), host("h9")], None).await;
    let changes = wire::HostChanges {
        hosts: vec![released("h9", MAX_REPORTED)],
        ..wire::HostChanges::default()
    };
    let session = &a.reporter.session().id;
    let faults = stage
        .region
        .report("a", session, scheduler::convert::changes("a", changes.clone()))
        .await
        .unwrap();
    let [fault] = &*faults else { panic!("{faults:?}") };
    assert!(fault.message.contains("sipctl site repair"), "{fault:?}");
    assert_eq!(stage.why_not("h9"), ["problem"]);
    let committer = stage.region.committer();
    committer.durable(committer.staged()).await.unwrap();
    let entries = stage.ledger.decisions(Commit::MAX, 10, &|_| true).unwrap();
    assert!(
        entries
            .iter()
            .any(|entry| entry.reason.contains("placement-revision")),
        "{entries:?}"
    );
    let again = stage
        .region
        .report("a", session, scheduler::convert::changes("a", changes))
        .await
        .unwrap();
    assert_eq!(again, [], "it is said once");

    let both = a.apply("one", 1, 2).await;
    assert!(both.refusal.is_some(), "h9 is not taken");
    a.report(&[host("h9")]).await;
    assert_eq!(stage.why_not("h9"), [""; 0], "the annotation was removed");
    assert_eq!(a.apply("one", 2, 2).await.members.len(), 2);
}

#[tokio::test]
async fn forged_mark_takes_no_claim() {
    for later in [false, true] {
        let stage = Stage::empty();
        let a = Site::sync(&stage, "a", &[host("h1")], None).await;
        let held = a.apply("one", 1, 1).await;
        for mark in [held.revision + 1, MAX_REPORTED, u64::MAX] {
            a.report(&[released("h1", mark)]).await;
            assert_eq!(a.record("one").await.unwrap().members, held.members, "{mark}");
        }
        if later {
            a.report(&[labelled("h1", "one")]).await;
        }
        // A member's host with a forged mark is released as any other.
        let left = a.release("one", "h1").await;
        assert_eq!(left, None, "labelled: {later}");
    }
}

#[tokio::test]
async fn repair_believes_marks_and_keeps_claims() {
    let stage = Stage::empty();
    let hosts = [host("h1"), host("h2"), host("h3")];
    let a = Site::sync(&stage, "a", &hosts, None).await;
    let b = Site::sync(&stage, "b", &[host("h1")], None).await;
    let one = a.apply("one", 1, 1).await;
    let kept = members(&one)[0].0.clone();
    let [moved, forged] = ["h1", "h2", "h3"]
        .into_iter()
        .filter(|name| *name != kept)
        .collect::<Vec<_>>()[..]
    else {
        panic!("{one:?}")
    };
    let mine = released(&kept, 800);
    a.report(&[mine, released(moved, 900), released(forged, u64::MAX)])
        .await;
    assert_eq!(stage.why_not(moved), ["problem"]);

    let dry = stage.region.repair("a", true, "operator/ann").await.unwrap();
    assert_eq!(stage.why_not(moved), ["problem"], "nothing was changed");
    let done = stage.region.repair("a", false, "operator/ann").await.unwrap();
    assert_eq!(done.after, dry.after);
    assert!(done.after.revision() > 900 && done.after.epoch() == 2, "{done:?}");
    assert_eq!(done.faults.len(), 1, "{done:?}");
    assert_eq!(stage.why_not(moved), [""; 0]);
    assert_eq!(stage.why_not(forged), ["problem"], "no ledger can have issued it");
    assert_eq!(
        a.record("one").await.unwrap().members,
        one.members,
        "no claim is lost"
    );
    assert_eq!(a.apply("two", 1, 1).await.members.len(), 1);
    assert!(b.apply("two", 1, 1).await.revision < 100, "b is as it was");
}
