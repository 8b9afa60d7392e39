//! What a condition states besides problems, in words.

use api::conditions::Reason;

use super::outcome::Remark;

/// The first remark with its reason, and the names of all instances that it is about.
pub(super) fn first(remarks: &[(&Remark, &str)]) -> Option<(Reason, String)> {
    let (first, _) = remarks.first()?;
    let names: Vec<&str> = remarks
        .iter()
        .filter(|(remark, _)| remark == first)
        .map(|(_, name)| *name)
        .collect();
    Some((first.reason, format!("{}: {}", names.join(", "), first.text)))
}

/// All warnings, each with the names of the instances that it is about, and the reason that ranks first.
pub(super) fn all(ranks: &[Reason], warnings: &[(&Remark, &str)]) -> Option<(Reason, String)> {
    let rank = |reason: Reason| {
        let rank = ranks.iter().position(|known| *known == reason);
        rank.unwrap_or(ranks.len())
    };
    let mut stated = Vec::new();
    for (index, (warning, _)) in warnings.iter().enumerate() {
        let (before, from) = warnings.split_at(index);
        if before.iter().all(|(stated, _)| stated != warning) {
            stated.extend(first(from));
        }
    }
    stated.sort_by_key(|(reason, _)| rank(*reason));
    let reason = stated.first()?.0;
    let stated: Vec<String> = stated.into_iter().map(|(_, text)| text).collect();
    Some((reason, stated.join("; ")))
}

#[cfg(test)]
mod tests {
    use api::conditions::auth::{BINDINGS_REMAIN, STATIC_PASSWORDS};

    use super::*;

    #[test]
    fn every_warning_is_stated_and_the_first_by_rank_is_the_reason() {
        let remark = |reason, text: &'static str| Remark {
            reason,
            text: text.into(),
        };
        let low = remark(STATIC_PASSWORDS, "low");
        let (high, other) = (remark(BINDINGS_REMAIN, "high"), remark(BINDINGS_REMAIN, "other"));
        let ranks = [BINDINGS_REMAIN, STATIC_PASSWORDS];
        assert_eq!(all(&ranks, &[]), None);
        let warnings = [(&low, "a"), (&low, "b"), (&high, "b"), (&other, "c")];
        let stated = "b: high; c: other; a, b: low".to_owned();
        assert_eq!(all(&ranks, &warnings), Some((BINDINGS_REMAIN, stated)));
    }
}
