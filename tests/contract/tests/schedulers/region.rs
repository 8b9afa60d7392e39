//! Schedulers as processes, on an etcd cluster of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

use proto::placement::v1::Placement;
use sandbox::{
    authority::Identity,
    etcd::Etcd,
    port,
    process::{Group, Process, Program},
    programs,
};

use crate::client::{Client, Reports, hosts};

/// The lease of every leader here.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// How long anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Hosts of the site.
pub(crate) const HOSTS: usize = 200;

/// One of several schedulers.
pub(crate) struct Scheduler {
    pub(crate) process: Process,
    pub(crate) address: String,
    /// Port of `/metrics`.
    pub(crate) health: u16,
    pub(crate) client: Client,
}

/// Schedulers of one region.
pub(crate) struct Region {
    pub(crate) schedulers: Vec<Scheduler>,
    pub(crate) etcd: Etcd,
    group: Group,
}

impl Region {
    /// Starts etcd.
    pub(crate) async fn new(members: usize) -> Self {
        let group = Group::new("schedulers").unwrap();
        let etcd = Etcd::start(&group, members).await.unwrap();
        Self {
            schedulers: Vec::new(),
            etcd,
            group,
        }
    }

    /// Starts an etcd that speaks TLS only, as that server.
    pub(crate) async fn with_tls(group: Group, server: &Identity) -> Self {
        let etcd = Etcd::start_with_tls(&group, 1, server).await.unwrap();
        Self {
            schedulers: Vec::new(),
            etcd,
            group,
        }
    }

    /// Starts etcd and so many schedulers on it.
    pub(crate) async fn start(members: usize, schedulers: usize) -> Self {
        let mut region = Self::new(members).await;
        let endpoints = region.etcd.endpoints();
        for _ in 0..schedulers {
            region.add(&endpoints);
        }
        region
    }

    /// The region's temporary directory.
    pub(crate) fn directory(&self) -> &Path {
        self.group.directory()
    }

    /// Starts one more scheduler, which reaches etcd there.
    pub(crate) fn add(&mut self, endpoints: &[String]) {
        self.add_also_with(endpoints, &[]);
    }

    /// The same, with more options.
    pub(crate) fn add_also_with(&mut self, endpoints: &[String], options: &[&str]) {
        let lease = LEASE.as_secs().to_string();
        let endpoints = endpoints.join(",");
        let mut arguments = vec!["--ledger-etcd", &endpoints, "--etcd-lease-seconds", &lease];
        arguments.extend(options);
        self.add_with(&arguments);
    }

    /// Starts one more scheduler, which has a file.
    pub(crate) fn add_on_file(&mut self, path: &Path) {
        self.add_with(&["--ledger", path.to_str().unwrap()]);
    }

    pub(crate) fn add_with(&mut self, arguments: &[&str]) {
        let (listen, health) = (port::reserve().unwrap(), port::reserve().unwrap());
        let address = format!("127.0.0.1:{listen}");
        let name = format!("scheduler-{}", self.schedulers.len());
        let program = Program::new(&name, programs::path("sip-scheduler").unwrap())
            .args(["--region", "north", "--trust-domain", "sip.example"])
            .args(["--listen", &address, "--plaintext-loopback"])
            .args(["--health-listen".to_owned(), format!("127.0.0.1:{health}")])
            .args(arguments.iter().copied());
        self.schedulers.push(Scheduler {
            process: self.group.spawn(program).unwrap(),
            client: Client::new(&address),
            address,
            health,
        });
    }

    /// Waits until one of the others than `but` answers, and says which.
    pub(crate) async fn leader(&self, but: Option<usize>) -> usize {
        let begun = Instant::now();
        loop {
            for (index, scheduler) in self.schedulers.iter().enumerate() {
                if Some(index) != but && scheduler.client.list().await.is_ok() {
                    return index;
                }
            }
            assert!(begun.elapsed() < PATIENCE, "nobody leads");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a scheduler leads and the site has reported to it.
    pub(crate) async fn reported(&self, index: usize) -> Reports {
        let begun = Instant::now();
        loop {
            match self.schedulers[index].client.report(HOSTS, None).await {
                Ok(reports) => return reports,
                Err(status) => assert!(begun.elapsed() < PATIENCE, "{status:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// That everything promised is kept, and no host is promised twice.
pub(crate) fn assert_kept(promised: &BTreeMap<String, Placement>, found: &BTreeMap<String, Placement>) {
    for (name, promise) in promised {
        let kept = found
            .get(name)
            .unwrap_or_else(|| panic!("{name} was promised and is lost"));
        assert_eq!(hosts(kept), hosts(promise), "{name} was promised other hosts");
    }
    let mut held = BTreeSet::new();
    for (name, placement) in found {
        for host in hosts(placement) {
            assert!(
                held.insert(host.clone()),
                "{host} is held twice, {name} is one of both"
            );
        }
    }
}
