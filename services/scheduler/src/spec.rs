//! The wanted shape of a cluster, parsed at the door.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use placement::{Expression, LabelKey, MAX_ROLES, MAX_WANTED, NetworkId, Role, RoleName, Selector};
use proto::inventory::v1 as inventory;

use crate::error::{Violation, chain};

/// What a cluster wants (the default is nothing): as it came, for comparison and storage, and parsed, for the decision. Every
/// copy of a record shares it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec(Arc<Shape>);

#[derive(Debug, Default, PartialEq)]
struct Shape {
    wire: inventory::ClusterSpec,
    roles: Vec<Role>,
    networks: BTreeSet<NetworkId>,
}

impl Spec {
    /// Most bytes of a shape that somebody declares. SIP's have some hundred.
    pub const DECLARED: usize = 64 << 10;

    /// Parses a shape that comes from outside: one of the ledger's own may be larger, when it was taken by an earlier version.
    ///
    /// # Errors
    /// As [`Spec::parse`], and when it is too large to be looked at.
    pub fn declared(wire: inventory::ClusterSpec, path: &str) -> Result<Self, Vec<Violation>> {
        let bytes = prost::Message::encoded_len(&wire);
        if bytes > Self::DECLARED {
            let rule = format!("{bytes} bytes, at most {} are allowed", Self::DECLARED);
            return Err(vec![Violation::new(path, rule)]);
        }
        Self::parse(wire, path)
    }

    /// Parses a shape; every violation is returned, with paths below `path`.
    ///
    /// # Errors
    /// Every field that breaks a rule.
    pub fn parse(wire: inventory::ClusterSpec, path: &str) -> Result<Self, Vec<Violation>> {
        let mut violations = Vec::new();
        if wire.roles.len() > MAX_ROLES {
            let rule = format!("{} roles, at most {MAX_ROLES} are allowed", wire.roles.len());
            return Err(vec![Violation::new(format!("{path}.roles"), rule)]);
        }
        let mut roles: Vec<Role> = Vec::with_capacity(wire.roles.len());
        for (index, role) in wire.roles.iter().enumerate() {
            let path = format!("{path}.roles[{index}]");
            if let Some(role) = self::role(role, &path, &mut violations) {
                if roles.iter().any(|other| other.name == role.name) {
                    violations.push(Violation::new(
                        format!("{path}.name"),
                        format!("{} is there twice", role.name),
                    ));
                }
                roles.push(role);
            }
        }
        let mut networks = BTreeSet::new();
        for (index, id) in wire.network_ids.iter().enumerate() {
            match NetworkId::new(id) {
                Ok(id) => {
                    networks.insert(id);
                }
                Err(error) => violations.push(Violation::new(format!("{path}.network_ids[{index}]"), error)),
            }
        }
        if violations.is_empty() {
            Ok(Self(Arc::new(Shape {
                wire,
                roles,
                networks,
            })))
        } else {
            Err(violations)
        }
    }

    /// As it came.
    #[must_use]
    pub fn wire(&self) -> &inventory::ClusterSpec {
        &self.0.wire
    }

    /// Wanted roles.
    #[must_use]
    pub fn roles(&self) -> &[Role] {
        &self.0.roles
    }

    /// Networks in which every member needs an address.
    #[must_use]
    pub fn networks(&self) -> &BTreeSet<NetworkId> {
        &self.0.networks
    }
}

/// Parses one role; `None` when something in it broke a rule.
pub(crate) fn role(wire: &inventory::Role, path: &str, violations: &mut Vec<Violation>) -> Option<Role> {
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
        Duration::try_from(duration)
            .map_err(|_| format!("{duration:?} must be a duration that is not negative"))
    });
    let grace = grace.transpose();
    check(
        "replace_after_error",
        grace.as_ref().map(drop).map_err(Clone::clone),
    );
    let selector = if let Some(wire) = label_selector {
        selector(wire, &format!("{path}.label_selector"), violations)
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
pub(crate) fn selector(
    wire: &inventory::LabelSelector,
    path: &str,
    violations: &mut Vec<Violation>,
) -> Option<Selector> {
    let inventory::LabelSelector {
        match_labels,
        match_expressions,
    } = wire;
    let expressions: Vec<Expression> = match_expressions
        .iter()
        .map(
            |inventory::LabelSelectorRequirement {
                 key,
                 operator,
                 values,
             }| Expression {
                key: key.clone(),
                operator: operator.clone(),
                values: values.clone(),
            },
        )
        .collect();
    Selector::compile(match_labels, &expressions)
        .map_err(|errors| {
            violations.extend(errors.iter().map(|error| Violation::new(path, chain(error))));
        })
        .ok()
}
