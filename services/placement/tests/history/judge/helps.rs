//! A help that is followed exactly makes the request fit.

use std::collections::BTreeMap;

use placement::{
    Help, HostName, Ineligible, Member, OperationalStatus, Refusal, RefusalKind, Request, Site, decide,
};

use super::rule;
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
                let cordoned = |rack: &String| {
                    let domain = crate::fixtures::domain(crate::fixtures::RACK, rack);
                    world.site.policy().cordoned.contains(&domain)
                };
                let racks = (0..world.size.racks())
                    .map(|rack| format!("r{rack}"))
                    .chain((0..world.size.hosts()).map(|rack| format!("new{rack}")))
                    .filter(|rack| !cordoned(rack));
                let mut number = 0;
                for need in needs {
                    let open = racks
                        .clone()
                        .filter(|rack| need.not_in.iter().all(|not| not.as_str() != rack));
                    for rack in open.take(need.count as usize) {
                        number += 1;
                        let host = crate::fixtures::host(&format!("metal/x{number}"));
                        let mut host = crate::fixtures::HostExt::flavor(host, "w");
                        for key in [crate::fixtures::RACK, crate::fixtures::ROOM] {
                            host = crate::fixtures::HostExt::label(host, key, &rack);
                        }
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
