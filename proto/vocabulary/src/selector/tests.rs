use std::collections::BTreeMap;

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
fn each_operator_matches_as_in_kubernetes() {
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
fn an_empty_selector_matches_all_an_empty_value_only_itself() {
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
        let errors = Selector::compile(&BTreeMap::new(), &[written]).expect_err("invalid");
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].to_string().starts_with(start), "{errors:?}");
    }
    let bad = BTreeMap::from([("k".to_owned(), "a b".to_owned())]);
    let errors = Selector::compile(&bad, &[]).expect_err("invalid");
    assert_eq!(errors[0].to_string(), "matchLabels[\"k\"]");
    let source = std::error::Error::source(&errors[0])
        .map(ToString::to_string)
        .unwrap_or_default();
    assert!(source.starts_with("label value \"a b\" is not valid"), "{source}");
}

#[test]
fn every_broken_rule_is_found() {
    let bad = BTreeMap::from([("a b".to_owned(), "c d".to_owned())]);
    let expressions = [expression("-", "in", &["e f"]), expression("k", "In", &[])];
    let errors = Selector::compile(&bad, &expressions).expect_err("invalid");
    let places: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let starts = [
        "matchLabels[\"a b\"]",
        "matchLabels[\"a b\"]",
        "matchExpressions[0].key",
        "matchExpressions[0].operator: ",
        "matchExpressions[0].values[0]",
        "matchExpressions[1].values: ",
    ];
    assert_eq!(places.len(), starts.len(), "{places:?}");
    for (place, start) in places.iter().zip(starts) {
        assert!(place.starts_with(start), "{place}");
    }
}

#[test]
fn only_the_first_broken_rules_are_returned() {
    let values = vec![" "; 10 * Error::MAX_RETURNED];
    let bad = BTreeMap::from([("a b".to_owned(), String::new())]);
    let errors = Selector::compile(&bad, &[expression("k", "In", &values)]).expect_err("invalid");
    assert_eq!(errors.len(), Error::MAX_RETURNED);
    assert_eq!(errors[0].to_string(), "matchLabels[\"a b\"]");
}

#[test]
fn the_order_and_repeats_of_requirements_do_not_matter() {
    let (a, b) = (expression("a", "In", &["x", "y"]), expression("b", "Exists", &[]));
    let one = Selector::compile(&BTreeMap::new(), &[a.clone(), b.clone()]).expect("valid");
    let other =
        Selector::compile(&BTreeMap::new(), &[b, expression("a", "In", &["y", "x", "y"]), a]).expect("valid");
    assert_eq!(one, other);
    assert_eq!(one.to_string(), "a in (x,y),b");
}
