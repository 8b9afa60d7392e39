//! The most bytes that the parts of a step can take when they are encoded.

use placement::{Domain, HostId};

use crate::{
    ledger::Decision,
    record::{ClusterId, Funnel, Member, Refusal, Report, Subject},
    spec::Spec,
};

/// Bytes of a field's tag, and of its length if that is below 2 MiB.
pub(super) const FIELD_BYTES: usize = 4;
/// Bytes of the state, revision and ordinal of a member.
const STATE_BYTES: usize = 24;
/// Bytes of a time.
const TIME_BYTES: usize = 24;
/// Bytes of the counts of a role in a refusal.
const COUNTS_BYTES: usize = 48;
/// Bytes of the longest reason for a release, and of whether a member is only to be moved.
const REASON_BYTES: usize = 16;

/// A text; one that is empty is not stored.
fn text(text: &str) -> usize {
    if text.is_empty() {
        0
    } else {
        FIELD_BYTES + text.len()
    }
}

fn texts<'a>(texts: impl IntoIterator<Item = &'a String>) -> usize {
    texts.into_iter().map(|text| FIELD_BYTES + text.len()).sum()
}

pub(super) fn reports(reports: &[Report]) -> usize {
    let report = |report: &Report| {
        let Report {
            kind,
            host,
            role,
            message,
        } = report;
        let host = host.as_ref().map_or(0, |Subject { name, uid }| {
            let uid = uid.as_ref().map_or(0, |uid| FIELD_BYTES + uid.as_str().len());
            3 * FIELD_BYTES + name.namespace().as_str().len() + name.name().len() + uid
        });
        let role = role.as_ref().map_or(0, |role| text(role.as_str()));
        FIELD_BYTES + text(kind) + host + role + text(message)
    };
    reports.iter().map(report).sum()
}

pub(super) fn refusal(refusal: &Refusal) -> usize {
    let Refusal {
        kind,
        roles,
        tight_roles,
        tight_domains,
        helps,
        message,
    } = refusal;
    let funnel = |funnel: &Funnel| FIELD_BYTES + text(&funnel.role) + COUNTS_BYTES;
    text(kind)
        + roles.iter().map(funnel).sum::<usize>()
        + texts(tight_roles)
        + texts(tight_domains)
        + texts(helps)
        + text(message)
}

pub(super) fn spec(spec: &Spec) -> usize {
    let roles = spec.declared().map(|(role, declared)| {
        let labels = declared.labels.iter();
        let labels = labels.map(|(key, value)| FIELD_BYTES + text(key) + text(value));
        let expressions = declared.expressions.iter().map(|expression| {
            FIELD_BYTES + text(&expression.key) + text(&expression.operator) + texts(&expression.values)
        });
        let key = role.topology_key.as_ref();
        2 * FIELD_BYTES
            + text(role.name.as_str())
            + labels.sum::<usize>()
            + expressions.sum::<usize>()
            + key.map_or(0, |key| text(key.as_str()))
            + 2 * FIELD_BYTES
            + TIME_BYTES
    });
    let networks = spec
        .network_ids()
        .iter()
        .map(|id| FIELD_BYTES + id.as_str().len());
    roles.sum::<usize>() + networks.sum::<usize>()
}

/// All that an entry names: hosts and reports.
pub(super) fn named(entry: &Decision) -> usize {
    let Decision {
        time: _,
        position: _,
        commit: _,
        caller: _,
        site: _,
        cluster: _,
        action: _,
        taken,
        releasing,
        bound,
        freed,
        reason: _,
        found,
        resolved,
    } = entry;
    let hosts = [taken, releasing, bound, freed].into_iter().flatten();
    hosts.map(host).sum::<usize>() + reports(found) + reports(resolved)
}

pub(super) fn decision(entry: &Decision) -> usize {
    let Decision {
        time: _,
        position: _,
        commit: _,
        caller,
        site,
        cluster,
        action,
        taken: _,
        releasing: _,
        bound: _,
        freed: _,
        reason,
        found: _,
        resolved: _,
    } = entry;
    let cluster = cluster.as_ref().map_or(0, |ClusterId { name, uid }| {
        3 * FIELD_BYTES + name.namespace().as_str().len() + name.name().len() + text(uid)
    });
    2 * TIME_BYTES
        + STATE_BYTES
        + text(caller)
        + text(site)
        + cluster
        + text(action)
        + text(reason)
        + named(entry)
}

pub(super) fn host(HostId { name, uid }: &HostId) -> usize {
    4 * FIELD_BYTES + name.namespace().as_str().len() + name.name().len() + uid.as_str().len()
}

pub(super) fn member(member: &Member) -> usize {
    let Member {
        role,
        ordinal: _,
        domain,
        state: _,
        revision: _,
        addresses,
        bmc_address,
        failed_since: _,
        move_requested: _,
        unwell_since: _,
        suspended: _,
        replaces,
        release_reason: _,
        confirmed: _,
    } = member;
    let networks = addresses.iter().map(|(id, address)| {
        let text = if address.is_ipv4() { 15 } else { 45 };
        3 * FIELD_BYTES + id.as_str().len() + text
    });
    FIELD_BYTES
        + (FIELD_BYTES + role.as_str().len())
        + domain.as_ref().map_or(0, |Domain { key, value }| {
            2 * FIELD_BYTES + key.as_str().len() + value.as_str().len()
        })
        + STATE_BYTES
        + networks.sum::<usize>()
        + (FIELD_BYTES + bmc_address.len())
        + 2 * TIME_BYTES
        + REASON_BYTES
        + replaces.as_ref().map_or(0, |old| FIELD_BYTES + host(old.host()))
}
