//! Label selectors of roles, and labels in other places of a spec, with the paths of what is wrong with them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use vocabulary::{Expression, LabelKey, LabelValue, Place, Selector, SelectorError};

use crate::fault::Fault;

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
    let expressions: Vec<Expression> = match_expressions
        .iter()
        .flatten()
        .map(
            |LabelSelectorRequirement {
                 key,
                 operator,
                 values,
             }| Expression {
                key: key.clone(),
                operator: operator.clone(),
                values: values.clone().unwrap_or_default(),
            },
        )
        .collect();
    Selector::compile(&match_labels.clone().unwrap_or_default(), &expressions)
        .map_err(|errors| faults.extend(errors.into_iter().map(|error| fault(path, error))))
        .ok()
}

fn fault(selector: &str, error: SelectorError) -> Fault {
    let path = |place: Place| match place {
        // Users read keys as they wrote them; a fault escapes what could break a line.
        Place::Label(key) => format!("{selector}.matchLabels[{key}]"),
        Place::Key(_) | Place::Operator(_) | Place::Values(_) | Place::Value(_, _) => {
            format!("{selector}.{place}")
        }
    };
    match error {
        SelectorError::Key { place, source } | SelectorError::Value { place, source } => {
            Fault::text(&path(place), &source.value, source.rule)
        }
        SelectorError::Operator { place, operator } => Fault::text(
            &path(place),
            &operator,
            "must be In, NotIn, Exists or DoesNotExist",
        ),
        SelectorError::ValuesMissing { place, operator } => {
            let rule = format!("must have at least one value with operator {operator}");
            Fault::absent(&path(place), rule)
        }
        SelectorError::ValuesForbidden {
            place,
            operator,
            count,
        } => {
            let rule = format!("must be empty with operator {operator}");
            Fault::new(&path(place), format_args!("{count} values"), rule)
        }
    }
}

pub(super) fn label_key(text: &str, path: &str, faults: &mut Vec<Fault>) -> Option<LabelKey> {
    LabelKey::new(text)
        .map_err(|error| faults.push(Fault::text(path, text, error.rule)))
        .ok()
}

pub(super) fn label_value(text: &str, path: &str, faults: &mut Vec<Fault>) -> Option<LabelValue> {
    LabelValue::new(text)
        .map_err(|error| faults.push(Fault::text(path, text, error.rule)))
        .ok()
}
