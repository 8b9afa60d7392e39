//! The desk of whoever installs: the checkout, images, `kubectl` and `sipctl`; and the site before anything is installed.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    net::Ipv4Addr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use sandbox::{
    audit::Entry,
    crds,
    installation::{describe_pods, make_archives, make_volumes},
    inventory::{self, Host},
    node::{self, Image},
    programs,
    region::HOSTS_NAMESPACE,
    repository,
    site::{Nodes, Site},
    tools,
};

use super::commands::Step;

/// What gives our programs their rights, as resources of the API: its deletion begins the removal, in the order of kustomize.
const RIGHTS: [&str; 5] = [
    "namespaces",
    "roles",
    "clusterroles",
    "rolebindings",
    "clusterrolebindings",
];

/// One for each scheduler.
const VOLUMES: usize = 4;

/// The images of every desk, which take a while to make and are only read.
static IMAGES: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images");
    // What an earlier run has left must not stand for an image that is not made any more.
    let _ = fs::remove_dir_all(&directory);
    make_archives(&directory).unwrap();
    directory
});

/// Where commands are typed: the checkout, and what `make images` has made in it.
pub(super) struct Desk {
    directory: tempfile::TempDir,
    /// Directories with programs.
    programs: Vec<PathBuf>,
    variables: BTreeMap<&'static str, OsString>,
}

impl Desk {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Pages tell people to write files there.
        let copied = Command::new("cp")
            .arg("--recursive")
            .arg(repository::deploy())
            .arg(directory.path().join("deploy"))
            .status()
            .unwrap();
        assert!(copied.success());
        let programs = programs::path("sipctl").unwrap().parent().unwrap().to_owned();
        fs::create_dir(directory.path().join("target")).unwrap();
        symlink(&*IMAGES, directory.path().join("target/images")).unwrap();
        fs::copy("/etc/hosts", directory.path().join("hosts")).unwrap();
        let kubectl = tools::path("kubectl").unwrap().parent().unwrap().to_owned();
        Self {
            directory,
            programs: vec![programs, kubectl],
            variables: BTreeMap::new(),
        }
    }

    /// The path of a file there.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Commands find the programs of one more directory.
    pub(super) fn add_programs(&mut self, directory: &Path) {
        self.programs.push(directory.to_owned());
    }

    /// Commands find this in their environment.
    pub(super) fn set(&mut self, variable: &'static str, value: impl Into<OsString>) {
        self.variables.insert(variable, value.into());
    }

    /// Commands find machines by these names.
    pub(super) fn add_hosts(&self, hosts: &[(&str, Ipv4Addr)]) {
        let file = self.file("hosts");
        let mut lines = vec![fs::read_to_string(&file).unwrap()];
        lines.extend(hosts.iter().map(|(name, address)| format!("{address} {name}\n")));
        fs::write(file, lines.concat()).unwrap();
    }

    /// Runs a block of a page, which must print what the page shows.
    pub(super) async fn follow(&self, page: &str, step: &Step, site: &Site) {
        let ran = tokio::task::block_in_place(|| self.run(&step.script, site));
        let place = format!("{page}:{}", step.line);
        match ran {
            Ok(printed) => {
                println!("{place}\n{}\n{printed}", step.script);
                assert_eq!(
                    step.missing(&printed),
                    None,
                    "{place}: {}\n{printed}",
                    step.script
                );
            }
            Err(printed) => panic!(
                "{place}: {}\n{printed}\n{}",
                step.script,
                describe_pods(site).await.unwrap()
            ),
        }
    }

    /// Runs a block of commands as a person would; the first that fails ends it. Returns what it prints.
    pub(super) fn run(&self, script: &str, site: &Site) -> Result<String, String> {
        let own = env::var_os("PATH").unwrap();
        let path = self.programs.iter().cloned().chain(env::split_paths(&own));
        let script = format!("exec 2>&1; mount --bind hosts /etc/hosts; {script}");
        let output = Command::new("unshare")
            .args(["--mount", "bash", "-euo", "pipefail", "-c", &script])
            .current_dir(self.directory.path())
            .env("PATH", env::join_paths(path).unwrap())
            .env("KUBECONFIG", site.admin_kubeconfig())
            .env("KUBECACHEDIR", site.directory().join("kubectl-cache"))
            .env("CONTAINERD_ADDRESS", site.node().unwrap().containerd())
            .envs(&self.variables)
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

/// What a real site has before SIP comes, besides a name server: hosts, and four volumes for schedulers. Its nodes have HAProxy and `images`.
pub(super) async fn furnished(name: &str, definitions: Vec<PathBuf>, images: Vec<Image>) -> Site {
    let haproxy = Image::new("haproxy:2.8", node::system_program("haproxy").unwrap());
    let builder = Site::builder(name).nodes(Nodes::Real).image(haproxy);
    let site = images
        .into_iter()
        .fold(builder, sandbox::site::Builder::image)
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
    make_volumes(&site, VOLUMES).await.unwrap();
    site
}

/// The API server has refused no call of our programs before somebody removed them: then they lose their rights some time before they end.
pub(super) fn nothing_was_refused(site: &Site) {
    let entries = site.audit_log().unwrap();
    let is_ours = |entry: &&Entry| entry.user.username.contains(":sip-system:");
    let is_removal = |entry: &&Entry| {
        let object = entry.object_ref.as_ref();
        entry.verb == "delete" && object.is_some_and(|object| RIGHTS.contains(&&*object.resource))
    };
    // Requests are in the log in the order of their ends.
    let removal = entries
        .iter()
        .filter(|entry| is_removal(entry) && !is_ours(entry))
        .map(|entry| &entry.request_received_timestamp)
        .min();
    let refused: Vec<&Entry> = entries
        .iter()
        .filter(|entry| entry.is_forbidden() && is_ours(entry))
        .filter(|entry| removal.is_none_or(|removal| entry.stage_timestamp < *removal))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
