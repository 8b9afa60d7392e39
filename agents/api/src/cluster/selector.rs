//! Label selectors, checked by the rules of metav1.
//! <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/label-selector/>

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::fault::Fault;
use crate::label::{LabelKey, LabelValue};

/// How a requirement compares. Named as Kubernetes writes them.
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

    fn parse(text: &str) -> Option<Self> {
        [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist]
            .into_iter()
            .find(|operator| operator.as_str() == text)
    }
}

/// One thing that the labels of a host must fulfil.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Requirement {
    key: LabelKey,
    operator: Operator,
    values: BTreeSet<LabelValue>,
}

impl Requirement {
    /// Which label.
    #[must_use]
    pub fn key(&self) -> &LabelKey {
        &self.key
    }

    /// How it is compared.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// At least one value for [`Operator::In`] and [`Operator::NotIn`], none for the others.
    #[must_use]
    pub fn values(&self) -> &BTreeSet<LabelValue> {
        &self.values
    }
}

/// Requirements that all must hold. None at all selects every host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

impl Selector {
    /// The requirements, sorted, each once; `matchLabels` entries are `In` with one value.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

pub(super) fn parse(
    selector: Option<&LabelSelector>,
    path: &str,
    faults: &mut Vec<Fault>,
) -> Option<Selector> {
    let Some(LabelSelector {
        match_expressions,
        match_labels,
    }) = selector
    else {
        faults.push(Fault::absent(path, "must be set; {} selects every host"));
        return None;
    };
    let labels = match_labels.iter().flatten().filter_map(|(key, value)| {
        let path = format!("{path}.matchLabels[{key}]");
        let key = label_key(key, &path, faults);
        let value = label_value(value, &path, faults);
        Some(Requirement {
            key: key?,
            operator: Operator::In,
            values: [value?].into(),
        })
    });
    let mut requirements: BTreeSet<Requirement> = labels.collect();
    for (index, expression) in match_expressions.iter().flatten().enumerate() {
        requirements.extend(requirement(
            expression,
            &format!("{path}.matchExpressions[{index}]"),
            faults,
        ));
    }
    Some(Selector {
        requirements: requirements.into_iter().collect(),
    })
}

fn requirement(
    expression: &LabelSelectorRequirement,
    path: &str,
    faults: &mut Vec<Fault>,
) -> Option<Requirement> {
    let LabelSelectorRequirement {
        key,
        operator,
        values,
    } = expression;
    let key = label_key(key, &format!("{path}.key"), faults);
    let texts = values.as_deref().unwrap_or_default();
    let operator = operator_with(operator, texts, path, faults);
    let values: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(index, value)| label_value(value, &format!("{path}.values[{index}]"), faults))
        .collect();
    Some(Requirement {
        key: key?,
        operator: operator?,
        values: values.into_iter().collect::<Option<_>>()?,
    })
}

fn operator_with(text: &str, values: &[String], path: &str, faults: &mut Vec<Fault>) -> Option<Operator> {
    let Some(operator) = Operator::parse(text) else {
        faults.push(Fault::text(
            &format!("{path}.operator"),
            text,
            "must be In, NotIn, Exists or DoesNotExist",
        ));
        return None;
    };
    let values_path = format!("{path}.values");
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            faults.push(Fault::absent(
                &values_path,
                format!("must have at least one value with operator {text}"),
            ));
            None
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            let found = format!("{} values", values.len());
            faults.push(Fault::new(
                &values_path,
                found,
                format!("must be empty with operator {text}"),
            ));
            None
        }
        Operator::In | Operator::NotIn | Operator::Exists | Operator::DoesNotExist => Some(operator),
    }
}

pub(super) fn label_key(text: &str, path: &str, faults: &mut Vec<Fault>) -> Option<LabelKey> {
    text.parse()
        .map_err(|error| faults.push(Fault::text(path, text, error)))
        .ok()
}

pub(super) fn label_value(text: &str, path: &str, faults: &mut Vec<Fault>) -> Option<LabelValue> {
    text.parse()
        .map_err(|error| faults.push(Fault::text(path, text, error)))
        .ok()
}
