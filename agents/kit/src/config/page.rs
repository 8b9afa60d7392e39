//! The reference page of a site's configuration, as Markdown: `docs/site-configuration.md` is generated from the types.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::File;

const HEAD: &str = "\
# Configuration of a site

<!-- Generated from agents/kit/src/config.rs by `make generate`. -->

All agents of a site read one file, `site.yaml` in the ConfigMap `sip-site` ([example](../deploy/examples/one-site/site.yaml)). The kustomization
gives the ConfigMap a name with a hash of its content, so that agents restart when it changes. An agent that cannot read the file does not
start; its log names the field, the value and the rule. Keys that are not in this table are refused.

| key | value | meaning |
|---|---|---|
";

/// The page.
#[must_use]
pub fn page() -> String {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<File>();
    let mut rows = Vec::new();
    collect("", schema.as_value(), &mut rows);
    HEAD.to_owned() + &rows.concat()
}

/// Adds a row for each key of an object; the required ones come first.
fn collect(path: &str, object: &Value, rows: &mut Vec<String>) {
    let required: Vec<&str> = (object["required"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    let mut keys: Vec<(&String, &Value)> = object["properties"].as_object().into_iter().flatten().collect();
    keys.sort_by_key(|(key, _)| !required.contains(&key.as_str()));
    for (key, value) in keys {
        if value["properties"].is_object() {
            collect(&format!("{path}{key}."), value, rows);
            continue;
        }
        let is_required = if required.contains(&key.as_str()) {
            ", required"
        } else {
            ""
        };
        // A comment has line breaks.
        let meaning = value["description"]
            .as_str()
            .unwrap_or_default()
            .replace('\n', " ");
        rows.push(format!(
            "| `{path}{key}` | {}{is_required} | {meaning} |\n",
            form(value)
        ));
    }
}

/// The form of a value.
fn form(value: &Value) -> String {
    let types = match &value["type"] {
        Value::Array(types) => types
            .iter()
            .filter_map(Value::as_str)
            .find(|name| *name != "null"),
        name => name.as_str(),
    };
    match types {
        Some("array") => match names(&value["items"]) {
            names if names.is_empty() => format!("list of {}s", form(&value["items"])),
            names => format!("list of {}", names.join(", ")),
        },
        Some(name) => name.to_owned(),
        None => String::new(),
    }
}

/// The values of an enumeration, as code.
fn names(items: &Value) -> Vec<String> {
    let variants = items["oneOf"].as_array().into_iter().flatten();
    let each = variants.flat_map(|variant| {
        let constant = variant.get("const").into_iter();
        constant.chain(variant["enum"].as_array().into_iter().flatten())
    });
    let plain = items["enum"].as_array().into_iter().flatten();
    each.chain(plain)
        .filter_map(Value::as_str)
        .map(|name| format!("`{name}`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn docs_site_configuration_holds_what_the_types_state() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/site-configuration.md");
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == page(),
            "docs/site-configuration.md differs from the types: run `make generate`"
        );
    }

    #[test]
    fn every_key_has_a_value_and_a_meaning() {
        let page = page();
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert!(rows.len() > 15, "{page}");
        for row in &rows {
            let empty = ["|  |", "| , required |", "list of s |"];
            assert!(!empty.iter().any(|empty| row.contains(empty)), "{row}");
        }
        for begin in [
            "| `scheduler.endpoint` | string, required |",
            "| `notInstalled` | list of `loadBalancer`, `jumpHost`, `auth` |",
        ] {
            assert!(rows.iter().any(|row| row.starts_with(begin)), "{begin}: {page}");
        }
    }
}
