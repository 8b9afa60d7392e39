//! Layouts of other versions.

use prost::Message as _;
use redb::{Database, TableDefinition};
use scheduler::ledger::{Error, Ledger as _, Retention, redb::Redb};

use crate::{
    backends::Cluster,
    changes::{Model, put},
};

const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const DECISIONS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("decisions");
const RECORDS: TableDefinition<'static, (&str, &str, &str), &[u8]> = TableDefinition::new("records");

/// A file as version 1 wrote it: no fences, and nobody counted the log.
fn version_1(path: &std::path::Path, model: &Model) {
    let database = Database::create(path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut meta = transaction.open_table(META).unwrap();
        meta.insert("schema", 1).unwrap();
        meta.insert("epoch", model.position().epoch).unwrap();
        meta.insert("revision", model.position().revision).unwrap();
        transaction.open_table(RECORDS).unwrap();
        let mut decisions = transaction.open_table(DECISIONS).unwrap();
        for entry in &model.log {
            let revision = entry.revision.unwrap().revision;
            decisions.insert(revision, &*entry.encode_to_vec()).unwrap();
        }
    }
    transaction.commit().unwrap();
}

#[test]
fn a_file_of_version_1_is_migrated_and_its_log_counts_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.redb");
    let mut model = Model::new();
    for _ in 0..100 {
        let made = put(&model, "one", Some(1));
        model.take(&made);
        let gone = put(&model, "one", None);
        model.take(&gone);
    }
    version_1(&path, &model);

    for _ in 0..2 {
        let ledger = Redb::open(&path).unwrap();
        assert_eq!(ledger.load().unwrap(), model.contents());
        assert_eq!(ledger.decisions(u64::MAX, 1000, &|_| true).unwrap().len(), 200);
    }
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
    transaction.open_table(META).unwrap().insert("schema", 3).unwrap();
    transaction.commit().unwrap();
    drop(database);

    let error = Redb::open(&path).unwrap_err();

    assert_eq!(
        error.to_string(),
        "ledger: schema version 3, this program understands 2"
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
                understood: 1
            }
        ),
        "{error}"
    );
}
