//! Nothing is told before it is on disk, not even that there is nothing.

use std::{
    collections::BTreeMap,
    future::{self, Future},
    pin::{Pin, pin},
    task::Poll,
};

use futures::FutureExt as _;
use proto::inventory::v1 as wire;
use redb::backends::InMemoryBackend;
use scheduler::{
    convert,
    error::Error,
    ledger::{self, Fence, Ledger as _, Refusal, commit, redb::Redb},
    policy::Policies,
    region::Region,
    site::Apply,
};

use crate::fixtures::{CALLER, SITE, cluster, host, released, spec};

type Writing<'a> = Pin<&'a mut dyn Future<Output = Result<(), ledger::Error>>>;

/// Waits while the disk works.
async fn with_disk<T>(writing: &mut Writing<'_>, step: impl Future<Output = T>) -> T {
    let mut step = pin!(step);
    future::poll_fn(|context| {
        assert!(
            writing.as_mut().poll(context).is_pending(),
            "the writer has ended"
        );
        match step.as_mut().poll(context) {
            Poll::Pending => {
                // What the step has staged is stored at once, so the step is looked at again.
                context.waker().wake_by_ref();
                Poll::Pending
            }
            ready @ Poll::Ready(_) => ready,
        }
    })
    .await
}

#[tokio::test]
async fn a_release_is_answered_once_it_is_durable() {
    let ledger = Redb::on(InMemoryBackend::new()).unwrap();
    let mut durable = ledger.load().unwrap();
    let (committer, writer) = commit::committer(durable.commit);
    let region = Region::new(durable.clone(), Policies::new(), committer);
    let undo = region.undo();
    let undo = |refusal: &Refusal<'_>| undo.reset(refusal);
    let mut writing: Writing<'_> = pin!(writer.run(&ledger, &mut durable, &undo));
    let one = cluster("one");
    let fence = Fence {
        lease: "lease".to_owned(),
        transitions: 1,
    };
    let opened = region.open_session(SITE, &fence, None, CALLER);
    let reporter = with_disk(&mut writing, opened).await.unwrap();
    let session = &reporter.session().id;
    let snapshot = wire::HostChanges {
        hosts: vec![host("h1")],
        ..wire::HostChanges::default()
    };
    with_disk(
        &mut writing,
        region.report(SITE, session, convert::changes(SITE, snapshot)),
    )
    .await
    .unwrap();
    with_disk(&mut writing, region.complete_snapshot(SITE, session))
        .await
        .unwrap();
    let apply = Apply {
        cluster: one.clone(),
        uid: "uid".to_owned(),
        generation: 1,
        created: None,
        spec: convert::parse_spec(spec(1), "spec").unwrap(),
    };
    with_disk(&mut writing, region.apply(SITE, apply, CALLER))
        .await
        .unwrap();
    let releasing = with_disk(&mut writing, region.release(SITE, &one, "uid", CALLER)).await;
    let record = releasing.unwrap().record.unwrap();
    let (id, member) = record.members.first_key_value().unwrap();
    let given_back = BTreeMap::from([(id.clone(), member.revision)]);
    let shown = wire::HostChanges {
        hosts: vec![released("h1", member.revision)],
        ..wire::HostChanges::default()
    };
    with_disk(
        &mut writing,
        region.report(SITE, session, convert::changes(SITE, shown)),
    )
    .await
    .unwrap();

    // The disk stands still from here on: the record is gone in memory only.
    let mut confirm = pin!(region.confirm(SITE, &one, "uid", &given_back, CALLER));
    assert!(confirm.as_mut().now_or_never().is_none());
    let mut again = pin!(region.confirm(SITE, &one, "uid", &given_back, CALLER));
    assert!(again.as_mut().now_or_never().is_none(), "a second confirmation");
    let mut release = pin!(region.release(SITE, &one, "uid", CALLER));
    assert!(
        release.as_mut().now_or_never().is_none(),
        "a release, which would end the SIPCluster"
    );
    let mut read = pin!(region.placement(SITE, &one, "uid", None));
    assert!(read.as_mut().now_or_never().is_none(), "a read");
    assert_eq!(ledger.load().unwrap().records.len(), 1);

    assert!(with_disk(&mut writing, confirm).await.unwrap().record.is_none());
    assert!(with_disk(&mut writing, again).await.unwrap().record.is_none());
    assert!(with_disk(&mut writing, release).await.unwrap().record.is_none());
    let read = with_disk(&mut writing, read).await;
    assert!(matches!(read, Err(Error::NotFound { what: _ })));
    assert_eq!(ledger.load().unwrap().records.len(), 0);
}

#[tokio::test]
async fn a_raised_epoch_is_answered_once_durable() {
    let ledger = Redb::on(InMemoryBackend::new()).unwrap();
    let mut durable = ledger.load().unwrap();
    let (committer, writer) = commit::committer(durable.commit);
    let region = Region::new(durable.clone(), Policies::new(), committer);
    let undo = region.undo();
    let undo = |refusal: &Refusal<'_>| undo.reset(refusal);
    let mut writing: Writing<'_> = pin!(writer.run(&ledger, &mut durable, &undo));
    let fence = Fence {
        lease: "lease".to_owned(),
        transitions: 1,
    };
    let opened = region.open_session(SITE, &fence, None, CALLER);
    let reporter = with_disk(&mut writing, opened).await.unwrap();
    let session = &reporter.session().id;
    with_disk(&mut writing, region.complete_snapshot(SITE, session))
        .await
        .unwrap();
    let apply = Apply {
        cluster: cluster("one"),
        uid: "uid".to_owned(),
        generation: 1,
        created: None,
        spec: convert::parse_spec(spec(1), "spec").unwrap(),
    };
    let before = with_disk(&mut writing, region.apply(SITE, apply, CALLER))
        .await
        .unwrap();
    let forged = wire::HostChanges {
        hosts: vec![released("h1", 1000)],
        ..wire::HostChanges::default()
    };
    let changes = convert::changes(SITE, forged);
    with_disk(&mut writing, region.report(SITE, session, changes))
        .await
        .unwrap();

    // The disk stands still from here on: the history is raised in memory only.
    let mut repair = pin!(region.repair(SITE, false, CALLER));
    assert!(repair.as_mut().now_or_never().is_none());
    let one = cluster("one");
    let site = region.site(SITE).unwrap();
    let durable = region.committer().watch();
    let shown = || site.read().position(*durable.borrow()).epoch();
    assert_eq!(site.read().history().epoch(), before.epoch + 1);
    assert_eq!(shown(), before.epoch, "what watchers and reporters are told");
    let mut read = pin!(region.placement(SITE, &one, "", None));
    assert!(read.as_mut().now_or_never().is_none(), "readers wait");

    with_disk(&mut writing, repair).await.unwrap();
    assert_eq!(shown(), before.epoch + 1);
    let read = with_disk(&mut writing, read).await;
    assert_eq!(read.unwrap().0.epoch, before.epoch + 1);
}
