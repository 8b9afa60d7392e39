//! How many copies of a request fit: a flow over classes of hosts that are alike.

use std::collections::BTreeMap;

use super::flow::{Builder, Cost};
use super::pool::Stages;
use crate::request::Request;
use crate::site::{NONE, Site, Slot, Value, at};

/// Hosts that fit the same roles and are in the same domains of their topology keys, counted.
pub(crate) struct Classes<'a> {
    request: &'a Request,
    /// Per class: the domain for each role that it fits ([`NONE`] without a key), and how many hosts.
    classes: BTreeMap<Vec<Option<Value>>, u32>,
}

impl<'a> Classes<'a> {
    pub(crate) fn new(site: &Site, request: &'a Request) -> Self {
        let stages: Vec<Stages> = request
            .roles
            .iter()
            .map(|role| Stages::new(site, request, role))
            .collect();
        let keys: Vec<_> = request
            .roles
            .iter()
            .map(|role| role.topology_key.as_ref().and_then(|key| site.column(key)))
            .collect();
        let mut any = fixedbitset::FixedBitSet::new();
        for stages in &stages {
            any.union_with(&stages.free);
        }
        let mut classes: BTreeMap<Vec<Option<Value>>, u32> = BTreeMap::new();
        for host in any.ones().map(super::flow::id) {
            let domain = |(stages, key): (&Stages, &Option<(u32, _)>)| {
                let value = |host: Slot| key.as_ref().map_or(NONE, |(number, _)| site.value(*number, host));
                stages.free.contains(at(host)).then(|| value(host))
            };
            *classes
                .entry(stages.iter().zip(&keys).map(domain).collect())
                .or_default() += 1;
        }
        Self { request, classes }
    }

    /// Whether so many copies fit.
    pub(crate) fn fit(&self, copies: u32) -> bool {
        let mut builder = Builder::default();
        let sink = builder.node();
        let roles: Vec<u32> = self.request.roles.iter().map(|_| builder.node()).collect();
        let mut spots: BTreeMap<(usize, Value), u32> = BTreeMap::new();
        for (domains, hosts) in &self.classes {
            let class = builder.node();
            builder.edge(class, sink, *hosts, Cost::fixed(0));
            for (role, domain) in domains
                .iter()
                .enumerate()
                .filter_map(|(role, domain)| Some((role, (*domain)?)))
            {
                let keyed = self.request.roles[role].topology_key.is_some();
                let from = if keyed {
                    *spots.entry((role, domain)).or_insert_with(|| {
                        let spot = builder.node();
                        builder.edge(roles[role], spot, copies, Cost::fixed(0));
                        spot
                    })
                } else {
                    roles[role]
                };
                builder.edge(from, class, *hosts, Cost::fixed(0));
            }
        }
        let mut network = builder.build(sink);
        self.request.roles.iter().zip(roles).all(|(role, node)| {
            let demand = role.want.saturating_mul(copies);
            network.send_at_any_price(node, demand) == demand
        })
    }
}
