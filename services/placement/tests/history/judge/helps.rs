//! A help that is followed exactly makes the request fit.

use std::collections::BTreeMap;

use placement::{
    Help, Host, HostName, Ineligible, Member, OperationalStatus, Refusal, RefusalKind, Request, Role, Site,
    decide,
};

use super::rule;
use crate::fixtures::{self, HostExt, RACK, ROOM};
use crate::world::World;

/// What is said to help does.
pub(super) fn judge(world: &World, index: usize, request: &Request, refusal: &Refusal) -> Result<(), String> {
    let members: Vec<Member> = world.tenants[index]
        .members
        .iter()
        .map(|mem| mem.record.clone())
        .collect();
    for help in &refusal.helps {
        let (mut site, mut request) = (None, request.clone());
        match help {
            Help::WantLess(less) => {
                let less: BTreeMap<_, _> = less.iter().cloned().collect();
                for role in &mut request.roles {
                    role.want = less.get(&role.name).copied().unwrap_or(role.want);
                }
            }
            Help::MoreHosts(needs) => {
                let mut with = world.site.clone();
                let mut number = 0;
                for need in needs {
                    let Some(role) = request.roles.iter().find(|role| role.name == need.role) else {
                        return Err(format!("{help:?} is of no role"));
                    };
                    let is_open = |domain: &String| {
                        let mut only = need.only_in.iter().flatten();
                        need.not_in.iter().all(|not| not.as_str() != domain)
                            && (need.only_in.is_none() || only.any(|one| one.as_str() == domain))
                    };
                    let open = domains(world).filter(is_open);
                    let hosts: Vec<Host> = open
                        .filter_map(|domain| new_host(world, &request, role, &domain))
                        .take(need.count as usize)
                        .collect();
                    rule(hosts.len() == need.count as usize, || {
                        format!("{help:?} needs more domains than there are")
                    })?;
                    for mut host in hosts {
                        number += 1;
                        host.id = fixtures::id(&format!("metal/x{number}"));
                        with.upsert(host);
                    }
                }
                site = Some(with);
            }
            Help::MakeEligible { role, reasons, hosts } => {
                let mut with = world.site.clone();
                let is_named = request.roles.iter().any(|wanted| wanted.name == *role);
                rule(is_named && !reasons.is_empty() && !hosts.is_empty(), || {
                    format!("{help:?} is of nothing")
                })?;
                for reason in reasons {
                    mend(&mut with, reason, hosts)?;
                }
                site = Some(with);
            }
        }
        let site = site.as_ref().unwrap_or(&world.site);
        let followed = decide(site, &request, &members).refusal;
        let still = followed.filter(|refusal| refusal.kind == RefusalKind::NoFit);
        rule(still.is_none(), || format!("{help:?} does not help: {still:#?}"))?;
    }
    Ok(())
}

/// The racks of the region, and some that it does not have. Rooms have the same names.
fn domains(world: &World) -> impl Iterator<Item = String> {
    let racks = (0..world.size.racks()).map(|rack| format!("r{rack}"));
    racks.chain((0..world.size.hosts()).map(|rack| format!("new{rack}")))
}

/// A host in this domain that the role can claim, if there can be one. Its rack has the name of the domain, if the role selects that rack or its
/// domains are racks; otherwise it is the first one that the role selects.
fn new_host(world: &World, request: &Request, role: &Role, domain: &str) -> Option<Host> {
    let is_rack = role.topology_key == Some(fixtures::key(RACK));
    let others = domains(world).filter(|_| !is_rack);
    let racks = std::iter::once(domain.to_owned()).chain(others);
    let mut hosts = racks.map(|rack| {
        let mut host = fixtures::host("metal/x").flavor("w").label(RACK, &rack);
        host.networks.clone_from(&request.networks);
        host.label(ROOM, domain)
    });
    let cordoned = &world.site.policy().cordoned;
    hosts.find(|host| {
        role.selector.matches(&host.labels)
            && cordoned
                .iter()
                .all(|domain| host.labels.get(&domain.key) != Some(&domain.value))
    })
}

/// Takes a reason away from each of the hosts.
fn mend(site: &mut Site, reason: &Ineligible, hosts: &[HostName]) -> Result<(), String> {
    for name in hosts {
        let Some(mut host) = site.get(name) else {
            return Err(format!("{name} is not there"));
        };
        match reason {
            Ineligible::Paused => host.paused = false,
            Ineligible::WriteRefused => host.write_refused = false,
            Ineligible::Cordoned => host.cordoned = false,
            Ineligible::MarkedFailed => host.marked_failed = false,
            Ineligible::ReplaceRequested => host.replace_requested = false,
            Ineligible::InError => host.operational = OperationalStatus::Ok,
            Ineligible::Consumed(_) => host.consumer = None,
            Ineligible::NoAddress(network) => host.networks.extend([network.clone()]),
            Ineligible::CordonedDomain(domain) => {
                let mut policy = site.policy().clone();
                policy.cordoned.remove(domain);
                site.set_policy(policy);
            }
            other => return Err(format!("{name}: nobody can take {other:?} away")),
        }
        site.upsert(host);
    }
    Ok(())
}
