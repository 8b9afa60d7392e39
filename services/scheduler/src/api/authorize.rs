//! Who may call what: one table.

use runtime::{
    identity::Caller,
    tls::{Peer, PeerIdentity},
};
use tonic::Extensions;

use crate::error::Error;

/// The methods, by who needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    ApplyCluster,
    PlanCluster,
    GetPlacement,
    ListPlacements,
    WatchPlacements,
    ReleaseCluster,
    ConfirmHosts,
    ListDecisions,
    ReportHosts,
    ListHosts,
    GetHost,
    ListSites,
    FindCapacity,
    ExplainHost,
    ResetSiteFence,
    ReleaseOrphan,
    ExportLedger,
}

/// What a kind of call does, which is what permission depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Speaks for a site's API server: only that site's cluster agent can.
    Site,
    /// Reads what an agent acts on.
    Members,
    /// Reads anything else.
    Look,
    /// Overrides a safeguard, or takes everything out: only a person who answers for the region can.
    Override,
}

impl Call {
    fn effect(self) -> Effect {
        match self {
            Self::ApplyCluster | Self::ReleaseCluster | Self::ConfirmHosts | Self::ReportHosts => {
                Effect::Site
            }
            Self::GetPlacement | Self::WatchPlacements => Effect::Members,
            Self::PlanCluster
            | Self::ListPlacements
            | Self::ListDecisions
            | Self::ListHosts
            | Self::GetHost
            | Self::ListSites
            | Self::FindCapacity
            | Self::ExplainHost => Effect::Look,
            Self::ResetSiteFence | Self::ReleaseOrphan | Self::ExportLedger => Effect::Override,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::ApplyCluster => "ApplyCluster",
            Self::PlanCluster => "PlanCluster",
            Self::GetPlacement => "GetPlacement",
            Self::ListPlacements => "ListPlacements",
            Self::WatchPlacements => "WatchPlacements",
            Self::ReleaseCluster => "ReleaseCluster",
            Self::ConfirmHosts => "ConfirmHosts",
            Self::ListDecisions => "ListDecisions",
            Self::ReportHosts => "ReportHosts",
            Self::ListHosts => "ListHosts",
            Self::GetHost => "GetHost",
            Self::ListSites => "ListSites",
            Self::FindCapacity => "FindCapacity",
            Self::ExplainHost => "ExplainHost",
            Self::ResetSiteFence => "ResetSiteFence",
            Self::ReleaseOrphan => "ReleaseOrphan",
            Self::ExportLedger => "ExportLedger",
        }
    }
}

/// Name of the agent that reports a site and places its clusters.
const CLUSTER_AGENT: &str = "cluster";

/// Lets the caller through and returns its name for the audit log, or says why not. `site` is `None` for a call about
/// every site.
///
/// # Errors
/// [`Error::Unauthenticated`] without identity, [`Error::Forbidden`] otherwise.
pub(crate) fn authorize(extensions: &Extensions, call: Call, site: Option<&str>) -> Result<String, Error> {
    let peer = extensions.get::<Peer>().ok_or(Error::Unauthenticated)?;
    let may = match peer.identity() {
        PeerIdentity::Verified(caller) => allowed(caller, call, site),
        // The server was told to trust every process of its machine.
        PeerIdentity::PlaintextLoopback => true,
    };
    if may {
        Ok(peer.to_string())
    } else {
        Err(Error::Forbidden {
            caller: peer.to_string(),
            call: call.name(),
            site: site.map_or_else(|| "every site".to_owned(), |site| format!("site {site:?}")),
        })
    }
}

fn allowed(caller: &Caller, call: Call, site: Option<&str>) -> bool {
    match caller {
        Caller::Agent { site: own, name } => {
            site == Some(own.as_str())
                && match call.effect() {
                    Effect::Members => true,
                    Effect::Site | Effect::Look => name.as_str() == CLUSTER_AGENT,
                    Effect::Override => false,
                }
        }
        Caller::Operator { name: _ } => match call.effect() {
            Effect::Members | Effect::Look | Effect::Override => true,
            Effect::Site => false,
        },
        Caller::Reader { name: _ } => match call.effect() {
            Effect::Members | Effect::Look => true,
            Effect::Site | Effect::Override => false,
        },
        Caller::Scheduler => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Call; 17] = [
        Call::ApplyCluster,
        Call::PlanCluster,
        Call::GetPlacement,
        Call::ListPlacements,
        Call::WatchPlacements,
        Call::ReleaseCluster,
        Call::ConfirmHosts,
        Call::ListDecisions,
        Call::ReportHosts,
        Call::ListHosts,
        Call::GetHost,
        Call::ListSites,
        Call::FindCapacity,
        Call::ExplainHost,
        Call::ResetSiteFence,
        Call::ReleaseOrphan,
        Call::ExportLedger,
    ];

    fn agent(site: &str, name: &str) -> Caller {
        Caller::Agent {
            site: site.parse().unwrap(),
            name: name.parse().unwrap(),
        }
    }

    fn names(caller: &Caller, site: Option<&str>) -> Vec<&'static str> {
        ALL.into_iter()
            .filter(|call| allowed(caller, *call, site))
            .map(Call::name)
            .collect()
    }

    #[test]
    fn an_agent_touches_only_its_own_site_and_only_what_its_name_needs() {
        assert_eq!(names(&agent("a", "cluster"), Some("a")).len(), ALL.len() - 3);
        for call in ["ResetSiteFence", "ReleaseOrphan", "ExportLedger"] {
            assert!(!names(&agent("a", "cluster"), Some("a")).contains(&call));
        }
        assert_eq!(
            names(&agent("a", "load-balancer"), Some("a")),
            ["GetPlacement", "WatchPlacements"]
        );
        assert!(names(&agent("a", "cluster"), Some("b")).is_empty());
        assert!(names(&agent("a", "cluster"), None).is_empty());
    }

    #[test]
    fn people_look_and_never_speak_for_a_site_and_only_operators_override() {
        let operator = Caller::Operator {
            name: "op".parse().unwrap(),
        };
        let reader = Caller::Reader {
            name: "r".parse().unwrap(),
        };
        for (caller, overrides) in [(operator, true), (reader, false)] {
            let calls = names(&caller, None);
            assert_eq!(calls.len(), ALL.len() - if overrides { 4 } else { 7 });
            for call in ["ApplyCluster", "ReleaseCluster", "ConfirmHosts", "ReportHosts"] {
                assert!(!calls.contains(&call));
            }
            for call in ["ResetSiteFence", "ReleaseOrphan", "ExportLedger"] {
                assert_eq!(calls.contains(&call), overrides);
            }
        }
    }

    #[test]
    fn a_connection_without_identity_may_do_nothing() {
        assert!(matches!(
            authorize(&Extensions::new(), Call::GetHost, Some("a")),
            Err(Error::Unauthenticated)
        ));
    }
}
