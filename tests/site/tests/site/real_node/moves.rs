//! A host moves from one tenant to another while both are asked all the time, and agents, the scheduler and containers of load balancers
//! are killed: nobody is answered by a machine of the other.
//!
//! Agents and the scheduler are killed at writes to the API server: before one has arrived, or when the agent has no answer. In the short
//! form some are, by `SOAK_SEED`. `SOAK_MOVES` is the number of moves of the long form. With `SOAK_MOVE_KILLS` every way of moving is made with
//! a kill at one of so many writes: with 1 at every write.

mod ground;
mod kills;
mod traffic;
mod ways;

use rand::{SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use sandbox::{node, region::Agent};

use self::{
    ground::Ground,
    kills::{Kill, Kills, Reached, Victim, When, Write},
    ways::{MOVES, Move},
};
use crate::fixtures::requested;

/// Answers in a second that are judged in the long form at least, over all its moves. The pace of the clients allows for 38,400, a third
/// of that while the first tenant is deleted; two cores that do everything else too reach half of it.
const RATE: u64 = 10_000;

/// Each way in which a host moves, or so many in random order.
async fn random_kills(ground: &mut Ground) {
    let seed = requested("SOAK_SEED").unwrap_or(1);
    let mut random = StdRng::seed_from_u64(seed);
    let moves = requested("SOAK_MOVES");
    let mut order = Vec::new();
    let mut victims = Kills::new();
    let (mut answers, mut time) = (0, std::time::Duration::ZERO);
    for turn in 0..moves.unwrap_or(MOVES.len() as u64) {
        if order.is_empty() {
            order = MOVES.to_vec();
            order.shuffle(&mut random);
        }
        let how = order.remove(0);
        // Every second move in the short form, and every move in the long one, kills something on the way there and something on the
        // way back.
        let kills = moves.is_some() || turn % 2 == 1;
        let mut next = || kills.then(|| victims.next(&mut random));
        let killed = [next(), next()];
        println!("seed {seed}, move {turn}: {how:?}, killed {killed:?}");
        let (judged, came) = ground.round(how, killed).await;
        if kills {
            println!("came to pass: {came:?}");
        }
        answers += judged.answers;
        time += judged.time;
    }
    let all = ground::Judged { answers, time };
    println!("{answers} answers in {time:?}, {} in a second", all.rate());
    // The short form also runs where much else does.
    assert!(moves.is_none() || all.rate() >= RATE, "{}", all.rate());
}

/// Kills the victim at one of the first writes on both ways, and then at every so many further ones, until there is none any more.
async fn kills_at_writes(
    ground: &mut Ground,
    how: Move,
    (victim, by): (Victim, Agent),
    reached: Reached,
    step: usize,
) {
    let first = usize::try_from(requested("SOAK_SEED").unwrap_or(0)).unwrap() % step;
    for nth in (first..).step_by(step) {
        let when = When::At(Write { by, nth, reached });
        let kill = Kill { victim, when, pod: 0 };
        println!("{how:?}, {kill:?}");
        let (_, came) = ground.round(how, [Some(kill); 2]).await;
        if came == [false; 2] {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_tenant_is_answered_by_a_machine_of_another() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let mut ground = Box::pin(Ground::start(ground::SCENARIO, true)).await;
    let Some(step) = requested("SOAK_MOVE_KILLS") else {
        random_kills(&mut ground).await;
        return;
    };
    let step = usize::try_from(step).unwrap();
    let victims = [
        (Victim::Agent(Agent::LoadBalancer), Agent::LoadBalancer),
        (Victim::Agent(Agent::Cluster), Agent::Cluster),
        (Victim::Scheduler, Agent::Cluster),
        (Victim::Scheduler, Agent::LoadBalancer),
    ];
    for how in MOVES {
        for victim in victims {
            for reached in [Reached::No, Reached::Yes] {
                kills_at_writes(&mut ground, how, victim, reached, step).await;
            }
        }
    }
}

/// The agent judges pods of a plain image by what they were made for. Every change starts others, and those of before have half a minute, so
/// the short form has one move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_pods_lead_to_no_machine_of_another_tenant() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let mut ground = Box::pin(Ground::start("moves-plain", false)).await;
    let seed = requested("SOAK_SEED").unwrap_or(1);
    let mut random = StdRng::seed_from_u64(seed);
    let mut victims = Kills::of_plain_pods();
    let moves = if requested("SOAK_MOVES").is_some() {
        &MOVES[..]
    } else {
        &[Move::Shrink]
    };
    for how in moves {
        let killed = [(); 2].map(|()| Some(victims.next(&mut random)));
        println!("seed {seed}: {how:?}, killed {killed:?}");
        let (_, came) = Box::pin(ground.round(*how, killed)).await;
        println!("came to pass: {came:?}");
    }
}
