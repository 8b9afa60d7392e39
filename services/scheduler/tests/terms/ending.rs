//! The process ends.

use std::time::Duration;

use tonic::Code;

use crate::{
    disk::Disk,
    fixtures::{PATIENCE, Stage, reason},
};

#[tokio::test]
async fn a_shutdown_ends_streams_and_answers_what_has_begun() {
    let stage = Stage::start(Disk::default()).await;
    let reports = stage.report(3).await.unwrap();
    let (_, mut watch) = stage.watch().await;
    let disk = stage.disk.clone();
    disk.hold_syncs(true);
    let terms = stage.terms.clone();
    let staged = terms.region().unwrap().committer().staged();
    let applying = stage.apply("first");
    let shut_down = async {
        while terms.region().unwrap().committer().staged() == staged {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stage.shutdown.cancel();
        let status = reports.ended().await;
        disk.hold_syncs(false);
        status
    };

    let (applied, report_ended) = tokio::join!(applying, shut_down);

    assert_eq!(
        applied.unwrap().members.len(),
        1,
        "it was asked for before the shutdown"
    );
    assert_eq!(report_ended.code(), Code::Unavailable);
    let watch_ended = loop {
        if let Err(status) = watch.message().await {
            break status;
        }
    };
    assert_eq!(watch_ended.code(), Code::Unavailable);
    drop(watch);
    let Stage {
        supervised, served, ..
    } = stage;
    tokio::time::timeout(PATIENCE, served)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    tokio::time::timeout(PATIENCE, supervised)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(
        reason(&terms.region().unwrap_err().into()),
        "SHUTTING_DOWN",
        "nothing is begun any more"
    );
}
