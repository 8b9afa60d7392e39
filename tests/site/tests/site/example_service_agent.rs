//! A second service agent on the framework of `agents/kit`: identity providers as pages, with a `ConfigMap`, a Deployment and a Service per
//! entry of `auth`. What it shows holds for every service agent.

use std::{num::NonZeroU16, time::Duration};

use api::{Auth, PortSet, conditions::AUTH_READY};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, ConfigMapVolumeSource, Container, PodSpec, Service as CoreService, Volume},
    },
    jiff::Timestamp,
};
use kit::{
    apply::Manager,
    config::{ServiceOverrides, SiteConfig},
    scheduler_client::Scheduler,
    service::{
        Applied, Children, Error, Identity, Kind, Objects, Probe, Rendered, Scope, Service, Watches,
        controller::{self, Settings},
    },
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use render::{
    exposure::{self, ExposedPort},
    guards,
    metadata::Instance,
    pod,
};
use runtime::{
    identity,
    tls::{self, ClientTls, ClientTlsArgs, TlsMetrics},
};
use sandbox::{
    authority::Caller,
    inventory::NETWORK,
    region::{AGENTS_NAMESPACE, Agent},
    wait,
};
use serde_json::{Value, json};
use tokio::{sync::oneshot, time};

use crate::fixtures::{Cluster, PATIENCE, Role, Stage, cluster};

const IDENTITY: &Identity = &Identity {
    manager: Manager("sip-second-agent"),
    condition: AUTH_READY,
    component: "auth",
    name_prefixes: &["auth-"],
    sip_prefixes: &[],
    children: &[
        Children::named(Kind::Deployment),
        Children::named(Kind::ConfigMap),
        Children::named(Kind::PodDisruptionBudget),
        Children::named(Kind::NetworkPolicy),
    ],
    pod_labels: &[],
    pod_ports: &[],
    reports_drained: false,
    warnings: &[],
};

struct Pages;

impl Service for Pages {
    const IDENTITY: &'static Identity = IDENTITY;
    type Entry = Auth;
    type Prepared = ();

    fn entries(cluster: &api::Cluster) -> Vec<Auth> {
        cluster.auth().to_vec()
    }

    fn service(entry: &Auth) -> &api::Service {
        entry.service()
    }

    fn node_ports(cluster: &api::Cluster) -> PortSet {
        let ports = cluster.auth().iter().filter_map(Auth::node_port);
        ports.map(NonZeroU16::get).collect()
    }

    fn protocol(_: i32) -> &'static str {
        "https"
    }

    async fn prepare(&self, _: Scope<'_>, _: &Auth) -> Result<(), Error> {
        Ok(())
    }

    fn render(&self, scope: Scope<'_>, entry: &Auth, (): ()) -> Rendered {
        let instance = Instance::new(scope.cluster, entry.service(), "auth", "pages");
        let page = format!("sign in to {}", scope.cluster.name());
        let volume = Volume {
            name: "page".to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: instance.name().to_owned(),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        };
        let container = Container {
            name: "pages".to_owned(),
            image: Some(entry.service().image().to_string()),
            ports: Some(vec![pod::container_port("https", 8443)]),
            readiness_probe: Some(pod::tcp_probe("https", 5)),
            security_context: Some(pod::container_security()),
            ..Container::default()
        };
        let spec = PodSpec {
            containers: vec![container],
            volumes: Some(vec![volume]),
            ..pod::spec(&instance, pod::NOBODY_UID)
        };
        let port = ExposedPort {
            name: "https",
            number: 443,
            target: 8443,
            node_port: entry.node_port().map(NonZeroU16::get),
        };
        let deployment = pod::deployment(&instance, Some(page.clone()), spec);
        let service = exposure::service(&instance, [port].into_iter());
        let configuration = ConfigMap {
            metadata: instance.metadata(),
            data: Some([("page".to_owned(), page.clone())].into()),
            ..ConfigMap::default()
        };
        let policy = guards::policy(&instance, Some(8443..=8443), std::iter::empty());
        Rendered::complete(
            Objects::new(service, deployment, page)
                .configuration(configuration)
                .guard(policy)
                .guard_or_none(Kind::PodDisruptionBudget, guards::budget(&instance)),
        )
    }

    async fn probe(&self, _: Scope<'_>, _: &Auth, _: &Objects<Applied>, _: bool) -> Probe {
        Probe {
            confirmed: true,
            ..Probe::default()
        }
    }
}

/// A site without a load-balancer agent, in which this process runs the second agent.
async fn start() -> Stage {
    let mut stage = Stage::start("second", &[]).await;
    stage
        .start_agent_where(Agent::Cluster, |config| {
            config.not_installed = vec!["jumpHost".to_owned(), "loadBalancer".to_owned()];
        })
        .await;
    stage.agents_are_ready().await;
    let config = stage.site.directory().join("sip-cluster-agent.yaml");
    let config = SiteConfig::read(&config).unwrap();
    let caller = Caller::Agent {
        site: stage.site.name(),
        name: "second",
    };
    let certificate = stage.region.authority().issue(&caller).unwrap();
    let args = ClientTlsArgs {
        tls_cert: Some(certificate.certificate),
        tls_key: Some(certificate.key),
        tls_ca: Some(certificate.authority),
        plaintext_loopback: false,
        tls_reload_seconds: Duration::from_mins(1),
    };
    let metrics = TlsMetrics::default();
    let loaded = ClientTls::load(&args, config.realm(), identity::Caller::Scheduler, &metrics);
    let (tls, _) = loaded.unwrap().unwrap();
    let scheduler = Scheduler::new(
        config.site(),
        tls::channel(config.scheduler(), Some(tls)).unwrap(),
    );
    let metrics = kit::metrics::AgentMetrics::registered(&runtime::metrics::Metrics::default());
    let watches = Watches::new(
        stage.site.client(),
        AGENTS_NAMESPACE.to_owned(),
        IDENTITY,
        &metrics,
    );
    let (ready, is_ready) = oneshot::channel();
    let ready = || ready.send(()).unwrap();
    tokio::spawn(controller::run(
        Pages,
        watches,
        scheduler,
        Settings {
            overrides: ServiceOverrides::default(),
            ownerless: Duration::from_mins(10),
        },
        metrics,
        ready,
        std::future::pending(),
    ));
    is_ready.await.unwrap();
    stage
}

/// A cluster without hosts, with pages on this node port.
fn with_pages(name: &str, port: u16) -> Cluster {
    let entry = json!({"image": "pages:1", "nodeInterfaceId": NETWORK, "nodePort": port, "replicas": 2});
    cluster("pages", name)
        .role(Role::Worker, 0)
        .with("/services/auth", json!([entry]))
}

fn of_status(object: &kube::api::DynamicObject, list: &str) -> Value {
    let found = object.data.pointer(&format!("/status/{list}")).cloned();
    found.unwrap_or_else(|| json!([]))
}

#[tokio::test]
async fn a_second_agent_serves_its_section() {
    let stage = start().await;
    stage.site.create_tenant_namespace("pages").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), "pages");
    let deployments: Api<Deployment> = Api::namespaced(stage.site.client(), "pages");
    let services: Api<CoreService> = Api::namespaced(stage.site.client(), "pages");

    // Condition, endpoint and ownership.
    let shop = with_pages("shop", 31_400);
    stage.create(&shop).await;
    let object = stage.ready(&shop).await;
    let applied = of_status(&object, "applied");
    assert_eq!(applied[0]["service"], "auth-shop");
    assert_eq!(
        of_status(&object, "endpoints"),
        json!([{"name": "auth-shop", "port": 31_400, "protocol": "https"}])
    );
    let map = maps.get("auth-shop").await.unwrap();
    assert_eq!(map.owner_references()[0].name, "shop");
    let managers = map.managed_fields().iter();
    let managers: Vec<_> = managers.filter_map(|entry| entry.manager.as_deref()).collect();
    assert_eq!(managers, ["sip-second-agent"]);
    stage.deleted_comes_back(&maps, "auth-shop").await;
    stage.deleted_comes_back(&deployments, "auth-shop").await;

    // An object of somebody else stays as it is, and is tried again with growing pauses until it is gone.
    let foreign = json!({
        "metadata": {"name": "auth-bank", "namespace": "pages"}, "spec": {"ports": [{"port": 1}]},
    });
    let foreign: CoreService = serde_json::from_value(foreign).unwrap();
    let foreign = services.create(&PostParams::default(), &foreign).await.unwrap();
    let bank = with_pages("bank", 31_401);
    stage.create(&bank).await;
    let why = stage
        .condition_is(&bank, AUTH_READY.as_str(), "False", "NameConflict")
        .await;
    assert_eq!(why, "Service pages/auth-bank was not made for a SIPCluster");
    pauses_grow(&stage).await;
    let untouched = services.get("auth-bank").await.unwrap();
    assert_eq!(untouched.resource_version(), foreign.resource_version());
    assert!(maps.get_opt("auth-bank").await.unwrap().is_none());
    services
        .delete("auth-bank", &DeleteParams::default())
        .await
        .unwrap();
    stage.ready(&bank).await;

    // What is no longer asked for is pruned, and its owner's entries go from the status.
    stage.edit(&shop, json!({"services": {"auth": null}})).await;
    gone(&maps, &deployments, &services, "auth-shop").await;
    stage
        .until(&shop, "have no pages", |object| {
            of_status(object, "applied") == json!([])
                && of_status(object, "endpoints") == json!([])
                && wait::condition(object, AUTH_READY.as_str()).is_none()
        })
        .await;
    stage.delete(&bank).await;
    stage.gone(&bank).await;
    gone(&maps, &deployments, &services, "auth-bank").await;
}

async fn gone(maps: &Api<ConfigMap>, deployments: &Api<Deployment>, services: &Api<CoreService>, name: &str) {
    wait::until_gone(maps.clone(), name, PATIENCE).await.unwrap();
    wait::until_gone(deployments.clone(), name, PATIENCE)
        .await
        .unwrap();
    wait::until_gone(services.clone(), name, PATIENCE).await.unwrap();
}

/// Waits until the last two pauses between tries to get the foreign Service are longer than a second, and much longer than the shortest.
async fn pauses_grow(stage: &Stage) {
    let mut pace = time::interval(Duration::from_millis(200));
    let grown = async {
        loop {
            pace.tick().await;
            // The log is that of a shared site, and long: it is not parsed as a whole at every turn.
            let about = |line: &str| line.contains("auth-bank");
            let entries = stage.site.audit_log_where(about).unwrap().into_iter();
            let tries = entries.filter(|entry| {
                let object = entry.object_ref.as_ref();
                entry.verb == "get" && object.is_some_and(|object| object.name == "auth-bank")
            });
            let at = |text: String| text.parse::<Timestamp>().unwrap();
            let mut tries: Vec<_> = tries.map(|entry| at(entry.request_received_timestamp)).collect();
            tries.sort();
            let pauses = tries.windows(2).map(|pair| pair[1].duration_since(pair[0]));
            let pauses: Vec<Duration> = pauses.map(|pause| pause.try_into().unwrap()).collect();
            let shortest = pauses.iter().min().copied().unwrap_or_default();
            let long = Duration::from_secs(1).max(4 * shortest);
            if pauses.len() > 2 && pauses.iter().rev().take(2).all(|pause| *pause > long) {
                return;
            }
        }
    };
    time::timeout(PATIENCE, grown).await.unwrap();
}
