//! Selectors as they are written become [`Selector`]s, or every rule that they break.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Operator, Requirement, Selector};
use crate::names::{self, LabelKey, LabelValue};

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

/// A part of a selector that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A key is not a label key.
    #[error("{place}")]
    Key {
        /// Field of the selector.
        place: Place,
        /// The key and its rule.
        #[source]
        source: names::Error,
    },
    /// A value is not a label value.
    #[error("{place}")]
    Value {
        /// Field of the selector.
        place: Place,
        /// The value and its rule.
        #[source]
        source: names::Error,
    },
    /// An operator that does not exist.
    #[error("{place}: {operator:?} is not an operator; it must be In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// Field of the selector.
        place: Place,
        /// The text.
        operator: String,
    },
    /// `In` and `NotIn` without values.
    #[error("{place}: {operator} needs at least one value")]
    ValuesMissing {
        /// Field of the selector.
        place: Place,
        /// The operator.
        operator: Operator,
    },
    /// `Exists` and `DoesNotExist` with values.
    #[error("{place}: {operator} must have no values, but has {count}")]
    ValuesForbidden {
        /// Field of the selector.
        place: Place,
        /// The operator.
        operator: Operator,
        /// How many values there are.
        count: usize,
    },
}

impl Error {
    /// Maximum number of errors that are returned: a selector of some megabytes may break as many rules as it has bytes.
    pub const MAX_RETURNED: usize = 32;

    fn add(self, errors: &mut Vec<Self>) {
        if errors.len() < Self::MAX_RETURNED {
            errors.push(self);
        }
    }
}

/// A field of a selector. Its `Display` is the path from the selector, e.g. `matchExpressions[0].values`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An entry of `matchLabels`, by its key as it is written: any text, of any length.
    Label(String),
    /// The key of an entry of `matchExpressions`.
    Key(usize),
    /// The operator of an entry of `matchExpressions`.
    Operator(usize),
    /// The values of an entry of `matchExpressions`.
    Values(usize),
    /// One of them: the entry, and the value in it.
    Value(usize, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(key) => write!(f, "matchLabels[{key:?}]"),
            Self::Key(entry) => write!(f, "matchExpressions[{entry}].key"),
            Self::Operator(entry) => write!(f, "matchExpressions[{entry}].operator"),
            Self::Values(entry) => write!(f, "matchExpressions[{entry}].values"),
            Self::Value(entry, value) => write!(f, "matchExpressions[{entry}].values[{value}]"),
        }
    }
}

impl Selector {
    /// Compiles what `matchLabels` and `matchExpressions` state. Nothing in both (`{}`) selects every host;
    /// a `matchLabels` value of `""` is valid and matches only a label whose value is empty.
    ///
    /// # Errors
    /// Every rule that is broken, in the order of the fields; at least one, and at most [`Error::MAX_RETURNED`].
    pub fn compile(
        match_labels: &BTreeMap<String, String>,
        match_expressions: &[Expression],
    ) -> Result<Self, Vec<Error>> {
        let mut errors = Vec::new();
        let mut requirements = BTreeSet::new();
        for (key, value) in match_labels {
            let place = || Place::Label(key.clone());
            let key = label_key(key, place(), &mut errors);
            let value = label_value(value, place(), &mut errors);
            requirements.extend(
                key.zip(value)
                    .map(|(key, value)| Requirement::In(key, [value].into())),
            );
        }
        for (entry, expression) in match_expressions.iter().enumerate() {
            requirements.extend(expression.compile(entry, &mut errors));
        }
        if errors.is_empty() {
            Ok(Self { requirements })
        } else {
            Err(errors)
        }
    }
}

impl Expression {
    /// The requirement; `None` when something in it broke a rule.
    fn compile(&self, entry: usize, errors: &mut Vec<Error>) -> Option<Requirement> {
        let Self {
            key,
            operator,
            values,
        } = self;
        let key = label_key(key, Place::Key(entry), errors);
        let operator = operator_with(operator, values.len(), entry, errors);
        let values: Vec<_> = (0..)
            .zip(values)
            .map(|(index, value)| label_value(value, Place::Value(entry, index), errors))
            .collect();
        let (key, values) = (key?, values.into_iter().collect::<Option<_>>()?);
        Some(match operator? {
            Operator::In => Requirement::In(key, values),
            Operator::NotIn => Requirement::NotIn(key, values),
            Operator::Exists => Requirement::Exists(key),
            Operator::DoesNotExist => Requirement::DoesNotExist(key),
        })
    }
}

impl Operator {
    fn parse(text: &str) -> Option<Self> {
        [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist]
            .into_iter()
            .find(|operator| operator.as_str() == text)
    }
}

fn label_key(text: &str, place: Place, errors: &mut Vec<Error>) -> Option<LabelKey> {
    LabelKey::new(text)
        .map_err(|source| Error::Key { place, source }.add(errors))
        .ok()
}

fn label_value(text: &str, place: Place, errors: &mut Vec<Error>) -> Option<LabelValue> {
    LabelValue::new(text)
        .map_err(|source| Error::Value { place, source }.add(errors))
        .ok()
}

/// The operator of an entry with so many values.
fn operator_with(text: &str, count: usize, entry: usize, errors: &mut Vec<Error>) -> Option<Operator> {
    let Some(operator) = Operator::parse(text) else {
        let place = Place::Operator(entry);
        let operator = text.to_owned();
        Error::Operator { place, operator }.add(errors);
        return None;
    };
    let place = Place::Values(entry);
    match operator {
        Operator::In | Operator::NotIn if count == 0 => {
            Error::ValuesMissing { place, operator }.add(errors);
            None
        }
        Operator::Exists | Operator::DoesNotExist if count > 0 => {
            Error::ValuesForbidden {
                place,
                operator,
                count,
            }
            .add(errors);
            None
        }
        Operator::In | Operator::NotIn | Operator::Exists | Operator::DoesNotExist => Some(operator),
    }
}
