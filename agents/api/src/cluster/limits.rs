//! How much one SIPCluster may ask for. Checked before anything else of a spec is, so that parsing, reconciling and reporting one cluster
//! stay small however large its spec is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

mod entries;

use super::ports::MAX_PORTS_PER_RANGE;
use crate::fault::Fault;
use crate::sip_cluster::{LoadBalancerWorkerSpec, SIPClusterSpec, Services};

/// Items of any list or map of a spec, at most. Of a watched cluster the agents keep one more at most, so that a spec with too many is still refused.
pub(crate) const MAX_ITEMS: usize = 1_000;
/// Roles of a cluster, at most.
pub(crate) const MAX_ROLES: usize = 32;
/// Entries of each section of `spec.services`, at most.
const MAX_ENTRIES: usize = 16;
/// Ports of all entries of `loadBalancerWorker` together, at most.
const MAX_PORTS: i64 = 2_000;
/// Labels and expressions of a selector, at most.
const MAX_REQUIREMENTS: usize = 64;
/// Values of an expression, at most.
const MAX_VALUES: usize = 256;
/// Values of all expressions of all roles, at most: as many as if each role had one expression with [`MAX_VALUES`]. A short value takes ten times as
/// much memory as it has bytes in the object.
const MAX_TOTAL_VALUES: usize = MAX_ROLES * MAX_VALUES;

/// A fault for everything of which the spec has more than allowed.
pub(super) fn check(spec: &SIPClusterSpec) -> Vec<Fault> {
    let SIPClusterSpec {
        nodes,
        services,
        cluster_api,
        left_out: _,
    } = spec;
    let mut faults = Vec::new();
    at_most("spec.nodes", nodes.len(), MAX_ROLES, "roles", &mut faults);
    for (name, role) in nodes.iter().take(MAX_ROLES) {
        if let Some(selector) = &role.label_selector {
            check_selector(
                selector,
                &format!("spec.nodes[{name}].labelSelector"),
                &mut faults,
            );
        }
    }
    let selectors = nodes.values().filter_map(|role| role.label_selector.as_ref());
    let expressions = selectors.flat_map(|selector| selector.match_expressions.iter().flatten());
    let values = expressions.map(|expression| expression.values.as_ref().map_or(0, Vec::len));
    let values = values.fold(0, usize::saturating_add);
    if values > MAX_TOTAL_VALUES {
        let rule = format!("must be at most {MAX_TOTAL_VALUES} in the selectors of all roles together");
        faults.push(Fault::new("spec.nodes", format_args!("{values} values"), rule));
    }
    if let Some(services) = services {
        check_services(services, &mut faults);
    }
    let replicas = cluster_api.as_ref().map_or(0, |spec| spec.replicas.len());
    at_most(
        "spec.clusterAPI.replicas",
        replicas,
        MAX_ROLES,
        "roles",
        &mut faults,
    );
    faults
}

fn check_selector(selector: &LabelSelector, path: &str, faults: &mut Vec<Fault>) {
    let LabelSelector {
        match_expressions,
        match_labels,
    } = selector;
    let expressions = match_expressions.as_deref().unwrap_or_default();
    let labels = match_labels.as_ref().map_or(0, std::collections::BTreeMap::len);
    let requirements = labels.saturating_add(expressions.len());
    at_most(
        path,
        requirements,
        MAX_REQUIREMENTS,
        "labels and expressions",
        faults,
    );
    for (index, expression) in expressions.iter().take(MAX_REQUIREMENTS).enumerate() {
        let values = expression.values.as_ref().map_or(0, Vec::len);
        let path = format!("{path}.matchExpressions[{index}].values");
        at_most(&path, values, MAX_VALUES, "values", faults);
    }
}

fn check_services(services: &Services, faults: &mut Vec<Fault>) {
    let Services {
        load_balancer_control_plane,
        load_balancer_worker,
        jump_host,
        auth,
    } = services;
    for (section, entries) in [
        (
            "loadBalancerControlPlane",
            load_balancer_control_plane.as_ref().map_or(0, Vec::len),
        ),
        (
            "loadBalancerWorker",
            load_balancer_worker.as_ref().map_or(0, Vec::len),
        ),
        ("jumpHost", jump_host.as_ref().map_or(0, Vec::len)),
        ("auth", auth.as_ref().map_or(0, Vec::len)),
    ] {
        at_most(
            &format!("spec.services.{section}"),
            entries,
            MAX_ENTRIES,
            "entries",
            faults,
        );
    }
    entries::check(services, faults);
    let workers = load_balancer_worker.iter().flatten();
    let ports = workers
        .map(ports)
        .fold(0, |sum: i64, ports| sum.saturating_add(ports));
    if ports > MAX_PORTS {
        let rule = format!("must be at most {MAX_PORTS} ports in all entries together");
        faults.push(Fault::new("spec.services.loadBalancerWorker", ports, rule));
    }
}

/// Number of ports of an entry; 0 where its range has a fault of its own.
fn ports(entry: &LoadBalancerWorkerSpec) -> i64 {
    let range = entry.node_port_range.as_ref();
    let ends = range.and_then(|range| Some((range.start?, range.end?)));
    let ends = ends.filter(|(start, end)| {
        let is_port = |port: &i64| (1..=i64::from(u16::MAX)).contains(port);
        is_port(start) && is_port(end) && start <= end
    });
    let count = ends.map(|(start, end)| end.abs_diff(start).saturating_add(1));
    let count = count.and_then(|count| i64::try_from(count).ok());
    count
        .filter(|count| *count <= i64::from(MAX_PORTS_PER_RANGE))
        .unwrap_or(0)
}

fn at_most(path: &str, count: usize, limit: usize, what: &str, faults: &mut Vec<Fault>) {
    debug_assert!(
        limit <= MAX_ITEMS,
        "the excess over {limit} {what} would not be kept"
    );
    if count > limit {
        let rule = format!("must be at most {limit}");
        faults.push(Fault::new(path, format_args!("{count} {what}"), rule));
    }
}
