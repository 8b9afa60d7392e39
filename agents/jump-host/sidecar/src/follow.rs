//! Keeps the files as the `ConfigMap` and the Secret have them, seconds after they change. The kubelet would take more than a minute to
//! change files that it mounts.

use std::{collections::BTreeMap, convert::Infallible, path::PathBuf, time::Duration};

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kit::followed;
use kube::{Api, Client};
use render::{
    jump_host::{files::digest, node_keys::NodeKeys},
    running::{CONFIG_PATH, Running, STARTED_PATH},
};
use runtime::{
    Process, ProcessArgs,
    error_chain::chain,
    health::HealthArgs,
    readiness::Gate,
    sidecar::{self, Paths, Report},
    telemetry::TelemetryArgs,
};
use tokio::{sync::watch, time::sleep};

use crate::files::{Error, Files};

/// Work in progress may be dropped at any point: the next process writes all files again.
const DRAIN_SECONDS: u16 = 1;
/// Pause after which a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Where the kubelet and the agent read the report.
const REPORT_PATHS: Paths = Paths {
    started: STARTED_PATH,
    running: CONFIG_PATH,
    starts_with: None,
};

/// The objects to follow, and the directory of the files.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    telemetry: TelemetryArgs,
    #[command(flatten)]
    health: HealthArgs,
    /// Namespace of the `ConfigMap` and the Secret
    #[arg(long, value_name = "NAME")]
    namespace: String,
    /// Name of the `ConfigMap` that holds the files for --directory
    #[arg(long, value_name = "NAME")]
    config_map: String,
    /// Name of the Secret with private keys for the nodes
    #[arg(long, value_name = "NAME")]
    node_keys: Option<String>,
    /// Directory of the files
    #[arg(long, value_name = "PATH")]
    directory: PathBuf,
}

/// The newest values of the followed objects.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Files of the `ConfigMap`; `None` until it was read. While it is deleted its last files stay, so that this locks no user out.
    pub files: Option<BTreeMap<String, String>>,
    /// Values of the Secret; `None` until it is known whether it exists.
    pub node_keys: Option<BTreeMap<String, ByteString>>,
}

/// Runs until it receives a signal or a part fails.
///
/// # Errors
/// Why the process could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args {
        telemetry,
        health,
        namespace,
        config_map,
        node_keys,
        directory,
    } = args;
    let (report, reported) = watch::channel(Report::default());
    let process = ProcessArgs {
        telemetry,
        health,
        drain_seconds: DRAIN_SECONDS,
    };
    let (name, version) = ("sip-jump-host-sidecar", env!("CARGO_PKG_VERSION"));
    let mut process =
        Process::start_answering(name, version, &process, sidecar::routes(REPORT_PATHS, reported)).await?;
    let gate = process.readiness.gate("files");
    let client = kit::start::kubernetes().await?;
    let (source, newest) = watch::channel(Source::default());
    if let Some(secret) = node_keys {
        let (client, namespace, source) = (client.clone(), namespace.clone(), source.clone());
        process.tasks.spawn_endless("secret", async move {
            follow_node_keys(client, &namespace, &secret, source).await
        });
    } else {
        source.send_modify(|source| source.node_keys = Some(BTreeMap::new()));
    }
    process.tasks.spawn_endless("config-map", async move {
        follow_files(client, &namespace, &config_map, source).await
    });
    let files = Files::within(&directory);
    process.tasks.spawn_endless(
        "files",
        async move { write(newest, &files, &report, &gate).await },
    );
    process.run().await?;
    Ok(())
}

async fn follow_files(
    client: Client,
    namespace: &str,
    name: &str,
    source: watch::Sender<Source>,
) -> Result<(), Infallible> {
    followed::follow(
        Api::namespaced(client, namespace),
        name,
        |map: Option<ConfigMap>| {
            let Some(map) = map else {
                tracing::warn!(
                    namespace,
                    name,
                    "the ConfigMap does not exist; keeping its last files"
                );
                return;
            };
            source.send_modify(|source| source.files = Some(map.data.unwrap_or_default()));
        },
    )
    .await
}

/// A Secret that does not exist counts as empty: deleting it removes the keys.
async fn follow_node_keys(
    client: Client,
    namespace: &str,
    name: &str,
    source: watch::Sender<Source>,
) -> Result<(), Infallible> {
    followed::follow(
        Api::namespaced(client, namespace),
        name,
        |secret: Option<Secret>| {
            let data = secret.and_then(|secret| secret.data).unwrap_or_default();
            source.send_modify(|source| source.node_keys = Some(data));
        },
    )
    .await
}

/// Writes the newest values without end.
///
/// # Errors
/// None: it tries again.
pub async fn write(
    mut source: watch::Receiver<Source>,
    files: &Files,
    report: &watch::Sender<Report<Running>>,
    gate: &Gate,
) -> Result<(), Infallible> {
    loop {
        let newest = source.borrow_and_update().clone();
        let failed = write_once(&newest, files, report).await;
        if report.borrow().started {
            gate.ready();
        }
        if let Some(error) = failed {
            tracing::warn!(error, "files cannot be written; retrying");
            sleep(RETRY_DELAY).await;
            continue;
        }
        if source.changed().await.is_err() {
            // The process ends.
            std::future::pending::<()>().await;
        }
    }
}

/// Writes the values that are known, and reports the result. Returns why something cannot be written. Logins do not depend on the keys for the
/// nodes, which the tenant provides.
async fn write_once(
    newest: &Source,
    files: &Files,
    report: &watch::Sender<Report<Running>>,
) -> Option<String> {
    let Source {
        files: data,
        node_keys,
    } = newest;
    let configuration = match data {
        Some(data) => files.write_configuration(data).await.map(|()| Some(digest(data))),
        None => Ok(None),
    };
    let keys = match node_keys {
        Some(data) => write_node_keys(data, files).await.map(|()| true),
        None => Ok(false),
    };
    let errors: Vec<String> = [configuration.as_ref().err(), keys.as_ref().err()]
        .into_iter()
        .flatten()
        .map(|error| chain(error))
        .collect();
    let failed = (!errors.is_empty()).then(|| errors.join("; "));
    report.send_if_modified(|report| {
        let before = report.clone();
        report.started |= matches!((&configuration, &keys), (Ok(Some(_)), Ok(true)));
        if let Ok(Some(digest)) = configuration {
            report.running.running = Some(digest);
        }
        report.running.failed.clone_from(&failed);
        if report.running.running != before.running.running {
            tracing::info!(digest = report.running.running, "wrote the files");
        }
        *report != before
    });
    failed
}

async fn write_node_keys(data: &BTreeMap<String, ByteString>, files: &Files) -> Result<(), Error> {
    let keys = NodeKeys::read(data);
    files.write_node_keys(&keys).await?;
    if !keys.unusable.is_empty() {
        tracing::warn!(
            names = keys.unusable.join(", "),
            "values of the Secret are no private keys"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use render::jump_host::files::{AUTHORIZED_KEYS, SSHD_CONFIG};

    use super::*;

    fn newest(keys: &str) -> Source {
        Source {
            files: Some([(AUTHORIZED_KEYS.to_owned(), keys.to_owned())].into()),
            node_keys: Some(BTreeMap::new()),
        }
    }

    #[tokio::test]
    async fn ssh_keys_are_revoked_while_node_keys_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::within(directory.path());
        let (report, reported) = watch::channel(Report::default());
        // A file where the directory should be.
        std::fs::write(directory.path().join("ssh-private-keys"), "").unwrap();
        for keys in ["ana\nben\n", "ana\n"] {
            let newest = newest(keys);
            let failed = write_once(&newest, &files, &report).await.unwrap();
            assert!(failed.contains("ssh-private-keys"), "{failed}");
            let written = std::fs::read_to_string(directory.path().join(AUTHORIZED_KEYS)).unwrap();
            assert_eq!(written, keys);
            let expected = Report {
                started: false,
                running: Running {
                    running: newest.files.as_ref().map(digest),
                    failed: Some(failed),
                },
                starts_with: None,
            };
            assert_eq!(*reported.borrow(), expected);
        }
        std::fs::remove_file(directory.path().join("ssh-private-keys")).unwrap();
        assert_eq!(write_once(&newest("ana\n"), &files, &report).await, None);
        assert!(reported.borrow().started);
        assert_eq!(reported.borrow().running.failed, None);
    }

    #[tokio::test]
    async fn both_errors_are_reported() {
        let absent = tempfile::tempdir().unwrap().path().join("absent");
        let (report, _reported) = watch::channel(Report::default());
        let failed = write_once(&newest("ana\n"), &Files::within(&absent), &report).await;
        let failed = failed.unwrap();
        assert!(
            failed.contains("absent/principals") && failed.contains("absent/ssh-private-keys"),
            "{failed}"
        );
        assert!(!failed.contains(SSHD_CONFIG), "{failed}");
    }
}
