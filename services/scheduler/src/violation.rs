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

/// Most violations in an answer: with more of them its header is larger than clients take, and they learn nothing.
pub(crate) const TOLD: usize = 10;

/// The first violations, in one line, and how many there are besides.
pub(crate) fn sentence(violations: &[Violation]) -> String {
    let told = violations.iter().take(TOLD);
    let mut each: Vec<String> = told
        .map(|Violation { field, rule }| format!("{field}: {rule}"))
        .collect();
    if violations.len() > TOLD {
        each.push(format!("and {} more", violations.len() - TOLD));
    }
    each.join("; ")
}

/// The first `most` bytes of a text at most, as whole characters.
pub(crate) fn clip(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
