//! Texts for whoever breaks a rule: fields with their rules, errors in one line, values that are cut off.

use std::fmt;

/// A field of a request that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, for example `spec.roles[0].label_selector`.
    pub field: String,
    /// The value and the rule that it breaks.
    pub rule: String,
}

impl Violation {
    /// A violation of `rule` by `field`.
    pub fn new(field: impl Into<String>, rule: impl fmt::Display) -> Self {
        Self {
            field: field.into(),
            rule: rule.to_string(),
        }
    }
}

/// Maximum number of violations in an answer.
pub(crate) const MAX_VIOLATIONS: usize = 10;
/// Maximum length of a field's path in an answer, in bytes: it may quote what the caller sent.
const MAX_FIELD_BYTES: usize = 300;
/// Maximum length of a rule in an answer, in bytes: it may quote what the caller sent.
const MAX_RULE_BYTES: usize = 700;
/// Size of the listed violations, in bytes, after which none is added. An answer has each violation twice, as text and as details, in
/// headers of at most 16 KiB: a caller whose client refuses larger ones sees a broken connection instead of its mistake.
const MAX_LISTED_BYTES: usize = 2000;

/// The violations that an answer lists: the first ones, cut off where they are very long.
pub(crate) fn listed(violations: &[Violation]) -> Vec<Violation> {
    let mut bytes = 0;
    let cut = violations.iter().map(|Violation { field, rule }| Violation {
        field: clip(field, MAX_FIELD_BYTES).to_owned(),
        rule: clip(rule, MAX_RULE_BYTES).to_owned(),
    });
    cut.take(MAX_VIOLATIONS)
        .take_while(|Violation { field, rule }| {
            let fits = bytes < MAX_LISTED_BYTES;
            bytes += field.len() + rule.len();
            fits
        })
        .collect()
}

/// The listed violations, in one line, and how many there are besides.
pub(crate) fn sentence(violations: &[Violation]) -> String {
    let listed = listed(violations);
    let mut each: Vec<String> = listed
        .iter()
        .map(|Violation { field, rule }| format!("{field}: {rule}"))
        .collect();
    if violations.len() > listed.len() {
        each.push(format!("and {} more", violations.len() - listed.len()));
    }
    each.join("; ")
}

/// The first `most` bytes of a text at most, as whole characters.
pub(crate) fn clip(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
