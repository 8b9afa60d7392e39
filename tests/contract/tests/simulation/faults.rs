//! What goes wrong, and when, as the seed says; and what people wish meanwhile.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{Rng as _, rngs::StdRng, seq::IndexedRandom as _};
use turmoil::Sim;

use crate::world::World;

const HOSTS: [&str; 3] = ["scheduler", "agent-0", "agent-1"];
const AGENTS: [&str; 2] = ["agent-0", "agent-1"];

pub(crate) struct Faults {
    rng: StdRng,
    world: Arc<Mutex<World>>,
    next: Duration,
    pub(crate) struck: usize,
    pub(crate) crashes: usize,
    pub(crate) elections: usize,
}

impl Faults {
    pub(crate) fn new(rng: StdRng, world: Arc<Mutex<World>>) -> Self {
        Self {
            rng,
            world,
            next: Duration::from_millis(300),
            struck: 0,
            crashes: 0,
            elections: 0,
        }
    }

    /// Strikes, if it is time to.
    pub(crate) fn strike(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed();
        if now < self.next {
            return;
        }
        self.next = now + Duration::from_millis(self.rng.random_range(10..250));
        self.struck += 1;
        let agent = *AGENTS.choose(&mut self.rng).unwrap();
        let mut world = self.world.lock().unwrap();
        let cluster = self.rng.random_range(0..3);
        match self.rng.random_range(0..16) {
            0 => sim.partition(agent, "scheduler"),
            1 => sim.partition_oneway(agent, "scheduler"),
            2 => sim.partition_oneway("scheduler", agent),
            3..6 => sim.repair(agent, "scheduler"),
            6 => sim.hold(agent, "scheduler"),
            7..9 => sim.release(agent, "scheduler"),
            9 => {
                let host = *HOSTS.choose(&mut self.rng).unwrap();
                if sim.is_host_running(host) {
                    self.crashes += 1;
                    sim.crash(host);
                } else {
                    sim.bounce(host);
                }
            }
            10 => {
                for host in HOSTS {
                    if !sim.is_host_running(host) {
                        sim.bounce(host);
                    }
                }
            }
            11 => {
                self.elections += 1;
                world.elect(now);
            }
            12 | 13 => world.scale(cluster, self.rng.random_range(0..4)),
            14 => world.delete(cluster),
            _ => world.make(cluster, self.rng.random_range(1..4)),
        }
    }

    /// Everything is whole again, and stays so.
    pub(crate) fn heal(sim: &mut Sim<'_>) {
        for agent in AGENTS {
            sim.release(agent, "scheduler");
            sim.repair(agent, "scheduler");
        }
        for host in HOSTS {
            if !sim.is_host_running(host) {
                sim.bounce(host);
            }
        }
    }
}
