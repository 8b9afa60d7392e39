//! The reference page of conditions, as Markdown.

use super::{ConditionType, Meaning, Polarity};

const HEAD: &str = "\
# Conditions of a SIPCluster

<!-- Generated from agents/api/src/conditions by `make generate`. -->

Each type has one owner. `observedGeneration` is the generation of the spec that the owner has acted on: if it is lower than
`metadata.generation`, the condition does not describe the current spec. Types and reasons are stable; messages can change.

`status.state` summarizes the conditions `Ready` and `Stalled` in one word: `Ready`, `Stalled` (not ready, and a person has to act) or
`Progressing`. It is for programs that cannot read a condition, such as `airshipctl`: its revisions before June 2021 find `status.state` by the
annotation `airshipit.org/status-check` of the CustomResourceDefinition. `status.roles` has the numbers of members.
";

/// The page, which `docs/conditions.md` holds.
#[must_use]
pub fn page() -> String {
    let sections = ConditionType::ALL.into_iter().map(section);
    std::iter::once(HEAD.to_owned()).chain(sections).collect()
}

fn section(kind: ConditionType) -> String {
    let absent = match kind.polarity() {
        Polarity::Positive => "This condition is normally `True`",
        Polarity::Negative => "Normally this condition does not exist",
    };
    let (meaning, owner) = (kind.meaning(), kind.owner());
    let head = format!("\n## `{kind}`\n\n{meaning} {absent}; {owner} writes it.\n");
    let row = |Meaning {
                   reason,
                   status,
                   stalls,
                   text,
               }: &Meaning| {
        let stalls = if *stalls { ", *stalls*" } else { "" };
        format!("| `{reason}` | `{}`{stalls} | {text} |\n", status.as_str())
    };
    let rows = kind.reasons();
    let table = (!rows.is_empty()).then(|| "\n| reason | status | meaning |\n|---|---|---|\n".to_owned());
    std::iter::once(head)
        .chain(table)
        .chain(rows.iter().map(row))
        .collect()
}
