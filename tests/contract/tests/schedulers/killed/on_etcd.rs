//! Three schedulers on three members of etcd, behind a Service.

use std::{collections::BTreeMap, time::Duration};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use sandbox::proxy::Proxy;

use super::{Working, seed, soak_setting};
use crate::{region::Region, service::Service};

const SCHEDULERS: usize = 3;
const MEMBERS: usize = 3;

/// What is done to the one that leads, or to etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// SIGKILL, and it is started again.
    Killed,
    /// SIGSTOP until another one leads, and SIGCONT.
    Stopped,
    /// No way to etcd until another one leads.
    CutOff,
    /// What it sends to etcd arrives only after another one leads, which is killed then.
    Delayed,
    /// A member of etcd is killed, and started again after a while.
    MemberKilled,
}

impl Fault {
    const ALL: [Self; 5] = [
        Self::Killed,
        Self::Stopped,
        Self::CutOff,
        Self::Delayed,
        Self::MemberKilled,
    ];
}

struct Stage {
    region: Region,
    /// The ways to etcd, by scheduler.
    ways: Vec<Vec<Proxy>>,
}

impl Stage {
    async fn start() -> Self {
        let mut region = Region::new(MEMBERS).await;
        let addresses: Vec<String> = region
            .etcd
            .members()
            .iter()
            .map(sandbox::etcd::Member::address)
            .collect();
        let mut ways = Vec::new();
        for _ in 0..SCHEDULERS {
            let mut proxies = Vec::new();
            for address in &addresses {
                proxies.push(Proxy::to(address.clone()).await.unwrap());
            }
            let endpoints: Vec<String> = proxies
                .iter()
                .map(|proxy| format!("http://{}", proxy.address()))
                .collect();
            region.add(&endpoints);
            ways.push(proxies);
        }
        Self { region, ways }
    }

    async fn happens(&mut self, fault: Fault, rng: &mut StdRng, working: &Working) {
        let leader = self.region.leader(None).await;
        match fault {
            Fault::Killed => self.region.schedulers[leader].process.restart().await.unwrap(),
            Fault::Stopped => {
                self.region.schedulers[leader].process.pause().unwrap();
                self.region.leader(Some(leader)).await;
                // The next one goes far beyond what this one knows.
                working.progress(rng.random_range(100..300)).await;
                self.region.schedulers[leader].process.resume().unwrap();
            }
            Fault::CutOff => {
                self.ways[leader].iter().for_each(|proxy| proxy.cut(true));
                self.region.leader(Some(leader)).await;
                working.progress(rng.random_range(1..300)).await;
                self.ways[leader].iter().for_each(|proxy| proxy.cut(false));
            }
            Fault::Delayed => {
                self.ways[leader].iter().for_each(|proxy| proxy.hold(true));
                let next = self.region.leader(Some(leader)).await;
                working.progress(rng.random_range(100..300)).await;
                self.ways[leader].iter().for_each(|proxy| proxy.hold(false));
                // What the next one knows by heart may not be what is in etcd: the one after it finds out.
                tokio::time::sleep(Duration::from_millis(rng.random_range(20..200))).await;
                self.region.schedulers[next].process.restart().await.unwrap();
            }
            Fault::MemberKilled => {
                let member = rng.random_range(0..MEMBERS);
                self.region.etcd.members()[member].process.kill9().await.unwrap();
                working.progress(rng.random_range(1..200)).await;
                let member = &mut self.region.etcd.members()[member];
                member.process.restart().await.unwrap();
                member.ready().await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_under_load_lose_and_double_no_claim() {
    let rounds = soak_setting("SOAK_FAILOVERS", 5);
    let seed = seed();
    let mut stage = Stage::start().await;
    stage.region.leader(None).await;
    let service = Service::before(&stage.region.schedulers).await;
    let working = Working::start(format!("http://{}", service.address), seed);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut faults = Vec::new();
    let mut done = BTreeMap::<Fault, u64>::new();
    for round in 0..rounds {
        // Each kind as often as the others, in any order.
        if faults.is_empty() {
            faults.extend(Fault::ALL);
            faults.shuffle(&mut rng);
        }
        let fault = faults.pop().unwrap();
        working.progress(rng.random_range(100..400)).await;
        println!("round {round}: {fault:?}");
        stage.happens(fault, &mut rng, &working).await;
        *done.entry(fault).or_default() += 1;
    }
    working.progress(200).await;
    working.end(&format!("{rounds} faults on etcd {done:?}")).await;
}
