//! Ledgers that can be closed and opened again.

use std::{
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use etcd_client::Client;
use redb::{StorageBackend, backends::InMemoryBackend};
use sandbox::{etcd::Etcd as Members, process::Group};
use scheduler::ledger::{
    Ledger, Retention,
    etcd::{Etcd, EtcdArgs, Location, Right},
    redb::Redb,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A storage, and a ledger on it as often as it is opened. The one opened before must be dropped.
pub(crate) trait Bed {
    fn open_with(&self, retention: Retention, uptime: Uptime) -> Arc<dyn Ledger>;

    fn open_retaining(&self, retention: Retention) -> Arc<dyn Ledger> {
        self.open_with(retention, Uptime::default())
    }

    fn open(&self) -> Arc<dyn Ledger> {
        self.open_retaining(Retention::default())
    }
}

/// How long the process that has the ledger open has run: as long as a test says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uptime(Arc<Mutex<Duration>>);

impl Uptime {
    pub(crate) fn set(&self, time: Duration) {
        *self.0.lock().unwrap() = time;
    }

    fn get(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

/// redb on memory that outlives it.
#[derive(Debug)]
pub(crate) struct MemoryBed(Memory);

#[derive(Clone, Debug)]
struct Memory(Arc<InMemoryBackend>);

impl StorageBackend for Memory {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

impl MemoryBed {
    pub(crate) fn new() -> Self {
        Self(Memory(Arc::new(InMemoryBackend::new())))
    }
}

impl Bed for MemoryBed {
    fn open_with(&self, retention: Retention, uptime: Uptime) -> Arc<dyn Ledger> {
        let ledger = Redb::on(self.0.clone()).unwrap().retaining(retention);
        Arc::new(ledger.clocked(move || uptime.get()))
    }
}

/// redb in a file.
#[derive(Debug)]
pub(crate) struct FileBed(TempDir);

impl FileBed {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Bed for FileBed {
    fn open_with(&self, retention: Retention, uptime: Uptime) -> Arc<dyn Ledger> {
        let path = self.0.path().join("ledger.redb");
        let ledger = Redb::open(&path).unwrap().retaining(retention);
        Arc::new(ledger.clocked(move || uptime.get()))
    }
}

/// A real etcd cluster, and what is needed to talk to it.
pub(crate) struct Cluster {
    pub(crate) runtime: Runtime,
    _members: Members,
    pub(crate) endpoints: Vec<String>,
    // Last: it ends the members.
    _group: Group,
}

impl Cluster {
    pub(crate) fn start(members: usize) -> Self {
        let runtime = Runtime::new().unwrap();
        let group = Group::new("ledger").unwrap();
        let members = runtime.block_on(Members::start(&group, members)).unwrap();
        Self {
            runtime,
            endpoints: members.endpoints(),
            _members: members,
            _group: group,
        }
    }

    /// One member with these flags too.
    pub(crate) fn with_flags(flags: &[(&str, &str)]) -> Self {
        let runtime = Runtime::new().unwrap();
        let group = Group::new("ledger").unwrap();
        let members = runtime
            .block_on(Members::start_with_flags(&group, flags))
            .unwrap();
        Self {
            runtime,
            endpoints: members.endpoints(),
            _members: members,
            _group: group,
        }
    }

    pub(crate) fn location(&self, prefix: &str) -> Location {
        let args = arguments(prefix);
        self.runtime
            .block_on(Location::new(&self.endpoints, &args))
            .unwrap()
    }

    /// Whoever leads is deposed, as a lease's end does, and another process is elected.
    pub(crate) fn elect(&self, location: &Location, address: &str) -> i64 {
        self.runtime.block_on(async {
            let mut client: Client = location.client();
            client.delete(location.leader(), None).await.unwrap();
            let made = client.put(location.leader(), address, None).await.unwrap();
            made.header().unwrap().revision()
        })
    }

    /// The ledger of a process that was elected then, as long as etcd lets it write.
    pub(crate) fn open(&self, location: &Location, elected: i64) -> Result<Etcd, scheduler::ledger::Error> {
        let right = Right::expiring_at(Instant::now() + Duration::from_secs(20));
        self.runtime
            .block_on(Etcd::open(location.clone(), elected, Arc::new(right)))
    }
}

pub(crate) fn arguments(prefix: &str) -> EtcdArgs {
    EtcdArgs {
        etcd_prefix: prefix.to_owned(),
        etcd_cacert: None,
        etcd_cert: None,
        etcd_key: None,
        etcd_lease_seconds: 3,
        etcd_max_request_bytes: 1_572_864,
        etcd_max_txn_ops: 128,
    }
}

/// One prefix of a cluster.
pub(crate) struct EtcdBed<'a> {
    cluster: &'a Cluster,
    location: Location,
}

impl<'a> EtcdBed<'a> {
    pub(crate) fn new(cluster: &'a Cluster, name: &str) -> Self {
        Self {
            cluster,
            location: cluster.location(&format!("/contract/{name}")),
        }
    }
}

impl Bed for EtcdBed<'_> {
    fn open_with(&self, retention: Retention, uptime: Uptime) -> Arc<dyn Ledger> {
        let elected = self.cluster.elect(&self.location, "here");
        let ledger = self.cluster.open(&self.location, elected).unwrap();
        Arc::new(ledger.retaining(retention).clocked(move || uptime.get()))
    }
}
