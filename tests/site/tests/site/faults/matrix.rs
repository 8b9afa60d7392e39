//! Each call of a placement and of a release, by either agent, fails once in each way that a call can fail.

use std::{collections::BTreeMap, env};

use futures::{StreamExt as _, stream};

use super::{
    Fault,
    cells::{Cell, Faulty, Phase, Step, nothing_is_left, steps},
};
use crate::fixtures::AGENTS;

const FAULTS: [Fault; 8] = [
    Fault::Refused(409),
    Fault::Refused(410),
    Fault::Refused(429),
    Fault::Refused(500),
    Fault::Cut,
    Fault::Lost,
    Fault::Silent,
    Fault::Twice,
];

/// Clusters whose life goes on at once: more only wait for each other.
const AT_ONCE: usize = 48;

/// In which ways a call fails: in the short form one of all, another one for the next call.
fn faults(index: usize, all: bool) -> Vec<Fault> {
    let chosen = |place: usize| FAULTS[place % FAULTS.len()];
    if all { FAULTS.to_vec() } else { vec![chosen(index)] }
}

/// A status is written as often as something of it changes: the short form has the first of these writes.
const STATUSES: usize = 2;

/// One life; returns whether the call that was to fail came.
async fn live(site: &Faulty, cell: &Cell, fault: Fault) -> bool {
    let stage = &site.stage;
    cell.prepare(stage).await;
    let placing = (cell.step.phase == Phase::Placement).then(|| cell.inject(site, fault));
    stage.create(&cell.cluster()).await;
    cell.is_placed(stage).await;
    let injected = placing.unwrap_or_else(|| cell.inject(site, fault));
    stage.delete(&cell.cluster()).await;
    cell.is_released(stage).await;
    injected.came().await
}

/// What a pod needs to follow its configuration.
const ACCESS: [&str; 3] = ["serviceaccounts", "roles", "rolebindings"];

/// A life for each of these steps and each way in which it can fail; then nothing is left.
async fn lives(site: &Faulty, steps: &[Step]) {
    let all = env::var_os("SOAK_FAULTS").is_some();
    let steps = steps
        .iter()
        .filter(|step| all || step.nth < STATUSES || step.resource != "sipclusters/status");
    let planned = steps.enumerate().flat_map(|(index, step)| {
        let of = faults(index, all).into_iter();
        of.map(move |fault| (step, fault))
    });
    let cells: Vec<(Cell, Fault)> = planned
        .zip(1..)
        .map(|((step, fault), number)| (site.cell(number, step), fault))
        .collect();

    let failed: Vec<bool> = stream::iter(&cells)
        .map(|(cell, fault)| live(site, cell, *fault))
        .buffered(AT_ONCE)
        .collect()
        .await;

    let mut by_step: BTreeMap<String, Vec<Fault>> = BTreeMap::new();
    for ((cell, fault), failed) in cells.iter().zip(&failed) {
        let of = by_step.entry(cell.step.to_string()).or_default();
        if *failed {
            of.push(*fault);
        }
        // The first of a kind is always asked for; how often a status is written depends on what comes together.
        assert!(
            *failed || cell.step.nth > 0,
            "{} never failed by {fault:?}",
            cell.step
        );
    }
    for (step, faults) in by_step {
        println!("{step}: {faults:?}");
    }
    println!(
        "{} lives, {} with a call that failed",
        cells.len(),
        failed.iter().filter(|failed| **failed).count()
    );
    let cells: Vec<Cell> = cells.into_iter().map(|(cell, _)| cell).collect();
    nothing_is_left(site, &cells).await;
}

#[tokio::test]
async fn any_failed_call_converges() {
    let site = Faulty::start(&AGENTS).await;
    let steps = steps(&site).await;
    assert!(steps.len() >= 15, "{steps:?}");
    lives(&site, &steps).await;
}

#[tokio::test]
async fn failed_writes_of_pod_rights_are_repeated() {
    let site = Faulty::start_with_sidecars(&AGENTS).await;
    let mut steps = steps(&site).await;
    steps.retain(|step| ACCESS.contains(&&*step.resource));
    assert!(steps.len() >= ACCESS.len(), "{steps:?}");
    lives(&site, &steps).await;
}
