//! Templates of the site's people: good, bad and good again, with members that come and an agent that is restarted meanwhile.
//! KWOK lets every check succeed; where haproxy refuses one, the test plays its words (`real_node.rs` has them from haproxy).

use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::watcher::Config,
};
use sandbox::{
    inventory::NETWORK,
    region::{AGENTS_NAMESPACE, Agent, HOSTS_NAMESPACE, Region},
    repository,
    site::{Nodes, Site},
    wait,
};
use serde_json::{Value, json};

use super::{balanced, workers};
use crate::fixtures::{AGENTS, Cluster, PATIENCE, Role, Stage, cluster, fleet};

const SCENARIO: &str = "templated";
const BUILT_IN: &str = "# Written by the load balancer agent; changes are overwritten.";
const WORKER: (&str, &str) = ("loadbalancerworker", "loadBalancerWorker.cfg");
const CONTROL_PLANE: (&str, &str) = ("loadbalancercontrolplane", "loadBalancerControlPlane.cfg");
const NOT_READY: [&str; 2] = ["LoadBalancerReady", "False"];

/// One that works, and can be told from others.
fn good(mark: &str) -> String {
    format!(
        "# {mark}
defaults
  mode tcp
  timeout connect 1s
  timeout client 1s
  timeout server 1s
{{%- for port in ports %}}
backend {{{{ port.name }}}}-backend
{{%- for server in servers %}}
  server {{{{ server.name }}}} {{{{ server.address }}}}:{{{{ port.number }}}} check
{{%- endfor %}}
{{%- endfor %}}
"
    )
}

/// Writes a template as an operator would.
async fn write(stage: &Stage, (name, key): (&str, &str), text: &str) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: text},
    });
    let params = PatchParams::apply("an-operator").force();
    maps(stage)
        .patch(name, &params, &Patch::Apply(map))
        .await
        .unwrap();
}

fn maps(stage: &Stage) -> Api<ConfigMap> {
    Api::namespaced(stage.site.client(), AGENTS_NAMESPACE)
}

/// Waits until the configuration of a cluster's load balancer has a text.
async fn configured(stage: &Stage, kind: &str, cluster: &Cluster, text: &str) -> String {
    let config_maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), SCENARIO);
    let name = format!("loadbalancer-{kind}-{}", cluster.name);
    let config = |map: &ConfigMap| {
        let data = map.data.as_ref().and_then(|data| data.get("haproxy.cfg"));
        data.cloned().unwrap_or_default()
    };
    let what = format!("its configuration to have {text:?}");
    let found = wait::until(config_maps, &name, &what, PATIENCE, |map| {
        config(map).contains(text)
    });
    config(&found.await.unwrap())
}

fn servers(config: &str) -> usize {
    let lines = config.lines();
    lines
        .filter(|line| line.trim_start().starts_with("server "))
        .count()
}

async fn start(name: &str, hosts: u32) -> Stage {
    let region = std::sync::Arc::new(Region::start("north").await.unwrap());
    let site = Site::builder(name).nodes(Nodes::Kwok(2));
    let stage = Stage::start_with(region, site, &[HOSTS_NAMESPACE], &AGENTS).await;
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    stage.load(&fleet(SCENARIO, hosts, 0, 1)).await;
    stage
}

#[tokio::test]
async fn a_bad_template_keeps_the_last_good_one() {
    let mut stage = start("templates", 2).await;
    let shop = cluster(SCENARIO, "shop").role(Role::Worker, 1).with(
        "/services/loadBalancerWorker",
        json!([workers(31_160, 31_160, &json!({}))]),
    );
    stage.create(&shop).await;
    stage.ready(&shop).await;
    assert!(stage.haproxy_config(&shop, "worker").await.starts_with(BUILT_IN));

    let to_begin_with = repository::deploy().join("templates");
    stage.site.apply_kustomization(&to_begin_with).await.unwrap();
    configured(&stage, "worker", &shop, "# Workers: ").await;
    stage.ready(&shop).await;

    write(&stage, WORKER, &good("first")).await;
    let config = configured(&stage, "worker", &shop, "# first").await;
    assert_eq!(servers(&config), 1);
    stage.ready(&shop).await;
    let deployments: Api<Deployment> = Api::namespaced(stage.site.client(), SCENARIO);
    let by = deployments.get("loadbalancer-worker-shop").await.unwrap();
    let digest = by.annotations()["sip.airshipit.org/template"].clone();
    assert_eq!(
        by.annotations()["sip.airshipit.org/template-image"],
        "haproxy:2.8"
    );
    let jobs: Api<Job> = Api::namespaced(stage.site.client(), SCENARIO);
    wait::until_all(jobs, Config::default(), "no check to be left", PATIENCE, |jobs| {
        jobs.is_empty()
    })
    .await
    .unwrap();

    let bad = "global\n{{- range .Servers }}\n";
    write(&stage, WORKER, bad).await;
    let [kind, status] = NOT_READY;
    let words = "ConfigMap sip-system/loadbalancerworker, key loadBalancerWorker.cfg: line 2: {{ range .Servers }} is Go's";
    let why = stage
        .condition_mentions(&shop, kind, status, "BadTemplate", words)
        .await;
    assert!(why.ends_with("in its place: the last good template"), "{why}");
    stage.event(&shop, "BadTemplate", words).await;
    stage
        .condition_is(&shop, "Ready", "False", "InfraServiceFailure")
        .await;

    stage.agent(Agent::LoadBalancer).restart().await.unwrap();
    stage.agents_are_ready().await;
    // Its member comes in by the last good template, though nobody remembers that.
    stage
        .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
        .await;
    stage
        .until_hosts(SCENARIO, "be labelled", |hosts| {
            hosts
                .iter()
                .filter(|host| host.labels().contains_key("sip.airshipit.org/cluster-name"))
                .count()
                == 2
        })
        .await;
    let config = stage.haproxy_config(&shop, "worker").await;
    assert!(config.contains("# first") && servers(&config) == 2, "{config}");
    stage
        .condition_mentions(&shop, kind, status, "BadTemplate", words)
        .await;

    write(&stage, WORKER, &good("third")).await;
    let config = configured(&stage, "worker", &shop, "# third").await;
    assert_eq!(servers(&config), 2);
    stage.ready(&shop).await;

    write(&stage, WORKER, &good("fourth")).await;
    configured(&stage, "worker", &shop, "# fourth").await;
    let kept = maps(&stage).get("sip-load-balancer-templates").await.unwrap();
    let kept = kept.data.unwrap();
    assert!(
        kept.values().any(|text| *text == good("fourth")) && !kept.contains_key(&digest),
        "what is used is kept, and what nobody uses is not: {kept:?}"
    );

    maps(&stage)
        .delete(WORKER.0, &DeleteParams::default())
        .await
        .unwrap();
    configured(&stage, "worker", &shop, BUILT_IN).await;
    stage.ready(&shop).await;
    let by = deployments.get("loadbalancer-worker-shop").await.unwrap();
    assert!(!by.annotations().contains_key("sip.airshipit.org/template"));
    stage.nothing_was_forbidden();
}

/// Waits for the pod of a check, and ends it as a kubelet would.
async fn play(stage: &Stage, phase: &str, ended: &Value) -> String {
    let pods: Api<Pod> = Api::namespaced(stage.site.client(), SCENARIO);
    let checks = "app.kubernetes.io/name=haproxy-check";
    let open = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Pending") && pod.metadata.deletion_timestamp.is_none()
    };
    wait::until_all(
        pods.clone(),
        Config::default().labels(checks),
        "a check to begin",
        PATIENCE,
        |pods| pods.iter().any(|pod| open(pod)),
    )
    .await
    .unwrap();
    let found = pods.list(&ListParams::default().labels(checks)).await.unwrap();
    let pod = found.items.into_iter().find(open).unwrap();
    let containers = ["members", "none", "sample", "otherwise"].map(|name| {
        json!({
            "name": name, "image": "haproxy:2.8", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": ended},
        })
    });
    let status = json!({"status": {"phase": phase, "containerStatuses": containers}});
    let name = pod.name_any();
    let status = Patch::Merge(status);
    pods.patch_status(&name, &PatchParams::default(), &status)
        .await
        .unwrap();
    name
}

#[tokio::test]
async fn a_template_is_used_once_the_images_haproxy_has_accepted_it() {
    let mut stage = start("judged", 0).await;
    // On no node, so that nobody but the test says how its pods are.
    let nowhere = json!({"nodeLabels": {"example.org/nowhere": "x"}});
    let shop = balanced(SCENARIO, "shop", 31_161, &nowhere);
    stage.create(&shop).await;
    configured(&stage, "controlplane", &shop, BUILT_IN).await;
    let [kind, status] = NOT_READY;

    write(&stage, CONTROL_PLANE, &good("first")).await;
    stage
        .condition_mentions(
            &shop,
            kind,
            status,
            "Progressing",
            "the template is being checked; meanwhile: the built-in",
        )
        .await;
    let refused = json!({
        "exitCode": 1, "reason": "Error",
        "message": "[NOTICE] (1) : odd\n[ALERT] (1) : config : parsing [/usr/local/etc/haproxy/members.cfg:4] : so not\n",
    });
    play(&stage, "Failed", &refused).await;
    let words = "haproxy of haproxy:2.8 refuses the template: [ALERT] (1) : config : parsing [members.cfg:4] : so not; that line is: timeout connect 1s; in its place: the built-in";
    stage
        .condition_mentions(&shop, kind, status, "BadTemplate", words)
        .await;
    assert!(
        stage
            .haproxy_config(&shop, "controlplane")
            .await
            .starts_with(BUILT_IN)
    );

    // Killed where nothing is told of it, and the same template is looked at once more.
    stage.agent(Agent::LoadBalancer).restart().await.unwrap();
    play(&stage, "Failed", &json!({"exitCode": 137, "reason": "OOMKilled"})).await;
    let why = stage
        .condition_mentions(
            &shop,
            kind,
            status,
            "PodsFail",
            "the template check did not complete",
        )
        .await;
    assert!(why.contains("OOMKilled"), "{why}");

    write(&stage, CONTROL_PLANE, &good("second")).await;
    let fine = json!({"exitCode": 0, "reason": "Completed"});
    play(&stage, "Succeeded", &fine).await;
    let config = configured(&stage, "controlplane", &shop, "# second").await;
    assert!(config.contains("monitor-uri /healthz"), "{config}");
    stage
        .until(&shop, "wait for its pods alone", |object| {
            let said = wait::condition(object, kind);
            said.is_some_and(|(_, reason, message)| {
                reason == "Progressing" && message.contains("0 of 2 pods") && !message.contains("ConfigMap")
            })
        })
        .await;

    // Another image is asked anew, and the template stays while it is.
    stage
        .edit(
            &shop,
            json!({"services": {"loadBalancerControlPlane": [{
                "image": "haproxy:3.0", "nodeInterfaceId": NETWORK, "nodePort": 31_161,
                "nodeLabels": {"example.org/nowhere": "x"},
            }]}}),
        )
        .await;
    stage
        .condition_mentions(
            &shop,
            kind,
            status,
            "Progressing",
            "meanwhile: the last good template",
        )
        .await;
    play(&stage, "Failed", &refused).await;
    let words = "haproxy of haproxy:3.0 refuses the template";
    stage
        .condition_mentions(&shop, kind, status, "BadTemplate", words)
        .await;
    configured(&stage, "controlplane", &shop, BUILT_IN).await;
    stage.nothing_was_forbidden();
}
