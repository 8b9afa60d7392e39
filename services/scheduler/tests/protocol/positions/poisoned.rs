//! A ledger that an older version wrote after a forged number had reached it.

use std::sync::Arc;

use placement::MemberState;
use proto::inventory::v1 as wire;
use scheduler::ledger::{SitePosition, position::MAX_REPORTED, redb::Redb};

use super::{Site, live};
use crate::fixtures::{Stage, host, members, observed, released, spec};

/// A file as the version before wrote it, after a mark of [`MAX_REPORTED`] had poisoned it: one host releasing, one that stays.
fn poisoned(path: &std::path::Path) {
    use proto::{ledger::v1 as disk, placement::v1 as api};
    use redb::{Database, TableDefinition};
    type Key = (&'static str, &'static str, &'static str);
    let record = |name: &str, host: &str, state: wire::MemberState, revision: u64| disk::Record {
        placement: Some(api::Placement {
            cluster: observed(name).r#ref,
            generation: 1,
            revision: Some(wire::Revision { epoch: 0, revision }),
            members: vec![api::Member {
                host: self::host(host).r#ref,
                role: "Worker".to_owned(),
                domain: format!("rack-{host}"),
                state: state.into(),
                revision,
                ..api::Member::default()
            }],
            releasing: state == wire::MemberState::Releasing,
            ..api::Placement::default()
        }),
        spec: Some(spec(1)),
        ..disk::Record::default()
    };
    let going = record("one", "h1", wire::MemberState::Releasing, MAX_REPORTED + 4);
    let held = record("two", "h2", wire::MemberState::Claimed, 7);
    let database = Database::create(path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut meta = transaction
            .open_table(TableDefinition::<&str, u64>::new("meta"))
            .unwrap();
        for (key, value) in [
            ("schema", 3),
            ("epoch", 2),
            ("revision", MAX_REPORTED + 5),
            ("log bytes", 0),
        ] {
            meta.insert(key, value).unwrap();
        }
        let mut records = transaction
            .open_table(TableDefinition::<Key, &[u8]>::new("records"))
            .unwrap();
        for (site, name, record) in [("a", "one", &going), ("a", "two", &held), ("b", "two", &held)] {
            let bytes = prost::Message::encode_to_vec(record);
            records.insert((site, "tenant", name), &*bytes).unwrap();
        }
    }
    transaction.commit().unwrap();
}

#[tokio::test]
async fn poisoned_ledger_works_once_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.redb");
    poisoned(&path);
    let stage = Stage::on(Arc::new(Redb::open(&path).unwrap()));
    let going = released("h1", MAX_REPORTED + 4);
    let seen = Some(SitePosition::new(2, MAX_REPORTED + 5));
    let hosts = [going, host("h2"), released("h9", MAX_REPORTED)];
    let a = Site::sync(&stage, "a", &hosts, seen).await;
    let b = Site::sync(&stage, "b", &[host("h2"), host("h1")], None).await;

    // Its SIPCluster is gone, and its host shows the release.
    let going = a.record("one").await.unwrap();
    assert_eq!(stage.confirm(&going).await, None, "it is released");
    for site in [&a, &b] {
        let two = site.record("two").await.unwrap();
        assert_eq!(
            members(&two),
            [("h2".to_owned(), MemberState::Claimed)],
            "{}",
            site.name
        );
        live(site, "new", "h1").await;
    }
}
