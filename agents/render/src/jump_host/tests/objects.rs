//! The objects of a jump host.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::{Value, json};

use super::fixtures::Scene;
use crate::jump_host::{Plan, files};

fn pod() -> PodSpec {
    let template = Scene::new().objects().deployment.spec.template;
    template.spec.unwrap()
}

fn mounts(container: &Container) -> Vec<&str> {
    let mounts = container.volume_mounts.iter().flatten();
    mounts.map(|mount| mount.mount_path.as_str()).collect()
}

#[test]
fn rendered_objects() {
    let objects = Scene::new().objects();
    let mut config = objects.config.clone();
    // The rest is in tests of its own.
    config.data = config.data.map(|data| {
        data.into_iter()
            .filter(|(name, _)| name != files::SSHD_CONFIG)
            .collect()
    });
    let mut deployment = serde_json::to_value(&objects.deployment).unwrap();
    // Host keys are new in each run.
    deployment["spec"]["template"]["metadata"]["annotations"] = Value::Null;
    insta::assert_yaml_snapshot!(json!({
        "config": config, "deployment": deployment, "service": objects.service, "budget": objects.budget,
        "policy": objects.policy, "account": objects.access.account, "role": objects.access.role,
        "binding": objects.access.binding,
    }));
}

#[test]
fn every_rule_of_egress_names_ports_and_destinations() {
    let policy = Scene::new().objects().policy.spec.unwrap();
    for rule in policy.egress.unwrap() {
        assert!(
            rule.ports.as_ref().is_some_and(|ports| !ports.is_empty()),
            "{rule:?}"
        );
        let to = rule.to.as_deref().unwrap_or_default();
        assert!(!to.is_empty(), "to everywhere: {rule:?}");
        for peer in to {
            let labels = peer
                .pod_selector
                .as_ref()
                .and_then(|pods| pods.match_labels.as_ref());
            let selected = labels.is_some_and(|labels| !labels.is_empty());
            assert!(peer.ip_block.is_some() || selected, "{peer:?}");
        }
    }
}

#[test]
fn without_load_balancers_no_pods_of_the_namespace_are_reached() {
    let scene = Scene::new();
    let mut plan = scene.plan();
    let of_namespace = |plan: &Plan<'_>| {
        let egress = plan.objects().policy.spec.unwrap().egress.unwrap();
        let peers = egress.into_iter().flat_map(|rule| rule.to.unwrap());
        let own = peers.filter(|peer| peer.ip_block.is_none() && peer.namespace_selector.is_none());
        own.count()
    };
    assert_eq!(of_namespace(&plan), 1);
    plan.api_balancers.clear();
    assert_eq!(of_namespace(&plan), 0);
}

#[test]
fn only_the_sidecar_can_ask_the_api_server() {
    let pod = pod();
    assert_eq!(pod.automount_service_account_token, Some(false));
    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    let init = pod.init_containers.as_deref().unwrap();
    let with_token = pod
        .containers
        .iter()
        .chain(init)
        .filter(|container| mounts(container).contains(&token));
    assert_eq!(
        with_token
            .map(|container| container.name.as_str())
            .collect::<Vec<_>>(),
        ["follow-keys"]
    );
    // Its token for PowerService is for nobody else.
    let sshd = mounts(&pod.containers[0]);
    assert!(sshd.contains(&"/var/run/secrets/sip/power"), "{sshd:?}");
    let volumes = pod.volumes.unwrap();
    let token = volumes
        .iter()
        .find(|volume| volume.name == "power-token")
        .unwrap();
    let source = token.projected.as_ref().unwrap().sources.as_ref().unwrap()[0].clone();
    assert_eq!(
        source.service_account_token.unwrap().audience.as_deref(),
        Some("sip-power")
    );
}

#[test]
fn without_a_host_key_nothing_of_the_secret_is_mounted() {
    let scene = Scene::without_host_keys();
    let objects = scene.objects();
    let pod = objects.deployment.spec.template.spec.unwrap();
    assert!(!mounts(&pod.containers[0]).contains(&"/run/sip/host-keys"));
    let volumes = pod.volumes.unwrap();
    assert!(
        volumes.iter().all(|volume| volume.name != "host-keys"),
        "{volumes:?}"
    );
    // Keys of the image are no substitute.
    let config = &objects.config.data.unwrap()[files::SSHD_CONFIG];
    assert!(
        config.contains("HostKey /run/sip/host-keys/ssh_host_ed25519_key\n"),
        "{config}"
    );
}

#[test]
fn every_container_is_restricted() {
    let pod = pod();
    let init = pod.init_containers.as_deref().unwrap();
    for container in pod.containers.iter().chain(init) {
        let security = serde_json::to_value(&container.security_context).unwrap();
        assert_eq!(
            security,
            json!({
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
                "capabilities": {"drop": ["ALL"]},
            }),
            "{}",
            container.name
        );
    }
    assert_eq!(pod.security_context.unwrap().run_as_user, Some(1_000));
}

#[test]
fn members_and_keys_change_no_pod() {
    let scene = Scene::new();
    let before = scene.plan().objects();
    let mut changed = scene.plan();
    changed.keys.clear();
    changed.authorities.clear();
    changed.nodes.truncate(1);
    let after = changed.objects();
    assert_eq!(before.deployment, after.deployment);
    assert_ne!(before.digest, after.digest);
}

#[test]
fn other_host_keys_start_new_pods() {
    let (one, other) = (Scene::new().objects(), Scene::new().objects());
    assert_ne!(one.deployment, other.deployment);
}
