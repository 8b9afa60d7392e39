//! Layouts of other versions.

use etcd_client::DeleteOptions;
use prost::Message as _;
use redb::{Database, TableDefinition};
use scheduler::ledger::{Error, Ledger as _, Retention, redb::Redb};

use crate::{
    backends::Cluster,
    changes::{Model, put, put_in},
};

const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const DECISIONS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("decisions");
const FENCES: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("fences");
const RECORDS: TableDefinition<'static, (&str, &str, &str), &[u8]> = TableDefinition::new("records");

/// A file as an earlier version wrote it: it does not say when records were removed. Version 1 did not count the log either.
fn written_by(version: u64, path: &std::path::Path, model: &Model) {
    let database = Database::create(path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut meta = transaction.open_table(META).unwrap();
        meta.insert("schema", version).unwrap();
        meta.insert("epoch", model.position().epoch).unwrap();
        meta.insert("revision", model.position().revision).unwrap();
        transaction.open_table(RECORDS).unwrap();
        let mut decisions = transaction.open_table(DECISIONS).unwrap();
        let mut bytes = 0;
        for entry in &model.log {
            let revision = entry.revision.unwrap().revision;
            decisions.insert(revision, &*entry.encode_to_vec()).unwrap();
            bytes += u64::try_from(entry.encoded_len()).unwrap();
        }
        if version > 1 {
            transaction.open_table(FENCES).unwrap();
            meta.insert("log bytes", bytes).unwrap();
        }
    }
    transaction.commit().unwrap();
}

/// A ledger in which a cluster came and went.
fn model() -> Model {
    let mut model = Model::new();
    for _ in 0..100 {
        for hosts in [Some(1), None] {
            let change = put(&model, "one", hosts);
            model.take(&change);
        }
    }
    model
}

#[test]
fn a_file_of_an_earlier_version_is_migrated_and_knows_what_its_log_tells() {
    for version in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.redb");
        let model = model();
        written_by(version, &path, &model);

        for _ in 0..2 {
            let ledger = Redb::open(&path).unwrap();
            let contents = ledger.load().unwrap();
            assert_eq!(contents, model.contents(), "version {version}");
            assert_eq!(contents.removals["a"], 200);
            assert_eq!(ledger.decisions(u64::MAX, 1000, &|_| true).unwrap().len(), 200);
        }
    }
}

#[test]
fn the_log_of_a_file_of_version_1_counts_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.redb");
    let mut model = model();
    written_by(1, &path, &model);
    let limit = Retention {
        bytes: 5_000,
        ..Retention::default()
    };
    let ledger = Redb::open(&path).unwrap().retaining(limit);
    for _ in 0..10 {
        let next = put(&model, "one", Some(1));
        ledger.commit(std::slice::from_ref(&next)).unwrap();
        model.take(&next);
    }
    let log = ledger.decisions(u64::MAX, 1000, &|_| true).unwrap();
    let kept: usize = log.iter().map(prost::Message::encoded_len).sum();
    assert!((4_500..=5_000).contains(&kept), "{kept} bytes are kept");
}

#[test]
fn a_file_of_a_later_version_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.redb");
    drop(Redb::open(&path).unwrap());
    let database = Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("schema", 4).unwrap();
    transaction.commit().unwrap();
    drop(database);

    let error = Redb::open(&path).unwrap_err();

    assert_eq!(
        error.to_string(),
        "ledger: schema version 4, this program understands 3"
    );
}

#[test]
fn keys_of_a_later_version_in_etcd_are_refused_with_a_sentence() {
    let cluster = Cluster::start(1);
    let place = cluster.place("/later");
    let elected = cluster.elect(&place, "one:1");
    drop(cluster.open(&place, elected).unwrap());
    let write = async { place.client().put("/later/schema", "7", None).await };
    cluster.runtime.block_on(write).unwrap();

    let error = cluster.open(&place, elected).unwrap_err();

    assert!(
        matches!(
            error,
            Error::Schema {
                found: 7,
                understood: 2
            }
        ),
        "{error}"
    );
}

#[test]
fn keys_of_version_1_in_etcd_are_migrated_and_know_what_their_log_tells() {
    let cluster = Cluster::start(1);
    let place = cluster.place("/earlier");
    let elected = cluster.elect(&place, "one:1");
    let ledger = cluster.open(&place, elected).unwrap();
    let mut model = Model::new();
    for site in 0..150 {
        for hosts in [Some(1), None] {
            let change = put_in(&model, &format!("site-{site}"), "one", hosts);
            ledger.commit(std::slice::from_ref(&change)).unwrap();
            model.take(&change);
        }
    }
    drop(ledger);
    cluster.runtime.block_on(async {
        let mut client = place.client();
        client.put("/earlier/schema", "1", None).await.unwrap();
        let all = DeleteOptions::new().with_prefix();
        client.delete("/earlier/removals/", Some(all)).await.unwrap();
    });

    for _ in 0..2 {
        let ledger = cluster.open(&place, elected).unwrap();
        assert_eq!(ledger.load().unwrap(), model.contents());
    }
    let ledger = cluster.open(&place, elected).unwrap();
    let next = put(&model, "two", Some(1));
    ledger.commit(std::slice::from_ref(&next)).unwrap();
    model.take(&next);
    assert_eq!(ledger.load().unwrap(), model.contents(), "it goes on from there");
}
