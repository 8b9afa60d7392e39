//! What the demonstration ends with: who has which hosts, how the clusters are, and where to look further.

use std::collections::BTreeMap;

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use kube::{ResourceExt as _, api::DynamicObject};
use sandbox::{
    inventory,
    node::Node,
    sip_clusters::{self, holder, wanted},
    tools, wait,
};
use serde_json::Value;

use super::{
    FITTING, HOSTS, Stage, TOO_BIG,
    check::{GET_PLACEMENT, PLAN_CLUSTER, is_refused, request},
    jump_host,
};

pub(super) fn print(
    hosts: &[DynamicObject],
    clusters: &[DynamicObject],
    stage: &Stage,
    jump_host: &jump_host::Login,
) {
    println!("\nHosts by rack\n{}", host_table(hosts));
    println!("\nClusters\n{}", cluster_table(clusters, hosts));
    for cluster in clusters.iter().filter(|cluster| is_refused(cluster)) {
        println!(
            "\nWhy {} does not fit\n  {}",
            wait::full_name(cluster),
            reason(cluster)
        );
    }
    println!("\nEndpoints\n{}", endpoint_table(clusters, stage.site.node()));
    let jump_host::Login { login, hosts } = jump_host;
    println!("\nThe jump host of shop/orders, and what `host list` prints there");
    if let Some(login) = login {
        println!("  {login}");
    }
    println!("{hosts}");
    if let Some(sign_in) = &stage.sign_in {
        println!("\nTo log in to bank/payments\n{}", sign_in.lines().join("\n"));
    }
    println!("\nTo look further\n{}", lines(stage).join("\n"));
}

/// The condition that explains most: what the scheduler said, if it is there.
fn reason(cluster: &DynamicObject) -> String {
    ["Scheduled", "Ready"]
        .iter()
        .filter_map(|kind| wait::condition(cluster, kind))
        .find(|(status, _, message)| *status == "False" && !message.is_empty())
        .map(|(_, _, message)| message.replace('\n', "\n  "))
        .unwrap_or_default()
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    table
}

fn label<'a>(object: &'a DynamicObject, key: &str) -> &'a str {
    object.labels().get(key).map_or("", String::as_str)
}

fn host_table(hosts: &[DynamicObject]) -> Table {
    let mut racks: BTreeMap<&str, Vec<&DynamicObject>> = BTreeMap::new();
    for host in hosts {
        racks.entry(label(host, inventory::RACK)).or_default().push(host);
    }
    let mut table = table(["rack", "host", "flavor", "held by", "role"]);
    for (rack, mut members) in racks {
        members.sort_by_key(|host| host.name_any());
        for (index, host) in members.into_iter().enumerate() {
            let (cluster, role) = holder(host).unwrap_or_default();
            // The rack is named once, as the head of its block.
            let rack = if index == 0 { rack } else { "" };
            table.add_row([
                rack,
                &host.name_any(),
                label(host, inventory::FLAVOR),
                &cluster,
                &role,
            ]);
        }
    }
    table
}

fn cluster_table(clusters: &[DynamicObject], hosts: &[DynamicObject]) -> Table {
    let mut table = table(["cluster", "ready", "reason", "hosts"]);
    for cluster in clusters {
        let name = wait::full_name(cluster);
        let (status, reason, _) = wait::condition(cluster, "Ready").unwrap_or_default();
        let counts: Vec<String> = wanted(cluster)
            .into_iter()
            .map(|(role, wanted)| {
                let held = hosts
                    .iter()
                    .filter_map(holder)
                    .filter(|(of, as_role)| *of == name && *as_role == role)
                    .count();
                format!("{role} {held}/{wanted}")
            })
            .collect();
        table.add_row([name.as_str(), status, reason, &counts.join(", ")]);
    }
    table
}

/// What is reached at the address of the one real node is reached at any node.
fn endpoint_table(clusters: &[DynamicObject], node: Option<&Node>) -> Table {
    let node = node.map(|node| node.address().to_string()).unwrap_or_default();
    let mut table = table(["cluster", "endpoint", "protocol", "address", "port"]);
    for cluster in clusters {
        let endpoints = cluster
            .data
            .pointer("/status/endpoints")
            .and_then(Value::as_array);
        // Each agent applies its own, so they are in the order of time.
        let mut endpoints: Vec<&Value> = endpoints.into_iter().flatten().collect();
        endpoints.sort_by_key(|endpoint| endpoint["name"].as_str().unwrap_or_default());
        for endpoint in endpoints {
            let text = |field: &str| match endpoint.get(field) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                None | Some(_) => String::new(),
            };
            let address = Some(text("address")).filter(|address| !address.is_empty() && *address != node);
            table.add_row([
                wait::full_name(cluster),
                text("name"),
                text("protocol"),
                address.unwrap_or_else(|| "any node".to_owned()),
                text("port"),
            ]);
        }
    }
    table
}

fn lines(stage: &Stage) -> Vec<String> {
    let Stage {
        sign_in: _,
        running,
        site,
        key: _,
    } = stage;
    let kubectl =
        tools::path("kubectl").map_or_else(|_| "kubectl".to_owned(), |path| path.display().to_string());
    let labels = format!("{},{}", sip_clusters::CLUSTER_NAME, sip_clusters::NODE_TYPE);
    let grpcurl = running.grpcurl();
    let node_ports = match site.node() {
        Some(node) => format!("  # \"any node\" is {}", node.address()),
        None => "  # nothing listens at any node: they are fake".to_owned(),
    };
    let mut lines = vec![
        format!("  export KUBECONFIG={}", site.admin_kubeconfig().display()),
        format!("  {kubectl} get sipcluster -A"),
        format!("  {kubectl} get bmh -n {HOSTS} -L {labels}"),
        format!("  {kubectl} describe sipcluster -n {} {}", TOO_BIG.0, TOO_BIG.1),
        format!("  {}", grpcurl.line("list", None)),
        format!(
            "  {}",
            grpcurl.line(GET_PLACEMENT, Some(&request(site, FITTING[0])))
        ),
        format!("  {}", grpcurl.line(PLAN_CLUSTER, Some(&request(site, TOO_BIG)))),
        node_ports,
    ];
    lines.extend(running.log_lines(site, &kubectl));
    lines
}
