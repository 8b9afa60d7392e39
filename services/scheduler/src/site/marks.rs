//! Release marks that no ledger has issued: faults of the hosts that show them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use ::placement::{HostId, HostName};
use runtime::quiet::Quiet;

use super::{notes::Notes, positions::Positions};
use crate::{ledger::position::MAX_REPORTED, observed::Host};

/// Annotation of the release mark.
const MARK_ANNOTATION: &str = "sip.airshipit.org/placement-revision";
/// Maximum number of faults in one answer.
pub(crate) const MAX_FAULTS: usize = 100;

/// A fault of a host, for who reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFault {
    /// The host.
    pub host: HostId,
    /// What is wrong, and what would help.
    pub message: String,
}

/// Hosts with a mark that was not issued.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    faulty: BTreeMap<HostName, u64>,
    /// Faults that the reporter has not got yet.
    unreported: Vec<HostFault>,
    /// A mark can change as often as its host is reported.
    log: Arc<Quiet>,
}

/// A mark that was not issued, for people.
pub(super) struct NotIssued {
    pub(super) mark: u64,
    pub(super) issued: u64,
}

impl fmt::Display for NotIssued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mark, issued } = self;
        write!(
            f,
            "metadata.annotations[{MARK_ANNOTATION}] is {mark}, and the last revision that was issued to the site is {issued}: "
        )?;
        if *mark <= MAX_REPORTED {
            write!(
                f,
                "remove the annotation, or run `sipctl site repair` if it is from a ledger that was lost or from another site"
            )
        } else {
            write!(f, "remove the annotation, since no ledger can have issued it")
        }
    }
}

impl Marks {
    /// What is wrong with a host's mark, if anything; each mark is logged, noted and told once.
    pub(super) fn judge(
        &mut self,
        site: &str,
        host: &Host,
        positions: &Positions,
        notes: &mut Notes,
    ) -> Option<String> {
        let (id, mark) = (host.id(), host.release_mark());
        if mark <= positions.highest_mark() {
            self.faulty.remove(&id.name);
            return None;
        }
        let issued = positions.issued();
        let fault = NotIssued { mark, issued }.to_string();
        if self.faulty.insert(id.name.clone(), mark) != Some(mark) {
            if let Some(withheld) = self.log.line() {
                tracing::warn!(site, host = %id.name, withheld, "{fault}");
            }
            notes.add(id, &fault);
            if self.unreported.len() < MAX_FAULTS {
                self.unreported.push(HostFault {
                    host: id.clone(),
                    message: fault.clone(),
                });
            }
        }
        Some(fault)
    }

    /// The host is gone.
    pub(super) fn remove(&mut self, name: &HostName) {
        self.faulty.remove(name);
    }

    /// Hosts with a mark that was not issued.
    pub(super) fn faulty(&self) -> impl Iterator<Item = &HostName> {
        self.faulty.keys()
    }

    /// Faults that were not reported yet.
    pub(super) fn take(&mut self) -> Vec<HostFault> {
        std::mem::take(&mut self.unreported)
    }
}

#[cfg(test)]
mod tests {
    use ::placement::Uid;

    use super::*;
    use crate::{ledger::History, observed::Details};

    fn host(release_mark: u64) -> Host {
        let id = HostId {
            name: HostName::new("metal", "h1").unwrap(),
            uid: Uid::new("u").unwrap(),
        };
        let details = Details {
            release_mark,
            ..Details::default()
        };
        Host::new(::placement::Host::available(id), details)
    }

    #[test]
    fn a_mark_that_was_not_issued_is_reported_once() {
        let mut positions = Positions::new(History::default(), 7);
        positions.complete();
        let (mut marks, mut notes) = (Marks::default(), Notes::default());
        let mut judge = |mark| marks.judge("a", &host(mark), &positions, &mut notes);
        assert_eq!(judge(7), None);
        assert!(judge(8).unwrap().contains("is 8"));
        assert!(judge(8).is_some());
        let noted = notes.take("a", &Quiet::default());
        assert_eq!((marks.take().len(), noted.len()), (1, 1));
        assert_eq!(marks.faulty().count(), 1);
        marks.judge("a", &host(0), &positions, &mut notes);
        assert_eq!(marks.faulty().count(), 0);
    }
}
