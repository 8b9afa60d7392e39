//! Go's `text/template`, in which SIP's templates were written: refused with what to write in its place.

use super::Error;

/// Keywords with which an action of Go begins, and what to write in its place.
const GO_KEYWORDS: [(&str, &str); 9] = [
    ("range", "{% for server in servers %}"),
    ("end", "{% endfor %} or {% endif %}"),
    ("if", "{% if ... %}"),
    ("else", "{% else %}"),
    ("with", "{% set ... %}"),
    ("define", "{% set ... %}"),
    ("template", "the text itself"),
    ("block", "the text itself"),
    ("len", "{{ servers|length }}"),
];
const FIELD_REPLACEMENT: &str =
    "{{ server.name }}, {{ server.address }}, {{ port.name }} or {{ port.number }}";
const COMMENT_REPLACEMENT: &str = "{# ... #}";

/// Refuses the first action that is Go's.
pub(super) fn refuse_go_actions(text: &str) -> Result<(), Error> {
    for (index, line) in text.lines().enumerate() {
        for action in line.split("{{").skip(1) {
            let action = action.split("}}").next().unwrap_or(action);
            let action = action.strip_prefix('-').unwrap_or(action).trim_start();
            if let Some(instead) = replacement(action) {
                let found = action.strip_suffix('-').unwrap_or(action).trim_end();
                return Err(Error::Go {
                    line: index + 1,
                    found: found.to_owned(),
                    instead,
                });
            }
        }
    }
    Ok(())
}

/// What to write for an action, if it is Go's.
fn replacement(action: &str) -> Option<&'static str> {
    if action.starts_with(['.', '$']) {
        return Some(FIELD_REPLACEMENT);
    }
    if action.starts_with("/*") {
        return Some(COMMENT_REPLACEMENT);
    }
    let word = action.split([' ', '\t', '-']).next()?;
    let known = GO_KEYWORDS.iter().find(|(known, _)| *known == word);
    known.map(|(_, instead)| *instead)
}
