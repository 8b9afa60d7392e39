//! Label selectors: Kubernetes' `metav1.LabelSelector`, compiled once.
//! <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/label-selector/>

mod compile;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use compile::{Error, Expression, Place};

use crate::names::{LabelKey, LabelValue};

/// How a requirement compares.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Operator {
    /// The label is there with one of the values.
    In,
    /// The label is absent, or has none of the values.
    NotIn,
    /// The label is there, whatever its value.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl Operator {
    /// As Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A selector that can be evaluated. Its requirements are sorted and free of repeats, so that selectors which are
/// written in another order are equal. Without any requirement it selects every host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Selector {
    requirements: BTreeSet<Requirement>,
}

/// One requirement; a host must meet all of a selector's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requirement {
    /// The label is there and has one of the values.
    In(LabelKey, BTreeSet<LabelValue>),
    /// The label is absent, or has none of the values.
    NotIn(LabelKey, BTreeSet<LabelValue>),
    /// The label is there, with any value.
    Exists(LabelKey),
    /// The label is absent.
    DoesNotExist(LabelKey),
}

impl Selector {
    /// A selector that asks for all of these requirements.
    #[must_use]
    pub fn all(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        Self {
            requirements: requirements.into_iter().collect(),
        }
    }

    /// The requirements, sorted by operator and then by key, each once.
    pub fn requirements(&self) -> impl Iterator<Item = &Requirement> {
        self.requirements.iter()
    }

    /// Whether a host with these labels fits.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<LabelKey, LabelValue>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(labels))
    }
}

impl Requirement {
    /// The label that it is about.
    #[must_use]
    pub fn key(&self) -> &LabelKey {
        match self {
            Self::In(key, _) | Self::NotIn(key, _) | Self::Exists(key) | Self::DoesNotExist(key) => key,
        }
    }

    /// How it compares.
    #[must_use]
    pub fn operator(&self) -> Operator {
        match self {
            Self::In(_, _) => Operator::In,
            Self::NotIn(_, _) => Operator::NotIn,
            Self::Exists(_) => Operator::Exists,
            Self::DoesNotExist(_) => Operator::DoesNotExist,
        }
    }

    /// The values that it compares with, sorted: at least one for [`Operator::In`] and [`Operator::NotIn`], none for the others.
    pub fn values(&self) -> impl Iterator<Item = &LabelValue> {
        let values = match self {
            Self::In(_, values) | Self::NotIn(_, values) => Some(values),
            Self::Exists(_) | Self::DoesNotExist(_) => None,
        };
        values.into_iter().flatten()
    }

    /// Whether a host with these labels meets it.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<LabelKey, LabelValue>) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::DoesNotExist(key) => !labels.contains_key(key),
        }
    }
}

impl fmt::Display for Requirement {
    /// The notation of `kubectl -l`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &BTreeSet<LabelValue>| {
            values
                .iter()
                .map(LabelValue::as_str)
                .collect::<Vec<_>>()
                .join(",")
        };
        match self {
            Self::In(key, values) if values.len() == 1 => write!(f, "{key}={}", list(values)),
            Self::In(key, values) => write!(f, "{key} in ({})", list(values)),
            Self::NotIn(key, values) if values.len() == 1 => write!(f, "{key}!={}", list(values)),
            Self::NotIn(key, values) => write!(f, "{key} notin ({})", list(values)),
            Self::Exists(key) => write!(f, "{key}"),
            Self::DoesNotExist(key) => write!(f, "!{key}"),
        }
    }
}

impl fmt::Display for Selector {
    /// The notation of `kubectl -l`; empty when every host is selected.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}
