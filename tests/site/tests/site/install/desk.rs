//! The desk of whoever installs: the checkout, images, `kubectl` and `sipctl`; and the site before anything is installed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use images::catalogue::{JUMP_HOST, LOCAL};
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PostParams},
};
use sandbox::{
    crds,
    inventory::{self, Host},
    jump_host,
    node::{self, Image},
    programs,
    region::HOSTS_NAMESPACE,
    repository,
    site::{Nodes, Site},
    tools,
};
use serde_json::json;

/// Where commands are typed: the checkout, and what `make images` has made in it.
pub(super) struct Desk {
    directory: tempfile::TempDir,
    programs: PathBuf,
}

impl Desk {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(repository::deploy(), directory.path().join("deploy")).unwrap();
        let programs = programs::path("sipctl").unwrap().parent().unwrap().to_owned();
        let made = Command::new(programs::path("sip-images").unwrap())
            .arg("--uncompressed")
            .arg("--workspace")
            .arg(repository::root())
            .arg("--programs")
            .arg(&programs)
            .arg("--programs")
            .arg(tools::path("kubectl").unwrap().parent().unwrap())
            .arg("--output")
            .arg(directory.path().join("target/images"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // `make images` links the programs statically that run in it; those of tests bring their libraries along.
        let name = JUMP_HOST.reference(LOCAL, env!("CARGO_PKG_VERSION"));
        let archive = format!("target/images/{}.tar", JUMP_HOST.name);
        let image = jump_host::image(&name).unwrap();
        image.write(&directory.path().join(archive)).unwrap();
        Self { directory, programs }
    }

    /// Runs a block of commands as a person would; the first that fails ends it. Returns what it prints.
    pub(super) fn run(&self, script: &str, site: &Site) -> Result<String, String> {
        let own = env::var_os("PATH").unwrap();
        let path = [
            self.programs.as_path(),
            tools::path("kubectl").unwrap().parent().unwrap(),
        ]
        .map(Path::to_path_buf)
        .into_iter()
        .chain(env::split_paths(&own));
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &format!("exec 2>&1; {script}")])
            .current_dir(self.directory.path())
            .env("PATH", env::join_paths(path).unwrap())
            .env("KUBECONFIG", site.admin_kubeconfig())
            .env("KUBECACHEDIR", site.directory().join("kubectl-cache"))
            .env("CONTAINERD_ADDRESS", site.node().unwrap().containerd())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            Ok(printed)
        } else {
            Err(printed)
        }
    }
}

/// What a real site has before SIP comes, besides a name server: hosts, and a volume for each scheduler.
pub(super) async fn furnished(name: &str, definitions: Vec<PathBuf>) -> Site {
    let haproxy = Image::new("haproxy:2.8", node::system_program("haproxy").unwrap());
    let site = Site::builder(name)
        .nodes(Nodes::Real)
        .image(haproxy)
        .crds([vec![crds::bare_metal_host()], definitions].concat())
        .namespace(HOSTS_NAMESPACE)
        .start()
        .await
        .unwrap();
    let here = site.node().unwrap();
    let [first, second, _] = here.machines();
    let hosts = [
        Host::new("r1-h1", "control-plane", "r1", first),
        Host::new("r2-h1", "worker", "r2", second),
    ];
    inventory::load(&site.client(), HOSTS_NAMESPACE, &hosts)
        .await
        .unwrap();
    let volumes: Api<PersistentVolume> = Api::all(site.client());
    for disk in ["disk-0", "disk-1", "disk-2"] {
        let directory = site.directory().join(disk);
        fs::create_dir(&directory).unwrap();
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": disk},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "10Gi"},
                "local": {"path": directory},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [here.name()]},
                ]}]}},
            },
        }))
        .unwrap();
        volumes.create(&PostParams::default(), &volume).await.unwrap();
    }
    site
}

/// Descriptions and logs of all pods, for a test that fails.
pub(super) async fn pods(site: &Site) -> String {
    let described = site
        .kubectl(&["describe", "pods,sipclusters", "-A"])
        .await
        .unwrap()
        .stdout;
    let mut said = vec![described];
    let pods: Api<Pod> = Api::all(site.client());
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        let logs = ["logs", "--all-containers", "--tail=20", "-n", &namespace, &name];
        said.push(format!("{name}:\n{}", site.kubectl(&logs).await.unwrap().stdout));
    }
    said.join("\n")
}
