//! Labels on hosts: the last step of a placement, and the first of a release.
//!
//! Each write is one merge patch that is conditioned on the host's uid and resourceVersion, as the inventory has them. If
//! the host has changed since, the API server answers 409, and the change comes in by the watch.

use std::time::Duration;

use api::{BareMetalHost, annotations, labels};
use futures::{FutureExt as _, StreamExt as _};
use kit::apply::{self, Manager};
use kube::{Api, Client};
use proto::{
    inventory::v1 as wire,
    placement::v1::{Member, ReleaseConfirmation},
};
use serde_json::json;

use super::Unseen;
use super::metrics::{HostWrite, Metrics};
use crate::inventory::Inventory;
pub use crate::inventory::Key;

/// Host writes under way at once, for one cluster.
const CONCURRENT: usize = 16;
/// Pause after which a host that changed under a write is looked at again, should the watch not have told by then.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Pause after which a host that the API server refused to write is tried again.
const REFUSED: Duration = Duration::from_secs(30);

/// What a member's host needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is as it should be.
    Nothing,
    /// The three labels must be put on it.
    Label,
    /// The labels must be taken off it, and the release be marked.
    Unlabel,
    /// Its release is on the API server: the scheduler must be told.
    Confirm,
    /// The watches do not show it: when the API server has no such host, the scheduler must be told.
    ConfirmGone,
    /// It cannot be written now; for people.
    Blocked(String),
    /// It waits for something that will come; for people.
    Waits(String),
}

/// The name of a member's host.
#[must_use]
pub fn key(member: &Member) -> Key {
    let host = member.host.clone().unwrap_or_default();
    Key {
        namespace: host.namespace,
        name: host.name,
    }
}

/// What the host of a member that joins or has joined needs. `served`: every load balancer has applied its revision.
#[must_use]
pub fn need_to_hold(
    cluster: &wire::ClusterRef,
    member: &Member,
    host: Option<&wire::Host>,
    served: bool,
) -> Need {
    let Some(host) = incarnation(member, host) else {
        return Need::Blocked("its BareMetalHost is gone".to_owned());
    };
    match carried(host, cluster, &member.role) {
        Carried::Ours => Need::Nothing,
        Carried::Others(labels) => Need::Blocked(format!("it carries labels of somebody else: {labels}")),
        // The claim is older than what the host shows: this process was paused, and another has given the host back.
        Carried::None | Carried::Part if host.release_mark >= member.revision => Need::Blocked(format!(
            "it was given back at revision {}, after it was claimed at {}",
            host.release_mark, member.revision
        )),
        // Labels that a person removed are put back while the host is in use; a new claim must find it unused.
        Carried::None | Carried::Part
            if member.state() == wire::MemberState::Claimed && host.consumer.is_some() =>
        {
            Need::Blocked(format!("it is used by {} already", consumer(host)))
        }
        Carried::None | Carried::Part if !served => {
            Need::Waits("the load balancers have not taken it in yet".to_owned())
        }
        Carried::None | Carried::Part => Need::Label,
    }
}

/// What the host of a releasing member needs.
#[must_use]
pub fn need_to_release(cluster: &wire::ClusterRef, member: &Member, host: Option<&wire::Host>) -> Need {
    let Some(host) = incarnation(member, host) else {
        return Need::ConfirmGone;
    };
    let marked = host.release_mark >= member.revision;
    match carried(host, cluster, &member.role) {
        Carried::None if marked => Need::Confirm,
        Carried::Ours | Carried::Part if host.consumer.is_some() => {
            Need::Waits(format!("it is still used by {}", consumer(host)))
        }
        Carried::None | Carried::Ours | Carried::Part => Need::Unlabel,
        Carried::Others(labels) => Need::Blocked(format!("it carries labels of somebody else: {labels}")),
    }
}

fn incarnation<'a>(member: &Member, host: Option<&'a wire::Host>) -> Option<&'a wire::Host> {
    let uid = member.host.as_ref().map(|host| &*host.uid);
    host.filter(|host| host.r#ref.as_ref().map(|known| &*known.uid) == uid)
}

fn consumer(host: &wire::Host) -> String {
    let wire::Consumer {
        api_version: _,
        kind,
        namespace,
        name,
    } = host.consumer.clone().unwrap_or_default();
    format!("{kind} {namespace}/{name}")
}

enum Carried {
    None,
    Part,
    Ours,
    Others(String),
}

fn carried(host: &wire::Host, cluster: &wire::ClusterRef, role: &str) -> Carried {
    let wanted = [
        (labels::CLUSTER_NAMESPACE, &*cluster.namespace),
        (labels::CLUSTER_NAME, &*cluster.name),
        (labels::NODE_TYPE, role),
    ];
    let found: Vec<_> = wanted
        .iter()
        .filter_map(|(key, _)| host.labels.get_key_value(*key))
        .collect();
    let strange = found
        .iter()
        .any(|(key, value)| !wanted.iter().any(|(k, v)| k == key && v == value));
    match (found.len(), strange) {
        (0, _) => Carried::None,
        (_, true) => Carried::Others(
            found
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        (3, false) => Carried::Ours,
        (_, false) => Carried::Part,
    }
}

/// What has come of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Written {
    /// It is on the API server.
    Done,
    /// The host has changed meanwhile, or is gone: the watch will tell.
    Changed,
    /// The API server refused it; its words.
    Refused(String),
}

/// A member, and what its host needs according to what was seen of the host.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// The member.
    pub member: &'a Member,
    /// What its host needs.
    pub need: Need,
    /// The host's `resourceVersion` when that was found: the write is conditioned on it.
    seen: String,
}

impl<'a> Step<'a> {
    /// Looks at a member's host once, and finds what it needs.
    #[must_use]
    pub fn of(cluster: &wire::ClusterRef, member: &'a Member, inventory: &Inventory, served: bool) -> Self {
        let host = inventory.host(&key(member));
        let reported = host.as_ref().map(|host| &host.host);
        let need = if member.state() == wire::MemberState::Releasing {
            need_to_release(cluster, member, reported)
        } else {
            need_to_hold(cluster, member, reported, served)
        };
        Self {
            member,
            need,
            seen: host.map(|host| host.resource_version).unwrap_or_default(),
        }
    }
}

impl Step<'_> {
    fn confirmation(&self) -> ReleaseConfirmation {
        ReleaseConfirmation {
            host: self.member.host.clone(),
            revision: self.member.revision,
        }
    }
}

/// Where hosts are written, and for whom.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// The site's API server.
    pub client: &'a Client,
    /// Under which name.
    pub manager: Manager,
    /// Whose labels.
    pub cluster: &'a wire::ClusterRef,
    /// Hosts that were written, and not seen since.
    pub unseen: &'a Unseen,
    /// Where it is counted.
    pub metrics: &'a Metrics,
}

/// What has come of a cluster's steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taken {
    /// When to look again, if the watches may not tell.
    pub again: Option<Duration>,
    /// Hosts that the API server refused to write; its words.
    pub refused: Vec<(Key, String)>,
    /// Releases that are on the API server: the scheduler must be told.
    pub released: Vec<ReleaseConfirmation>,
}

impl Writer<'_> {
    /// Takes the steps that are due: labels hosts that join, and releases hosts that leave.
    pub async fn take(&self, steps: &[Step<'_>]) -> Taken {
        let due: Vec<&Step<'_>> = steps
            .iter()
            .filter(|step| matches!(step.need, Need::Label | Need::Unlabel | Need::ConfirmGone))
            .filter(|step| !self.unseen.is_older(&key(step.member), &step.seen))
            .collect();
        let mut taken = Taken::default();
        let confirmed = steps.iter().filter(|step| step.need == Need::Confirm);
        taken.released.extend(confirmed.map(Step::confirmation));
        for (step, written) in due.iter().zip(self.write(&due).await) {
            // That one is a look.
            if step.need != Need::ConfirmGone {
                self.metrics.host_written(match written {
                    Written::Done => HostWrite::Done,
                    Written::Changed => HostWrite::Changed,
                    Written::Refused(_) => HostWrite::Refused,
                });
            }
            match written {
                Written::Done if step.need != Need::Label => taken.released.push(step.confirmation()),
                Written::Done => {}
                Written::Changed => taken.again = Some(LOOK_AGAIN),
                Written::Refused(words) => {
                    taken.again = Some(REFUSED);
                    taken.refused.push((key(step.member), words));
                }
            }
        }
        taken
    }

    /// Takes the steps, several at once, and returns what has come of each, in their order.
    async fn write(&self, steps: &[&Step<'_>]) -> Vec<Written> {
        // Boxed and collected first: the compiler cannot see that a lazily mapped stream of borrows is Send.
        let writes: Vec<_> = steps.iter().map(|step| self.one(step).boxed()).collect();
        futures::stream::iter(writes).buffered(CONCURRENT).collect().await
    }

    async fn one(&self, step: &Step<'_>) -> Written {
        let Step { member, need, seen } = step;
        let key = key(member);
        let uid = member.host.as_ref().map_or("", |host| &*host.uid);
        let hosts: Api<BareMetalHost> = Api::namespaced(self.client.clone(), &key.namespace);
        let change = match need {
            Need::Label => json!({ "labels": {
                labels::CLUSTER_NAMESPACE: self.cluster.namespace,
                labels::CLUSTER_NAME: self.cluster.name,
                labels::NODE_TYPE: member.role,
            }}),
            Need::Unlabel => json!({
                "labels": {
                    labels::CLUSTER_NAMESPACE: null,
                    labels::CLUSTER_NAME: null,
                    labels::NODE_TYPE: null,
                },
                "annotations": { annotations::PLACEMENT_REVISION: member.revision.to_string() },
            }),
            // A watch may be behind: only the API server itself knows that there is no such host.
            Need::ConfirmGone => {
                return match hosts.get_metadata_opt(&key.name).await {
                    Ok(found)
                        if found
                            .as_ref()
                            .and_then(kube::ResourceExt::uid)
                            .is_none_or(|found| found != uid) =>
                    {
                        Written::Done
                    }
                    Ok(_) => Written::Changed,
                    Err(error) => Written::Refused(apply::reason(&error)),
                };
            }
            Need::Nothing | Need::Confirm | Need::Blocked(_) | Need::Waits(_) => return Written::Done,
        };
        match apply::merge_metadata(&hosts, self.manager, &key.name, (uid, seen), change).await {
            Ok(_) => {
                self.unseen.written(key, seen.clone());
                Written::Done
            }
            Err(error) if matches!(apply::code(&error), Some(404 | 409)) => Written::Changed,
            Err(error) => Written::Refused(apply::reason(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use wire::MemberState::{Bound, Claimed, Releasing};

    use super::*;
    use crate::fixtures::{host, inventory, labelled, member, reference, used, with};

    fn need(host: Option<Value>, state: wire::MemberState, served: bool) -> Need {
        let inventory = inventory(host);
        Step::of(&reference(), &member("h1", state), &inventory, served).need
    }

    fn blocked(need: &Need) -> bool {
        matches!(need, Need::Blocked(_))
    }

    #[test]
    fn labels_come_only_when_the_load_balancers_have_the_host_and_nobody_else_has_it() {
        let h1 = || host("h1");
        let half = with(
            h1(),
            "/metadata/labels/sip.airshipit.org~1cluster-name",
            json!("one"),
        );
        assert_eq!(need(Some(h1()), Claimed, true), Need::Label);
        assert_eq!(need(Some(half), Claimed, true), Need::Label);
        assert!(matches!(need(Some(h1()), Claimed, false), Need::Waits(_)));
        assert_eq!(
            need(Some(labelled(h1(), "one", "Worker")), Claimed, false),
            Need::Nothing
        );
        assert!(blocked(&need(
            Some(labelled(h1(), "two", "Worker")),
            Claimed,
            true
        )));
        assert!(blocked(&need(
            Some(labelled(h1(), "one", "ControlPlane")),
            Claimed,
            true
        )));
        assert!(blocked(&need(Some(used(h1())), Claimed, true)));
        assert!(blocked(&need(None, Claimed, true)), "the host is gone");
    }

    #[test]
    fn labels_that_a_person_removed_are_put_back_though_the_host_is_in_use() {
        assert_eq!(need(Some(used(host("h1"))), Bound, true), Need::Label);
    }

    #[test]
    fn a_host_that_was_made_again_under_the_same_name_is_not_written() {
        let again = with(host("h1"), "/metadata/uid", json!("another"));
        assert!(blocked(&need(Some(again.clone()), Claimed, true)));
        assert_eq!(need(Some(again), Releasing, true), Need::ConfirmGone);
    }

    #[test]
    fn a_release_is_written_on_every_host_and_confirmed_when_it_is_there() {
        let h1 = || host("h1");
        let marked = |revision: &str| {
            with(
                h1(),
                "/metadata/annotations/sip.airshipit.org~1placement-revision",
                json!(revision),
            )
        };
        assert_eq!(
            need(Some(labelled(h1(), "one", "Worker")), Releasing, true),
            Need::Unlabel
        );
        assert_eq!(
            need(Some(h1()), Releasing, true),
            Need::Unlabel,
            "never labelled, and written all the same"
        );
        assert_eq!(
            need(Some(marked("4")), Releasing, true),
            Need::Unlabel,
            "the mark is of an older release"
        );
        assert_eq!(need(Some(marked("5")), Releasing, true), Need::Confirm);
        assert_eq!(need(None, Releasing, true), Need::ConfirmGone, "the host is gone");
    }

    #[test]
    fn a_claim_that_is_older_than_the_hosts_release_labels_nothing() {
        let marked = |revision: &str| {
            with(
                host("h1"),
                "/metadata/annotations/sip.airshipit.org~1placement-revision",
                json!(revision),
            )
        };
        for state in [Claimed, Bound] {
            assert_eq!(
                need(Some(marked("4")), state, true),
                Need::Label,
                "of an earlier claim"
            );
            assert!(blocked(&need(Some(marked("5")), state, true)));
            assert!(blocked(&need(Some(marked("6")), state, true)));
        }
    }

    #[test]
    fn a_host_that_is_in_use_is_not_taken_from_its_consumer_who_is_named() {
        let need = need(Some(used(labelled(host("h1"), "one", "Worker"))), Releasing, true);
        assert_eq!(
            need,
            Need::Waits("it is still used by Metal3Machine tenant/m-0".to_owned())
        );
    }

    #[test]
    fn a_releasing_host_with_labels_of_somebody_else_is_left_alone() {
        assert!(blocked(&need(
            Some(labelled(host("h1"), "two", "Worker")),
            Releasing,
            true
        )));
    }
}
