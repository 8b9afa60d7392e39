//! The kinds of contradictions between the ledger and a site. Users alert on them: metrics, placements and the decision log have
//! them as label or kind, and `docs/reconciliation.md` states when each is reported.

macro_rules! kinds {
    ($($variant:ident: $name:literal, $meaning:literal;)+) => {
        /// A contradiction between the ledger and what the site shows.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(super) enum ConflictKind {
            $(#[doc = $meaning] $variant,)+
        }

        impl ConflictKind {
            /// Every kind, in the order of the alphabet.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$variant,)+];

            /// As it is written.
            pub(super) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

kinds! {
    ClusterMissing: "cluster-missing", "The ledger holds hosts for a `SIPCluster` that the site does not have.";
    HeldByAnother: "held-by-another", "The labels name the cluster, and another one holds the host.";
    HostMissing: "host-missing", "The `BareMetalHost` of a member is gone.";
    LabelsBack: "labels-back", "A host that was confirmed as released has the labels again.";
    LabelsMissing: "labels-missing", "A bound member has lost its labels.";
    LabelsOfAnother: "labels-of-another", "The labels name another cluster than the one that holds the host.";
    LabelsOfAnotherRole: "labels-of-another-role", "The labels name another role than the ledger.";
    LabelsPartial: "labels-partial", "A host has some of the labels, or one that is not valid.";
    PromisedToAnother: "promised-to-another", "A status from before the ledger was lost names a host that another cluster has.";
    UsedAfterRelease: "used-after-release", "A released host is unlabelled and has a consumer.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_page_of_reconciliation_has_these_kinds_and_no_other() {
        let page = include_str!("../../../../docs/reconciliation.md");
        // The column of reports of the first table, but for what other calls report.
        let rows = page
            .lines()
            .take_while(|line| !line.starts_with("Two more reports"))
            .filter(|line| line.starts_with("| ") && line.matches(" | ").count() == 4);
        let reports: String = rows.filter_map(|row| row.split(" | ").nth(3)).collect();
        let named = |text: &str| -> BTreeSet<String> {
            let words = text.split('`').skip(1).step_by(2);
            words
                .filter(|word| !word.contains(char::is_uppercase))
                .map(str::to_owned)
                .collect()
        };
        let others = page
            .lines()
            .skip_while(|line| !line.starts_with("Two more reports belong to no row"));
        let others: String = others.take_while(|line| !line.is_empty()).collect();
        let known: BTreeSet<String> = ConflictKind::ALL
            .iter()
            .map(|kind| kind.as_str().to_owned())
            .collect();
        let mut found = named(&reports);
        // ExplainHost and the decision report these.
        for other in ["former-member", "no-replacement", "orphaned"] {
            assert!(found.remove(other), "{other}");
        }
        found.extend(named(&others));
        assert_eq!(found, known);
    }
}
