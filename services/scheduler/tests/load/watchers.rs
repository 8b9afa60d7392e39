//! Watchers that do not read for a while.

use std::{collections::BTreeMap, time::Duration};

use proto::inventory::v1::Host;
use proto::placement::v1::{
    ApplyClusterRequest, ListPlacementsRequest, Placement, ReleaseClusterRequest, WatchPlacementsRequest,
    WatchPlacementsResponse, watch_placements_response::Event,
};
use tokio::task::JoinSet;
use tonic::Streaming;

use crate::fixtures::{SITE, Stage, apply, channel, host, report};
use proto::placement::v1::placement_service_client::PlacementServiceClient;

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// How large a change is.
const BYTES: usize = 32 << 10;
/// More removals than a site remembers.
const REMOVED: usize = 4200;

/// What a watcher knows.
#[derive(Default)]
struct Known {
    placements: BTreeMap<String, Placement>,
    last: Option<proto::inventory::v1::Revision>,
    events: usize,
    resets: usize,
}

impl Known {
    fn take(&mut self, told: WatchPlacementsResponse) {
        self.events += 1;
        match told.event.unwrap() {
            Event::Changed(placement) => {
                let name = placement.cluster.clone().unwrap().name;
                let before = self.placements.insert(name, placement.clone());
                let at = |placement: &Placement| placement.revision.unwrap().revision;
                assert!(
                    before.is_none_or(|before| at(&before) < at(&placement)),
                    "told again of what was before"
                );
            }
            Event::Removed(removed) => {
                self.placements.remove(&removed.cluster.unwrap().name);
            }
            Event::Reset(_) => {
                self.resets += 1;
                self.placements.clear();
            }
            Event::Synced(_) => {}
        }
        self.last = told.revision;
    }

    /// Reads until it knows what there is.
    async fn until(
        &mut self,
        stream: &mut Streaming<WatchPlacementsResponse>,
        there_is: &BTreeMap<String, Placement>,
    ) {
        let reads = async {
            while self.placements != *there_is {
                let told = stream.message().await.unwrap();
                self.take(told.unwrap());
            }
        };
        let read = tokio::time::timeout(PATIENCE, reads).await;
        assert!(
            read.is_ok(),
            "after {} events it knows {} of {}",
            self.events,
            self.placements.len(),
            there_is.len()
        );
    }
}

async fn watch(
    stage: &Stage,
    resume: Option<proto::inventory::v1::Revision>,
) -> Streaming<WatchPlacementsResponse> {
    let request = WatchPlacementsRequest {
        site: SITE.to_owned(),
        resume,
    };
    // A connection of its own: one that does not read holds up nobody else.
    let mut client = PlacementServiceClient::new(channel(stage.address));
    client.watch_placements(request).await.unwrap().into_inner()
}

async fn all(stage: &Stage) -> BTreeMap<String, Placement> {
    let request = ListPlacementsRequest {
        page_size: 1000,
        ..ListPlacementsRequest::default()
    };
    let answer = stage.placements().list_placements(request).await.unwrap();
    let placements = answer.into_inner().placements.into_iter();
    placements
        .map(|placement| (placement.cluster.clone().unwrap().name, placement))
        .collect()
}

/// A declaration that differs from the one before.
fn changed(name: &str, generation: i64, workers: u32) -> ApplyClusterRequest {
    let mut request = apply(name, workers);
    request.generation = generation;
    request
}

/// Every one of the first `clusters` changes, once per generation.
async fn change(stage: &Stage, clusters: usize, workers: u32, generations: std::ops::Range<i64>) {
    let mut changing = JoinSet::new();
    for cluster in 0..clusters {
        let (mut client, generations) = (stage.placements(), generations.clone());
        changing.spawn(async move {
            for generation in generations {
                let request = changed(&format!("c{cluster}"), generation, workers);
                client.apply_cluster(request).await.unwrap();
            }
        });
    }
    changing.join_all().await;
}

#[tokio::test]
async fn a_slow_watcher_costs_little_and_gets_the_newest_state() {
    const CLUSTERS: usize = 3;
    const CHANGES: i64 = 500;
    let stage = Stage::served().await;
    let large = [("h1", "192.0.2.1"), ("h2", "192.0.2.2"), ("h3", "192.0.2.3")];
    let large = large.map(|(name, address)| Host {
        addresses: (0..128)
            .map(|network| (format!("{network:0>250}"), address.to_owned()))
            .collect(),
        ..host(name)
    });
    let _reports = report(&stage.channel, &large).await;
    let mut known = Known::default();
    let mut stream = watch(&stage, None).await;
    change(&stage, CLUSTERS, 1, 1..2).await;
    known.until(&mut stream, &all(&stage).await).await;
    let before = known.events;

    change(&stage, CLUSTERS, 1, 2..2 + CHANGES).await;

    known.until(&mut stream, &all(&stage).await).await;
    assert_eq!(known.resets, 1, "only the one at its beginning");
    let kept = (known.events - before) * BYTES;
    let changes = CLUSTERS * usize::try_from(CHANGES).unwrap() * BYTES;
    println!("{changes} bytes of changes while it did not read: {kept} were kept for it");
    assert!(kept < changes / 4, "{kept} of {changes} bytes were kept for it");
}

#[tokio::test]
async fn a_watcher_resumes_and_a_too_late_one_restarts() {
    let stage = Stage::served().await;
    let mut known = Known::default();
    let mut stream = watch(&stage, None).await;
    change(&stage, 3, 0, 1..2).await;
    known.until(&mut stream, &all(&stage).await).await;
    drop(stream);
    change(&stage, 3, 0, 2..4).await;
    release(&stage, "c0").await;

    let mut stream = watch(&stage, known.last).await;
    known.until(&mut stream, &all(&stage).await).await;
    assert_eq!(known.resets, 1, "it has missed nothing");
    assert!(!known.placements.contains_key("c0"), "not even a removal");

    // One stays and does not read, one is away.
    let mut away = Known {
        placements: known.placements.clone(),
        last: known.last,
        ..Known::default()
    };
    let mut going = JoinSet::new();
    for first in 0..60 {
        let mut client = stage.placements();
        going.spawn(async move {
            for index in (first..REMOVED).step_by(60) {
                let name = format!("gone-{index}");
                client.apply_cluster(changed(&name, 1, 0)).await.unwrap();
                client.release_cluster(given_back(&name)).await.unwrap();
            }
        });
    }
    going.join_all().await;
    release(&stage, "c1").await;

    known.until(&mut stream, &all(&stage).await).await;
    assert_eq!(known.placements.keys().collect::<Vec<_>>(), ["c2"]);
    let mut stream = watch(&stage, away.last).await;
    away.until(&mut stream, &all(&stage).await).await;
    assert_eq!(away.resets, 1, "it may have missed something");
    assert_eq!(away.placements, known.placements);
}

fn given_back(name: &str) -> ReleaseClusterRequest {
    ReleaseClusterRequest {
        site: SITE.to_owned(),
        cluster: apply(name, 0).cluster,
    }
}

async fn release(stage: &Stage, name: &str) {
    stage
        .placements()
        .release_cluster(given_back(name))
        .await
        .unwrap();
}
