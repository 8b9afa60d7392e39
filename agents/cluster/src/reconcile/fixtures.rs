//! What is observed of a cluster, for the tests.

use std::collections::{BTreeMap, BTreeSet};

use kit::placement::Placement;
use proto::placement::v1 as wire;
use serde_json::Value;

use super::observation::{Holding, Nodes};
use crate::fixtures::{inventory, placement_answer};

/// These members of the cluster `tenant/one`, these hosts, and whether the scheduler refuses more.
pub(super) fn holding(members: Vec<wire::Member>, refused: bool, hosts: Vec<Value>) -> Holding {
    let mut answer = placement_answer(members);
    answer.refusal = refused.then(wire::Refusal::default);
    let placement = Placement::try_from(answer).unwrap();
    let inventory = inventory(hosts);
    let hosts = placement.members().iter().filter_map(|member| {
        let key = member.host().key();
        Some((key.clone(), inventory.host(key)?))
    });
    Holding {
        hosts: hosts.collect(),
        placement,
        cluster_api: None,
        pending: BTreeSet::new(),
        machines: BTreeMap::new(),
        nodes: Nodes::default(),
        scaled: Vec::new(),
    }
}
