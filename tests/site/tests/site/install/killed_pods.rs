//! What stops, and for how long, when a pod ends: each kind of pod of a site is killed, the scheduler is away for a time, and the node is
//! drained, while clients send requests to a tenant's load balancer without a pause. `docs/availability.md` states what this asserts.
//!
//! `SOAK_SCHEDULER_AWAY` is for how many seconds there is no scheduler.

mod traffic;
mod victims;
mod workloads;

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use images::catalogue::{JUMP_HOST, LOCAL};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, PostParams},
    runtime::watcher,
};
use sandbox::{
    installation::{Names, describe_pods},
    inventory::{self, Host, NETWORK},
    node,
    region::{AGENTS_NAMESPACE, HOSTS_NAMESPACE},
    repository,
    sip_clusters::{self, holder},
    site::Site,
    wait,
};
use serde_json::json;

use self::{
    traffic::{Report, Traffic},
    victims::{VICTIMS, Victim},
    workloads::{
        budgets_allow_evictions, by_workload, deployments_are_complete, evict, pods_are_ready, pods_of,
        restarts,
    },
};
use super::{
    commands::steps,
    desk::{Desk, furnished, nothing_was_refused},
    page::PAGE,
};
use crate::fixtures::{Cluster, Role, cluster, members, requested};

/// What of the page comes after the installation, the tenant's cluster `orders` and its jump host.
const AFTER: &str = "\n## Several sites\n";
/// The namespace of that cluster.
const TENANT: &str = "shop";
/// The ports of its load balancer for workers.
const PORTS: RangeInclusive<u16> = 30_110..=30_111;
/// Within this time everything is ready again, and a new cluster too.
const RECOVERY: Duration = Duration::from_mins(3);
/// With two pods of a load balancer, and one of them killed, no port goes without an answer for so long.
const ONE_POD_LEFT: Duration = Duration::from_secs(10);
/// For how many seconds the scheduler is away in the short form.
const AWAY: u64 = 20;

/// Node ports of the clusters that are created after a kill: of their load balancers and of their jump hosts.
const LATER_BALANCER: u16 = 30_820;
const LATER_JUMP_HOST: u16 = 30_840;

/// Since a kill, the times until a new cluster had its host with its labels, and until it was Ready.
struct Placed {
    labelled: Duration,
    ready: Duration,
}

/// A host that a cluster holds.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    version: Option<String>,
    labels: BTreeMap<String, String>,
}

/// An installed site with a tenant's cluster, which has traffic.
struct Scene {
    traffic: Traffic,
    /// How many clusters were created later.
    created: u16,
    /// A public key that jump hosts accept.
    key: String,
    _names: Names,
    site: Site,
}

impl Scene {
    async fn start() -> Self {
        let page = fs::read_to_string(repository::root().join(PAGE)).unwrap();
        let (installation, _) = page.split_once(AFTER).unwrap();
        let desk = Desk::new();
        let site = furnished("install-killed", Vec::new(), Vec::new()).await;
        let names = Names::serve(&site, Vec::new()).await;
        for step in &steps(installation) {
            desk.follow(PAGE, step, &site).await;
        }
        // Until Kubernetes has counted the clusters, it refuses more of them.
        let quotas: Api<ResourceQuota> = Api::namespaced(site.client(), TENANT);
        let in_force =
            |quota: &ResourceQuota| quota.status.as_ref().is_some_and(|status| status.used.is_some());
        wait::until(
            quotas,
            "sip-clusters",
            "the quota to be in force",
            RECOVERY,
            in_force,
        )
        .await
        .unwrap();
        // One for each cluster that is created later. Nobody connects to them.
        let spares = (0..=u8::try_from(VICTIMS.len()).unwrap()).map(|number| {
            let name = format!("spare-{number}");
            let flavor = format!("{TENANT}-{}", Role::Worker.flavor());
            Host::new(&name, &flavor, &name, Ipv4Addr::new(10, 1, 0, number + 1))
        });
        let spares: Vec<Host> = spares.collect();
        inventory::load(&site.client(), HOSTS_NAMESPACE, &spares)
            .await
            .unwrap();
        let node = site.node().unwrap();
        let [_, worker, _] = node.machines();
        Self {
            traffic: Traffic::start(node.address(), worker, PORTS).await,
            created: 0,
            key: fs::read_to_string(desk.file("ana.pub"))
                .unwrap()
                .trim()
                .to_owned(),
            _names: names.unwrap(),
            site,
        }
    }

    fn clusters(&self) -> Api<DynamicObject> {
        sip_clusters::api(self.site.client(), TENANT)
    }

    /// The result of a wait, or a panic that describes all pods.
    async fn in_time<T>(&self, waited: Result<T, wait::Error>) -> T {
        match waited {
            Ok(found) => found,
            Err(why) => panic!("{why}\n{}", describe_pods(&self.site).await.unwrap()),
        }
    }

    /// Creates one more cluster, for which every agent has work. Its containers request little: many clusters share one node.
    async fn create(&mut self) -> Cluster {
        let number = self.created;
        self.created += 1;
        let resources = json!({"requests": {"cpu": "1m", "memory": "16Mi"}, "limits": {"memory": "1Gi"}});
        let port = LATER_BALANCER + number;
        let balancer = json!([{
            "image": "haproxy:2.8",
            "nodeInterfaceId": NETWORK,
            "nodePortRange": {"start": port, "end": port},
            "replicas": 1,
            "resources": resources,
        }]);
        let jump_host = json!([{
            "image": JUMP_HOST.reference(LOCAL, env!("CARGO_PKG_VERSION")),
            "nodeInterfaceId": NETWORK,
            "nodePort": LATER_JUMP_HOST + number,
            "sshAuthorizedKeys": [self.key],
            "resources": resources,
        }]);
        let later = cluster(TENANT, &format!("later-{number}"))
            .role(Role::Worker, 1)
            .with("/services/loadBalancerWorker", balancer)
            .with("/services/jumpHost", jump_host);
        let created = self
            .clusters()
            .create(&PostParams::default(), &later.object())
            .await;
        created.unwrap();
        later
    }

    /// Waits until a host has the labels of a cluster, and until the cluster is Ready.
    async fn placed(&self, later: &Cluster, since: Instant) -> Placed {
        let whole = format!("{}/{}", later.namespace, later.name);
        let labelled = |hosts: &[&DynamicObject]| {
            let mut holders = hosts.iter().filter_map(|host| holder(host));
            holders.any(|(name, _)| name == whole)
        };
        let (hosts, config) = (self.hosts(), watcher::Config::default());
        let what = format!("a host to have the labels of {whole}");
        let waited = wait::until_all(hosts, config, &what, RECOVERY, labelled).await;
        self.in_time(waited).await;
        let labelled = since.elapsed();
        let what = format!("{whole} to be Ready");
        let is_ready = |object: &DynamicObject| wait::is_true(object, "Ready");
        let waited = wait::until(self.clusters(), &later.name, &what, RECOVERY, is_ready).await;
        self.in_time(waited).await;
        Placed {
            labelled,
            ready: since.elapsed(),
        }
    }

    fn hosts(&self) -> Api<DynamicObject> {
        inventory::api(self.site.client(), HOSTS_NAMESPACE)
    }

    async fn held(&self) -> BTreeMap<String, Held> {
        let hosts = self.hosts().list(&ListParams::default()).await.unwrap();
        let held = hosts.into_iter().filter(|host| holder(host).is_some());
        held.map(|host| {
            let held = Held {
                version: host.resource_version(),
                labels: host.labels().clone(),
            };
            (host.name_any(), held)
        })
        .collect()
    }

    /// Nobody has written to hosts that were held before.
    async fn wrote_no_host(&self, before: &BTreeMap<String, Held>, what: &str) {
        let after = self.held().await;
        assert!(before.len() >= 2, "{before:?}");
        for (name, host) in before {
            assert_eq!(after.get(name), Some(host), "{what}: {name} is not as before");
        }
    }

    /// How often containers of load balancers were started again.
    async fn restarts(&self) -> BTreeMap<String, i32> {
        restarts(&pods_of(&self.site, TENANT, "loadbalancer").await)
    }

    /// The pods of load balancers are those of before, and none of their containers was started again.
    async fn restarted_no_load_balancer(&self, before: &BTreeMap<String, i32>, what: &str) {
        let after = self.restarts().await;
        for (pod, restarts) in before {
            assert_eq!(after.get(pod), Some(restarts), "{what}: {pod} is not as before");
        }
    }

    /// Waits until all Deployments are complete, all clusters Ready, and requests answered. Returns what clients observed since the last time.
    async fn recovered(&self) -> Report {
        for namespace in [AGENTS_NAMESPACE, TENANT] {
            let waited = deployments_are_complete(&self.site, namespace).await;
            self.in_time(waited).await;
        }
        let ready =
            |all: &[&DynamicObject]| !all.is_empty() && all.iter().all(|one| wait::is_true(one, "Ready"));
        let (what, config) = ("all SIPClusters to be Ready", watcher::Config::default());
        let waited = wait::until_all(self.clusters(), config, what, RECOVERY, ready).await;
        self.in_time(waited).await;
        self.traffic.is_steady().await;
        self.traffic.report()
    }

    /// Kills containers, and creates a cluster at once.
    async fn kill(&mut self, victim: Victim) {
        let what = format!("killed {victim}");
        let (hosts, balancers) = (self.held().await, self.restarts().await);
        let containers = victim.containers(&self.site).await;
        let killed = Instant::now();
        for container in &containers {
            container.kill(&self.site).await;
        }
        let later = self.create().await;
        let are_back = async {
            let waited = try_join_all(containers.iter().map(|one| one.is_back(&self.site))).await;
            self.in_time(waited).await;
            killed.elapsed()
        };
        let (Placed { labelled, ready }, back) = tokio::join!(self.placed(&later, killed), are_back);
        let report = self.recovered().await;

        println!(
            "{what}: traffic stopped for {} ms, placement for {:.1} s ({} of {} requests failed, \
             its pods were ready after {:.1} s, the new cluster after {:.1} s)",
            report.stopped.as_millis(),
            labelled.as_secs_f64(),
            report.failures.len(),
            report.sent(),
            back.as_secs_f64(),
            ready.as_secs_f64(),
        );
        victim.judge(&report);
        self.wrote_no_host(&hosts, &what).await;
        if !matches!(victim, Victim::LoadBalancer(_)) {
            self.restarted_no_load_balancer(&balancers, &what).await;
        }
    }

    async fn kubectl(&self, arguments: &[&str]) {
        self.site.kubectl_ok(arguments).await.unwrap();
    }

    async fn scale_scheduler(&self, replicas: u8) {
        let replicas = format!("--replicas={replicas}");
        let scale = [
            "-n",
            AGENTS_NAMESPACE,
            "scale",
            "statefulset/sip-scheduler",
            &replicas,
        ];
        self.kubectl(&scale).await;
    }

    /// There is no scheduler for a time, in which a cluster is created.
    async fn scheduler_away(&mut self) {
        let away = Duration::from_secs(requested("SOAK_SCHEDULER_AWAY").unwrap_or(AWAY));
        let what = format!("the scheduler was away for {} s", away.as_secs());
        let (hosts, balancers) = (self.held().await, self.restarts().await);
        self.scale_scheduler(0).await;
        let wait = ["wait", "pod/sip-scheduler-0", "--for=delete", "--timeout=3m"];
        self.kubectl(&[&["-n", AGENTS_NAMESPACE][..], &wait[..]].concat())
            .await;
        let later = self.create().await;
        // For so long it is away.
        tokio::time::sleep(away).await;
        let waits = self.clusters().get(&later.name).await.unwrap();
        assert!(members(&waits).is_empty(), "{waits:?}");
        self.wrote_no_host(&hosts, &what).await;
        let during = self.traffic.report();

        self.scale_scheduler(1).await;
        let Placed { labelled, ready } = self.placed(&later, Instant::now()).await;
        let after = self.recovered().await;
        println!(
            "{what}: traffic stopped for {} ms, placement until {:.1} s after its return \
             ({} of {} requests failed, the new cluster was Ready after {:.1} s)",
            during.stopped.max(after.stopped).as_millis(),
            labelled.as_secs_f64(),
            during.failures.len() + after.failures.len(),
            during.sent() + after.sent(),
            ready.as_secs_f64(),
        );
        for Report { failures, .. } in [&during, &after] {
            assert!(failures.is_empty(), "{what}: {failures:#?}");
        }
        self.wrote_no_host(&hosts, &what).await;
        self.restarted_no_load_balancer(&balancers, &what).await;
    }

    /// Evicts all pods of the node, as `kubectl drain` would. There is no other node, so those that were evicted wait until it takes pods
    /// again; then the others are evicted too.
    async fn drain(&self) {
        let hosts = self.held().await;
        let node = self.site.node().unwrap().name();
        let mut workloads = Vec::new();
        for namespace in [AGENTS_NAMESPACE, TENANT] {
            let waited = budgets_allow_evictions(&self.site, namespace).await;
            self.in_time(waited).await;
            workloads.push((namespace, by_workload(&self.site, namespace).await));
        }
        let drained = Instant::now();
        self.kubectl(&["cordon", node]).await;
        let mut refused = Vec::new();
        for (namespace, workloads) in &workloads {
            for (workload, pods) in workloads {
                let mut evicted = 0;
                for pod in pods {
                    let pod = pod.name_any();
                    if evict(&self.site, namespace, &pod).await {
                        evicted += 1;
                    } else {
                        refused.push((*namespace, pod));
                    }
                }
                assert_eq!(evicted, 1, "{workload}: of {} pods", pods.len());
            }
        }
        let cordoned = self.traffic.report();
        let balancer = |(_, pod): &(&str, String)| pod.starts_with("loadbalancer-worker-orders-");
        assert!(refused.iter().any(balancer), "{refused:?}");

        self.kubectl(&["uncordon", node]).await;
        self.pods_are_replaced(&workloads).await;
        for (namespace, pod) in &refused {
            assert!(evict(&self.site, namespace, pod).await, "{pod} stays");
        }
        self.pods_are_replaced(&workloads).await;
        let report = self.recovered().await;
        println!(
            "drained the node: traffic stopped for {} ms ({} of {} requests failed, \
             all pods were replaced after {:.1} s)",
            cordoned.stopped.max(report.stopped).as_millis(),
            cordoned.failures.len() + report.failures.len(),
            cordoned.sent() + report.sent(),
            drained.elapsed().as_secs_f64(),
        );
        for Report { failures, .. } in [&cordoned, &report] {
            assert!(failures.is_empty(), "drained the node: {failures:#?}");
        }
        self.wrote_no_host(&hosts, "drained the node").await;
    }

    /// Waits until as many pods are ready as before, and budgets allow the next eviction.
    async fn pods_are_replaced(&self, workloads: &[(&str, BTreeMap<String, Vec<Pod>>)]) {
        for (namespace, workloads) in workloads {
            let wanted = workloads.iter().map(|(name, pods)| (name.clone(), pods.len()));
            let waited = pods_are_ready(&self.site, namespace, &wanted.collect()).await;
            self.in_time(waited).await;
            let waited = budgets_allow_evictions(&self.site, namespace).await;
            self.in_time(waited).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_pods_come_back_and_nothing_is_relabelled() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let mut scene = Box::pin(Scene::start()).await;
    // Until each pod of the load balancer has checked the member, which answers only since the traffic began, requests fail.
    scene.recovered().await;

    for victim in VICTIMS {
        Box::pin(scene.kill(victim)).await;
    }
    Box::pin(scene.scheduler_away()).await;
    Box::pin(scene.drain()).await;

    nothing_was_refused(&scene.site);
}
