//! Agents are killed at each step: before a call is carried out, after it, and while it is on its way and arrives later.

use std::{collections::BTreeMap, env};

use sandbox::region::Agent;

use super::{
    Fault, Injected,
    cells::{Cell, Faulty, Phase, Step, nothing_is_left, steps},
};
use crate::fixtures::{AGENTS, Stage};

/// Where the call is when its agent is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Killed {
    Before,
    After,
    /// The call arrives when the next process acts already.
    OnItsWay,
}

const KILLED: [Killed; 3] = [Killed::Before, Killed::After, Killed::OnItsWay];

impl Killed {
    fn fault(self) -> Fault {
        match self {
            Self::Before | Self::OnItsWay => Fault::HeldBefore,
            Self::After => Fault::HeldAfter,
        }
    }
}

/// Where the agent is killed at this step: in the short form in one place, another one at the next step.
fn places(index: usize, all: bool) -> Vec<Killed> {
    if all {
        KILLED.to_vec()
    } else {
        vec![KILLED[index % KILLED.len()]]
    }
}

/// Clusters that an agent reconciles when it is killed: fewer than it reconciles at once, or some would not get to their step.
const AT_ONCE: usize = 12;

async fn all<'a, T>(cells: &'a [(Cell, Killed)], what: impl AsyncFn(&'a Cell) -> T) -> Vec<T> {
    futures::future::join_all(cells.iter().map(|(cell, _)| what(cell))).await
}

/// Every cell gets to its step; then the agent is killed, once for all of them, and starts again.
async fn kill(site: &mut Faulty, agent: Agent, cells: &[(Cell, Killed)], injected: &[Injected]) {
    for one in injected {
        one.happens().await;
    }
    site.stage.agent(agent).kill9().await.unwrap();
    let opened = |killed: Killed| {
        let of = move |(_, (_, is)): &(&Injected, &(Cell, Killed))| *is == killed;
        injected
            .iter()
            .zip(cells)
            .filter(of)
            .for_each(|(one, _)| one.open());
    };
    opened(Killed::After);
    site.stage.agent(agent).restart().await.unwrap();
    opened(Killed::OnItsWay);
}

async fn batch(site: &mut Faulty, agent: Agent, phase: Phase, cells: &[(Cell, Killed)]) {
    let inject = |site: &Faulty| -> Vec<Injected> {
        cells
            .iter()
            .map(|(cell, killed)| cell.inject(site, killed.fault()))
            .collect()
    };
    let create = async |stage: &Stage| {
        all(cells, async |cell: &Cell| {
            cell.prepare(stage).await;
            stage.create(&cell.cluster()).await;
        })
        .await;
    };
    let placed = async |stage: &Stage| {
        all(cells, async |cell: &Cell| cell.is_placed(stage).await).await;
    };
    let delete = async |stage: &Stage| {
        all(cells, async |cell: &Cell| stage.delete(&cell.cluster()).await).await;
    };
    match phase {
        Phase::Placement => {
            let injected = inject(site);
            create(&site.stage).await;
            kill(site, agent, cells, &injected).await;
            placed(&site.stage).await;
            delete(&site.stage).await;
        }
        Phase::Release => {
            create(&site.stage).await;
            placed(&site.stage).await;
            let injected = inject(site);
            delete(&site.stage).await;
            kill(site, agent, cells, &injected).await;
        }
    }
    all(cells, async |cell: &Cell| cell.is_released(&site.stage).await).await;
}

#[tokio::test]
async fn an_agent_killed_at_any_write_converges() {
    let mut site = Faulty::start(&AGENTS).await;
    // Of each kind the first, which is always asked for.
    let steps: Vec<Step> = steps(&site)
        .await
        .into_iter()
        .filter(|step| step.nth == 0)
        .collect();
    let mut batches: BTreeMap<(Agent, Phase), Vec<(Cell, Killed)>> = BTreeMap::new();
    let all = env::var_os("SOAK_FAULTS").is_some();
    let planned = steps.iter().enumerate().flat_map(|(index, step)| {
        let places = places(index, all).into_iter();
        places.map(move |killed| (step, killed))
    });
    for ((step, killed), number) in planned.zip(1..) {
        batches
            .entry((step.agent, step.phase))
            .or_default()
            .push((site.cell(number, step), killed));
    }
    let mut done = Vec::new();
    for ((agent, phase), cells) in batches {
        let (mut kills, mut rest) = (0, cells);
        while !rest.is_empty() {
            let next = rest.split_off(rest.len().min(AT_ONCE));
            batch(&mut site, agent, phase, &rest).await;
            kills += 1;
            done.extend(rest.into_iter().map(|(cell, _)| cell));
            rest = next;
        }
        println!("{phase:?}: {} killed {kills} times", agent.name());
    }
    println!("{} lives, {} steps", done.len(), steps.len());
    nothing_is_left(&site, &done).await;
}
