//! The wanted shape of a cluster.

use placement::{Expression, LabelKey, MAX_ROLES, MAX_WANTED, NetworkId, Role, RoleName, Selector};
use proto::inventory::v1 as inventory;
use runtime::error_chain::chain;

use crate::{
    spec::{Declared, Spec},
    violation::Violation,
};

/// Maximum size of a declared shape, in bytes. SIP's have some hundred.
const MAX_DECLARED_BYTES: usize = 64 << 10;

/// Parses a shape that comes from outside: one of the ledger's own may be larger, when it was taken by an earlier version.
///
/// # Errors
/// As [`parse_spec`], and when it is larger than 64 KiB.
pub fn declared_spec(wire: inventory::ClusterSpec, path: &str) -> Result<Spec, Vec<Violation>> {
    let bytes = prost::Message::encoded_len(&wire);
    if bytes > MAX_DECLARED_BYTES {
        let rule = format!("{bytes} bytes, at most {MAX_DECLARED_BYTES} are allowed");
        return Err(vec![Violation::new(path, rule)]);
    }
    parse_spec(wire, path)
}

/// Parses a shape; every violation is returned, with paths below `path`.
///
/// # Errors
/// Every field that breaks a rule.
pub fn parse_spec(wire: inventory::ClusterSpec, path: &str) -> Result<Spec, Vec<Violation>> {
    let inventory::ClusterSpec {
        roles,
        network_ids,
        other_bytes,
    } = wire;
    let mut violations = Vec::new();
    if roles.len() > MAX_ROLES {
        let rule = format!("{} roles, at most {MAX_ROLES} are allowed", roles.len());
        return Err(vec![Violation::new(format!("{path}.roles"), rule)]);
    }
    let mut parsed: Vec<(Role, Declared)> = Vec::with_capacity(roles.len());
    for (index, role) in roles.into_iter().enumerate() {
        let path = format!("{path}.roles[{index}]");
        let Some(role) = parse_role(&role, &path, &mut violations).zip(Some(declared(role))) else {
            continue;
        };
        if parsed.iter().any(|(other, _)| other.name == role.0.name) {
            let rule = format!("{} is listed twice", role.0.name);
            violations.push(Violation::new(format!("{path}.name"), rule));
        }
        parsed.push(role);
    }
    let mut networks = Vec::with_capacity(network_ids.len());
    for (index, id) in network_ids.iter().enumerate() {
        match NetworkId::new(id) {
            Ok(id) => networks.push(id),
            Err(error) => violations.push(Violation::new(format!("{path}.network_ids[{index}]"), error)),
        }
    }
    if violations.is_empty() {
        Ok(Spec::new(parsed, networks, other_bytes))
    } else {
        Err(violations)
    }
}

/// What the parsed form of a role does not have.
fn declared(wire: inventory::Role) -> Declared {
    let inventory::Role {
        name: _,
        label_selector,
        topology_key: _,
        active,
        standby,
        replace_after_error: _,
    } = wire;
    let inventory::LabelSelector {
        match_labels,
        match_expressions,
    } = label_selector.unwrap_or_default();
    Declared {
        labels: match_labels,
        expressions: expressions(match_expressions),
        active,
        standby,
    }
}

fn expressions(wire: Vec<inventory::LabelSelectorRequirement>) -> Vec<Expression> {
    let expression = |wire: inventory::LabelSelectorRequirement| Expression {
        key: wire.key,
        operator: wire.operator,
        values: wire.values,
    };
    wire.into_iter().map(expression).collect()
}

/// Parses one role; `None` when something in it broke a rule.
pub fn parse_role(wire: &inventory::Role, path: &str, violations: &mut Vec<Violation>) -> Option<Role> {
    let inventory::Role {
        name,
        label_selector,
        topology_key,
        active,
        standby,
        replace_after_error,
    } = wire;
    let before = violations.len();
    let mut check = |field: &str, result: Result<(), String>| {
        if let Err(rule) = result {
            violations.push(Violation::new(format!("{path}.{field}"), rule));
        }
    };
    let role_name = RoleName::new(name).map_err(|error| error.to_string());
    check("name", role_name.as_ref().map(drop).map_err(Clone::clone));
    let key = (!topology_key.is_empty())
        .then(|| LabelKey::new(topology_key))
        .transpose()
        .map_err(|e| e.to_string());
    check("topology_key", key.as_ref().map(drop).map_err(Clone::clone));
    let want = active.checked_add(*standby).filter(|want| *want <= MAX_WANTED);
    check(
        "active",
        want.map(drop).ok_or(format!(
            "{active} + {standby} standby hosts, at most {MAX_WANTED} are allowed"
        )),
    );
    let grace = replace_after_error.map(|duration| {
        let rule = || {
            let prost_types::Duration { seconds, nanos } = duration;
            format!("{seconds} s and {nanos} ns: a duration between 0 and 10,000 years is allowed")
        };
        super::duration(duration).ok_or_else(rule)
    });
    let grace = grace.transpose();
    check(
        "replace_after_error",
        grace.as_ref().map(drop).map_err(Clone::clone),
    );
    let selector = if let Some(wire) = label_selector {
        parse_selector(wire, &format!("{path}.label_selector"), violations)
    } else {
        let rule = "is missing; an empty selector selects every host";
        violations.push(Violation::new(format!("{path}.label_selector"), rule));
        None
    };
    if violations.len() > before {
        return None;
    }
    Some(Role {
        name: role_name.ok()?,
        selector: selector?,
        topology_key: key.ok()?,
        want: want?,
        replace_after_error: grace.ok()?,
    })
}

/// Compiles one selector; `None` when it breaks a rule.
pub fn parse_selector(
    wire: &inventory::LabelSelector,
    path: &str,
    violations: &mut Vec<Violation>,
) -> Option<Selector> {
    let inventory::LabelSelector {
        match_labels,
        match_expressions,
    } = wire;
    Selector::compile(match_labels, &expressions(match_expressions.clone()))
        .map_err(|errors| {
            violations.extend(errors.iter().map(|error| Violation::new(path, chain(error))));
        })
        .ok()
}

/// A shape as it was declared.
#[must_use]
pub fn cluster_spec(spec: &Spec) -> inventory::ClusterSpec {
    let networks = spec.network_ids().iter();
    inventory::ClusterSpec {
        roles: spec
            .declared()
            .map(|(role, declared)| self::role(role, declared))
            .collect(),
        network_ids: networks.map(|id| id.as_str().to_owned()).collect(),
        other_bytes: spec.other_bytes(),
    }
}

fn role(role: &Role, declared: &Declared) -> inventory::Role {
    let Role {
        name,
        selector: _,
        topology_key,
        want: _,
        replace_after_error,
    } = role;
    let Declared {
        labels,
        expressions,
        active,
        standby,
    } = declared;
    let expression = |Expression {
                          key,
                          operator,
                          values,
                      }: &Expression| inventory::LabelSelectorRequirement {
        key: key.clone(),
        operator: operator.clone(),
        values: values.clone(),
    };
    inventory::Role {
        name: name.as_str().to_owned(),
        label_selector: Some(inventory::LabelSelector {
            match_labels: labels.clone(),
            match_expressions: expressions.iter().map(expression).collect(),
        }),
        topology_key: topology_key
            .as_ref()
            .map(|key| key.as_str().to_owned())
            .unwrap_or_default(),
        active: *active,
        standby: *standby,
        // No duration that parses is too long for protobuf.
        replace_after_error: replace_after_error.and_then(|grace| grace.try_into().ok()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_shape_is_given_back_as_it_was_declared() {
        let role = |name: &str| inventory::Role {
            name: name.to_owned(),
            label_selector: Some(inventory::LabelSelector {
                match_labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
                match_expressions: ["z", "b"]
                    .map(|value| inventory::LabelSelectorRequirement {
                        key: "k".to_owned(),
                        operator: "In".to_owned(),
                        values: vec![value.to_owned(), "a".to_owned()],
                    })
                    .to_vec(),
            }),
            topology_key: "rack".to_owned(),
            active: 3,
            standby: 2,
            replace_after_error: Some(prost_types::Duration {
                seconds: 90,
                nanos: 5,
            }),
        };
        let wire = inventory::ClusterSpec {
            roles: vec![
                role("Worker"),
                inventory::Role {
                    topology_key: String::new(),
                    replace_after_error: None,
                    ..role("ControlPlane")
                },
            ],
            network_ids: ["oam", "bgp", "oam"].map(str::to_owned).to_vec(),
            other_bytes: 0,
        };
        assert_eq!(cluster_spec(&parse_spec(wire.clone(), "spec").unwrap()), wire);
    }
}
