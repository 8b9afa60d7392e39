//! One cluster per fault: its whole life, in which one call fails, and what must have come of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use kube::ResourceExt as _;
use sandbox::{
    audit::Entry,
    inventory::NETWORK,
    region::{Agent, HOSTS_NAMESPACE, Region},
    sip_clusters::CLUSTER_NAME,
};
use serde_json::json;

use super::{ApiProxy, Call, Fault, Injected};
use crate::fixtures::{Cluster, Role, Stage, cluster, given_back, held, host, members, sip_labels, user};

/// A site whose agents reach the API server through a proxy each.
pub(crate) struct Faulty {
    pub(crate) stage: Stage,
    pub(crate) proxies: BTreeMap<Agent, ApiProxy>,
    /// Pods of each load balancer.
    replicas: u8,
}

impl Faulty {
    pub(crate) async fn start(agents: &[Agent]) -> Self {
        Self::start_with(agents, None, 2).await
    }

    /// The same with pods that a sidecar is to make follow their configuration. Nodes that are none run no sidecar, which could be
    /// asked what it follows: so there are no pods, but all else that they need.
    pub(super) async fn start_with_sidecars(agents: &[Agent]) -> Self {
        Self::start_with(agents, Some("localhost/sip-haproxy-sidecar:1"), 0).await
    }

    async fn start_with(agents: &[Agent], sidecar: Option<&str>, replicas: u8) -> Self {
        let region = Arc::new(Region::start("north").await.unwrap());
        let mut stage = Stage::start_in(region, "site-a", &[HOSTS_NAMESPACE], &[]).await;
        let mut config = stage.config(&[HOSTS_NAMESPACE]);
        config.haproxy_sidecar_image = sidecar.map(str::to_owned);
        if !agents.contains(&Agent::LoadBalancer) {
            config.not_installed.push("loadBalancer".to_owned());
        }
        let proxies = stage.start_proxied(agents, &config).await;
        // Which calls a release makes depends on it.
        if agents.contains(&Agent::Cluster) {
            stage.late_claims_are_refused().await;
        }
        Self {
            stage,
            proxies,
            replicas,
        }
    }

    /// The cluster of a number, in whose life this is to fail.
    pub(super) fn cell(&self, number: u16, step: &Step) -> Cell {
        Cell {
            name: format!("cell{number:03}"),
            port: 30_000 + number,
            replicas: self.replicas,
            step: step.clone(),
        }
    }

    /// The cluster agent's.
    pub(crate) fn proxy(&self) -> &ApiProxy {
        &self.proxies[&Agent::Cluster]
    }
}

/// The part of a cluster's life in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Placement,
    Release,
}

/// A kind of call that an agent makes for a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step {
    pub(super) phase: Phase,
    pub(super) agent: Agent,
    verb: String,
    pub(super) resource: String,
    /// Which of those of its kind.
    pub(super) nth: usize,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            phase,
            agent,
            verb,
            resource,
            nth,
        } = self;
        write!(f, "{phase:?}: {} {verb} {resource} {}", agent.name(), nth + 1)
    }
}

/// One cluster and the call of it that fails.
pub(super) struct Cell {
    pub(super) name: String,
    port: u16,
    replicas: u8,
    pub(super) step: Step,
}

impl Cell {
    /// Two of its three hosts, behind a load balancer.
    pub(super) fn cluster(&self) -> Cluster {
        cluster(&self.name, "shop").role(Role::ControlPlane, 2).with(
            "/services/loadBalancerControlPlane",
            json!([{
                "image": "haproxy:2.8",
                "nodeInterfaceId": NETWORK,
                "nodePort": self.port,
                "replicas": self.replicas,
            }]),
        )
    }

    pub(super) async fn prepare(&self, stage: &Stage) {
        let hosts = ["a", "b", "c"].map(|name| host(&self.name, "cp", name, name));
        stage.load(&hosts).await;
        stage.site.create_tenant_namespace(&self.name).await.unwrap();
    }

    pub(super) fn inject(&self, site: &Faulty, fault: Fault) -> Injected {
        let Step {
            phase: _,
            agent,
            verb,
            resource,
            nth,
        } = self.step.clone();
        let scenario = self.name.clone();
        let matches =
            move |call: &Call| call.is_of(&scenario) && call.verb == verb && call.resource == resource;
        site.proxies[&agent].inject(matches, nth, fault)
    }

    /// It is Ready, with two hosts, and its status and the labels say the same.
    pub(super) async fn is_placed(&self, stage: &Stage) {
        let shop = self.cluster();
        let ready = stage.ready(&shop).await;
        let labelled = stage.labelled(&self.name, &shop).await;
        assert_eq!(labelled.len(), 2, "{}: {labelled:?}", self.name);
        assert_eq!(held(&members(&ready)), labelled, "{}", self.name);
    }

    /// It is gone, its hosts were released, and the third was never written to.
    pub(super) async fn is_released(&self, stage: &Stage) {
        stage.gone(&self.cluster()).await;
        let hosts = stage.hosts_of(&self.name).await;
        let back: Vec<bool> = hosts.iter().map(given_back).collect();
        let name = &self.name;
        assert_eq!(back.iter().filter(|back| **back).count(), 2, "{name}: {hosts:#?}");
        for (host, _) in hosts.iter().zip(back).filter(|(_, back)| !back) {
            assert!(
                sip_labels(host).is_empty() && host.annotations().is_empty(),
                "{host:#?}"
            );
        }
    }
}

/// What is asked for a cluster when nothing fails.
pub(super) async fn steps(site: &Faulty) -> Vec<Step> {
    let probe = Cell {
        name: "probe".to_owned(),
        port: 32_000,
        replicas: site.replicas,
        step: Step {
            phase: Phase::Placement,
            agent: Agent::Cluster,
            verb: String::new(),
            resource: String::new(),
            nth: 0,
        },
    };
    probe.prepare(&site.stage).await;
    site.stage.create(&probe.cluster()).await;
    probe.is_placed(&site.stage).await;
    let before: BTreeMap<Agent, usize> = site
        .proxies
        .iter()
        .map(|(agent, proxy)| (*agent, proxy.seen().len()))
        .collect();
    site.stage.delete(&probe.cluster()).await;
    probe.is_released(&site.stage).await;

    let mut steps: BTreeMap<Step, usize> = BTreeMap::new();
    for (agent, proxy) in &site.proxies {
        for (index, call) in proxy.seen().into_iter().enumerate() {
            if !call.is_of("probe") {
                continue;
            }
            let phase = if index < before[agent] {
                Phase::Placement
            } else {
                Phase::Release
            };
            let kind = Step {
                phase,
                agent: *agent,
                verb: call.verb,
                resource: call.resource,
                nth: 0,
            };
            *steps.entry(kind).or_default() += 1;
        }
    }
    let each = steps
        .into_iter()
        .flat_map(|(kind, times)| (0..times).map(move |nth| Step { nth, ..kind.clone() }));
    each.collect()
}

/// No host was ever given to a cluster while another one had it, and each was labelled once for each that had it. Nothing
/// is held any more.
pub(super) async fn nothing_is_left(site: &Faulty, cells: &[Cell]) {
    let stage = &site.stage;
    let asked = stage.asked_by_agents();
    assert_eq!(double_labels(&asked), [""; 0]);
    let written: BTreeMap<String, usize> =
        labellings(&asked).fold(BTreeMap::new(), |mut count, (host, _)| {
            *count.entry(host).or_default() += 1;
            count
        });
    let twice: Vec<_> = written.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "labelled again without need: {twice:?}");
    assert_eq!(written.len(), 2 * (cells.len() + 1), "two hosts of each cluster");

    let request = json!({"site": "site-a"});
    stage
        .until_answer(
            "sip.placement.v1.PlacementService/ListPlacements",
            request,
            |answer| {
                answer
                    .get("placements")
                    .is_none_or(|placements| placements == &json!([]))
            },
        )
        .await;
    let names: BTreeSet<&str> = cells.iter().map(|cell| &*cell.name).collect();
    for kind in [
        "deployments",
        "services",
        "configmaps",
        "poddisruptionbudgets",
        "networkpolicies",
        "serviceaccounts",
        "roles",
        "rolebindings",
    ] {
        let left = stage
            .kubectl(&[
                "get",
                kind,
                "-A",
                "-l",
                "app.kubernetes.io/part-of=sip",
                "-o",
                "jsonpath={range .items[*]}{.metadata.namespace} {end}",
            ])
            .await;
        let left: Vec<&str> = left
            .split_whitespace()
            .filter(|namespace| names.contains(namespace))
            .collect();
        assert!(left.is_empty(), "{kind} are left in {left:?}");
    }
}

/// Writes of labels to hosts that the API server took: the host, and the cluster's name or nothing.
fn writes(asked: &[Entry]) -> Vec<(String, Option<String>)> {
    let mut written: Vec<&Entry> = asked
        .iter()
        .filter(|entry| entry.user.username == user(Agent::Cluster) && entry.verb == "patch")
        .filter(|entry| entry.response_status.code == 200)
        .filter(|entry| {
            entry
                .object_ref
                .as_ref()
                .is_some_and(|object| object.resource == "baremetalhosts")
        })
        .collect();
    written.sort_by(|a, b| a.stage_timestamp.cmp(&b.stage_timestamp));
    let of = |entry: &Entry| {
        let labels = entry.request_object.pointer("/metadata/labels")?;
        // A host that was made again under its name is another one.
        let object = entry.object_ref.clone().unwrap_or_default();
        let uid = entry.request_object.pointer("/metadata/uid")?.as_str()?;
        let namespace = &labels["sip.airshipit.org/cluster-namespace"];
        let cluster = labels[CLUSTER_NAME]
            .as_str()
            .map(|name| format!("{namespace}/{name}"));
        Some((format!("{}/{} {uid}", object.namespace, object.name), cluster))
    };
    written.into_iter().filter_map(of).collect()
}

fn labellings(asked: &[Entry]) -> impl Iterator<Item = (String, String)> {
    writes(asked)
        .into_iter()
        .filter_map(|(host, cluster)| Some((host, cluster?)))
}

/// Hosts that were labelled for one cluster while they had the labels of another one.
pub(crate) fn double_labels(asked: &[Entry]) -> Vec<String> {
    let mut holders: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    for (host, cluster) in writes(asked) {
        let before = match cluster.clone() {
            Some(cluster) => holders.insert(host.clone(), cluster),
            None => holders.remove(&host),
        };
        if let (Some(before), Some(now)) = (before, cluster)
            && before != now
        {
            found.push(format!("{host}: {before}, and then {now}"));
        }
    }
    found
}
