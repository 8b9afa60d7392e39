//! Labels on hosts: the last step of a placement, and the first of a release.
//!
//! Each write is one merge patch that is conditioned on the host's uid and resourceVersion, as the inventory has them. If
//! the host has changed since, the API server answers 409, and the change comes in by the watch.

use std::time::{Duration, Instant};

use api::{BareMetalHost, MemberState, annotations, labels};
use futures::{FutureExt as _, StreamExt as _};
use kit::apply::{self, Manager};
use kit::placement::{ClusterId, Member};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{
    Unseen,
    consumers::{self, Serves},
    metrics::{HostWrite, Metrics},
    need::{self, Need},
};
pub use crate::inventory::Key;
use crate::{
    fence::{Evidence, Released},
    inventory::Inventory,
};

/// Host writes under way at once, for one cluster.
const CONCURRENT: usize = 16;
/// Pause after which a host that changed under a write is looked at again, should the watch not have told by then.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Pause after which a host that the API server refused to write is tried again.
const REFUSED: Duration = Duration::from_secs(30);

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
    /// The annotation that is written with the labels, where the host has another one.
    meant: Option<Value>,
}

impl<'a> Step<'a> {
    /// Looks at a member's host once, and finds what it needs.
    #[must_use]
    pub fn of(cluster: &ClusterId, member: &'a Member, inventory: &Inventory, served: bool) -> Self {
        let host = inventory.host(member.host().key());
        let reported = host.as_ref().map(|host| &host.host);
        let need = if member.is_releasing() {
            need::to_release(cluster, member, reported, served)
        } else {
            need::to_hold(cluster, member, reported, served)
        };
        let named = inventory.cluster_api(cluster.key());
        let serves = Serves::new(cluster, named.as_ref());
        let shown = host.as_ref().and_then(|host| host.cluster_api.as_deref());
        let need = match reported {
            Some(reported) => consumers::considered(need, &serves, member, reported, shown),
            None => need,
        };
        let meant = serves.change(shown);
        Self {
            meant,
            member,
            need,
            seen: host.map(|host| host.resource_version).unwrap_or_default(),
        }
    }
}

impl Step<'_> {
    fn released(&self, evidence: Evidence) -> Released {
        Released {
            release: self.member.release(),
            evidence,
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
    pub cluster: &'a ClusterId,
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
    pub released: Vec<Released>,
}

impl Writer<'_> {
    /// Takes the steps that are due: labels hosts that join, and releases hosts that leave.
    pub async fn take(&self, steps: &[Step<'_>]) -> Taken {
        let due: Vec<&Step<'_>> = steps
            .iter()
            .filter(|step| matches!(step.need, Need::Label | Need::Unlabel | Need::ConfirmGone))
            .filter(|step| !self.unseen.is_older(step.member.host().key(), &step.seen))
            .collect();
        let mut taken = Taken::default();
        let confirmed = steps.iter().filter(|step| step.need == Need::Confirm);
        taken
            .released
            .extend(confirmed.map(|step| step.released(Evidence::Seen)));
        let before = Instant::now();
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
                Written::Done if step.need == Need::ConfirmGone => {
                    taken.released.push(step.released(Evidence::Gone));
                }
                Written::Done if step.need != Need::Label => {
                    taken.released.push(step.released(Evidence::Written { before }));
                }
                Written::Done => {}
                Written::Changed => taken.again = Some(LOOK_AGAIN),
                Written::Refused(words) => {
                    taken.again = Some(REFUSED);
                    taken.refused.push((step.member.host().key().clone(), words));
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
        let Step {
            member,
            need,
            seen,
            meant,
        } = step;
        let key = member.host().key().clone();
        let uid = member.host().uid();
        let hosts: Api<BareMetalHost> = Api::namespaced(self.client.clone(), &key.namespace);
        let change = match need {
            Need::Label => {
                let mut change = json!({ "labels": {
                    labels::CLUSTER_NAMESPACE: self.cluster.namespace(),
                    labels::CLUSTER_NAME: self.cluster.name(),
                    labels::NODE_TYPE: member.role(),
                }});
                if let Some(meant) = meant {
                    change["annotations"] = json!({ annotations::CLUSTER_API_CLUSTER: meant });
                }
                // Kept for Machines of a cluster that had it before: those of this one would never find it.
                if member.state() == MemberState::Claimed {
                    change["labels"][labels::NODE_REUSE] = Value::Null;
                }
                change
            }
            Need::Unlabel => json!({
                "labels": {
                    labels::CLUSTER_NAMESPACE: null,
                    labels::CLUSTER_NAME: null,
                    labels::NODE_TYPE: null,
                    labels::NODE_REUSE: null,
                },
                "annotations": { annotations::PLACEMENT_REVISION: member.revision().to_string() },
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
            Need::Nothing | Need::Confirm | Need::Blocked(_) | Need::Waits(_) | Need::Drains => {
                return Written::Done;
            }
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
