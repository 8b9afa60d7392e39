//! The jump host of a cluster: how a person logs in, and which hosts the command `host` lists there.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount},
};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, PostParams},
};
use sandbox::{jump_host::PowerPort, programs, site::Site};
use serde_json::Value;
use tokio::process::Command;

/// For whom tokens for power control are.
const AUDIENCE: &str = "sip-power";

/// What is shown of a jump host.
pub(super) struct Login {
    /// How to log in; `None` where nobody runs it.
    pub(super) login: Option<String>,
    /// What `host list` prints.
    pub(super) hosts: String,
}

/// A new key of the person who watches.
pub(super) async fn key(directory: &Path) -> anyhow::Result<PathBuf> {
    let file = directory.join("ssh-key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "demonstration", "-f"])
        .arg(&file)
        .stdin(Stdio::null())
        .status()
        .await
        .context("run ssh-keygen")?;
    ensure!(made.success(), "ssh-keygen: {made}");
    Ok(file)
}

/// A sample whose jump host lets the holder of a key in, too.
pub(super) fn with_key(sample: &str, key: &Path) -> anyhow::Result<String> {
    let public = key.with_extension("pub");
    let public = fs::read_to_string(&public).with_context(|| format!("read {}", public.display()))?;
    let mut object: Value = serde_saphyr::from_str(sample).context("parse the sample")?;
    let keys = object.pointer_mut("/spec/services/jumpHost/0/sshAuthorizedKeys");
    if let Some(Value::Array(keys)) = keys {
        keys.push(public.trim().into());
    }
    Ok(object.to_string())
}

/// Lists the hosts of a cluster by its jump host: by ssh where pods run, otherwise with the token of its pod.
pub(super) async fn show(
    site: &Site,
    power: Option<&PowerPort>,
    cluster: &DynamicObject,
    key: Option<&Path>,
) -> anyhow::Result<Login> {
    if let (Some(node), Some(key)) = (site.node(), key) {
        let login = login(site, cluster, key, &node.address().to_string())?;
        return Ok(Login {
            hosts: run(Command::new("ssh").args(&login).args(["host", "list"])).await?,
            login: Some(format!("ssh {}", login.join(" "))),
        });
    }
    let power = power.context("nobody serves power control on this machine")?;
    let mut host = Command::new(programs::path("host")?);
    host.args(["--address", &power.address().to_string(), "--ca"])
        .arg(&power.authority)
        .arg("--token")
        .arg(token(site, cluster).await?)
        .arg("list")
        .env_remove("SSH_USER_AUTH");
    Ok(Login {
        hosts: run(&mut host).await?,
        login: None,
    })
}

/// Arguments of ssh, with the host key of the status, so that nobody is asked whether to trust it.
fn login(site: &Site, cluster: &DynamicObject, key: &Path, address: &str) -> anyhow::Result<Vec<String>> {
    let endpoints = cluster
        .data
        .pointer("/status/endpoints")
        .and_then(Value::as_array);
    let mut endpoints = endpoints.into_iter().flatten();
    let endpoint = endpoints
        .find(|endpoint| endpoint["protocol"] == "ssh")
        .context("the cluster has no jump host")?;
    let (port, host_key) = (&endpoint["port"], endpoint["hostKeys"]["ssh-ed25519"].as_str());
    let host_key = host_key.context("the jump host has no host key")?;
    let known = site.directory().join("known_hosts");
    fs::write(&known, format!("[{address}]:{port} ssh-ed25519 {host_key}\n"))
        .with_context(|| format!("write {}", known.display()))?;
    Ok([
        "-F".to_owned(),
        "none".to_owned(),
        "-i".to_owned(),
        key.display().to_string(),
        "-o".to_owned(),
        "IdentitiesOnly=yes".to_owned(),
        "-o".to_owned(),
        format!("UserKnownHostsFile={}", known.display()),
        "-p".to_owned(),
        port.to_string(),
        format!("ubuntu@{address}"),
    ]
    .into())
}

/// A file with a token as the kubelet would write it to the pod of the jump host.
async fn token(site: &Site, cluster: &DynamicObject) -> anyhow::Result<PathBuf> {
    let name = format!("jumphost-{}", cluster.name_any());
    let namespace = cluster.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(site.client(), &namespace);
    let own = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
    let pods = pods.list(&own).await.context("list the pods of the jump host")?;
    let pod = pods.items.first().context("the jump host has no pod")?;
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: Some(vec![AUDIENCE.to_owned()]),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name_any()),
                uid: pod.uid(),
            }),
            ..TokenRequestSpec::default()
        }
        .into(),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(site.client(), &namespace);
    let answer = accounts
        .create_token_request(&name, &PostParams::default(), &request)
        .await
        .context("request a token of the jump host")?;
    let token = answer.status.and_then(|status| status.token);
    let file = site.directory().join("power-token");
    fs::write(&file, token.context("the API server gave no token")?)
        .with_context(|| format!("write {}", file.display()))?;
    Ok(file)
}

/// What a command prints that must succeed.
async fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().await;
    let output = output.with_context(|| format!("run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?}: {}: {}",
        output.status,
        errors.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_lets_one_more_key_in() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("ssh-key");
        fs::write(key.with_extension("pub"), "ssh-ed25519 AAAA demonstration\n").unwrap();
        let sample = "spec: {services: {jumpHost: [{image: a, sshAuthorizedKeys: [b]}]}}";

        let text = with_key(sample, &key).unwrap();

        let object: Value = serde_json::from_str(&text).unwrap();
        let entry = &object["spec"]["services"]["jumpHost"][0];
        assert_eq!(
            entry["sshAuthorizedKeys"],
            serde_json::json!(["b", "ssh-ed25519 AAAA demonstration"])
        );
    }
}
