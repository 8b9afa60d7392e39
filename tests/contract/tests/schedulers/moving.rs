//! A region moves from one scheduler with a file to several on etcd.

use std::{path::Path, process::Output};

use proto::placement::v1::{
    WatchPlacementsRequest, placement_service_client::PlacementServiceClient,
    watch_placements_response::Event,
};
use sandbox::programs;

use crate::{
    client::SITE,
    region::{Region, assert_kept},
};

async fn sipctl(arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(programs::path("sipctl").unwrap());
    command.args(arguments).output().await.unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

async fn done(arguments: &[&str]) -> String {
    let output = sipctl(arguments).await;
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
    text(&output)
}

async fn export(address: &str, file: &Path) -> String {
    let scheduler = format!("http://{address}");
    done(&[
        "ledger",
        "export",
        "--scheduler",
        &scheduler,
        "--plaintext-loopback",
        "--region",
        "north",
        "--trust-domain",
        "sip.example",
        "--output",
        file.to_str().unwrap(),
    ])
    .await
}

#[tokio::test]
async fn a_region_moves_to_etcd_and_watchers_continue() {
    let mut region = Region::new(1).await;
    let folder = region.directory().to_owned();
    let redb = folder.join("ledger.redb");
    region.add_on_file(&redb);
    let reports = region.reported(0).await;
    for index in 0..12 {
        let client = &region.schedulers[0].client;
        client.apply(&format!("c{index}"), 3).await.unwrap();
    }
    let promised = region.schedulers[0].client.list().await.unwrap();
    let resume = promised
        .values()
        .filter_map(|placement| placement.revision)
        .max_by_key(|at| at.revision);

    let file = folder.join("export");
    let said = export(&region.schedulers[0].address, &file).await;
    assert!(said.contains("12 records"), "{said}");
    let path = file.to_str().unwrap();
    let checked = done(&["ledger", "check", path]).await;
    assert!(checked.contains("12") && checked.contains("36"), "{checked}");
    region.schedulers[0].process.kill9().await.unwrap();
    drop(reports);
    let checked = done(&["ledger", "check", "--ledger", redb.to_str().unwrap()]).await;
    assert!(checked.contains("36"), "{checked}");

    let endpoints = region.etcd.endpoints();
    done(&["ledger", "import", path, "--ledger-etcd", &endpoints[0]]).await;
    region.add(&endpoints);
    region.add(&endpoints);
    let leader = region.leader(Some(0)).await;
    let client = &region.schedulers[leader].client;

    let found = client.list().await.unwrap();
    assert_eq!(found, promised, "the same hosts at the same epoch and revisions");
    assert_kept(&promised, &found);
    let request = WatchPlacementsRequest {
        site: SITE.to_owned(),
        resume,
    };
    let mut placements = PlacementServiceClient::new(client.channel());
    let mut watch = placements.watch_placements(request).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert!(
        matches!(first.event, Some(Event::Synced(_))),
        "nothing is told again: {first:?}"
    );

    let refused = sipctl(&["ledger", "import", path, "--ledger-etcd", &endpoints[0]]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused).contains("stop every scheduler first"),
        "{}",
        text(&refused)
    );
    for scheduler in &mut region.schedulers {
        scheduler.process.kill9().await.unwrap();
    }
    let refused = sipctl(&["ledger", "import", path, "--ledger", redb.to_str().unwrap()]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("not empty"), "{}", text(&refused));
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let cut = sipctl(&["ledger", "check", path]).await;
    assert_eq!(cut.status.code(), Some(2));
    assert!(text(&cut).contains("truncated"), "{}", text(&cut));
}
