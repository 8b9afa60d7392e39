//! No two entries of a section have one name.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::sip_cluster::Services;

/// Every name that an earlier entry of its section has.
pub(super) fn check(services: &Services, faults: &mut Vec<Fault>) {
    let Services {
        load_balancer_control_plane,
        load_balancer_worker,
        jump_host,
        auth,
    } = services;
    let names = load_balancer_control_plane.iter().flatten();
    unique(
        "loadBalancerControlPlane",
        names.map(|entry| entry.name.as_deref()),
        faults,
    );
    let names = load_balancer_worker.iter().flatten();
    unique(
        "loadBalancerWorker",
        names.map(|entry| entry.name.as_deref()),
        faults,
    );
    let names = jump_host.iter().flatten();
    unique("jumpHost", names.map(|entry| entry.name.as_deref()), faults);
    let names = auth.iter().flatten();
    unique("auth", names.map(|entry| entry.name.as_deref()), faults);
}

fn unique<'a>(section: &str, names: impl Iterator<Item = Option<&'a str>>, faults: &mut Vec<Fault>) {
    let mut first = BTreeMap::new();
    for (index, name) in names.enumerate() {
        let Some(name) = name else { continue };
        if let Some(other) = first.get(name) {
            let rule = format!("must be unique, and is the name of spec.services.{section}[{other}]");
            faults.push(Fault::text(
                &format!("spec.services.{section}[{index}].name"),
                name,
                rule,
            ));
        } else {
            first.insert(name, index);
        }
    }
}
