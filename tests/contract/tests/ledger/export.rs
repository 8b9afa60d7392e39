//! Files of exports, and what is looked for in them.

use std::path::Path;

use prost::Message as _;
use proto::{inventory::v1 as inventory, ledger::v1 as disk, placement::v1 as api};
use redb::backends::InMemoryBackend;
use scheduler::ledger::{
    Commit, Error, Ledger as _,
    check::{Checker, Report},
    export::{FileError, Reader, Writer},
    redb::Redb,
};
use sha2::{Digest as _, Sha256};

use crate::{
    backends::Cluster,
    changes::{Model, put},
};

/// A file with three clusters, and one that is gone.
fn file() -> Vec<u8> {
    let ledger = Redb::on(InMemoryBackend::new()).unwrap();
    let mut model = Model::new();
    for name in ["one", "two", "three"] {
        let change = put(&model, name, Some(3));
        ledger.commit(std::slice::from_ref(&change)).unwrap();
        model.take(&change);
    }
    for hosts in [Some(1), None] {
        let change = put(&model, "gone", hosts);
        ledger.commit(std::slice::from_ref(&change)).unwrap();
        model.take(&change);
    }
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    ledger.export(&mut |entry| Ok(writer.write(&entry)?)).unwrap();
    let end = writer.counts().end();
    writer.write(&end).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<disk::Entry>, FileError> {
    Reader::new(bytes)?.collect()
}

#[test]
fn a_file_that_was_cut_off_at_any_byte_is_noticed() {
    let whole = file();
    assert_eq!(read(&whole).unwrap().len(), 1 + 3 + 1 + 5 + 1);

    for length in 0..whole.len() {
        match read(&whole[..length]).unwrap_err() {
            FileError::Foreign => assert!(length < 12),
            FileError::CutOff(_) => {}
            error @ (FileError::Io(_) | FileError::Damaged(_) | FileError::Newer(_)) => {
                panic!("{length}: {error}")
            }
        }
    }
}

#[test]
fn a_file_with_any_byte_changed_is_noticed() {
    let whole = file();

    for place in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x10;
        assert!(read(&bytes).is_err(), "the byte at {place} is another one");
    }
    let mut longer = whole;
    longer.push(0);
    assert!(read(&longer).is_err(), "something comes after the end");
}

#[test]
fn export_of_a_newer_version_is_refused_by_its_version() {
    let whole = file();
    for (line, version) in [
        ("SIPLEDGER 3\n", Some(3)),
        ("SIPLEDGER 12\n", Some(12)),
        ("SIPLEDGER x\n", None),
    ] {
        let mut bytes = line.as_bytes().to_vec();
        bytes.extend(&whole[12..]);
        let error = read(&bytes).unwrap_err();
        match version {
            Some(version) => {
                assert!(
                    matches!(error, FileError::Newer(found) if found == version),
                    "{line:?}: {error}"
                );
                let said = format!("the export has version {version} of the format");
                assert!(error.to_string().starts_with(&said), "{error}");
            }
            None => assert!(matches!(error, FileError::Foreign), "{line:?}: {error}"),
        }
    }
}

fn check(entries: &[disk::Entry]) -> Report {
    let mut checker = Checker::default();
    for entry in entries {
        checker.add(entry);
    }
    checker.finish()
}

/// The first record among entries.
fn first(entries: &mut [disk::Entry]) -> &mut disk::RecordEntry {
    entries
        .iter_mut()
        .find_map(|entry| match &mut entry.entry {
            Some(disk::entry::Entry::Record(record)) => Some(record),
            _ => None,
        })
        .unwrap()
}

fn members(entries: &mut [disk::Entry]) -> &mut Vec<api::Member> {
    let record = first(entries).record.as_mut().unwrap();
    &mut record.placement.as_mut().unwrap().members
}

/// Makes entries wrong.
type Break = fn(&mut Vec<disk::Entry>);

#[test]
fn whatever_breaks_an_invariant_is_found() {
    let sound = read(&file()).unwrap();
    assert_eq!(check(&sound).findings, Vec::<String>::new());
    let cases: [(&str, Break); 7] = [
        ("is held twice", |entries| {
            let mut again = first(entries).clone();
            "four".clone_into(&mut again.name);
            entries.insert(
                2,
                disk::Entry {
                    entry: Some(disk::entry::Entry::Record(again)),
                },
            );
        }),
        ("last removal of site a: is of commit 9", |entries| {
            for entry in entries {
                if let Some(disk::entry::Entry::Removal(removal)) = &mut entry.entry {
                    removal.commit = 9;
                }
            }
        }),
        ("the site is at 5", |entries| {
            let record = first(entries).record.as_mut().unwrap();
            let placement = record.placement.as_mut().unwrap();
            placement.revision = Some(inventory::Revision {
                epoch: 0,
                revision: 9,
            });
        }),
        ("is of revision 0", |entries| members(entries)[0].revision = 0),
        ("has no state", |entries| members(entries)[0].state = 0),
        ("has no placement", |entries| {
            first(entries).record.as_mut().unwrap().placement = None;
        }),
        ("there is no header", |entries| {
            entries.remove(0);
        }),
    ];

    for (expected, break_it) in cases {
        let mut entries = sound.clone();
        break_it(&mut entries);
        let report = check(&entries);
        assert!(
            report.findings.iter().any(|finding| finding.contains(expected)),
            "{expected}: {report:?}"
        );
    }
}

#[test]
fn an_import_into_etcd_that_was_not_finished_cannot_be_opened() {
    let cluster = Cluster::start(1);
    let location = cluster.location("/unfinished");
    let elected = cluster.elect(&location, "here");
    let ledger = cluster.open(&location, elected).unwrap();
    let entries = read(&file()).unwrap();
    let broken = entries
        .into_iter()
        .take(3)
        .map(Ok)
        .chain([Err(FileError::CutOff(9).into())]);

    ledger.import(&mut broken.into_iter()).unwrap_err();

    drop(ledger);
    let error = cluster.open(&location, elected).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("import again"), "{error}");
}

#[test]
fn an_import_into_a_file_that_was_not_finished_leaves_it_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path: &Path = &folder.path().join("ledger.redb");
    let ledger = Redb::open(path).unwrap();
    let entries = read(&file()).unwrap();
    let broken = entries
        .into_iter()
        .take(3)
        .map(Ok)
        .chain([Err(FileError::CutOff(9).into())]);

    ledger.import(&mut broken.into_iter()).unwrap_err();

    assert_eq!(ledger.load().unwrap(), Model::new().contents());
}

/// The file as an earlier version wrote it: one position for all sites.
fn earlier_file(epoch: u64) -> Vec<u8> {
    use disk::entry::Entry;
    let mut bytes = b"SIPLEDGER 1\n".to_vec();
    for mut entry in read(&file()).unwrap() {
        match &mut entry.entry {
            Some(Entry::Header(header)) => {
                *header = disk::Header {
                    epoch,
                    revision: header.commit,
                    commit: 0,
                }
            }
            Some(Entry::Decision(decision)) => decision.commit = 0,
            Some(Entry::End(end)) => end.sha256 = Sha256::digest(&bytes).to_vec(),
            Some(Entry::Record(_) | Entry::Removal(_) | Entry::Fence(_) | Entry::History(_)) | None => {}
        }
        bytes.extend(entry.encode_length_delimited_to_vec());
    }
    bytes
}

#[test]
fn export_of_an_earlier_version_is_imported() {
    let entries = read(&earlier_file(3)).unwrap();
    let report = check(&entries);
    assert_eq!(report.findings, Vec::<String>::new());
    let ledger = Redb::on(InMemoryBackend::new()).unwrap();
    ledger.import(&mut entries.into_iter().map(Ok)).unwrap();

    let contents = ledger.load().unwrap();
    assert_eq!(contents.commit, Commit::new(5));
    assert_eq!(contents.records.len(), 3);
    let history = contents.histories["a"];
    assert_eq!(history.at(contents.commit).to_string(), "3.5");
    let log = ledger.decisions(Commit::MAX, 10, &|_| true).unwrap();
    let commits: Vec<u64> = log.iter().map(|entry| entry.commit).collect();
    assert_eq!(commits, [5, 4, 3, 2, 1]);
}
