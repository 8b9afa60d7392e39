//! One descriptor per RPC: what it does, who may call it, what it takes from its caller's share, how long it may take, and
//! whether it is audited.
//!
//! [`crate::admission`] applies it before a handler is reached. The tests hold the list against the descriptors of the proto files; a
//! method that is not in it is refused.

use std::time::Duration;

use runtime::{identity::Caller, tls::PeerIdentity};

/// Every method that this process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `PlacementService/ApplyCluster`
    ApplyCluster,
    /// `PlacementService/PlanCluster`
    PlanCluster,
    /// `PlacementService/GetPlacement`
    GetPlacement,
    /// `PlacementService/ListPlacements`
    ListPlacements,
    /// `PlacementService/WatchPlacements`
    WatchPlacements,
    /// `PlacementService/ReleaseCluster`
    ReleaseCluster,
    /// `PlacementService/ConfirmHosts`
    ConfirmHosts,
    /// `PlacementService/ReleaseOrphan`
    ReleaseOrphan,
    /// `PlacementService/ListDecisions`
    ListDecisions,
    /// `InventoryService/ReportHosts`
    ReportHosts,
    /// `InventoryService/ListHosts`
    ListHosts,
    /// `InventoryService/GetHost`
    GetHost,
    /// `InventoryService/ListSites`
    ListSites,
    /// `InventoryService/FindCapacity`
    FindCapacity,
    /// `InventoryService/ExplainHost`
    ExplainHost,
    /// `InventoryService/ResetSiteFence`
    ResetSiteFence,
    /// `InventoryService/RepairSite`
    RepairSite,
    /// `LedgerService/ExportLedger`
    ExportLedger,
    /// `grpc.health.v1.Health/Check`
    HealthCheck,
    /// `grpc.health.v1.Health/Watch`
    HealthWatch,
    /// `grpc.reflection.v1.ServerReflection/ServerReflectionInfo`
    Reflection,
    /// `grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo`
    ReflectionAlpha,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing.
    Read,
    /// Changes the ledger or the inventory. If its deadline passes, the caller cannot tell whether the change was made.
    Write,
}

/// Who may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// The cluster agent of the site that the call is about: it speaks for that site's API server.
    ClusterAgent,
    /// Every agent of the site that the call is about, operators and readers: what agents act on.
    Agents,
    /// The cluster agent of the site that the call is about, operators and readers.
    Readers,
    /// Operators and readers: it is about every site.
    People,
    /// Operators: it overrides a safeguard, or takes everything out.
    Operators,
    /// Every identity.
    Everyone,
}

/// Which messages come one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// One request, one answer.
    Neither,
    /// One request, many answers.
    Answers,
    /// Many of both.
    Both,
}

/// The kind of a call: each kind has its own limit, so calls of one kind never use up the permits of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Changes of clusters.
    Writes,
    /// Questions that are answered at once.
    Reads,
    /// Questions that read much.
    Scans,
    /// Streams of changes.
    Watches,
    /// A site's reports.
    Reports,
    /// Health and reflection.
    Probes,
}

impl CallKind {
    /// Every kind, in the order of its declaration.
    pub(crate) const ALL: [Self; 6] = [
        Self::Writes,
        Self::Reads,
        Self::Scans,
        Self::Watches,
        Self::Reports,
        Self::Probes,
    ];

    /// Its index in [`CallKind::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// What is known of a method before it is called.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// `/package.Service/Method`.
    pub path: &'static str,
    /// What it does.
    pub effect: Effect,
    /// Which messages come one after the other.
    pub streams: Streams,
    /// Who may call it.
    pub who: Callers,
    /// Which permits it takes.
    pub kind: CallKind,
    /// The longest that the server works on it, whatever its caller's deadline; `None` for streams, which end with
    /// their connection.
    pub longest: Option<Duration>,
    /// Bytes that each of its messages may have. What is decoded takes up to a hundred times as much memory.
    pub largest: usize,
    /// How many times its bytes a message of more than 4 KiB counts for while its call is under way: what is decoded of it.
    pub weight: usize,
    /// Whether every call is audited. Denials, and calls that have staged a change in the ledger, always are.
    pub audited: bool,
}

/// Maximum time for a change: the ledger writes.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum time for a read.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for health and reflection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a message of most calls, in bytes: four times the largest shape of a cluster that is accepted.
const USUAL_MESSAGE_BYTES: usize = 256 << 10;
/// Maximum size of a list of hosts that a cluster releases, in bytes: all that fit into its status, whose form is the longer one.
const MAX_RELEASE_BYTES: usize = 1280 << 10;
/// How many times its bytes the most expensive spec takes once it is decoded: labels of one character.
const SPEC_DECODED_FACTOR: usize = 64;
/// The same of a list of hosts, whose names are longer where they are valid.
const HOSTS_DECODED_FACTOR: usize = 8;
/// Maximum size of a message of any call, in bytes: agents end a chunk of a report at 1 MiB, and the one host or cluster that it ends with
/// has no more than an API server stores of it and of its networks.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;

impl Descriptor {
    const fn write(path: &'static str, who: Callers) -> Self {
        Self {
            path,
            effect: Effect::Write,
            streams: Streams::Neither,
            who,
            kind: CallKind::Writes,
            longest: Some(WRITE_TIMEOUT),
            largest: USUAL_MESSAGE_BYTES,
            weight: 1,
            audited: true,
        }
    }

    const fn read(path: &'static str, who: Callers) -> Self {
        Self {
            path,
            effect: Effect::Read,
            streams: Streams::Neither,
            who,
            kind: CallKind::Reads,
            longest: Some(READ_TIMEOUT),
            largest: USUAL_MESSAGE_BYTES,
            weight: 1,
            audited: false,
        }
    }

    const fn scan(path: &'static str, who: Callers) -> Self {
        Self {
            kind: CallKind::Scans,
            ..Self::read(path, who)
        }
    }

    /// The same, whose messages have a spec, a role or a selector.
    const fn with_spec(self) -> Self {
        Self {
            weight: SPEC_DECODED_FACTOR,
            ..self
        }
    }

    /// Whether its messages have a spec, a role or a selector.
    #[must_use]
    pub const fn has_spec(&self) -> bool {
        self.weight == SPEC_DECODED_FACTOR
    }

    const fn probe(path: &'static str, streams: Streams) -> Self {
        let longest = match streams {
            Streams::Neither => Some(PROBE_TIMEOUT),
            Streams::Answers | Streams::Both => None,
        };
        Self {
            streams,
            kind: CallKind::Probes,
            longest,
            ..Self::read(path, Callers::Everyone)
        }
    }
}

impl Call {
    /// Every method.
    pub const ALL: [Self; 22] = [
        Self::ApplyCluster,
        Self::PlanCluster,
        Self::GetPlacement,
        Self::ListPlacements,
        Self::WatchPlacements,
        Self::ReleaseCluster,
        Self::ConfirmHosts,
        Self::ReleaseOrphan,
        Self::ListDecisions,
        Self::ReportHosts,
        Self::ListHosts,
        Self::GetHost,
        Self::ListSites,
        Self::FindCapacity,
        Self::ExplainHost,
        Self::ResetSiteFence,
        Self::RepairSite,
        Self::ExportLedger,
        Self::HealthCheck,
        Self::HealthWatch,
        Self::Reflection,
        Self::ReflectionAlpha,
    ];

    /// The method at a path; `None` when nothing is served there.
    #[must_use]
    pub fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.descriptor().path == path)
    }

    /// The method's own name, without its service.
    #[must_use]
    pub fn name(self) -> &'static str {
        let path = self.descriptor().path;
        path.rsplit_once('/').map_or(path, |(_, name)| name)
    }

    /// What is known of it.
    #[must_use]
    pub const fn descriptor(self) -> Descriptor {
        match self {
            Self::ApplyCluster => Descriptor::write(
                "/sip.placement.v1.PlacementService/ApplyCluster",
                Callers::ClusterAgent,
            )
            .with_spec(),
            Self::PlanCluster => {
                Descriptor::read("/sip.placement.v1.PlacementService/PlanCluster", Callers::Readers)
                    .with_spec()
            }
            Self::GetPlacement => {
                Descriptor::read("/sip.placement.v1.PlacementService/GetPlacement", Callers::Agents)
            }
            Self::ListPlacements => Descriptor::scan(
                "/sip.placement.v1.PlacementService/ListPlacements",
                Callers::Readers,
            ),
            Self::WatchPlacements => Descriptor {
                streams: Streams::Answers,
                kind: CallKind::Watches,
                longest: None,
                ..Descriptor::read(
                    "/sip.placement.v1.PlacementService/WatchPlacements",
                    Callers::Agents,
                )
            },
            Self::ReleaseCluster => Descriptor::write(
                "/sip.placement.v1.PlacementService/ReleaseCluster",
                Callers::ClusterAgent,
            ),
            Self::ConfirmHosts => Descriptor {
                largest: MAX_RELEASE_BYTES,
                weight: HOSTS_DECODED_FACTOR,
                ..Descriptor::write(
                    "/sip.placement.v1.PlacementService/ConfirmHosts",
                    Callers::ClusterAgent,
                )
            },
            Self::ReleaseOrphan => Descriptor::write(
                "/sip.placement.v1.PlacementService/ReleaseOrphan",
                Callers::Operators,
            ),
            Self::ListDecisions => Descriptor::scan(
                "/sip.placement.v1.PlacementService/ListDecisions",
                Callers::Readers,
            ),
            Self::ReportHosts => Descriptor {
                streams: Streams::Both,
                kind: CallKind::Reports,
                longest: None,
                largest: MAX_MESSAGE_BYTES,
                ..Descriptor::write(
                    "/sip.inventory.v1.InventoryService/ReportHosts",
                    Callers::ClusterAgent,
                )
            },
            Self::ListHosts => {
                Descriptor::scan("/sip.inventory.v1.InventoryService/ListHosts", Callers::Readers).with_spec()
            }
            Self::GetHost => Descriptor::read("/sip.inventory.v1.InventoryService/GetHost", Callers::Readers),
            Self::ListSites => {
                Descriptor::read("/sip.inventory.v1.InventoryService/ListSites", Callers::People)
            }
            Self::FindCapacity => {
                Descriptor::scan("/sip.inventory.v1.InventoryService/FindCapacity", Callers::People)
                    .with_spec()
            }
            Self::ExplainHost => {
                Descriptor::read("/sip.inventory.v1.InventoryService/ExplainHost", Callers::Readers)
                    .with_spec()
            }
            Self::ResetSiteFence => Descriptor::write(
                "/sip.inventory.v1.InventoryService/ResetSiteFence",
                Callers::Operators,
            ),
            Self::RepairSite => Descriptor::write(
                "/sip.inventory.v1.InventoryService/RepairSite",
                Callers::Operators,
            ),
            Self::ExportLedger => Descriptor {
                streams: Streams::Answers,
                longest: None,
                audited: true,
                ..Descriptor::scan("/sip.ledger.v1.LedgerService/ExportLedger", Callers::Operators)
            },
            Self::HealthCheck => Descriptor::probe("/grpc.health.v1.Health/Check", Streams::Neither),
            Self::HealthWatch => Descriptor::probe("/grpc.health.v1.Health/Watch", Streams::Answers),
            Self::Reflection => Descriptor::probe(
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                Streams::Both,
            ),
            Self::ReflectionAlpha => Descriptor::probe(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                Streams::Both,
            ),
        }
    }
}

/// What an identity may ask a method about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach<'a> {
    /// This site only.
    Site(&'a str),
    /// Every site, one or all of them.
    Region,
}

/// Name of the agent that reports a site and places its clusters.
const CLUSTER_AGENT: &str = "cluster";

/// What the identity may ask the method about; `None`: it may not call it at all. This needs no request: it is decided
/// before anything is read.
pub(crate) fn reach(identity: &PeerIdentity, call: Call) -> Option<Reach<'_>> {
    match identity {
        PeerIdentity::Verified(caller) => caller_reach(caller, call.descriptor().who),
        // The server was told to trust every process of its machine.
        PeerIdentity::PlaintextLoopback => Some(Reach::Region),
    }
}

fn caller_reach(caller: &Caller, who: Callers) -> Option<Reach<'_>> {
    let may = match (caller, who) {
        (_, Callers::Everyone) => return Some(Reach::Region),
        (Caller::Agent { site: _, name }, Callers::ClusterAgent | Callers::Readers) => {
            name.as_str() == CLUSTER_AGENT
        }
        (Caller::Agent { site: _, name: _ }, Callers::Agents)
        | (
            Caller::Operator { name: _ },
            Callers::Agents | Callers::Readers | Callers::People | Callers::Operators,
        )
        | (Caller::Reader { name: _ }, Callers::Agents | Callers::Readers | Callers::People) => true,
        (Caller::Agent { site: _, name: _ }, Callers::People | Callers::Operators)
        | (Caller::Operator { name: _ }, Callers::ClusterAgent)
        | (Caller::Reader { name: _ }, Callers::ClusterAgent | Callers::Operators)
        | (
            Caller::Scheduler,
            Callers::ClusterAgent | Callers::Agents | Callers::Readers | Callers::People | Callers::Operators,
        ) => false,
    };
    may.then(|| {
        caller
            .site()
            .map_or(Reach::Region, |site| Reach::Site(site.as_str()))
    })
}

#[cfg(test)]
mod tests;
