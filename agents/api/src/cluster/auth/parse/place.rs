//! A position in a spec: checks the values of the fields below it and collects their faults.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use vocabulary::dns;

use crate::cluster::auth::text::{HttpsUrl, MAX_CHARACTERS, SecretKey, is_secret_key};
use crate::fault::Fault;
use crate::sip_cluster::SecretKeySpec;

const SECRET: &str = "must be the name of a Secret: at most 253 lowercase letters, digits, '-' and '.'";
const SECRET_KEY: &str = "must be a key of a Secret: at most 253 letters, digits, '-', '_' and '.'";

/// The path of an object in the spec, and the list that receives the faults of its fields.
pub(super) struct FieldPath<'a> {
    path: String,
    faults: &'a mut Vec<Fault>,
}

impl<'a> FieldPath<'a> {
    pub(super) fn new(path: &str, faults: &'a mut Vec<Fault>) -> Self {
        Self {
            path: path.to_owned(),
            faults,
        }
    }

    pub(super) fn below(&mut self, field: &str) -> FieldPath<'_> {
        FieldPath {
            path: self.field(field),
            faults: self.faults,
        }
    }

    fn field(&self, field: &str) -> String {
        format!("{}.{field}", self.path)
    }

    pub(super) fn absent(&mut self, field: &str, rule: &str) {
        self.faults.push(Fault::absent(&self.field(field), rule));
    }

    pub(super) fn text(&mut self, field: &str, value: &str, rule: &str) {
        self.faults.push(Fault::text(&self.field(field), value, rule));
    }

    /// The value of an optional field, which must be one line; `None` also after a fault.
    pub(super) fn line(&mut self, field: &str, value: Option<&str>) -> Option<String> {
        let value = value?;
        let rule = if value.is_empty() {
            "must not be empty"
        } else if value.contains(char::is_control) {
            "must be one line without control characters"
        } else if value.chars().count() > MAX_CHARACTERS {
            "must have at most 1024 characters"
        } else if value.trim() != value {
            "must not begin or end with white space"
        } else {
            return Some(value.to_owned());
        };
        self.text(field, value, rule);
        None
    }

    /// The value of a required field, which must be one line; `None` after a fault.
    pub(super) fn required(&mut self, field: &str, value: Option<&str>) -> Option<String> {
        if value.is_none() {
            self.absent(field, "must be set");
        }
        self.line(field, value)
    }

    /// The value of an optional field, which must be one line that `is_right` accepts; otherwise a fault with this rule.
    pub(super) fn checked(
        &mut self,
        field: &str,
        value: Option<&str>,
        is_right: impl Fn(&str) -> bool,
        rule: &str,
    ) -> Option<String> {
        let line = self.line(field, value)?;
        if is_right(&line) {
            return Some(line);
        }
        self.text(field, &line, rule);
        None
    }

    pub(super) fn url(&mut self, field: &str, value: Option<&str>) -> Option<HttpsUrl> {
        let line = self.line(field, value)?;
        let url = HttpsUrl::new(&line);
        if url.is_none() {
            self.text(field, &line, HttpsUrl::RULE);
        }
        url
    }

    pub(super) fn secret_key(&mut self, field: &str, spec: Option<&SecretKeySpec>) -> Option<SecretKey> {
        let SecretKeySpec { name, key } = spec?;
        let mut at = self.below(field);
        for (field, value) in [("name", name), ("key", key)] {
            if value.is_none() {
                at.absent(field, "must be set");
            }
        }
        let name = at.checked("name", name.as_deref(), dns::is_subdomain, SECRET);
        let key = at.checked("key", key.as_deref(), is_secret_key, SECRET_KEY);
        Some(SecretKey::new(&name?, &key?))
    }

    /// The value of an optional field that names a Secret.
    pub(super) fn secret_name(&mut self, field: &str, value: Option<&str>) -> Option<String> {
        self.checked(field, value, dns::is_subdomain, SECRET)
    }

    pub(super) fn duration(
        &mut self,
        field: &str,
        value: Option<&str>,
        range: &RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let value = value?;
        let parsed = value.parse::<jiff::SignedDuration>().ok();
        let parsed = parsed.and_then(|signed| Duration::try_from(signed).ok());
        let parsed = parsed.filter(|duration| range.contains(duration));
        if parsed.is_none() {
            let minutes = |duration: &Duration| duration.as_secs() / 60;
            let (least, most) = (minutes(range.start()), minutes(range.end()) / 60);
            let rule = format!("must be a duration such as 6h, from {least}m to {most}h");
            self.text(field, value, &rule);
        }
        parsed
    }

    /// The values of a list of at most `most` entries; none, and a fault, where it has more.
    pub(super) fn bounded<'v, T>(&mut self, list: &str, values: Option<&'v Vec<T>>, most: usize) -> &'v [T] {
        let values = values.map(Vec::as_slice).unwrap_or_default();
        if values.len() <= most {
            return values;
        }
        let rule = format!("must have at most {most}");
        let found = format_args!("a list of {}", values.len());
        self.faults.push(Fault::new(&self.field(list), found, rule));
        &[]
    }

    /// Adds a fault for each entry of a list whose value of a field an earlier entry has.
    pub(super) fn unique<'v>(&mut self, list: &str, field: &str, values: impl Iterator<Item = &'v str>) {
        let mut first = BTreeMap::new();
        for (index, value) in values.enumerate() {
            if let Some(other) = first.get(value) {
                let rule = format!("must be unique, and is that of {}.{list}[{other}]", self.path);
                self.text(&format!("{list}[{index}].{field}"), value, &rule);
            } else {
                first.insert(value, index);
            }
        }
    }
}
