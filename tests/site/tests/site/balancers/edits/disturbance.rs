//! What goes wrong while specs are edited: agents are restarted, the API server refuses a write, and a watch is slow.

use std::{collections::BTreeMap, time::Duration};

use rand::{Rng as _, rngs::StdRng, seq::IndexedRandom as _};
use sandbox::region::Agent;

use crate::{
    faults::{ApiProxy, Call, Fault},
    fixtures::{AGENTS, Stage},
};

/// Answers with which the API server refuses a write.
const REFUSALS: [u16; 4] = [403, 409, 429, 500];
/// The refused write is one of so many that follow.
const WRITES: usize = 8;
/// Resources whose watches may be slow.
const WATCHED: [&str; 6] = [
    "sipclusters",
    "baremetalhosts",
    "services",
    "deployments",
    "configmaps",
    "pods",
];
const SLOW: Duration = Duration::from_secs(2);

/// An agent is restarted a moment later, or none.
pub(crate) async fn restart_one(stage: &mut Stage, random: &mut StdRng) {
    let restarts = [None, Some(Agent::LoadBalancer), Some(Agent::Cluster)];
    if let Some(agent) = restarts[random.random_range(0..restarts.len())] {
        let after = Duration::from_millis(random.random_range(0..1_000));
        println!("{agent:?} is restarted after {after:?}");
        tokio::time::sleep(after).await;
        stage.agent(agent).restart().await.unwrap();
    }
}

/// A write of an agent is refused, or a watch is slow, or neither.
pub(super) fn disturb(proxies: &BTreeMap<Agent, ApiProxy>, random: &mut StdRng) {
    let agent = *AGENTS.choose(random).unwrap();
    let proxy = &proxies[&agent];
    match random.random_range(0..3) {
        0 => {
            let code = *REFUSALS.choose(random).unwrap();
            let nth = random.random_range(0..WRITES);
            println!("a write of {agent:?} is refused with {code}, after {nth} others");
            proxy.inject(Call::is_write, nth, Fault::Refused(code));
        }
        1 => {
            let resource = WATCHED.choose(random).unwrap();
            println!("{agent:?} watches {resource} slowly");
            proxy.freeze_for(resource, SLOW);
        }
        _ => {}
    }
}
