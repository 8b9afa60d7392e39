//! What a site may report takes about as much memory as is counted, whatever it reports: the limits of sites are a share of the
//! memory of the process.
//!
//! Each shape of a site is measured in a process of its own: what another one has freed would be used again.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod shapes;

use std::{
    env, fs,
    process::Command,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::FutureExt as _;
use placement::{ClusterName, HostId, HostName, MemberState, NetworkId, Policy, RoleName, Uid};
use proto::inventory::v1 as wire;
use scheduler::{
    convert,
    error::Error,
    ledger::{Commit, Fence, History, commit},
    record::{Member, Record},
    site::{Author, Limits, Site},
    spec::Spec,
};

/// As the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SITE: &str = "a";
/// What the site may report.
const LIMIT: usize = 64 << 20;
/// Which shape a child measures.
const SHAPE: &str = "SIP_TEST_SHAPE";
/// The shape that is of records.
const RECORDS: &str = "records";
/// Before the number in the child's output.
const GREW: &str = "grew by ";

#[test]
fn what_is_counted_of_a_site_is_what_it_takes() {
    let mut wrong = Vec::new();
    for (shape, _) in shapes::ALL {
        let grown = in_a_process_of_its_own(shape);
        let percent = grown * 100 / LIMIT;
        println!("{shape}: {percent} % of what is counted");
        // Vectors have room for twice as much as is in them, and the allocator keeps some memory for itself.
        if !(25..125).contains(&percent) {
            wrong.push(format!("{shape}: {percent} %"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn in_a_process_of_its_own(shape: &str) -> usize {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_shape_is_measured", "--nocapture"])
        .env(SHAPE, shape)
        .output()
        .unwrap();
    let text = String::from_utf8(child.stdout).unwrap();
    let grown = text
        .split_once(GREW)
        .and_then(|(_, rest)| rest.split_whitespace().next());
    grown
        .and_then(|grown| grown.parse().ok())
        .unwrap_or_else(|| panic!("{shape}: {text}{}", String::from_utf8_lossy(&child.stderr)))
}

#[test]
fn what_is_counted_of_records_is_what_they_take() {
    let percent = in_a_process_of_its_own(RECORDS);
    println!("{percent} % of what is counted");
    assert!((25..125).contains(&percent), "{percent} %");
}

#[test]
fn a_shape_is_measured() {
    let Ok(name) = env::var(SHAPE) else {
        return;
    };
    if name == RECORDS {
        println!("{GREW}{} percent", measure_records());
        return;
    }
    let shape = shapes::ALL.iter().find(|(known, _)| **known == name).unwrap();
    println!("{GREW}{} bytes", measure(shape.1));
}

/// Reports hosts until no more have room. Returns by how much the process has grown.
fn measure(host: shapes::Shape) -> usize {
    const MESSAGE: usize = 50;
    let now = SystemTime::now();
    let mut site = Site::without_records(SITE, Policy::default());
    site.set_limits(Limits {
        hosts: usize::MAX,
        inventory: LIMIT,
        ..Limits::default()
    });
    let (committer, _writer) = commit::committer(Commit::NONE);
    let permit = committer.reserve().now_or_never().unwrap().unwrap();
    let author = Author {
        caller: "test",
        action: "fence",
        now,
    };
    let fence = Fence {
        lease: "lease".to_owned(),
        transitions: 1,
    };
    let (session, _) = site.open_session(&fence, &author, permit).unwrap();
    let before = resident();
    for message in 0.. {
        let hosts = (message * MESSAGE..(message + 1) * MESSAGE).map(host).collect();
        let changes = convert::changes(
            SITE,
            wire::HostChanges {
                hosts,
                ..wire::HostChanges::default()
            },
        );
        let later = now + Duration::from_secs(1);
        match site.report(&session.id, changes, later) {
            Ok(_) => {}
            Err(Error::SiteFull {
                limit: "inventory", ..
            }) => break,
            Err(error) => panic!("{error}"),
        }
        drop(site.take_faults());
        drop(site.take_notes());
    }
    let grown = resident().saturating_sub(before);
    assert!(!site.hosts().is_empty());
    grown
}

/// Loads records of clusters. Returns by how much the process has grown, in percent of what is counted of them.
fn measure_records() -> usize {
    const CLUSTERS: usize = 400;
    const MEMBERS: usize = 50;
    let before = resident();
    let records = (0..CLUSTERS).map(|number| {
        let cluster = ClusterName::new("tenant", format!("cluster-{number}")).unwrap();
        let mut record = Record::new(cluster.clone(), format!("uid-{number}"), None, 1, Spec::default());
        record.members = (0..MEMBERS)
            .map(|member| held(number * MEMBERS + member))
            .collect();
        (cluster, Arc::new(record))
    });
    let site = Site::new(
        SITE.to_owned(),
        Policy::default(),
        records.collect(),
        Commit::NONE,
        None,
        History::default(),
    );
    (resident() - before) * 100 / site.summary().record_bytes
}

fn held(number: usize) -> (HostId, Member) {
    let id = HostId {
        name: HostName::new("metal3", format!("rack-{}-host-{number:05}", number / 40)).unwrap(),
        uid: Uid::new(format!("3f1c2a52-0000-4000-8000-{number:012}")).unwrap(),
    };
    let mut member = Member::new(RoleName::new("Worker").unwrap(), None, MemberState::Bound);
    for network in [1, 2] {
        let address = format!("10.{network}.{}.{}", number / 256 % 256, number % 256);
        let network = NetworkId::new(format!("network-{network}")).unwrap();
        member.addresses.insert(network, address.parse().unwrap());
    }
    member.bmc_address = format!(
        "redfish://10.9.{}.{}/redfish/v1/Systems/1",
        number / 256,
        number % 256
    );
    (id, member)
}

/// Resident memory of this process.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kibibytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes << 10
}
