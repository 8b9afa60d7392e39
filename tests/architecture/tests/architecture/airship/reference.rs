//! The paths by which airshipctl's `ReplacementTransformer` names fields: the part of its `JSONPath` that `deploy/airship/` uses.
//!
//! airshipctl makes a field that a path does not find, so a wrong path leaves the right field as it was and fails nowhere.

use std::fmt::{self, Display, Formatter};

use regex::Regex;
use serde_json::Value;

/// Where a value is in an object.
#[derive(Debug)]
pub(super) struct Reference {
    written: String,
    steps: Vec<Step>,
    /// What is replaced within the text there, if not the whole value.
    pattern: Option<Regex>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// `.key`, in which a backslash precedes a dot of the key.
    Field(String),
    /// `[0]`
    Index(usize),
    /// `[?(.key == 'value')]`
    Elements { key: String, value: String },
}

impl Reference {
    /// `{PATH}` or `{PATH}%PATTERN%`.
    pub(super) fn parse(written: &str) -> Result<Self, String> {
        let whole = Regex::new(r"^\{([^{}]+)\}(?:%(\S+)%)?$").unwrap();
        let step = Regex::new(r"\.((?:[^.\[\]\\]|\\.)+)|\[(\d+)\]|\[\?\(\.(\w+) == '([^']*)'\)\]").unwrap();
        let parts = whole
            .captures(written)
            .ok_or_else(|| format!("{written} is no {{PATH}} and no {{PATH}}%PATTERN%"))?;
        let path = &parts[1];
        let mut end = 0;
        let mut steps = Vec::new();
        for found in step.captures_iter(path) {
            if found.get(0).is_none_or(|all| all.start() != end) {
                break;
            }
            end += found[0].len();
            let group = |number: usize| found.get(number).map(|part| part.as_str());
            steps.push(match (group(1), group(2), group(3), group(4)) {
                (Some(field), ..) => Step::Field(field.replace('\\', "")),
                (_, Some(index), ..) => Step::Index(index.parse().map_err(|_| written.to_owned())?),
                (_, _, key, value) => Step::Elements {
                    key: key.unwrap_or_default().to_owned(),
                    value: value.unwrap_or_default().to_owned(),
                },
            });
        }
        if end != path.len() {
            return Err(format!("{written}: {:?} is not read here", &path[end..]));
        }
        let pattern = parts.get(2).map(|pattern| Regex::new(pattern.as_str()));
        Ok(Self {
            written: written.to_owned(),
            steps,
            pattern: pattern.transpose().map_err(|error| error.to_string())?,
        })
    }

    /// All values there, whatever the pattern.
    pub(super) fn values<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        self.steps.iter().fold(vec![object], |found, step| {
            found.into_iter().flat_map(|value| step.values(value)).collect()
        })
    }

    /// Whether a replacement by this value finds the field, and leaves it as it is.
    pub(super) fn keeps(&self, object: &Value, value: &Value) -> Result<(), String> {
        let found = self.values(object);
        if found.is_empty() {
            return Err(format!("{self} is nowhere in it"));
        }
        for present in found {
            let Some(pattern) = &self.pattern else {
                if present != value {
                    return Err(format!("{self} is {present} there and {value} in the catalogue"));
                }
                continue;
            };
            let text = present.as_str().unwrap_or_default();
            if !pattern.is_match(text) {
                return Err(format!("{self} matches nothing in {text:?}"));
            }
            if let Some(other) = pattern.find_iter(text).find(|part| *value != part.as_str()) {
                return Err(format!(
                    "{self} is {:?} there and {value} in the catalogue",
                    other.as_str()
                ));
            }
        }
        Ok(())
    }
}

impl Display for Reference {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.written)
    }
}

impl Step {
    fn values<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(key) => value.get(key).into_iter().collect(),
            Self::Index(index) => value.get(index).into_iter().collect(),
            Self::Elements { key, value: wanted } => {
                let elements = value.as_array().into_iter().flatten();
                elements
                    .filter(|element| element[key] == wanted.as_str())
                    .collect()
            }
        }
    }
}

#[test]
fn references_find_fields_elements_and_parts_of_texts() {
    let object = serde_json::json!({
        "data": {"site.yaml": "a: x:1\nb: y:2\n"},
        "containers": [{"name": "agent", "image": "x:1"}, {"name": "other", "image": "y:2"}],
    });
    let found = |written: &str| {
        let reference = Reference::parse(written).unwrap();
        reference.values(&object).into_iter().cloned().collect::<Vec<_>>()
    };
    let keeps = |written: &str| {
        Reference::parse(written)
            .unwrap()
            .keeps(&object, &Value::from("x:1"))
            .is_ok()
    };

    assert_eq!(found("{.containers[1].image}"), ["y:2"]);
    assert_eq!(found("{.containers[?(.name == 'agent')].image}"), ["x:1"]);
    assert_eq!(found(r"{.data.site\.yaml}").len(), 1);
    assert_eq!(found("{.data.site.yaml}"), Vec::<Value>::new());
    assert!(keeps(r"{.data.site\.yaml}%x:\S+%"));
    assert!(!keeps(r"{.data.site\.yaml}%y:\S+%"));
    assert!(!keeps(r"{.data.site\.yaml}%z:\S+%"));
    assert!(keeps("{.containers[0].image}"));
    assert!(!keeps("{.containers[1].image}"));
    assert!(!keeps("{.containers[0].picture}"));
}

#[test]
fn references_of_other_forms_are_refused() {
    for written in [
        "spec.image",
        "{.spec[*].image}",
        "{.spec[-1]}",
        "{.spec}{.image}",
        "{}",
    ] {
        assert!(Reference::parse(written).is_err(), "{written}");
    }
}
