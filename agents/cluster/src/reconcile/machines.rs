//! Cluster API's Machines on hosts that are to be given back: each is asked to go, so that Cluster API drains its Node and
//! removes it, and the host is let go.
//!
//! `cluster.x-k8s.io/delete-machine` makes a Machine the first that Cluster API deletes when its owner is scaled down. Which
//! Machines carry it because of us is written in the status before they do, so that it is taken off again when another
//! member goes in the place of this one, whatever has been restarted meanwhile. What a person has put on is left alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{Placement, SIPCluster};
use kit::apply;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    core::{GroupVersion, PartialObjectMeta},
};
use proto::inventory::v1 as wire;
use serde_json::json;

use super::{Context, MANAGER, hosts::Step, need::Need};

/// On a Machine: Cluster API deletes it first.
const DELETE: &str = "cluster.x-k8s.io/delete-machine";
/// Value of the annotation where we have put it on.
const OURS: &str = "sip.airshipit.org";
/// Group of Cluster API's own kinds.
const CLUSTER_API: &str = "cluster.x-k8s.io";
/// Group of its providers' kinds.
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

type Metadata = PartialObjectMeta<DynamicObject>;

/// A Machine, as the status names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    namespace: String,
    name: String,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Name {
    fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// The Machines of members that are to go, by the uid of their host.
#[derive(Debug, Default)]
pub(super) struct Machines {
    /// With the API version by which each is reached.
    of: BTreeMap<String, (Name, GroupVersion)>,
    /// Those from which the annotation could not be taken off, by the uid of their host.
    stuck: BTreeMap<String, Name>,
    /// Hosts on which there may be one that could not be read.
    unknown: BTreeSet<String>,
}

/// Pause after which a Machine that the API server refused to write is tried again.
const REFUSED: Duration = Duration::from_secs(30);

impl Machines {
    /// Finds them. Where Cluster API is not installed, or something else uses a host, there is none.
    pub(super) async fn of(object: &SIPCluster, steps: &[Step<'_>], context: &Context) -> Self {
        let mut found = Self::default();
        let releasing = steps
            .iter()
            .filter(|step| step.member.is_releasing())
            .filter(|step| matches!(step.need, Need::Waits(_)));
        for step in releasing {
            let host = context.inventory.host(step.member.host().key());
            let Some(consumer) = host.and_then(|known| known.host.consumer) else {
                continue;
            };
            let uid = step.member.host().uid().to_owned();
            match machine(&consumer, context).await {
                Ok(Some(machine)) => {
                    found.of.insert(uid, machine);
                }
                Ok(None) => {}
                Err(error) => {
                    let what = format!(
                        "the Machine of {} {}/{} cannot be read",
                        consumer.kind, consumer.namespace, consumer.name
                    );
                    tell(object, context, &what, &error).await;
                    found.unknown.insert(uid);
                }
            }
        }
        found
    }

    /// Writes into the placement which Machines are asked to go.
    pub(super) fn name(&self, placement: &mut Placement) {
        for member in &mut placement.members {
            let asked = self.of.get(&member.uid).map(|(name, _)| name);
            let name = asked.or_else(|| self.stuck.get(&member.uid));
            member.machine = name.map(ToString::to_string);
        }
    }

    /// The Machine on a member's host, for people.
    pub(super) fn on(&self, step: &Step<'_>) -> Option<String> {
        self.of
            .get(step.member.host().uid())
            .map(|(name, _)| name.to_string())
    }

    /// Takes the annotation off every Machine that the status names and that is not to go any more.
    pub(super) async fn keep_others(&mut self, object: &SIPCluster, context: &Context) {
        let said = object
            .status
            .as_ref()
            .and_then(|status| status.placement.as_ref());
        let asked = said.into_iter().flat_map(|placement| &placement.members);
        let asked =
            asked.filter_map(|member| Some((member.uid.clone(), Name::parse(member.machine.as_deref()?)?)));
        for (host, name) in asked {
            if self.of.values().any(|(goes, _)| *goes == name) {
                continue;
            }
            if self.unknown.contains(&host) {
                self.stuck.insert(host, name);
                continue;
            }
            // Only the group is known of it now; any version serves its metadata.
            for version in VERSIONS {
                let version = GroupVersion::gv(CLUSTER_API, version);
                match annotate(&name, &version, false, context).await {
                    Ok(false) => {}
                    Ok(true) => break,
                    Err(error) => {
                        let what = format!("{DELETE} cannot be taken off Machine {name}");
                        tell(object, context, &what, &error).await;
                        self.stuck.insert(host, name);
                        break;
                    }
                }
            }
        }
    }

    /// When to try again what the API server refused.
    pub(super) fn again(&self) -> Option<Duration> {
        (!self.stuck.is_empty() || !self.unknown.is_empty()).then_some(REFUSED)
    }

    /// Asks the Machines to go. The status names them by now.
    pub(super) async fn ask(&self, object: &SIPCluster, context: &Context) {
        for (name, version) in self.of.values() {
            if let Err(error) = annotate(name, version, true, context).await {
                let what = format!("Machine {name} cannot be asked to go by {DELETE}");
                tell(object, context, &what, &error).await;
            }
        }
    }
}

/// Versions of Cluster API's kinds, the newest first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

async fn tell(object: &SIPCluster, context: &Context, what: &str, error: &kube::Error) {
    let note = format!("{what}: {}", apply::reason(error));
    context
        .events
        .warning(&object.object_ref(&()), "MachineNotAsked", &note)
        .await;
}

fn api(version: &GroupVersion, kind: &str, namespace: &str, context: &Context) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&version.clone().with_kind(kind));
    Api::namespaced_with(context.client.clone(), namespace, &resource)
}

/// Metadata of an object; `None` when there is none, or no such kind, which the API server does not say in so many words.
async fn get(api: &Api<DynamicObject>, name: &str) -> kube::Result<Option<Metadata>> {
    match api.get_metadata(name).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if apply::code(&error) == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The Machine that owns a consumer.
async fn machine(consumer: &wire::Consumer, context: &Context) -> kube::Result<Option<(Name, GroupVersion)>> {
    let wire::Consumer {
        api_version,
        kind,
        namespace,
        name,
    } = consumer;
    let Some(version) = api_version
        .parse::<GroupVersion>()
        .ok()
        .filter(|of| of.group == INFRASTRUCTURE)
    else {
        return Ok(None);
    };
    let Some(found) = get(&self::api(&version, kind, namespace, context), name).await? else {
        return Ok(None);
    };
    let owner = found.owner_references().iter().find_map(|owner| {
        let version = owner.api_version.parse::<GroupVersion>().ok()?;
        (owner.kind == "Machine" && version.group == CLUSTER_API).then(|| (owner.name.clone(), version))
    });
    Ok(owner.map(|(name, version)| {
        let namespace = namespace.clone();
        (Name { namespace, name }, version)
    }))
}

/// Puts our annotation on a Machine, or takes it off. Returns whether the Machine is there.
async fn annotate(name: &Name, version: &GroupVersion, goes: bool, context: &Context) -> kube::Result<bool> {
    let machines = api(version, "Machine", &name.namespace, context);
    let Some(machine) = get(&machines, &name.name).await? else {
        return Ok(false);
    };
    let there = machine.annotations().get(DELETE);
    let due = if goes {
        there.is_none()
    } else {
        there.is_some_and(|value| value == OURS)
    };
    if due {
        let value = if goes { json!(OURS) } else { json!(null) };
        let (uid, seen) = (machine.uid(), machine.resource_version());
        let at = (&*uid.unwrap_or_default(), &*seen.unwrap_or_default());
        let change = json!({ "annotations": { DELETE: value } });
        apply::merge_metadata(&machines, MANAGER, &name.name, at, change).await?;
    }
    Ok(true)
}
