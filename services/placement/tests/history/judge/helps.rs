//! A help that is followed exactly makes the request fit.

use std::collections::BTreeMap;

use placement::{Help, Member, Refusal, RefusalKind, Request, decide};

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
                let racks = (0..6)
                    .map(|rack| format!("r{rack}"))
                    .chain((0..9).map(|rack| format!("new{rack}")));
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
            Help::MakeEligible { .. } => continue,
        }
        let site = site.as_ref().unwrap_or(&world.site);
        if site.policy().cordoned.is_empty() {
            let followed = decide(site, &request, &members).refusal;
            let still = followed.filter(|refusal| refusal.kind == RefusalKind::NoFit);
            rule(still.is_none(), || format!("{help:?} does not help: {still:#?}"))?;
        }
    }
    Ok(())
}
