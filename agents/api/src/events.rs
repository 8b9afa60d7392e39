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
    Unschedulable: Warning on Cluster, "A role lacks a host, a member waits to be replaced, the namespace holds as many hosts as its quota in the site policy allows, or an older SIPCluster that waits is decided first; the note states what is short, where, and what would help.";
    InvalidSpec: Warning on Cluster, "The spec is not valid; the note lists every fault.";
    HostFailed: Warning on Cluster, "Members have failed and are to be replaced; the note states the cause of each.";
    MoveRequested: Normal on Cluster, "A user has requested that members move to other hosts.";
    Replacing: Normal on Cluster, "Hosts are claimed in the place of others; the note names both.";
    Releasing: Normal on Cluster, "Hosts are to be released; the note states why, and what a person or Cluster API has to do first.";
    UnableToApplyLabels: Warning on Cluster, "The API server refuses to write a BareMetalHost, or it is not confirmed that the host of a member that leaves is gone; the note has the cause.";
    MachineNotAnnotated: Warning on Cluster, "The Machine on a surplus host cannot be read or annotated, so that Cluster API may delete the Machine of another host.";
    NodeDeleted: Normal on Cluster, "The Node of a host that leaves was deleted in the tenant's cluster, after it was drained or the time for that was over.";
    NodeNotDrained: Warning on Cluster, "A host is released although its Node in the tenant's cluster was not drained and deleted: the time for that was over, or the tenant's API server refuses it.";
    ReplicasSet: Normal on Cluster, "The replicas of an object of Cluster API that the spec names were set; the note names it, both numbers and the role.";
    ReplicasNotSet: Warning on Cluster, "The replicas of a Cluster API object cannot be set: `ClusterAPISynced` is `False` with a reason other than `Waiting`; the note is its message.";
    HostNamespaceDropped: Warning on Cluster, "The site's configuration lacks a host namespace in which the cluster holds hosts, and the API server does not confirm that they are gone. The cluster agent does not start; the note states what would help ([what to do](install.md#remove-a-host-namespace)).";
    Stale: Warning on Cluster, "The scheduler does not answer, or answers `UNAVAILABLE`; the note quotes it. Existing objects and pods stay as they are.";
    Labeled: Normal on Host, "The host is claimed and labelled for the SIPCluster, which is the related object of this Event and of `Adopted`, `Relabeled` and `Released`.";
    Adopted: Normal on Host, "The annotation `sip.airshipit.org/cluster-api-cluster` of a host that had the labels already was set to the value of its SIPCluster, for example where Airship SIP had labelled it. Which hosts are members is in `status.placement`.";
    Relabeled: Normal on Host, "Labels were changed; the agent restores them.";
    Released: Normal on Host, "The labels of the SIPCluster are removed.";
    InvalidHost: Warning on Host, "Annotations, labels or network data of the host cannot be used, it has a consumer that belongs to no cluster that holds it, or its BMC reports a fault; the note has each.";
    PowerChanged: Normal on Power, "A user of a jump host has changed the power state; the note names the key, the pod and the action.";
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

An Event that repeats with the same message within six minutes is counted. Events can be lost: what they report is in conditions, labels and logs too. Reasons
are stable; notes can change.
";

const SERVICES: &str = "
## On a SIPCluster, by the agents of services

The load-balancer agent, the jump-host agent and the Dex agent publish a Warning when their [condition](conditions.md) changes, unless its
reason is `Available`, `Progressing`, `NamespaceNotGranted` or `Removed`. Reasons with the status `True`, such as `NoReachableBackend`, are
Warnings too. The Event has the reason and the message of the condition.
";

/// The page, which `docs/events.md` holds.
#[must_use]
pub fn page() -> String {
    let section = |source: Source, title: &str| {
        let rows = EventReason::ALL.iter().filter_map(|reason| {
            let (_, text) = reason.row().filter(|(of, _)| *of == source)?;
            Some(format!(
                "| `{reason}` | {} | {text} |\n",
                reason.event_type().as_str()
            ))
        });
        let rows: String = rows.collect();
        format!("\n## {title}\n\n| reason | type | meaning |\n|---|---|---|\n{rows}")
    };
    [
        HEAD.to_owned(),
        section(Source::Cluster, "On a SIPCluster, by the cluster agent"),
        SERVICES.to_owned(),
        section(Source::Host, "On a BareMetalHost, by the cluster agent"),
        section(Source::Power, "On a BareMetalHost, by the jump-host agent"),
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
