//! Observes a cluster: calls the scheduler, reads the stores, and reads from the API server what no store has. Writes nothing to it.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use api::{Cluster, ClusterApiCluster, FINALIZER, SIPCluster, TolerantCluster};
use k8s_openapi::jiff::Timestamp;
use kit::{
    config::Section,
    placement::{ClusterId, HostId, Member, ObjectKey, Placement, Position},
    scheduler_client,
};
use kube::{Api, ResourceExt as _};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{
    context::Context,
    error::Error,
    host_users,
    label_or_release::{Assessment, assess},
    metrics::Answer,
    named_objects::refusal,
    observation::{Evidence, Holding, MachineLookup, Nodes, Observation, State},
    pods_without_agent,
    scaling::{self, Spec},
    services, status,
};
use crate::{
    inventory::{Inventory, ObservedHost},
    late_claims::LateClaims,
    triggers::Triggers,
};

/// The reason in the details of a status: the site has as much as one may have.
const SITE_FULL: &str = "SITE_FULL";

/// Observes a `SIPCluster`. One that stays is declared to the scheduler; of one that is being deleted the hosts are released there.
///
/// # Errors
/// When the scheduler does not answer, or with something older than was observed.
pub(super) async fn observe<'a>(
    object: &'a SIPCluster,
    context: &'a Context,
) -> Result<Observation<'a>, Error> {
    let state = if is_released(object) {
        release(object, context).await?
    } else {
        declare(object, context).await?
    };
    Ok(Observation {
        object,
        not_installed: &context.not_installed,
        now: Timestamp::now(),
        state,
    })
}

/// Whether the hosts of a cluster are released. It is being deleted, and what it holds is known: with a placement that cannot be read it is
/// refused like one that stays, since it is not known whether the scheduler's answer is older.
fn is_released(object: &SIPCluster) -> bool {
    object.metadata.deletion_timestamp.is_some() && object.spec.left_out.placement.is_none()
}

async fn declare(object: &SIPCluster, context: &Context) -> Result<State, Error> {
    let cluster = match Cluster::parse(object) {
        Ok(cluster) => cluster,
        Err(invalid) => return Ok(State::Invalid(invalid.to_string())),
    };
    if !object.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(State::WithoutFinalizer);
    }
    let created = object.creation_timestamp();
    let answer = context.scheduler.apply(&cluster, created.as_ref()).await;
    context.metrics.declared(match &answer {
        Ok(placement) if placement.refusal().is_some() => Answer::Refused,
        Ok(_) => Answer::Placed,
        Err(status) if status.code() == Code::InvalidArgument => Answer::Invalid,
        Err(_) => Answer::Failed,
    });
    match answer {
        Ok(placement) => {
            known_epoch(&placement, context)?;
            not_older_than_status(object, &placement)?;
            let mut holding = holding(placement, named_cluster(object), context);
            holding.machines = machines(object, &holding, context).await;
            let spec = Spec {
                cluster: holding.placement.cluster().clone(),
                generation: object.metadata.generation,
            };
            for scaled in cluster.scaled() {
                let found = scaling::find(&context.client, scaled, &holding.placement).await;
                let found = context.contests.observe(&spec, found, Instant::now());
                holding.scaled.push((scaled.clone(), found));
            }
            Ok(State::Declared(Box::new(cluster), holding))
        }
        Err(status) if status.code() == Code::InvalidArgument => {
            Ok(State::Invalid(scheduler_client::reason(&status)))
        }
        Err(status) if is_site_full(&status) => Ok(State::SiteFull(Box::new(status))),
        Err(status) => Err(Error::scheduler(status)),
    }
}

/// Whether the site has as much as the scheduler admits of one site, unlike a caller that calls too often.
fn is_site_full(status: &Status) -> bool {
    let details = status.get_details_error_info();
    status.code() == Code::ResourceExhausted && details.is_some_and(|info| info.reason == SITE_FULL)
}

async fn release(object: &SIPCluster, context: &Context) -> Result<State, Error> {
    let released = context.scheduler.release(&ClusterId::for_object(object)).await;
    match released.map_err(Error::scheduler)? {
        None => Ok(State::Released),
        Some(placement) => {
            known_epoch(&placement, context)?;
            not_older_than_status(object, &placement)?;
            let evidence = evidence(object, context).await?;
            let holding = holding(placement, named_cluster(object), context);
            Ok(State::Releasing(holding, evidence))
        }
    }
}

/// Where the load-balancer agent has no rights in the namespace it cannot report what its pods run, and starts none. That is so while a
/// namespace is deleted: its `RoleBinding`s go with everything else in it. It may have rights again since the object was observed, and
/// report that before it starts a pod: so what it reports is read after the lists.
async fn evidence(object: &SIPCluster, context: &Context) -> Result<Evidence, Error> {
    if !services::lacks_rights(object, Section::LoadBalancer) {
        return Ok(Evidence::Reported);
    }
    let routed_by = pods_without_agent::find(&context.client, &ObjectKey::for_object(object)).await;
    let routed_by = routed_by.map_err(Error::kubernetes("list what load balancers run"))?;
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let clusters = Api::<TolerantCluster>::namespaced(context.client.clone(), &namespace);
    let now = clusters.get_opt(&name).await;
    let now = now.map_err(Error::kubernetes("read the SIPCluster"))?;
    let lacks_rights = now.is_some_and(|now| {
        let now = now.into_inner();
        now.uid() == object.uid() && services::lacks_rights(&now, Section::LoadBalancer)
    });
    Ok(if lacks_rights {
        Evidence::Listed(routed_by)
    } else {
        Evidence::Reported
    })
}

/// What is observed of a cluster without `SIPCluster`.
pub(super) struct Orphan {
    pub(super) holding: Holding,
    /// What may still route to its hosts, for messages.
    pub(super) routed_by: Option<String>,
}

/// Observes a cluster without `SIPCluster`; `None` when it releases nothing.
///
/// # Errors
/// When the scheduler or the API server does not answer, or the scheduler answers from an older epoch than was observed.
pub(super) async fn observe_orphan(cluster: &ObjectKey, context: &Context) -> Result<Option<Orphan>, Error> {
    let any = ClusterId::new(cluster.clone(), "");
    let placement = context.scheduler.placement(&any, None).await;
    let placement = placement.map_err(Error::scheduler)?;
    let releases = |placement: &Placement| placement.members().iter().any(Member::is_releasing);
    let Some(placement) = placement.filter(releases) else {
        forget_orphan(
            cluster,
            &context.inventory,
            &context.triggers,
            &context.late_claims,
        );
        return Ok(None);
    };
    known_epoch(&placement, context)?;
    // The garbage collector deletes its load balancers. Their pods run for a while, and no agent reports what they run. They are
    // listed after the scheduler has answered: a pass of the load-balancer agent that begins later gets none of the members that are released here.
    let routed_by = if context.not_installed.contains(&Section::LoadBalancer) {
        None
    } else {
        pods_without_agent::find_of_gone(&context.client, cluster)
            .await
            .map_err(Error::kubernetes("list what load balancers run"))?
    };
    let mut holding = holding(placement, None, context);
    // What its `SIPCluster` named stands on its hosts still.
    let annotation = holding.hosts.values().find_map(ObservedHost::cluster_annotation);
    let named = annotation.map(|text| ClusterApiCluster::served_by(Some(text), &cluster.name));
    holding.cluster_api = named;
    Ok(Some(Orphan { holding, routed_by }))
}

/// Forgets a cluster without `SIPCluster` that releases nothing. While the scheduler was asked, a `SIPCluster` of its name may have been created: then
/// what is kept under the name is that one's.
fn forget_orphan(cluster: &ObjectKey, inventory: &Inventory, triggers: &Triggers, late_claims: &LateClaims) {
    if !inventory.has_cluster(cluster) {
        triggers.set_hosts(cluster, BTreeSet::new());
        late_claims.forget(cluster);
    }
}

/// The Cluster API cluster that a `SIPCluster` names, by the object that the pass is for: another watch may be behind it.
fn named_cluster(object: &SIPCluster) -> Option<ClusterApiCluster> {
    // What cannot be parsed has been refused with the spec; of one that is being deleted it names nothing.
    ClusterApiCluster::parse(object).ok().flatten()
}

/// What the stores have of a placement, of a cluster that names this Cluster API cluster.
fn holding(placement: Placement, cluster_api: Option<ClusterApiCluster>, context: &Context) -> Holding {
    // Before the stores are read: a host that changes after that triggers another pass.
    let members = placement
        .members()
        .iter()
        .map(|member| member.host().key().clone());
    context
        .triggers
        .set_hosts(placement.cluster().key(), members.collect());
    let mut hosts = BTreeMap::new();
    let mut pending = BTreeSet::new();
    for member in placement.members() {
        let key = member.host().key();
        if let Some(host) = context.inventory.host(key) {
            if context.pending_writes.is_pending(key, host.resource_version()) {
                pending.insert(key.clone());
            }
            hosts.insert(key.clone(), host);
        }
    }
    let nodes = Nodes {
        report: context
            .tenant_nodes
            .report(placement.cluster().key(), Instant::now()),
        drain_for: context.drain_for,
    };
    Holding {
        cluster_api,
        placement,
        hosts,
        pending,
        machines: BTreeMap::new(),
        nodes,
        scaled: Vec::new(),
    }
}

/// Finds Cluster API's Machines on hosts that leave and are in use, those that the status names, and those whose hosts are gone.
async fn machines(
    object: &SIPCluster,
    holding: &Holding,
    context: &Context,
) -> BTreeMap<String, MachineLookup> {
    let (mut machines, served) = (BTreeMap::new(), holding.served());
    let known = status::placement_in_status(object)
        .into_iter()
        .flat_map(|held| &held.members);
    let named: BTreeSet<&str> = known
        .filter(|member| member.machine.is_some())
        .map(|member| &*member.uid)
        .collect();
    for member in holding.placement.members() {
        let id = member.host();
        let host = holding.hosts.get(id.key());
        if host.is_none_or(|host| host.id() != id) {
            if let Some(left) = left_behind(id, &served, context).await {
                machines.insert(id.uid().to_owned(), left);
            }
            continue;
        }
        let (cluster, serves) = (holding.placement.cluster(), holding.cluster_api.as_ref());
        // Whether a pod routes to it makes no difference to who uses it.
        let assessment = assess(cluster, serves, member, host, false);
        if !matches!(assessment, Assessment::InUse(_)) && !named.contains(id.uid()) {
            continue;
        }
        let Some(consumer) = host.and_then(|host| host.consumer()) else {
            continue;
        };
        let found = match host_users::find(&context.client, &served, consumer).await {
            Ok(None) => continue,
            Ok(Some(user)) => user.into(),
            Err(error) => MachineLookup::Unreadable(format!(
                "the Machine of {} {}/{} cannot be read: {}",
                consumer.kind.as_deref().unwrap_or_default(),
                consumer.namespace.as_deref().unwrap_or_default(),
                consumer.name.as_deref().unwrap_or_default(),
                refusal(&error)
            )),
        };
        machines.insert(id.uid().to_owned(), found);
    }
    machines
}

/// What a host that is gone leaves behind, as far as this process has observed its deletion.
async fn left_behind(host: &HostId, served: &ClusterApiCluster, context: &Context) -> Option<MachineLookup> {
    let left = host_users::find_left(&context.client, &context.inventory, served, host).await;
    match left {
        Ok(left) => left.map(MachineLookup::from),
        Err(error) => Some(MachineLookup::Unreadable(format!(
            "the Machine that was on BareMetalHost {host}, which is gone, cannot be read: {}",
            refusal(&error)
        ))),
    }
}

/// An answer from an older epoch than one before is of a scheduler that has lost what the one before knew.
fn known_epoch(placement: &Placement, context: &Context) -> Result<(), Error> {
    let position = placement.position();
    let known = context.answered.observe(position);
    known.map_err(|seen| Error::OldEpoch {
        answered: position.epoch(),
        seen,
    })
}

fn not_older_than_status(object: &SIPCluster, placement: &Placement) -> Result<(), Error> {
    match status::placement_in_status(object) {
        Some(held) => not_older(Position::new(held.epoch, held.revision), placement.position()),
        None => Ok(()),
    }
}

/// An agent never acts on an older epoch than the status has, nor on an older placement than the status has.
///
/// # Errors
/// [`Error::OldEpoch`] or [`Error::OldRevision`].
pub fn not_older(held: Position, answered: Position) -> Result<(), Error> {
    let epoch = answered.epoch();
    match epoch.cmp(&held.epoch()) {
        Ordering::Less => Err(Error::OldEpoch {
            answered: epoch,
            seen: held.epoch(),
        }),
        Ordering::Equal if answered.revision() < held.revision() => Err(Error::OldRevision {
            epoch,
            answered: answered.revision(),
            seen: held.revision(),
        }),
        Ordering::Equal | Ordering::Greater => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use proto::{
        inventory::v1::{self as wire, ObservedCluster},
        placement::v1 as placed,
    };
    use tonic_types::ErrorDetails;

    use super::*;
    use crate::fixtures::{cluster, key, placement_answer, reference};

    #[test]
    fn an_answer_older_than_the_status_is_refused() {
        let held = |epoch: u64, revision: u64| {
            let held = serde_json::json!({ "epoch": epoch, "revision": revision, "generation": 3 });
            serde_json::json!({ "placement": held })
        };
        let answer = |epoch, revision| {
            let answer = placed::Placement {
                revision: Some(wire::Revision { epoch, revision }),
                ..placement_answer(Vec::new())
            };
            Placement::try_from(answer).unwrap()
        };
        let old_epoch = "the scheduler answers with epoch 1, which is older than the observed epoch 2";
        let old_revision = "the scheduler answers with revision 6 of epoch 2, and the status has revision 7";
        for (status, answered, expected) in [
            (serde_json::json!({}), (1, 1), None),
            (held(2, 7), (2, 6), Some(old_revision)),
            (held(2, 7), (2, 7), None),
            (held(2, 7), (2, 8), None),
            (held(2, 7), (1, 6), Some(old_epoch)),
            // Revisions of a lost ledger may have come further.
            (held(2, 7), (1, 900), Some(old_epoch)),
            (held(2, 7), (3, 1), None),
        ] {
            let placement = answer(answered.0, answered.1);
            let refused = not_older_than_status(&cluster(&status), &placement).err();
            let refused = refused.map(|error| error.to_string());
            assert_eq!(refused.as_deref(), expected, "{status} {answered:?}");
        }
    }

    #[test]
    fn no_host_is_released_on_a_placement_that_cannot_be_read() {
        let mut object = cluster(&serde_json::json!({}));
        assert!(!is_released(&object));
        object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert!(is_released(&object));
        object.spec.left_out.placement = Some(serde_json::json!({ "epoch": "Unheard of" }));
        assert!(!is_released(&object));
    }

    #[test]
    fn a_new_cluster_of_the_name_is_not_forgotten() {
        for is_created in [false, true] {
            let (inventory, triggers) = (Inventory::default(), Triggers::default());
            let cluster = reference();
            triggers.set_hosts(cluster.key(), BTreeSet::from([key("h1")]));
            if is_created {
                inventory.put_cluster(cluster.key().clone(), ObservedCluster::default());
            }
            let late_claims = LateClaims::new(std::time::Duration::ZERO);
            forget_orphan(cluster.key(), &inventory, &triggers, &late_claims);
            triggers.host(&key("h1"));
            let mut named = Box::pin(triggers.triggered());
            assert_eq!(named.next().now_or_never().is_some(), is_created);
        }
    }

    #[test]
    fn a_full_site_differs_from_a_busy_scheduler() {
        let refused = |code, reason: &str| {
            let details = ErrorDetails::with_error_info(reason, "sip.airshipit.org", []);
            Status::with_error_details(code, "site a: it has 20000 clusters", details)
        };
        assert!(is_site_full(&refused(Code::ResourceExhausted, "SITE_FULL")));
        assert!(!is_site_full(&refused(Code::ResourceExhausted, "OVERLOADED")));
        assert!(!is_site_full(&refused(Code::Unavailable, "SITE_FULL")));
        assert!(!is_site_full(&Status::resource_exhausted("SITE_FULL")));
    }
}
