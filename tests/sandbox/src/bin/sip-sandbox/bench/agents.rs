//! What the agents ask of a site, and what they need of the machine.

use std::{collections::BTreeMap, fs, io};

use comfy_table::{Table, presets::ASCII_MARKDOWN};

use sandbox::{
    audit::Entry,
    region::{AGENTS_NAMESPACE, Agent},
    site::Site,
};

/// Both agents.
pub(super) const AGENTS: [Agent; 2] = [Agent::Cluster, Agent::LoadBalancer];

/// What the agents have asked the API server so far, without what keeps their watches and Leases.
pub(super) fn calls(site: &Site) -> io::Result<Vec<Entry>> {
    let users = AGENTS.map(|agent| format!("system:serviceaccount:{AGENTS_NAMESPACE}:{}", agent.program()));
    let mut entries = site.audit_log()?;
    entries.retain(|entry| {
        let of_leases = entry
            .object_ref
            .as_ref()
            .is_some_and(|object| object.resource == "leases");
        users.contains(&entry.user.username) && entry.verb != "watch" && !of_leases
    });
    Ok(entries)
}

/// Whether a call is an Event for people. No decision and no write waits for one.
pub(super) fn is_event(entry: &Entry) -> bool {
    entry
        .object_ref
        .as_ref()
        .is_some_and(|object| object.resource == "events")
}

/// Whether a call changes something.
pub(super) fn writes(entry: &Entry) -> bool {
    !["get", "list"].contains(&&*entry.verb)
}

/// Calls by agent, verb and resource, and how many of them each of so many clusters took.
pub(super) fn table(calls: &[Entry], clusters: u16) -> Table {
    let mut counts = BTreeMap::<_, u32>::new();
    for call in calls {
        let object = call.object_ref.as_ref();
        let resource = object.map_or_else(String::new, |object| {
            let parts = [&*object.resource, &*object.subresource];
            parts.join("/").trim_end_matches('/').to_owned()
        });
        let agent = call.user.username.rsplit(':').next().unwrap_or_default();
        let status = call.response_status.code;
        *counts.entry((agent, &*call.verb, resource, status)).or_default() += 1;
    }
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header([
        "agent",
        "verb",
        "resource",
        "status",
        "calls",
        "per cluster",
    ]);
    for ((agent, verb, resource, status), count) in counts {
        let per_cluster = f64::from(count) / f64::from(clusters.max(1));
        table.add_row([
            agent.to_owned(),
            verb.to_owned(),
            resource,
            status.to_string(),
            count.to_string(),
            format!("{per_cluster:.1}"),
        ]);
    }
    table
}

/// How much memory a process has, in MiB: now, and at most so far.
pub(super) fn resident(pid: u32) -> io::Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kibibytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number
            .and_then(|number| number.parse::<u64>().ok())
            .ok_or_else(|| io::Error::other(format!("/proc/{pid}/status has no {field}")))
    };
    Ok((
        kibibytes("VmRSS:")?.div_ceil(1024),
        kibibytes("VmHWM:")?.div_ceil(1024),
    ))
}
