//! What is fuzzed, apart from the fuzzer: unit tests replay the seeds on the same functions.

use std::collections::BTreeMap;

use placement::{Expression, LabelKey, LabelValue, Namespace, Policy, Selector};
use sipctl::cli::Output;
use sipctl::command::print;
use sipctl::input::{Input, documents};
use sipctl::report::Outcome;

/// Reads a text as documents, decides, prints. The order of documents changes nothing, and the contract holds.
pub fn plan_input(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(found) = documents("input", text) else {
        return;
    };
    let namespace = Namespace::new("default").expect("a namespace");
    let reversed = found.iter().rev().cloned().collect();
    let read = |documents| Input::new(documents, &namespace, Policy::default());
    let (Ok(input), Ok(other)) = (read(found), read(reversed)) else {
        return;
    };
    let plan = sipctl::plan(&input);
    assert_eq!(plan, sipctl::plan(&other));
    for cluster in plan.report().clusters {
        assert_eq!(cluster.refusal.is_none(), cluster.outcome == Outcome::Placed);
    }
    for output in [Output::Table, Output::Json, Output::Yaml] {
        let text = print(&plan, output).expect("a plan can be printed");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
    }
}

/// Compiles a selector and matches labels. The lines are `label KEY VALUE`, `match KEY VALUE` and
/// `KEY OPERATOR [VALUE…]`. Whether it matches is told by a plain reading of the rules, too.
pub fn selectors(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (mut labels, mut match_labels, mut expressions) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for line in text.lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        match parts[..] {
            ["label", key, value] => {
                if let (Ok(key), Ok(value)) = (LabelKey::new(key), LabelValue::new(value)) {
                    labels.insert(key, value);
                }
            }
            ["match", key, value] => {
                match_labels.insert(key.to_owned(), value.to_owned());
            }
            [key, operator, ref values @ ..] => expressions.push(Expression {
                key: key.to_owned(),
                operator: operator.to_owned(),
                values: values.iter().map(|value| (*value).to_owned()).collect(),
            }),
            [_] | [] => {}
        }
    }
    let Ok(selector) = Selector::compile(&match_labels, &expressions) else {
        return;
    };
    let value = |key: &str| labels.get(key).map(LabelValue::as_str);
    let plain = match_labels
        .iter()
        .all(|(key, wanted)| value(key) == Some(wanted))
        && expressions.iter().all(
            |Expression {
                 key,
                 operator,
                 values,
             }| {
                let is_in = value(key).is_some_and(|value| values.iter().any(|wanted| wanted == value));
                match operator.as_str() {
                    "In" => is_in,
                    "NotIn" => !is_in,
                    "Exists" => value(key).is_some(),
                    _ => value(key).is_none(),
                }
            },
        );
    assert_eq!(selector.matches(&labels), plain);
    assert!(selector.requirements().count() <= match_labels.len() + expressions.len());
}
