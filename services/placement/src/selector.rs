//! Label selectors: Kubernetes' `metav1.LabelSelector`, compiled once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::names::{self, LabelKey, LabelValue};

/// A selector that breaks a rule. The path is relative to the selector, e.g. `matchExpressions[0].values`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A key is not a label key.
    #[error("{path}")]
    Key {
        /// Where.
        path: String,
        /// The key and its rule.
        #[source]
        source: names::Error,
    },
    /// A value is not a label value.
    #[error("{path}")]
    Value {
        /// Where.
        path: String,
        /// The value and its rule.
        #[source]
        source: names::Error,
    },
    /// An operator that does not exist.
    #[error("{path}: {operator:?} is not an operator; it must be In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// Where.
        path: String,
        /// The text.
        operator: String,
    },
    /// `In` and `NotIn` without values.
    #[error("{path}: {operator} needs at least one value")]
    ValuesMissing {
        /// Where.
        path: String,
        /// The operator.
        operator: &'static str,
    },
    /// `Exists` and `DoesNotExist` with values.
    #[error("{path}: {operator} must have no values, but has {count}")]
    ValuesForbidden {
        /// Where.
        path: String,
        /// The operator.
        operator: &'static str,
        /// How many values there are.
        count: usize,
    },
}

/// One entry of `matchExpressions` as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expression {
    /// The label's key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values.
    pub values: Vec<String>,
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
    /// Compiles what `matchLabels` and `matchExpressions` say. Nothing in both (`{}`) selects every host;
    /// a `matchLabels` value of `""` is valid and matches only a label whose value is empty.
    ///
    /// # Errors
    /// The first rule that is broken, with its path and value.
    pub fn compile(
        match_labels: &BTreeMap<String, String>,
        match_expressions: &[Expression],
    ) -> Result<Self, Error> {
        let labels = match_labels.iter().map(|(key, value)| {
            let path = format!("matchLabels[{key:?}]");
            let key = LabelKey::new(key).map_err(|source| Error::Key {
                path: path.clone(),
                source,
            })?;
            let value = LabelValue::new(value).map_err(|source| Error::Value { path, source })?;
            Ok(Requirement::In(key, BTreeSet::from([value])))
        });
        let expressions = match_expressions
            .iter()
            .enumerate()
            .map(|(index, expression)| expression.compile(&format!("matchExpressions[{index}]")));
        Ok(Self {
            requirements: labels.chain(expressions).collect::<Result<_, _>>()?,
        })
    }

    /// A selector of these requirements.
    #[must_use]
    pub fn of(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        Self {
            requirements: requirements.into_iter().collect(),
        }
    }

    /// The requirements, sorted.
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

impl Expression {
    fn compile(&self, path: &str) -> Result<Requirement, Error> {
        let Self {
            key,
            operator,
            values,
        } = self;
        let key = LabelKey::new(key).map_err(|source| Error::Key {
            path: format!("{path}.key"),
            source,
        })?;
        match operator.as_str() {
            "In" => Ok(Requirement::In(key, some(path, "In", values)?)),
            "NotIn" => Ok(Requirement::NotIn(key, some(path, "NotIn", values)?)),
            "Exists" => none(path, "Exists", values).map(|()| Requirement::Exists(key)),
            "DoesNotExist" => none(path, "DoesNotExist", values).map(|()| Requirement::DoesNotExist(key)),
            other => Err(Error::Operator {
                path: format!("{path}.operator"),
                operator: other.to_owned(),
            }),
        }
    }
}

fn some(path: &str, operator: &'static str, values: &[String]) -> Result<BTreeSet<LabelValue>, Error> {
    if values.is_empty() {
        return Err(Error::ValuesMissing {
            path: format!("{path}.values"),
            operator,
        });
    }
    let parse = |(index, value)| {
        LabelValue::new(value).map_err(|source| Error::Value {
            path: format!("{path}.values[{index}]"),
            source,
        })
    };
    values.iter().enumerate().map(parse).collect()
}

fn none(path: &str, operator: &'static str, values: &[String]) -> Result<(), Error> {
    if values.is_empty() {
        return Ok(());
    }
    Err(Error::ValuesForbidden {
        path: format!("{path}.values"),
        operator,
        count: values.len(),
    })
}

impl Requirement {
    /// The label that it is about.
    #[must_use]
    pub fn key(&self) -> &LabelKey {
        match self {
            Self::In(key, _) | Self::NotIn(key, _) | Self::Exists(key) | Self::DoesNotExist(key) => key,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(key: &str, operator: &str, values: &[&str]) -> Expression {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Expression {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values,
        }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<LabelKey, LabelValue> {
        let pair = |(key, value): &(&str, &str)| {
            (
                LabelKey::new(key).expect("a key"),
                LabelValue::new(value).expect("a value"),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn each_operator_follows_kubernetes_also_for_a_host_without_the_label() {
        let table: [(&str, &[&str], bool, bool, bool); 4] = [
            ("In", &["a", "b"], true, false, false),
            ("NotIn", &["a", "b"], false, true, true),
            ("Exists", &[], true, true, false),
            ("DoesNotExist", &[], false, false, true),
        ];
        for (operator, values, on_a, on_c, on_absent) in table {
            let selector =
                Selector::compile(&BTreeMap::new(), &[expression("k", operator, values)]).expect("valid");
            assert_eq!(selector.matches(&labels(&[("k", "a")])), on_a, "{operator} on a");
            assert_eq!(selector.matches(&labels(&[("k", "c")])), on_c, "{operator} on c");
            assert_eq!(
                selector.matches(&labels(&[])),
                on_absent,
                "{operator} on a host without it"
            );
        }
    }

    #[test]
    fn an_empty_selector_selects_all_and_an_empty_value_only_the_empty_value() {
        assert!(Selector::default().matches(&labels(&[])));
        let empty = BTreeMap::from([("k".to_owned(), String::new())]);
        let selector = Selector::compile(&empty, &[]).expect("valid");
        assert!(selector.matches(&labels(&[("k", "")])));
        assert!(!selector.matches(&labels(&[("k", "x")])));
        assert!(!selector.matches(&labels(&[])));
    }

    #[test]
    fn an_error_names_the_path_the_value_and_the_rule() {
        let table = [
            (
                expression("k", "in", &["a"]),
                "matchExpressions[0].operator: \"in\" is not an operator",
            ),
            (
                expression("k", "In", &[]),
                "matchExpressions[0].values: In needs at least one value",
            ),
            (
                expression("k", "NotIn", &[]),
                "matchExpressions[0].values: NotIn needs at least one value",
            ),
            (
                expression("k", "Exists", &["a"]),
                "matchExpressions[0].values: Exists must have no values, but has 1",
            ),
            (
                expression("k", "DoesNotExist", &["a"]),
                "matchExpressions[0].values: DoesNotExist must have no values",
            ),
            (expression("-", "Exists", &[]), "matchExpressions[0].key"),
            (
                expression("k", "In", &["a", "b c"]),
                "matchExpressions[0].values[1]",
            ),
        ];
        for (written, start) in table {
            let error = Selector::compile(&BTreeMap::new(), &[written]).expect_err("invalid");
            assert!(error.to_string().starts_with(start), "{error}");
        }
        let bad = BTreeMap::from([("k".to_owned(), "a b".to_owned())]);
        let error = Selector::compile(&bad, &[]).expect_err("invalid");
        assert_eq!(error.to_string(), "matchLabels[\"k\"]");
        let source = std::error::Error::source(&error)
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(source.starts_with("label value \"a b\" is not valid"), "{source}");
    }

    #[test]
    fn the_order_and_repeats_of_requirements_do_not_matter() {
        let (a, b) = (expression("a", "In", &["x", "y"]), expression("b", "Exists", &[]));
        let one = Selector::compile(&BTreeMap::new(), &[a.clone(), b.clone()]).expect("valid");
        let other = Selector::compile(&BTreeMap::new(), &[b, expression("a", "In", &["y", "x", "y"]), a])
            .expect("valid");
        assert_eq!(one, other);
        assert_eq!(one.to_string(), "a in (x,y),b");
    }
}
