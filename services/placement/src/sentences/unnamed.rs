//! Reasons in the sentences about one cluster, which its tenant reads in conditions and Events: without the names of other clusters and of
//! consumers, which may be another tenant's. `ExplainHost` states them, to those who may call it.

use std::fmt::{self, Display};

use super::former_member;
use crate::ineligible::Ineligible;

/// Displays a reason without the names in it that may be another tenant's.
pub(super) struct Unnamed<'a>(pub(super) &'a Ineligible);

impl Display for Unnamed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(reason) = *self;
        match reason {
            Ineligible::Consumed(_) => f.write_str("a consumer uses it"),
            Ineligible::Labelled(_) => f.write_str("it has the labels of a cluster that does not hold it"),
            Ineligible::FormerMember(_) => former_member(f, &"another cluster", &"that cluster"),
            Ineligible::Held {
                cluster: _,
                role: _,
                state: _,
            } => f.write_str("another cluster holds it"),
            Ineligible::NotFound
            | Ineligible::Selector(_)
            | Ineligible::NoTopologyLabel(_)
            | Ineligible::EmptyTopologyLabel(_)
            | Ineligible::Problem(_)
            | Ineligible::Deleting
            | Ineligible::Paused
            | Ineligible::Detached
            | Ineligible::InError
            | Ineligible::Servicing
            | Ineligible::UnknownStatus(_)
            | Ineligible::State(_)
            | Ineligible::MarkedFailed
            | Ineligible::ReplaceRequested
            | Ineligible::WriteRefused
            | Ineligible::Cordoned
            | Ineligible::CordonedDomain(_)
            | Ineligible::NoAddress(_)
            | Ineligible::Orphaned
            | Ineligible::PartialLabels => reason.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::{ClusterName, RoleName};

    use super::*;
    use crate::{host::Consumer, request::MemberState};

    #[test]
    fn no_sentence_about_a_cluster_names_another_one() {
        let bank = || ClusterName::new("bank", "vault").unwrap();
        let consumer = Consumer {
            kind: "Metal3Machine".into(),
            namespace: "bank".into(),
            name: "vault-0".into(),
        };
        for reason in [
            Ineligible::Consumed(consumer),
            Ineligible::Labelled(bank()),
            Ineligible::FormerMember(bank()),
            Ineligible::Held {
                cluster: bank(),
                role: RoleName::new("Safe").unwrap(),
                state: MemberState::Bound,
            },
        ] {
            let (named, unnamed) = (reason.to_string(), Unnamed(&reason).to_string());
            assert!(named.contains("bank"), "{named}");
            for name in ["bank", "vault", "Safe"] {
                assert!(!unnamed.contains(name), "{unnamed}");
            }
        }
        let other = Ineligible::Paused;
        assert_eq!(Unnamed(&other).to_string(), other.to_string());
    }
}
