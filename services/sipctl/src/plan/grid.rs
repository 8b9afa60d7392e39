//! A cluster's hosts over the domains of its site, for people.

use std::collections::{BTreeMap, BTreeSet};

use placement::{HostName, LabelKey, LabelValue, Request, Site, explain};

use crate::input::Input;
use crate::report::{self, Cluster};

/// A cluster's hosts by role and domain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// The label whose values are the columns: of the roles' topology keys the one with the fewest values. None: no role
    /// has a key.
    pub key: Option<LabelKey>,
    /// The roles, by name.
    pub rows: BTreeMap<String, Row>,
    /// Why hosts that match cannot be taken, for each role that is short. Only of a cluster that does not get all.
    pub why_not: Vec<WhyNot>,
}

/// A role's hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Hosts wanted.
    pub want: u32,
    /// Hosts that the role has after the decision.
    pub have: usize,
    /// By domain; None: hosts without the label.
    pub cells: BTreeMap<Option<LabelValue>, Cell>,
}

/// A role's hosts in one domain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Hosts that stay, come or go, sorted by name.
    pub hosts: BTreeSet<(String, Change)>,
    /// Hosts that could be taken, before the decision. Only counted when a cluster does not get all.
    pub free: u32,
}

/// What happens to a host.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Change {
    /// It stays.
    Keep,
    /// It is claimed.
    Take,
    /// It is released.
    Release,
}

/// Why hosts that a role's selector matches are not taken.
#[derive(Clone, Debug, PartialEq)]
pub struct WhyNot {
    /// The role.
    pub role: String,
    /// Every reason of each such host, and the hosts that have exactly these; the most hosts first.
    pub reasons: Vec<(String, Vec<HostName>)>,
}

impl Grid {
    pub(super) fn new(input: &Input, request: Option<&Request>, report: &Cluster) -> Self {
        let key = request.and_then(|request| columns(input, request));
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for (name, role) in &report.roles {
            let row = rows.entry(name.clone()).or_default();
            row.want = role.want;
            row.have = role.hosts.len();
        }
        let staying = report.roles.iter().flat_map(|(role, hosts)| {
            hosts
                .hosts
                .iter()
                .map(move |host| (role, &host.host, change(host.change)))
        });
        let leaving = report
            .release
            .iter()
            .map(|given| (&given.role, &given.host, Change::Release));
        for (role, host, change) in staying.chain(leaving) {
            let domain = key.as_ref().and_then(|key| label(input, host, key));
            let row = rows.entry(role.clone()).or_default();
            row.cells
                .entry(domain)
                .or_default()
                .hosts
                .insert((host.clone(), change));
        }
        Self {
            key,
            rows,
            why_not: Vec::new(),
        }
    }

    /// Adds why not, for a cluster that does not get all that it wants. `site` is as the decision saw it.
    pub(super) fn explain(&mut self, site: &Site, request: &Request, report: &Cluster) {
        let Some(refusal) = &report.refusal else { return };
        for role in &request.roles {
            let name = role.name.to_string();
            let short = refusal.roles.get(&name).is_some_and(|funnel| funnel.short > 0);
            let used: BTreeSet<&str> = report
                .roles
                .get(&name)
                .into_iter()
                .flat_map(|role| &role.hosts)
                .filter_map(|host| host.domain.as_deref())
                .collect();
            let row = self.rows.entry(name.clone()).or_default();
            let own: BTreeSet<String> = row
                .cells
                .values()
                .flat_map(|cell| &cell.hosts)
                .map(|(host, _)| host.clone())
                .collect();
            let mut reasons: BTreeMap<String, Vec<HostName>> = BTreeMap::new();
            for host in site.hosts().filter(|host| role.selector.matches(&host.labels)) {
                if own.contains(&host.id.name.to_string()) {
                    continue;
                }
                let why = explain(site, request, role, &host.id.name);
                if why.is_empty() {
                    let domain = self.key.as_ref().and_then(|key| host.labels.get(key)).cloned();
                    row.cells.entry(domain).or_default().free += 1;
                }
                let mut why: Vec<String> = why.iter().map(ToString::to_string).collect();
                let domain = role
                    .topology_key
                    .as_ref()
                    .and_then(|key| Some((key, host.labels.get(key)?)));
                if let Some((key, value)) = domain.filter(|(_, value)| used.contains(value.as_str())) {
                    why.push(format!("{name} has a host in {key}={value} already"));
                }
                if !why.is_empty() {
                    reasons.entry(why.join("; ")).or_default().push(host.id.name);
                }
            }
            if short && !reasons.is_empty() {
                let mut reasons: Vec<_> = reasons.into_iter().collect();
                reasons.sort_by_key(|(_, hosts)| std::cmp::Reverse(hosts.len()));
                self.why_not.push(WhyNot { role: name, reasons });
            }
        }
    }
}

fn change(change: report::Change) -> Change {
    match change {
        report::Change::Keep => Change::Keep,
        report::Change::Take => Change::Take,
    }
}

fn label(input: &Input, host: &str, key: &LabelKey) -> Option<LabelValue> {
    let host: HostName = host.parse().ok()?;
    input.hosts.get(&host)?.host.labels.get(key).cloned()
}

/// Of the roles' topology keys the one with the fewest values among hosts that match: racks rather than servers.
fn columns(input: &Input, request: &Request) -> Option<LabelKey> {
    let keys: BTreeSet<&LabelKey> = request
        .roles
        .iter()
        .filter_map(|role| role.topology_key.as_ref())
        .collect();
    let matching = |key: &&LabelKey| {
        let hosts = input.hosts.values().map(|observed| &observed.host.labels);
        let hosts = hosts.filter(|labels| request.roles.iter().any(|role| role.selector.matches(labels)));
        let values: BTreeSet<&LabelValue> = hosts.filter_map(|labels| labels.get(*key)).collect();
        // A key that no host has says nothing; it comes last.
        if values.is_empty() {
            usize::MAX
        } else {
            values.len()
        }
    };
    keys.into_iter().min_by_key(matching).cloned()
}
