//! The pods of a jump host: a container that copies our programs, one that keeps the files current, and sshd in the user's image.

use api::Image;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    Container, EnvVar, Lifecycle, LifecycleHandler, PodSecurityContext, PodSpec, Probe, SleepAction,
    VolumeMount,
};

use super::interface::{
    CLUSTER_VARIABLE, DIRECTORY, HOME, LISTEN_PORT, POWER_ADDRESS_VARIABLE, PROGRAM, REPORT_PORT,
    REPORT_PORT_NAME, SESSIONS_PORT, SESSIONS_PORT_NAME, SSH_PORT_NAME, TOOLS, USER_ID,
};
use super::plan::Plan;
use super::volumes::{self, files_mount, programs_mount};
use crate::running::STARTED_PATH;
use crate::{api_access, pod};

/// SIP's name of the container; with another, its container would stay beside ours.
const SSHD_CONTAINER: &str = "jumphost";
/// Name of the container that copies our programs to where the user's image finds them.
const INSTALL_CONTAINER: &str = "tools";
/// Name of the container that keeps the files current.
const FOLLOW_CONTAINER: &str = "follow-keys";
/// How long sessions may go on after their pod is deleted.
const DRAIN_SECONDS: i64 = 60;
/// How long sshd takes new connections after its pod is deleted: nodes learn that it ends a moment later than the API server.
const LISTEN_SECONDS: i64 = 5;
const GRACE_SECONDS: i64 = LISTEN_SECONDS + DRAIN_SECONDS + 10;

pub(super) fn deployment(plan: &Plan<'_>) -> Deployment {
    // sshd reads its host keys only when it starts, so pods are replaced when these change. It reads everything else again.
    pod::deployment(&plan.instance(), Some(plan.host_keys.digest()), pod_spec(plan))
}

fn pod_spec(plan: &Plan<'_>) -> PodSpec {
    let instance = plan.instance();
    let (volumes, mounts) = volumes::all(plan);
    PodSpec {
        service_account_name: Some(instance.name().to_owned()),
        init_containers: Some(vec![install_container(plan), follow_container(plan)]),
        containers: vec![sshd_container(plan, mounts)],
        security_context: Some(PodSecurityContext {
            // Volumes are root's and this group's.
            fs_group: Some(USER_ID),
            ..pod::security(USER_ID)
        }),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        volumes: Some(volumes),
        ..pod::spec(&instance, USER_ID)
    }
}

fn project_container(
    name: &str,
    image: &Image,
    arguments: Vec<String>,
    mounts: Vec<VolumeMount>,
) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_string()),
        command: Some(vec![format!("/usr/local/bin/{PROGRAM}")]),
        args: Some(arguments),
        resources: Some(pod::resources(
            None,
            &[("cpu", "10m"), ("memory", "32Mi")],
            &[("memory", "128Mi")],
        )),
        security_context: Some(pod::container_security()),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

fn install_container(plan: &Plan<'_>) -> Container {
    let to = format!("--to={TOOLS}");
    project_container(
        INSTALL_CONTAINER,
        plan.tools,
        vec!["install".to_owned(), to],
        vec![programs_mount(false)],
    )
}

/// Starts before sshd, ends after it.
fn follow_container(plan: &Plan<'_>) -> Container {
    let instance = plan.instance();
    let mut arguments = vec![
        "follow".to_owned(),
        format!("--namespace={}", plan.cluster.namespace()),
        format!("--config-map={}", instance.name()),
        format!("--directory={DIRECTORY}"),
        format!("--health-listen=[::]:{REPORT_PORT}"),
    ];
    let node_keys = plan.jump_host.node_ssh_private_keys();
    arguments.extend(node_keys.map(|name| format!("--node-keys={name}")));
    Container {
        restart_policy: Some("Always".to_owned()),
        ports: Some(vec![pod::container_port(REPORT_PORT_NAME, REPORT_PORT)]),
        startup_probe: Some(Probe {
            failure_threshold: Some(120),
            ..pod::http_probe(STARTED_PATH, REPORT_PORT_NAME, 1)
        }),
        liveness_probe: Some(pod::http_probe("/healthz", REPORT_PORT_NAME, 10)),
        ..project_container(
            FOLLOW_CONTAINER,
            plan.tools,
            arguments,
            vec![files_mount(false), api_access::mount()],
        )
    }
}

/// The user's image, with our command: it needs sshd, the account and a shell, and nothing else.
fn sshd_container(plan: &Plan<'_>, mounts: Vec<VolumeMount>) -> Container {
    let cluster = plan.cluster.reference();
    let variable = |name: &str, value: String| EnvVar {
        name: name.to_owned(),
        value: Some(value),
        value_from: None,
    };
    let arguments = [
        "run-sshd".to_owned(),
        format!("--directory={DIRECTORY}"),
        format!("--home={HOME}"),
        format!("--health-listen=[::]:{SESSIONS_PORT}"),
        format!("--drain-seconds={DRAIN_SECONDS}"),
        "--log-format=json".to_owned(),
    ];
    Container {
        name: SSHD_CONTAINER.to_owned(),
        image: Some(plan.jump_host.service().image().to_string()),
        command: Some(vec![format!("{TOOLS}/{PROGRAM}")]),
        args: Some(arguments.into()),
        env: Some(vec![
            variable(
                CLUSTER_VARIABLE,
                format!("{}/{}", cluster.namespace(), cluster.name()),
            ),
            variable(POWER_ADDRESS_VARIABLE, plan.power.address.to_string()),
        ]),
        ports: Some(vec![
            pod::container_port(SSH_PORT_NAME, LISTEN_PORT),
            pod::container_port(SESSIONS_PORT_NAME, SESSIONS_PORT),
        ]),
        readiness_probe: Some(pod::tcp_probe(SSH_PORT_NAME, 5)),
        liveness_probe: Some(pod::tcp_probe(SSH_PORT_NAME, 10)),
        lifecycle: Some(Lifecycle {
            // No command, since the image may have none for this.
            pre_stop: Some(LifecycleHandler {
                sleep: Some(SleepAction {
                    seconds: LISTEN_SECONDS,
                }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        // Why it does not start is read from the pod's status.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        resources: Some(pod::resources(
            plan.jump_host.service().resources(),
            &[("cpu", "20m"), ("memory", "64Mi")],
            &[("memory", "1Gi")],
        )),
        security_context: Some(pod::container_security()),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}
