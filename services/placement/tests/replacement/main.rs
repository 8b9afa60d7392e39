//! Replacements, moves and shrinks that meet each other.

mod again;
#[path = "../fixtures/mod.rs"]
mod fixtures;
mod helps;
mod limits;
mod moves;
mod namespaces;
mod shrink;
mod topology_key;

use fixtures::*;
use placement::{Host, HostId, Replaces, Request, Selector};

fn workers(want: u32) -> Request {
    request([role("Worker", Selector::default(), want)])
}

fn marked_to_move(mut host: Host) -> Host {
    host.replace_requested = true;
    host
}

fn hosts(names: &[&str]) -> Vec<Host> {
    names.iter().map(|name| host(name).rack(name)).collect()
}

fn replaced(decision: &placement::Decision) -> Vec<Option<HostId>> {
    decision
        .take
        .iter()
        .map(|take| take.replaces.as_ref().map(Replaces::host).cloned())
        .collect()
}
