//! Texts become documents: JSON or YAML, one or many in a text, lists unpacked.

use std::fmt;

use serde_json::Value;

use super::Error;
use crate::line::one_line;

/// Maximum number of characters of a file's name in a message.
const MAX_PATH_CHARACTERS: usize = 256;

/// One object as it is written, and where.
#[derive(Clone, Debug)]
pub struct Document {
    pub(super) location: Location,
    pub(super) object: serde_json::Map<String, Value>,
}

#[cfg(feature = "region")]
impl Document {
    /// The object as it is written.
    pub(crate) fn object(&self) -> &serde_json::Map<String, Value> {
        &self.object
    }
}

/// Where a document is.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Location(String);

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a text that came from `source`, a file's name. Empty documents are left out; what has a `kind` that ends in
/// `List` and `items` is replaced by its items.
///
/// # Errors
/// The text is neither JSON nor YAML, or goes beyond the limits that keep a small text from becoming a huge object, or a
/// document is no mapping.
pub fn documents(source: &str, text: &str) -> Result<Vec<Document>, Error> {
    let source = one_line(source, MAX_PATH_CHARACTERS);
    let mut found = Vec::new();
    for (index, value) in values(&source, text)?.into_iter().enumerate() {
        unpack(format!("{source}, document {}", index + 1), value, &mut found)?;
    }
    Ok(found)
}

/// JSON first, since not every JSON is YAML (tabs); what is neither is told as what it looks like.
fn values(source: &str, text: &str) -> Result<Vec<Value>, Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let looks_like_json = text.trim_start().starts_with(['{', '[']);
    let json = looks_like_json.then(|| {
        serde_json::Deserializer::from_str(text)
            .into_iter()
            .collect::<Result<Vec<Value>, _>>()
    });
    if let Some(Ok(values)) = json {
        return Ok(values);
    }
    let yaml = match serde_saphyr::from_multiple_with_options(text, options(text)) {
        Ok(values) => return Ok(values),
        Err(error) => error,
    };
    let source = source.to_owned();
    Err(match json {
        Some(Err(error)) => Error::Json {
            source_name: source,
            source: error,
        },
        Some(Ok(_)) | None => Error::Yaml {
            source_name: source,
            source: Box::new(yaml),
        },
    })
}

/// The parser's limits, in proportion to the text: a dump of a whole site is large, but only aliases make more of a text
/// than it is, and they may not make much. No snippet of the text goes into an error: it may be a Secret's.
fn options(text: &str) -> serde_saphyr::Options {
    /// Number of nodes, or of bytes of scalars, that a text may have besides its own length in bytes.
    const EXPANSION_ALLOWANCE: usize = 1 << 20;
    let most = text.len().saturating_add(EXPANSION_ALLOWANCE);
    serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_documents: most,
            max_nodes: most,
            max_events: most.saturating_mul(4),
            max_total_scalar_bytes: most,
            max_total_comment_bytes: most,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
        },
    }
}

fn unpack(location: String, value: Value, found: &mut Vec<Document>) -> Result<(), Error> {
    let mut object = match value {
        Value::Null => return Ok(()),
        Value::Object(object) => object,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(Error::NotAMapping {
                location: Location(location),
            });
        }
    };
    let element = object
        .get("kind")
        .and_then(Value::as_str)
        .and_then(|kind| kind.strip_suffix("List"))
        .map(str::to_owned);
    let (Some(element), Some(Value::Array(items))) = (element, object.get_mut("items").map(Value::take))
    else {
        found.push(Document {
            location: Location(location),
            object,
        });
        return Ok(());
    };
    for (index, mut item) in items.into_iter().enumerate() {
        // The items of a typed list leave out what the list states.
        if let (Value::Object(item), false) = (&mut item, element.is_empty()) {
            let api_version = object.get("apiVersion").cloned().unwrap_or_default();
            item.entry("kind").or_insert_with(|| element.clone().into());
            item.entry("apiVersion").or_insert(api_version);
        }
        unpack(format!("{location}, item {}", index + 1), item, found)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<String> {
        let of = |document: &Document| {
            format!(
                "{} at {}",
                document
                    .object
                    .get("kind")
                    .and_then(Value::as_str)
                    .unwrap_or("nothing"),
                document.location
            )
        };
        documents("f", text).unwrap().iter().map(of).collect()
    }

    #[test]
    fn documents_may_be_json_yaml_or_lists() {
        let cases = [
            (
                "kind: A\n---\n---\n# only a comment\n---\nkind: B\n",
                vec!["A at f, document 1", "B at f, document 2"],
            ),
            (
                "{\"kind\":\t\"A\"}\n{\"kind\": \"B\"}",
                vec!["A at f, document 1", "B at f, document 2"],
            ),
            (
                "{kind: A}\n---\n{kind: B}",
                vec!["A at f, document 1", "B at f, document 2"],
            ),
            ("\u{feff}kind: A", vec!["A at f, document 1"]),
            (
                "kind: List\nitems: [{kind: A}, {kind: List, items: [{kind: B}]}]",
                vec!["A at f, document 1, item 1", "B at f, document 1, item 2, item 1"],
            ),
            (
                "kind: SecretList\napiVersion: v1\nitems: [{}]",
                vec!["Secret at f, document 1, item 1"],
            ),
            ("kind: WishList\nwishes: []", vec!["WishList at f, document 1"]),
            ("kind: List\nitems: []", vec![]),
            ("", vec![]),
        ];
        for (text, expected) in cases {
            assert_eq!(kinds(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_mapping_is_refused_with_its_place() {
        for text in ["- a", "text", "[1]", "kind: List\nitems: [1]", "kind: A\n---\n7"] {
            let error = documents("f", text).unwrap_err().to_string();
            assert!(
                error.starts_with("f, document ") && error.contains("must be a mapping"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_showing_it() {
        for text in [
            "{\"password\": \"hunter2\", ]",
            "password: hunter2\n  x: [",
            "a: hunter2\na: hunter2\n",
        ] {
            let error = anyhow::Error::from(documents("f", text).unwrap_err());
            let message = format!("{error:#}");
            assert!(
                message.starts_with("f is ") && !message.contains("hunter2"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_small_text_does_not_become_a_huge_object() {
        let level = |level: usize| {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            format!("a{level}: &a{level} [{aliases}]\n")
        };
        let levels: Vec<String> = (1..12).map(level).collect();
        let bomb = format!("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{}", levels.concat());
        let long = format!(
            "a: &a {}\nb: [{}]\n",
            "x".repeat(1 << 20),
            vec!["*a"; 50].join(", ")
        );
        let deep_flow = "[".repeat(100_000);
        let deep_json = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let deeper = |depth| {
            format!(
                "{}a:
",
                " ".repeat(depth)
            )
        };
        let deep_block = (0..2_000).map(deeper).collect::<Vec<_>>().concat();
        for text in [bomb, long, deep_flow, deep_json, deep_block] {
            assert!(documents("f", &text).is_err());
        }
    }
}
