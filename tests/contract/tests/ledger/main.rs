//! One contract, every backend.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its fixtures too"
)]

mod backends;
mod changes;
mod compaction;
mod contract;
mod export;
mod fence;
mod hostile;
mod large;
mod layout;
mod lease;
mod reads;
mod retention;
mod slow;
mod trimming;

use backends::{Bed, EtcdBed, FileBed, MemoryBed};

/// Runs every case on a new ledger each.
fn holds<'a>(new: impl Fn(&str) -> Box<dyn Bed + 'a>) {
    for (name, case) in contract::CASES {
        println!("{name}");
        case(&*new(name));
    }
}

#[test]
fn redb_in_memory_keeps_the_contract() {
    holds(|_| Box::new(MemoryBed::new()));
}

#[test]
fn redb_in_a_file_keeps_the_contract() {
    holds(|_| Box::new(FileBed::new()));
}

#[test]
fn etcd_keeps_the_contract() {
    let etcd = backends::Cluster::start(1);
    holds(|name| Box::new(EtcdBed::new(&etcd, name)));
}
