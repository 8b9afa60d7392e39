//! A change of a site's position that the storage refuses is not made, and made again when the site reports again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use futures::executor::block_on;
use proto::{inventory::v1 as wire, ledger::v1 as disk};
use redb::backends::InMemoryBackend;
use scheduler::{
    error::Error,
    ledger::{self, Change, Contents, Fence, History, Ledger, Page, Query, SitePosition, commit, redb::Redb},
    policy::Policies,
    region::{Region, Reporter},
    site::Apply,
};

use crate::fixtures::{CALLER, SITE, cluster, host, spec};

/// A ledger that refuses to raise a position, as long as it does.
#[derive(Debug)]
struct Refusing {
    stored: Redb,
    refuses: AtomicBool,
}

impl Ledger for Refusing {
    fn load(&self) -> Result<Contents, ledger::Error> {
        self.stored.load()
    }

    fn commit(&self, batch: &[Change]) -> Result<(), ledger::Error> {
        let raises = batch.iter().any(|change| matches!(change, Change::Raise { .. }));
        if raises && self.refuses.load(Ordering::Relaxed) {
            let cause = "no position is raised".to_owned();
            return Err(ledger::Error::Refused { stored: 0, cause });
        }
        self.stored.commit(batch)
    }

    fn read_log(&self, query: Query<'_>) -> Result<Page, ledger::Error> {
        self.stored.read_log(query)
    }

    fn export(
        &self,
        take: &mut dyn FnMut(disk::Entry) -> Result<(), ledger::Error>,
    ) -> Result<(), ledger::Error> {
        self.stored.export(take)
    }

    fn import(
        &self,
        entries: &mut dyn Iterator<Item = Result<disk::Entry, ledger::Error>>,
    ) -> Result<(), ledger::Error> {
        self.stored.import(entries)
    }
}

/// A region on a ledger that refuses to raise positions.
struct Stage {
    region: Region,
    ledger: Arc<Refusing>,
}

impl Stage {
    fn start() -> Self {
        let ledger = Arc::new(Refusing {
            stored: Redb::on(InMemoryBackend::new()).unwrap(),
            refuses: AtomicBool::new(true),
        });
        let mut durable = ledger.load().unwrap();
        let (committer, writer) = commit::committer(durable.commit);
        let region = Region::new(durable.clone(), Policies::new(), committer);
        let (storage, undo) = (Arc::clone(&ledger), region.undo());
        // It ends with the region.
        thread::spawn(move || {
            block_on(writer.run(&*storage, &mut durable, &|refusal| undo.reset(refusal))).unwrap();
        });
        Self { region, ledger }
    }

    fn accept(&self) {
        self.ledger.refuses.store(false, Ordering::Relaxed);
    }

    async fn open(&self, site: &str, seen: Option<SitePosition>) -> Result<Reporter, Error> {
        let fence = Fence {
            lease: "lease".to_owned(),
            transitions: 1,
        };
        self.region.open_session(site, &fence, seen, CALLER).await
    }

    /// Reports all of a site.
    async fn report(
        &self,
        site: &str,
        seen: Option<SitePosition>,
        hosts: &[wire::Host],
    ) -> Result<Reporter, Error> {
        let reporter = self.open(site, seen).await?;
        let changes = wire::HostChanges {
            hosts: hosts.to_vec(),
            ..wire::HostChanges::default()
        };
        let session = &reporter.session().id;
        self.region
            .report(site, session, scheduler::convert::changes(site, changes))
            .await?;
        self.region.complete_snapshot(site, session).await?;
        Ok(reporter)
    }

    async fn apply(&self, site: &str) -> Result<u64, Error> {
        let apply = Apply {
            cluster: cluster("one"),
            uid: "uid".to_owned(),
            generation: 1,
            created: None,
            spec: scheduler::convert::parse_spec(spec(1), "spec").unwrap(),
        };
        let told = self.region.apply(site, apply, CALLER).await?;
        Ok(told.record.unwrap().revision)
    }

    fn history(&self) -> History {
        *self.region.site(SITE).unwrap().read().history()
    }

    async fn all_durable(&self) {
        let staged = self.region.committer().staged();
        self.region.committer().durable(staged).await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_raise_is_made_again() {
    let stage = Stage::start();
    let other = stage.report("b", None, &[host("b1")]).await.unwrap();
    let seen = Some(SitePosition::new(4, 500));

    let refused = stage.open(SITE, seen).await.map(drop).unwrap_err();

    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    assert_eq!(stage.history(), History::default(), "it is not raised");
    stage.apply("b").await.unwrap();
    assert!(
        !other.session().superseded.is_cancelled(),
        "no other site notices"
    );

    stage.accept();
    let _reporter = stage.report(SITE, seen, &[host("h1")]).await.unwrap();
    let history = stage.history();
    assert_eq!(history.epoch(), 5);
    assert!(history.is_lost(1) && history.is_lost(300), "{history:?}");
    let revision = stage.apply(SITE).await.unwrap();
    assert!(revision > 500, "{revision}");
    let stored = stage.ledger.load().unwrap();
    assert_eq!(stored.histories[SITE], history);
}

#[tokio::test]
async fn a_snapshot_whose_raise_is_refused_counts_for_nothing() {
    let stage = Stage::start();
    let marked = wire::Host {
        release_mark: 400,
        ..host("h1")
    };
    let reporter = stage.report(SITE, None, std::slice::from_ref(&marked)).await;
    stage.all_durable().await;

    assert!(reporter.unwrap().session().superseded.is_cancelled());
    let site = stage.region.site(SITE).unwrap();
    assert!(
        !site.read().are_positions_complete(),
        "what was issued is not known"
    );
    assert_eq!(stage.history(), History::default());
    let refused = stage.apply(SITE).await.unwrap_err();
    assert!(matches!(refused, Error::NotSynced { .. }), "{refused}");

    stage.accept();
    let _reporter = stage.report(SITE, None, &[marked]).await.unwrap();
    assert!(site.read().are_positions_complete());
    assert!(stage.history().is_lost(400), "{:?}", stage.history());
    let revision = stage.apply(SITE).await.unwrap();
    assert!(revision > 400, "{revision}");
}
