//! What the agents ask of a site, and what they need of the machine.

use std::{fs, io};

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

/// Whether a call changes something.
pub(super) fn writes(entry: &Entry) -> bool {
    !["get", "list"].contains(&&*entry.verb)
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
