//! Exports that are written by themselves.

use std::{
    fs::File,
    io::BufReader,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use runtime::metrics::Metrics;
use scheduler::{
    backup::{BackupMetrics, Backups},
    ledger::{
        check::{Checker, Report},
        export::Reader,
    },
    term::Standing,
};

use crate::{
    disk::{Disk, Fault},
    fixtures::{PATIENCE, Stage, until},
};

const EVERY: Duration = Duration::from_millis(1100);

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn check(path: &Path) -> Report {
    let mut checker = Checker::default();
    for entry in Reader::new(BufReader::new(File::open(path).unwrap())).unwrap() {
        checker.add(&entry.unwrap());
    }
    checker.finish()
}

fn age(metrics: &Metrics) -> f64 {
    let text = metrics.encode().unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("sip_scheduler_ledger_backup_age_seconds "));
    line.unwrap().parse().unwrap()
}

#[test]
fn without_a_directory_the_newest_backup_is_infinitely_old() {
    let registered = Metrics::default();
    let _metrics = BackupMetrics::registered(&registered);

    assert!(age(&registered).is_infinite());
}

#[tokio::test]
async fn exports_are_written_while_there_is_a_term_and_the_oldest_go() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other"), "stays").unwrap();
    let stage = Stage::start(Disk::default()).await;
    let _reports = stage.report(5).await.unwrap();
    stage.apply("one").await.unwrap();
    let registered = Metrics::default();
    let metrics = BackupMetrics::registered(&registered);
    let backups =
        Backups::with_interval(folder.path(), EVERY, 2, stage.terms.clone(), metrics.clone()).unwrap();
    let running = tokio::spawn(backups.run());

    let begun = std::time::Instant::now();
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 5 {
        assert!(begun.elapsed() < PATIENCE, "{seen:?}");
        let now = files(folder.path());
        let whole: Vec<_> = now
            .iter()
            .filter(|name| name.ends_with(".export"))
            .cloned()
            .collect();
        assert!(whole.len() <= 3, "{now:?}");
        seen.extend(whole);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(age(&registered) < 10.0, "{}", age(&registered));
    let newest = seen.last().unwrap();
    let report = check(&folder.path().join(newest));
    assert_eq!(
        (report.found, report.counts.records, report.members),
        (0, 1, 1),
        "{report:?}"
    );
    assert!(files(folder.path()).contains(&"other".to_owned()));

    // Nothing is written without a term, and the age says so.
    stage.disk.fault(Some(Fault::Sync));
    stage.apply("two").await.unwrap_err();
    stage.read_only().await;
    let before = files(folder.path());
    until(
        || async { age(&registered) },
        |age| *age > 2.0 * EVERY.as_secs_f64(),
    )
    .await;
    let after = files(folder.path());
    assert!(
        after.len() <= before.len() && after.last() == before.last(),
        "{before:?} {after:?}"
    );
    stage.disk.fault(None);
    stage.reach(Standing::serves).await;
    until(|| async { age(&registered) }, |age| *age < EVERY.as_secs_f64()).await;
    running.abort();

    // Another process finds what there is.
    let again = Backups::with_interval(
        folder.path(),
        Duration::from_hours(1),
        2,
        stage.terms.clone(),
        metrics,
    )
    .unwrap();
    let before = files(folder.path());
    let running = tokio::spawn(again.run());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(files(folder.path()), before, "it is not time yet");
    running.abort();
}

#[tokio::test]
async fn backups_of_a_clock_that_was_ahead_delay_and_evict_none() {
    let folder = tempfile::tempdir().unwrap();
    for hours in [1000, 1001, 1002] {
        let ahead = SystemTime::now() + Duration::from_hours(hours);
        let seconds = ahead.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let name = format!("ledger-{seconds:012}.export");
        let file = File::create(folder.path().join(name)).unwrap();
        file.set_modified(ahead).unwrap();
    }
    let ahead = files(folder.path());
    // A process was killed while it wrote this.
    std::fs::write(folder.path().join(".ledger-unfinished-1"), "x").unwrap();
    let stage = Stage::start(Disk::default()).await;
    let registered = Metrics::default();
    let metrics = BackupMetrics::registered(&registered);
    let every = Duration::from_secs(15);
    let backups = Backups::with_interval(folder.path(), every, 3, stage.terms.clone(), metrics).unwrap();
    let running = tokio::spawn(backups.run());

    until(|| async { age(&registered) }, |age| age.is_finite()).await;

    let now = files(folder.path());
    assert_eq!(now.len(), 3, "{now:?}");
    assert!(now[0] < ahead[0], "the new one stays: {now:?}");
    assert_eq!(check(&folder.path().join(&now[0])).found, 0);
    assert_eq!(now[1..], ahead[1..], "the oldest goes");
    running.abort();
}
