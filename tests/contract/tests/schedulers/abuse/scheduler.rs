//! The scheduler that is attacked: its process, what it takes, and what it has written to its audit log.

use std::{
    collections::BTreeMap,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use proto::inventory::v1::{ListSitesRequest, Revision, inventory_service_client::InventoryServiceClient};
use sandbox::{
    authority::Caller,
    etcd::Etcd,
    port,
    process::{Group, Process, Program},
    programs,
};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tonic::transport::Endpoint;

use crate::pki::{Issuer, Pki};

/// How long it may take to serve.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the ledger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    File,
    Etcd,
}

pub(crate) struct Scheduler {
    /// Host and port of the gRPC port, and of the health port.
    pub(crate) address: String,
    pub(crate) health: String,
    pub(crate) pki: Arc<Pki>,
    process: Process,
    _etcd: Option<Etcd>,
    _group: Group,
}

impl Scheduler {
    /// Starts one that serves these sites, and waits until it does.
    pub(crate) async fn start(storage: Storage, sites: &[String]) -> Self {
        let group = Group::new("abuse").unwrap();
        let pki = Arc::new(Pki::new(&group.directory().join("pki"), sites));
        let etcd = match storage {
            Storage::File => None,
            Storage::Etcd => Some(Etcd::start(&group, 1).await.unwrap()),
        };
        let ledger = match &etcd {
            None => format!("--ledger={}", group.directory().join("ledger.redb").display()),
            Some(etcd) => format!("--ledger-etcd={}", etcd.endpoints().join(",")),
        };
        let address = format!("127.0.0.1:{}", port::reserve().unwrap());
        let health = format!("127.0.0.1:{}", port::reserve().unwrap());
        let program = Program::new("scheduler", programs::path("sip-scheduler").unwrap())
            .args([
                "--region",
                "north",
                "--trust-domain",
                sandbox::authority::TRUST_DOMAIN,
            ])
            .args(["--log", "warn", "--log-format", "json"])
            .args(["--listen", &address, "--health-listen", &health, &ledger])
            .args(pki.options());
        let scheduler = Self {
            process: group.spawn(program).unwrap(),
            address,
            health,
            pki,
            _etcd: etcd,
            _group: group,
        };
        let begun = Instant::now();
        while scheduler.sites().await.is_none() {
            assert!(begun.elapsed() < PATIENCE, "{}", scheduler.process.log_tail(50));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        scheduler
    }

    async fn sites(&self) -> Option<BTreeMap<String, Revision>> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        let connector = self.pki.connector(&Caller::Reader("checker"));
        let channel = endpoint.timeout(PATIENCE).connect_with_connector_lazy(connector);
        let listed = InventoryServiceClient::new(channel)
            .list_sites(ListSitesRequest::default())
            .await;
        let sites = listed.ok()?.into_inner().sites.into_iter();
        let sites = sites.map(|site| (site.name, site.revision.unwrap_or_default()));
        Some(sites.collect())
    }

    /// Where these sites stand.
    pub(crate) async fn positions(&self, sites: &[String]) -> BTreeMap<String, Revision> {
        let mut all = self.sites().await.unwrap();
        let of = |site: &String| (site.clone(), all.remove(site).unwrap());
        sites.iter().map(of).collect()
    }

    /// The most memory that it had at any time, in MiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let pid = self.process.pid().unwrap();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    /// The lines of its audit log.
    fn audit(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.process.log_path()).unwrap();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines
            .filter(|line| line["target"] == runtime::telemetry::AUDIT)
            .collect()
    }

    /// That each identity has as many lines as it was denied, or more: one whose answer it did not wait for.
    pub(crate) fn assert_audited(&self, denied: &BTreeMap<String, u64>) {
        let mut written = BTreeMap::<String, u64>::new();
        for line in self.audit() {
            if line["outcome"] == "PERMISSION_DENIED" {
                let identity = line["identity"].as_str().unwrap_or_default();
                *written.entry(identity.to_owned()).or_default() += 1;
            }
        }
        println!("denied, as the attackers were told: {denied:?}; in the audit log: {written:?}");
        assert_eq!(denied.len(), 3, "each identity was denied something");
        for (identity, count) in denied {
            let found = written.get(identity).copied().unwrap_or_default();
            assert!(found >= *count, "{identity}: {count} denials, {found} lines");
        }
    }

    /// That each of so many handshakes with certificates which prove nothing is in it too, or counted there.
    pub(crate) async fn assert_refusals_audited(&self, refused: u64) {
        let begun = Instant::now();
        let lines = loop {
            let mut lines = self.audit();
            lines.retain(|line| line["call"] == "TLS handshake");
            let withheld: u64 = lines.iter().filter_map(|line| line["withheld"].as_u64()).sum();
            let found = u64::try_from(lines.len()).unwrap() + withheld;
            // A line is written after the connection is closed. Those beyond the burst of an address are counted by its next line, a second later.
            if found >= refused {
                println!("{refused} refused handshakes, {found} in the audit log");
                break lines;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{refused} refused handshakes, {found} in the audit log"
            );
            tokio::time::sleep(Duration::from_millis(1100)).await;
            let stranger = self.pki.certified_by(Issuer::Stranger, &Caller::Operator("root"));
            if let Ok(mut stream) = stranger.connect(&self.address).await {
                let _ = stream.read_u8().await;
            }
        };
        for name in ["operator/root", "north/scheduler", "site/site-0/agent/cluster"] {
            let shows = |line: &Value| {
                line["identity"]
                    .as_str()
                    .is_some_and(|shown| shown.ends_with(name))
            };
            assert!(lines.iter().any(shows), "{name}: {lines:#?}");
        }
    }
}
