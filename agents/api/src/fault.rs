//! What a parser found wrong, for messages: where, what was there, and which rule it breaks.

use std::fmt;

/// Characters of a value that a message repeats, and faults of an object that it lists, at most. Conditions and Events are bounded.
const MAX_VALUE_CHARACTERS: usize = 80;
const MAX_FAULTS: usize = 20;
const MAX_PATH_CHARACTERS: usize = 4 * MAX_VALUE_CHARACTERS;
/// Characters of a rule in a message, at most. No rule of this project is as long, but some quote what the user wrote.
const MAX_RULE_CHARACTERS: usize = 1_000;
const ABSENT: &str = "absent";

/// One fault of one field.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Fault {
    path: String,
    value: String,
    rule: String,
}

impl Fault {
    pub(crate) fn new(path: &str, value: impl fmt::Display, rule: impl fmt::Display) -> Self {
        Self {
            path: escaped(path, MAX_PATH_CHARACTERS),
            value: escaped(&value.to_string(), MAX_RULE_CHARACTERS),
            rule: escaped(&rule.to_string(), MAX_RULE_CHARACTERS),
        }
    }

    pub(crate) fn absent(path: &str, rule: impl fmt::Display) -> Self {
        Self::new(path, ABSENT, rule)
    }

    /// A fault of a text, which is quoted, escaped and shortened: it may be hostile.
    pub(crate) fn text(path: &str, value: &str, rule: impl fmt::Display) -> Self {
        let shown: String = value.chars().take(MAX_VALUE_CHARACTERS).collect();
        let more = if shown.len() < value.len() { "…" } else { "" };
        Self::new(path, format_args!("\"{}{more}\"", shown.escape_debug()), rule)
    }

    /// Path of the field, for example `spec.nodes[Worker].count.active`. No control characters.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value as it was found: a number, a quoted text, or `absent`. No control characters.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The rule that the value breaks, as a phrase that follows it: `must not be negative`. No control characters.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}: {}", self.path, self.value, self.rule)
    }
}

/// Everything that is wrong with one object.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub struct Invalid {
    object: String,
    faults: Vec<Fault>,
    /// Number of further faults, which are not kept.
    more: usize,
}

impl Invalid {
    /// `object`: kind, namespace and name, as messages show them.
    pub(crate) fn new(object: &str, faults: Vec<Fault>) -> Self {
        Self {
            object: escaped(object, MAX_PATH_CHARACTERS),
            faults,
            more: 0,
        }
    }

    /// Keeps only the faults that the message names; the message stays the same.
    pub(crate) fn with_shown_faults(mut self) -> Self {
        self.more = self
            .more
            .saturating_add(self.faults.len().saturating_sub(MAX_FAULTS));
        self.faults.truncate(MAX_FAULTS);
        self.faults.shrink_to_fit();
        self
    }

    /// The object, for example `SIPCluster lab/wordpress`.
    #[must_use]
    pub fn object(&self) -> &str {
        &self.object
    }

    /// What is wrong with it, in the order of its fields; the first of it, if it is a large object of a watch. Never empty.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.object)?;
        for (index, fault) in self.faults.iter().take(MAX_FAULTS).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{fault}")?;
        }
        let not_shown = self.faults.len().saturating_sub(MAX_FAULTS);
        match not_shown.saturating_add(self.more) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// A path, a name or a rule that names something, in which no line break or change of the writing direction can be hidden; also
/// bounded, since map keys of a spec are the user's.
fn escaped(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (index, c) in text.chars().enumerate() {
        if index == most {
            shown.push('…');
            break;
        }
        // Quotes stay as they are.
        if matches!(c, '\'' | '"' | '\\') || c.escape_debug().len() == 1 {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    shown
}
