//! Go's `text/template`, in which SIP's templates were written: refused with what to write in its place.

use super::Error;

/// Words with which an action of Go begins, and what means the same here.
const WORDS: [(&str, &str); 9] = [
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
const FIELD: &str = "{{ server.name }}, {{ server.address }}, {{ port.name }} or {{ port.number }}";
const COMMENT: &str = "{# ... #}";

/// Refuses the first action that is Go's.
pub(super) fn refuse(text: &str) -> Result<(), Error> {
    for (index, line) in text.lines().enumerate() {
        for action in line.split("{{").skip(1) {
            let action = action.split("}}").next().unwrap_or(action);
            let action = action.strip_prefix('-').unwrap_or(action).trim_start();
            if let Some(instead) = instead(action) {
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
fn instead(action: &str) -> Option<&'static str> {
    if action.starts_with(['.', '$']) {
        return Some(FIELD);
    }
    if action.starts_with("/*") {
        return Some(COMMENT);
    }
    let word = action.split([' ', '\t', '-']).next()?;
    let known = WORDS.iter().find(|(known, _)| *known == word);
    known.map(|(_, instead)| *instead)
}
