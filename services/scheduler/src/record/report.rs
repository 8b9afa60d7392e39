//! What people should know of a cluster: nothing is decided by it.

use std::borrow::Cow;

use placement::{HostId, HostName, MAX_REPORTS, RoleName, Uid};

/// Something that people should know of a cluster or of one of its hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Report {
    /// The stable name of its kind.
    pub kind: Cow<'static, str>,
    /// The host that it is about.
    pub host: Option<Subject>,
    /// The role that it is about.
    pub role: Option<RoleName>,
    /// A sentence.
    pub message: String,
}

/// The host that a report is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Namespace and name.
    pub name: HostName,
    /// uid, where the report is about one host of that name and no later one.
    pub uid: Option<Uid>,
}

impl From<&HostId> for Subject {
    fn from(HostId { name, uid }: &HostId) -> Self {
        Self {
            name: name.clone(),
            uid: Some(uid.clone()),
        }
    }
}

impl From<&placement::Report> for Report {
    fn from(report: &placement::Report) -> Self {
        Self {
            kind: report.kind.kind().into(),
            host: report.host.as_ref().map(|name| Subject {
                name: name.clone(),
                uid: None,
            }),
            role: report.role.clone(),
            message: match &report.host {
                Some(host) => format!("{host}: {}", report.kind),
                None => report.kind.to_string(),
            },
        }
    }
}

impl Report {
    /// The reports of a decision, as many as are shown at most.
    #[must_use]
    pub fn list(reports: &[placement::Report]) -> Vec<Self> {
        reports.iter().take(MAX_REPORTS).map(Self::from).collect()
    }
}
