//! Events that the agents publish: on which object, with which reason, and what each means. Users alert on reasons, so they keep their
//! names; `docs/events.md` is generated from here.

use std::fmt;

use crate::conditions::Reason;

/// The type of an Event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventType {
    /// Something went as it should.
    Normal,
    /// A user may have to act.
    Warning,
}

/// What an Event is about, and who publishes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// The cluster agent, on a SIPCluster.
    Cluster,
    /// The cluster agent, on a BareMetalHost.
    Host,
    /// The jump-host agent, on a BareMetalHost.
    Power,
}

macro_rules! reasons {
    ($($variant:ident: $type:ident on $source:ident, $text:literal;)+) => {
        /// Why an Event is published. The name of the variant is what is written.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum EventReason {
            $(#[doc = $text] $variant,)+
            /// A service agent's condition has this reason, which a user should know: a Warning on the `SIPCluster`.
            Condition(Reason),
        }

        impl EventReason {
            /// Every reason but those of conditions, in the order of the reference page.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// `reason` as it is written.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                    Self::Condition(reason) => reason.as_str(),
                }
            }

            /// Its type.
            #[must_use]
            pub fn event_type(self) -> EventType {
                match self {
                    $(Self::$variant => EventType::$type,)+
                    Self::Condition(_) => EventType::Warning,
                }
            }

            fn row(self) -> Option<(Source, &'static str)> {
                match self {
                    $(Self::$variant => Some((Source::$source, $text)),)+
                    Self::Condition(_) => None,
                }
            }
        }
    };
}

reasons! {
    Scheduled: Normal on Cluster, "The scheduler has assigned all hosts, for the first time or after a refusal.";
    Unschedulable: Warning on Cluster, "A role lacks a host, a member waits to be replaced, the namespace holds as many hosts as its quota in the site policy allows, or an older SIPCluster, which waits too, is decided first; the note states what is missing, where, and what would help.";
    InvalidSpec: Warning on Cluster, "The spec is not valid; the note lists every fault.";
    HostFailed: Warning on Cluster, "Members have failed and are to be replaced; the note states the cause of each.";
    MoveRequested: Normal on Cluster, "A user has requested that members move to other hosts.";
    Replacing: Normal on Cluster, "The scheduler has claimed hosts to replace members; the note names both.";
    Releasing: Normal on Cluster, "The scheduler releases hosts; the note states why, and what a person or Cluster API must do before.";
    UnableToApplyLabels: Warning on Cluster, "The API server refuses a write to a BareMetalHost, or the agent cannot confirm that the host of a releasing member is gone; the note states which.";
    MachineNotAnnotated: Warning on Cluster, "The agent could not read or annotate the Machine on a surplus host, so Cluster API may delete the Machine of another host instead.";
    NodeDeleted: Normal on Cluster, "A host leaves, and the agent has deleted its Node in the tenant's cluster, after the drain of the Node or after the timeout of the drain.";
    NodeNotDrained: Warning on Cluster, "A host is released although its Node in the tenant's cluster was not drained and deleted, because the timeout expired or the tenant's API server refused the drain; the note states which.";
    ReplicasSet: Normal on Cluster, "The agent has set the replicas of a Cluster API object that the spec names; the note names the object, the old and the new number, and the role.";
    ReplicasNotSet: Warning on Cluster, "The replicas of a Cluster API object cannot be set: `ClusterAPISynced` is `False` with a reason other than `Waiting`; the note is its message.";
    HostNamespaceDropped: Warning on Cluster, "The site's configuration lacks a host namespace in which the cluster holds hosts, and the agent could not confirm that these hosts are gone. The cluster agent does not start; the note states what would help ([what to do](install.md#remove-a-host-namespace)).";
    Stale: Warning on Cluster, "The scheduler does not answer, or answers `UNAVAILABLE`; the note quotes it. Existing objects and pods stay as they are.";
    Labeled: Normal on Host, "The host is claimed, and the agent has labelled it for the SIPCluster.";
    Adopted: Normal on Host, "The agent has set the annotation `sip.airshipit.org/cluster-api-cluster` of a host that already had the labels of the SIPCluster, for example from Airship SIP. It does not mean that the host has become a member: see `status.placement`.";
    Relabeled: Normal on Host, "A user or another program has changed the labels; the agent has restored them.";
    Released: Normal on Host, "The agent has removed the labels of the SIPCluster.";
    InvalidHost: Warning on Host, "The annotations, labels or network data of the host are invalid, its consumer does not belong to the cluster that holds the host, or its BMC reports a fault. The note lists every fault.";
    PowerChanged: Normal on Power, "A user of a jump host has changed the power state; the note names the ssh key, the pod and the action.";
    PowerChangeFailed: Warning on Power, "A power action on the host has failed; the note states why.";
}

impl fmt::Display for EventReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl EventType {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

const HEAD: &str = "\
# Events

<!-- Generated from agents/api/src/events.rs by `make generate`. -->

If an Event on an object occurs again with the same reason and note within six minutes, the agent raises the count of the existing one. Events can be
lost: what they report is in conditions, labels and logs too. Reasons are stable; notes can change.
";

const SERVICES: &str = "
## On a SIPCluster, by the agents of services

The load-balancer agent, the jump-host agent and the Dex agent publish a Warning when their [condition](conditions.md) changes, unless its
reason is `Available`, `Progressing`, `NamespaceNotGranted` or `Removed`. They do so for reasons with the status `True` too, such as
`NoReachableBackend`. The Event has the reason and the message of the condition.
";

const RELATED: &str = "\
The related object of `Labeled`, `Adopted`, `Relabeled` and `Released` is the SIPCluster.

";

/// The page, which `docs/events.md` holds.
#[must_use]
pub fn page() -> String {
    let section = |source: Source, title: &str, intro: &str| {
        let rows = EventReason::ALL.iter().filter_map(|reason| {
            let (_, text) = reason.row().filter(|(of, _)| *of == source)?;
            Some(format!(
                "| `{reason}` | {} | {text} |\n",
                reason.event_type().as_str()
            ))
        });
        let rows: String = rows.collect();
        format!("\n## {title}\n\n{intro}| reason | type | meaning |\n|---|---|---|\n{rows}")
    };
    [
        HEAD.to_owned(),
        section(Source::Cluster, "On a SIPCluster, by the cluster agent", ""),
        SERVICES.to_owned(),
        section(Source::Host, "On a BareMetalHost, by the cluster agent", RELATED),
        section(Source::Power, "On a BareMetalHost, by the jump-host agent", ""),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;

    #[test]
    fn docs_events_holds_what_the_types_state() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/events.md");
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == page(),
            "docs/events.md differs from the types: run `make generate`"
        );
    }

    #[test]
    fn every_reason_has_a_row_and_a_name_of_its_own() {
        let names: BTreeSet<&str> = EventReason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(names.len(), EventReason::ALL.len());
        let page = page();
        assert!(
            names.iter().all(|name| page.contains(&format!("| `{name}` |"))),
            "{page}"
        );
        assert_eq!(
            EventReason::Condition(Reason::PortConflict).as_str(),
            Reason::PortConflict.as_str()
        );
    }
}
