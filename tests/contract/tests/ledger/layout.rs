//! Layouts of other versions.

use std::collections::BTreeMap;

use etcd_client::{DeleteOptions, GetOptions, KeyValue};
use prost::Message as _;
use proto::{ledger::v1 as disk, placement::v1 as api};
use redb::{Database, ReadableDatabase as _, TableDefinition};
use scheduler::ledger::{Commit, Error, Ledger as _, Retention, etcd::Location, redb::Redb};

use crate::{
    backends::Cluster,
    changes::{Model, put, put_in},
};

const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const DECISIONS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("decisions");
const FENCES: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("fences");
const RECORDS: TableDefinition<'static, (&str, &str, &str), &[u8]> = TableDefinition::new("records");
const REMOVALS: TableDefinition<'static, &str, u64> = TableDefinition::new("removals");
/// The epoch of every site in an earlier version.
const EPOCH: u64 = 3;

/// An entry of the log as an earlier version wrote it.
fn earlier(entry: &api::Decision) -> Vec<u8> {
    let entry = api::Decision {
        commit: 0,
        ..entry.clone()
    };
    entry.encode_to_vec()
}

/// A file as an earlier version wrote it: every site has the same epoch. Versions 1 and 2 do not say when records were removed, and
/// version 1 does not count the log.
fn written_by(version: u64, path: &std::path::Path, model: &Model) {
    let database = Database::create(path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut meta = transaction.open_table(META).unwrap();
        meta.insert("schema", version).unwrap();
        meta.insert("epoch", EPOCH).unwrap();
        meta.insert("revision", model.last().number()).unwrap();
        transaction.open_table(RECORDS).unwrap();
        let mut decisions = transaction.open_table(DECISIONS).unwrap();
        let mut bytes = 0;
        for entry in &model.log {
            let entry_bytes = earlier(entry);
            decisions.insert(entry.commit, &*entry_bytes).unwrap();
            bytes += u64::try_from(entry_bytes.len()).unwrap();
        }
        if version > 1 {
            transaction.open_table(FENCES).unwrap();
            meta.insert("log bytes", bytes).unwrap();
        }
        if version > 2 {
            let mut removals = transaction.open_table(REMOVALS).unwrap();
            for (site, commit) in model.contents().removals {
                removals.insert(&*site, commit.number()).unwrap();
            }
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
fn a_file_of_an_earlier_version_is_migrated_with_its_log() {
    for version in [1, 2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.redb");
        let model = model();
        written_by(version, &path, &model);

        for _ in 0..2 {
            let ledger = Redb::open(&path).unwrap();
            let contents = ledger.load().unwrap();
            assert_eq!(contents, model.divided(EPOCH), "version {version}");
            assert_eq!(contents.removals["a"], Commit::new(200));
            let mut log = ledger.decisions(Commit::MAX, 1000, &|_| true).unwrap();
            log.reverse();
            assert_eq!(log, model.log, "version {version}");
        }
    }
}

/// The version that a file says it is of.
fn version(path: &std::path::Path) -> u64 {
    let database = Database::open(path).unwrap();
    let transaction = database.begin_read().unwrap();
    let meta = transaction.open_table(META).unwrap();
    meta.get("schema").unwrap().unwrap().value()
}

#[test]
fn a_file_is_backed_up_before_it_is_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.redb");
    let mut model = model();
    let backup = |number: u32| match number {
        1 => folder.path().join("ledger.redb.schema-2"),
        _ => folder.path().join(format!("ledger.redb.schema-2.{number}")),
    };
    // Somebody runs the earlier version again, which writes further changes.
    let mut go_back = || {
        for hosts in [Some(1), None] {
            let change = put(&model, "one", hosts);
            model.take(&change);
        }
        if path.exists() {
            std::fs::remove_file(&path).unwrap();
        }
        written_by(2, &path, &model);
    };
    for number in 1..=9 {
        go_back();
        drop(Redb::open(&path).unwrap());
        assert_eq!(version(&backup(number)), 2);
    }
    go_back();
    let error = Redb::open(&path).unwrap_err();
    assert!(
        error.chain().contains("remove those that are not needed"),
        "{}",
        error.chain()
    );
    assert_eq!(version(&path), 2, "without a backup nothing is migrated");

    std::fs::remove_file(backup(4)).unwrap();
    let ledger = Redb::open(&path).unwrap();
    assert_eq!(ledger.load().unwrap(), model.divided(EPOCH));
    drop(ledger);
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    drop(Redb::open(&path).unwrap());
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        files,
        "it is backed up once"
    );
}

#[test]
fn a_kill_before_a_migration_makes_no_further_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.redb");
    let model = model();
    written_by(2, &path, &model);
    let unmigrated = std::fs::read(&path).unwrap();
    // This is left of a kill while the file was copied.
    std::fs::write(folder.path().join(".ledger-backup-1"), "x").unwrap();
    for _ in 0..12 {
        std::fs::write(&path, &unmigrated).unwrap();
        let ledger = Redb::open(&path).unwrap();
        assert_eq!(ledger.load().unwrap(), model.divided(EPOCH));
    }
    let mut names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["ledger.redb", "ledger.redb.schema-2"]);
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
    let log = ledger.decisions(Commit::MAX, 1000, &|_| true).unwrap();
    let stored = |entry: &api::Decision| {
        if entry.commit <= 200 {
            earlier(entry).len()
        } else {
            entry.encoded_len()
        }
    };
    let kept: usize = log.iter().map(stored).sum();
    assert!((4_500..=5_000).contains(&kept), "{kept} bytes are kept");
}

#[test]
fn a_file_of_a_later_version_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.redb");
    drop(Redb::open(&path).unwrap());
    let database = Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("schema", 5).unwrap();
    transaction.commit().unwrap();
    drop(database);

    let error = Redb::open(&path).unwrap_err();

    assert_eq!(
        error.to_string(),
        "ledger: schema version 5, this program understands 4"
    );
}

#[test]
fn keys_of_a_later_version_in_etcd_are_refused_with_a_sentence() {
    let cluster = Cluster::start(1);
    let location = cluster.location("/later");
    let elected = cluster.elect(&location, "one:1");
    drop(cluster.open(&location, elected).unwrap());
    let write = async { location.client().put("/later/schema", "7", None).await };
    cluster.runtime.block_on(write).unwrap();

    let error = cluster.open(&location, elected).unwrap_err();

    assert!(
        matches!(
            error,
            Error::Schema {
                found: 7,
                understood: 3
            }
        ),
        "{error}"
    );
}

#[test]
fn a_check_leaves_a_file_of_an_earlier_version_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.redb");
    let model = model();
    written_by(3, &path, &model);

    let sipctl = sandbox::programs::path("sipctl").unwrap();
    let checked = std::process::Command::new(sipctl)
        .args(["ledger", "check", "--ledger"])
        .arg(&path)
        .output()
        .unwrap();

    let text = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(0), "{text}{checked:?}");
    assert!(text.contains("200"), "the log is read: {text}");
    assert_eq!(version(&path), 3, "a scheduler of that version still reads it");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let ledger = Redb::open_to_read(&path).unwrap();
    assert_eq!(ledger.load().unwrap(), model.divided(EPOCH));
}

/// All keys below a prefix but the leader's.
fn raw(cluster: &Cluster, location: &Location, prefix: &str) -> BTreeMap<String, Vec<u8>> {
    let all = GetOptions::new().with_prefix();
    let found = cluster
        .runtime
        .block_on(async { location.client().get(prefix, Some(all)).await });
    let key = |entry: &KeyValue| entry.key_str().unwrap().strip_prefix(prefix).unwrap().to_owned();
    let mut keys: BTreeMap<_, _> = found
        .unwrap()
        .kvs()
        .iter()
        .map(|entry| (key(entry), entry.value().to_vec()))
        .collect();
    keys.remove("leader");
    keys
}

#[test]
fn keys_of_earlier_versions_in_etcd_are_migrated() {
    for version in ["1", "2"] {
        migrated_in_etcd(version);
    }
}

fn migrated_in_etcd(version: &str) {
    let cluster = Cluster::start(1);
    let location = cluster.location("/earlier");
    let elected = cluster.elect(&location, "one:1");
    let ledger = cluster.open(&location, elected).unwrap();
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
        let mut client = location.client();
        client.put("/earlier/schema", version, None).await.unwrap();
        if version == "1" {
            let all = DeleteOptions::new().with_prefix();
            client.delete("/earlier/removals/", Some(all)).await.unwrap();
        }
        let position = disk::Position {
            epoch: EPOCH,
            commit: model.last().number(),
            log_bytes: 1,
            commit_id: String::new(),
            ..disk::Position::default()
        };
        let position = position.encode_to_vec();
        client.put("/earlier/position", position, None).await.unwrap();
    });

    let before = raw(&cluster, &location, "/earlier/");
    for _ in 0..2 {
        let ledger = cluster.open(&location, elected).unwrap();
        assert!(
            ledger.load().unwrap() == model.divided(EPOCH),
            "version {version}"
        );
    }
    let backup = format!("/earlier-schema-{version}");
    assert_eq!(
        raw(&cluster, &location, &format!("{backup}/")),
        before,
        "backed up"
    );
    assert_eq!(before["schema"], version.as_bytes());
    assert_eq!(raw(&cluster, &location, &format!("{backup}.2/")).len(), 0, "once");
    let ledger = cluster.open(&location, elected).unwrap();
    let next = put(&model, "two", Some(1));
    ledger.commit(std::slice::from_ref(&next)).unwrap();
    let mut expected = model.divided(EPOCH);
    expected.apply(next);
    assert!(ledger.load().unwrap() == expected, "it goes on from there");
}

#[test]
fn a_backup_in_etcd_has_nothing_of_one_that_was_cut_off() {
    let cluster = Cluster::start(1);
    let location = cluster.location("/again");
    let elected = cluster.elect(&location, "one:1");
    let ledger = cluster.open(&location, elected).unwrap();
    let change = put(&Model::new(), "one", Some(1));
    ledger.commit(&[change]).unwrap();
    drop(ledger);
    cluster.runtime.block_on(async {
        let mut client = location.client();
        client.put("/again/schema", "2", None).await.unwrap();
        // The program of that version went on then, and removed this record.
        let gone = "/again-schema-2/records/tenant/gone/a";
        client.put(gone, "a record", None).await.unwrap();
    });
    let before = raw(&cluster, &location, "/again/");

    drop(cluster.open(&location, elected).unwrap());

    assert_eq!(raw(&cluster, &location, "/again-schema-2/"), before);
}
