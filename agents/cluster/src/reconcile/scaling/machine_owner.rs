//! Which Machines an object with replicas has made: pure.

use api::Scaled;

use super::lookup::Lookup;
use crate::reconcile::machine::Machine;

/// Whether the object that was looked up as `scaled` has made a Machine. While its namespace is not known, kind and name decide.
pub(in crate::reconcile) fn has_made(scaled: &Scaled, lookup: &Lookup, machine: &Machine) -> bool {
    let namespace = match lookup {
        Lookup::Found(object, _) => Some(&object.id.key.namespace),
        Lookup::Missing { namespace } | Lookup::Forbidden { namespace } => Some(namespace),
        Lookup::NoHosts | Lookup::Namespaces(_) | Lookup::Unreadable(_) => None,
    };
    has_name_of_owner(scaled, machine) && namespace.is_none_or(|namespace| namespace == machine.namespace())
}

/// Whether an object of this kind and name, in the namespace of a Machine, has made the Machine. A `HostClaim` leads to a Machine in the namespace
/// of the tenant, where another object may have the same name as the one that is scaled.
pub(super) fn has_name_of_owner(scaled: &Scaled, machine: &Machine) -> bool {
    let name = format!("{} {}", scaled.kind(), scaled.name());
    machine.owner().is_some_and(|owner| owner == name)
}
