//! Events for what a person would want to know of a placement that has just been written to the status, and before
//! anything is done to the hosts.

use api::{MemberState, SIPCluster};
use kit::placement::{Member, Placement};
use kube::Resource as _;
use proto::inventory::v1 as wire;

use super::{Context, findings::named, hosts};
use crate::inventory::Inventory;

/// An Event to be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    warning: bool,
    reason: &'static str,
    note: String,
}

/// Publishes what is new. `scheduled`: the message of the last `Scheduled` condition, empty when all was well.
pub(super) async fn publish(
    object: &SIPCluster,
    placement: &Placement,
    scheduled: Option<&str>,
    context: &Context,
) {
    let reference = object.object_ref(&());
    let about_all = about_all(placement, scheduled);
    let about_members = about_members(object, placement, &context.inventory);
    for Told {
        warning,
        reason,
        note,
    } in about_all.into_iter().chain(about_members)
    {
        if warning {
            context.events.warning(&reference, reason, &note).await;
        } else {
            context.events.normal(&reference, reason, &note).await;
        }
    }
}

fn about_all(placement: &Placement, scheduled: Option<&str>) -> Option<Told> {
    match placement.refusal() {
        Some(refusal) if scheduled != Some(refusal.message()) => Some(Told {
            warning: true,
            reason: "Unschedulable",
            note: refusal.message().to_owned(),
        }),
        None if scheduled.is_none_or(|before| !before.is_empty()) => Some(Told {
            warning: false,
            reason: "Scheduled",
            note: format!("{} hosts are held", placement.members().len()),
        }),
        Some(_) | None => None,
    }
}

/// Members that fail, come in the place of others, or go: one Event for all of a kind.
fn about_members(object: &SIPCluster, placement: &Placement, inventory: &Inventory) -> Vec<Told> {
    let before = object
        .status
        .as_ref()
        .and_then(|status| status.placement.as_ref());
    let known = |member: &Member| {
        before.and_then(|before| {
            before
                .members
                .iter()
                .find(|known| known.uid == member.host().uid())
        })
    };
    let (mut failed, mut replacing, mut going) = (Vec::new(), Vec::new(), Vec::new());
    for member in placement.members() {
        let hosts::Key { namespace, name } = member.host().key().clone();
        let (host, role) = (format!("{namespace}/{name}"), member.role());
        let known = known(member);
        let releasing = member.is_releasing();
        if member.failed_since().is_some() && known.is_none_or(|known| known.failed_since.is_none()) {
            failed.push(format!("{host} ({role}): {}", why(member, inventory)));
        }
        if let Some(old) = member.replaces().filter(|_| known.is_none()) {
            replacing.push(format!("{host} ({role}) for {old}"));
        }
        if releasing && known.is_none_or(|known| known.state != MemberState::Releasing) {
            going.push(format!(
                "{host} ({role}): {}",
                member.release_reason().unwrap_or_default()
            ));
        }
    }
    let told = |warning, reason, what: &str, list: Vec<String>| {
        (!list.is_empty()).then(|| Told {
            warning,
            reason,
            note: format!("{what}: {}", named(&list)),
        })
    };
    [
        told(true, "HostFailed", "to be replaced", failed),
        told(false, "Replacing", "hosts come in the place of others", replacing),
        told(false, "Releasing", "hosts are given back", going),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What the site shows of a member that is to be replaced.
fn why(member: &Member, inventory: &Inventory) -> String {
    let host = inventory.host(member.host().key()).map(|known| known.host);
    let host = host.filter(|host| {
        host.r#ref
            .as_ref()
            .is_some_and(|known| known.uid == member.host().uid())
    });
    match host {
        None => "its BareMetalHost is gone".to_owned(),
        Some(host) if host.marked_failed => "it is marked as failed".to_owned(),
        Some(host) if host.operational_status() == wire::OperationalStatus::Error => {
            format!("it has been in error for too long: {}", host.error_message)
        }
        Some(host) if host.replace_requested => "somebody asked to move it off".to_owned(),
        Some(host) if member.state() != MemberState::Bound && host.consumer.is_some() => {
            "somebody used it before it was handed over".to_owned()
        }
        Some(_) => "it has recovered meanwhile".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use api::MemberState::{Bound, Claimed, Releasing};
    use proto::placement::v1 as placed;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{answer as member, cluster, host, inventory, placement, used, with};

    fn told(status: &Value, members: Vec<placed::Member>, hosts: Vec<Value>) -> Vec<(&'static str, String)> {
        let told = about_members(&cluster(status), &placement(members), &inventory(hosts));
        told.into_iter().map(|told| (told.reason, told.note)).collect()
    }

    fn failed(member: placed::Member) -> placed::Member {
        placed::Member {
            failed_since: Some(prost_types::Timestamp {
                seconds: 1_800_000_000,
                nanos: 0,
            }),
            ..member
        }
    }

    /// The status that the agent wrote for these members.
    fn status_of(members: &[placed::Member]) -> Value {
        json!({ "placement": super::super::status::placement(&placement(members.to_vec())) })
    }

    #[test]
    fn a_member_that_fails_goes_or_comes_in_the_place_of_another_is_told_once() {
        let bound = vec![member("h1", Bound), member("h2", Bound)];
        let marked = with(
            host("h1"),
            "/metadata/annotations/sip.airshipit.org~1failed",
            json!(""),
        );
        let next = vec![
            placed::Member {
                release_reason: "failed".to_owned(),
                ..failed(member("h1", Releasing))
            },
            member("h2", Bound),
            placed::Member {
                replaces: member("h1", Bound).host,
                ..member("h3", Claimed)
            },
        ];
        let hosts = || vec![marked.clone(), host("h2"), host("h3")];
        assert_eq!(
            told(&status_of(&bound), next.clone(), hosts()),
            [
                (
                    "HostFailed",
                    "to be replaced: metal/h1 (Worker): it is marked as failed".to_owned()
                ),
                (
                    "Replacing",
                    "hosts come in the place of others: metal/h3 (Worker) for metal/h1".to_owned()
                ),
                (
                    "Releasing",
                    "hosts are given back: metal/h1 (Worker): failed".to_owned()
                ),
            ]
        );
        assert_eq!(told(&status_of(&next), next, hosts()), []);
    }

    #[test]
    fn a_host_that_somebody_was_quicker_to_use_is_told_as_that() {
        let taken = vec![failed(member("h1", Claimed))];
        let told = told(
            &status_of(&[member("h1", Claimed)]),
            taken,
            vec![used(host("h1"))],
        );
        assert_eq!(
            told[0].1,
            "to be replaced: metal/h1 (Worker): somebody used it before it was handed over"
        );
    }

    #[test]
    fn a_host_that_is_gone_is_told_as_that() {
        let gone = vec![failed(member("h1", Bound))];
        let told = told(&status_of(&[member("h1", Bound)]), gone, Vec::new());
        assert_eq!(
            told[0].1,
            "to be replaced: metal/h1 (Worker): its BareMetalHost is gone"
        );
    }
}
