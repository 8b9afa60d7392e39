//! What a node is on the machine while it runs, and must not be afterwards.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// Where a node can be seen.
#[derive(Debug)]
pub(crate) struct Traces {
    directory: PathBuf,
    /// As `/proc` names it, such as `pid:[4026532290]`.
    pid_namespace: PathBuf,
    network_namespace: PathBuf,
    interface: Interface,
    cgroup: String,
}

/// The host's end of the wire. The next node may be given the name, but never the index.
#[derive(Debug)]
struct Interface {
    /// `/sys/class/net/NAME`.
    path: PathBuf,
    index: String,
}

impl Interface {
    fn exists(&self) -> bool {
        index(&self.path).is_some_and(|index| index == self.index)
    }
}

impl Traces {
    /// Of the node of the site in this directory.
    pub(crate) fn of_site(site: &Path) -> Self {
        let init = init(site);
        let namespace = |kind: &str| fs::read_link(format!("/proc/{init}/ns/{kind}")).unwrap();
        Self {
            directory: site.to_owned(),
            pid_namespace: namespace("pid"),
            network_namespace: namespace("net"),
            interface: peer_of_eth0(&init),
            cgroup: site.file_name().unwrap().to_str().unwrap().to_owned(),
        }
    }

    /// Those in the node's namespaces, and those of pods, which have namespaces of their own.
    fn processes(&self) -> Vec<String> {
        let inside = |process: &Path| {
            let in_namespace = [("pid", &self.pid_namespace), ("net", &self.network_namespace)]
                .iter()
                .any(|(kind, namespace)| {
                    fs::read_link(process.join("ns").join(kind)).is_ok_and(|of| of == **namespace)
                });
            in_namespace
                || fs::read_to_string(process.join("cgroup"))
                    .is_ok_and(|groups| groups.contains(&self.cgroup))
        };
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|process| inside(process))
            .map(|process| {
                let command = fs::read(process.join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&command).replace('\0', " ")
            })
            .collect()
    }

    /// `find` does not stop at what disappears while it looks.
    fn cgroups(&self) -> Vec<PathBuf> {
        let output = Command::new("find")
            .args(["/sys/fs/cgroup", "-maxdepth", "2", "-name", &self.cgroup])
            .output()
            .unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(PathBuf::from)
            .collect()
    }

    /// On the host, whose mounts the node's are not.
    fn mounts(&self) -> Vec<String> {
        let directory = self.directory.to_str().unwrap();
        fs::read_to_string("/proc/mounts")
            .unwrap()
            .lines()
            .filter(|line| line.contains(directory))
            .map(str::to_owned)
            .collect()
    }

    /// The processes of this program that are the node's.
    pub(crate) fn running(&self, program: &str) -> usize {
        self.processes()
            .iter()
            .filter(|command| command.contains(program))
            .count()
    }

    pub(crate) fn are_all_there(&self) {
        let processes = self.processes();
        for program in ["catatonit -P", "/containerd ", "kubelet ", "kube-proxy "] {
            assert!(
                processes.iter().any(|command| command.contains(program)),
                "{program} is not among {processes:#?}"
            );
        }
        assert!(self.interface.exists());
        assert!(!self.cgroups().is_empty());
        assert_eq!(self.mounts(), Vec::<String>::new());
        assert!(self.directory.exists());
    }

    pub(crate) fn are_gone(&self) {
        let started = Instant::now();
        loop {
            let left = (
                self.processes(),
                self.interface.exists(),
                self.cgroups(),
                self.mounts(),
                self.directory.exists(),
            );
            if left == (vec![], false, vec![], vec![], false) {
                return;
            }
            assert!(started.elapsed() < Duration::from_mins(1), "{left:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Process 1 of the node, as the host counts.
fn init(site: &Path) -> String {
    let script = site.join("node/node.sh").display().to_string();
    let parent = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|process| {
            let command = fs::read(process.join("cmdline")).unwrap_or_default();
            command.starts_with(b"/usr/bin/unshare") && String::from_utf8_lossy(&command).contains(&script)
        })
        .expect("the parent of the node's process 1");
    let pid = parent.file_name().unwrap().to_str().unwrap();
    let children = fs::read_to_string(parent.join("task").join(pid).join("children")).unwrap();
    children.trim().to_owned()
}

fn index(interface: &Path) -> Option<String> {
    let index = fs::read_to_string(interface.join("ifindex")).ok()?;
    Some(index.trim().to_owned())
}

fn peer_of_eth0(init: &str) -> Interface {
    let output = Command::new("nsenter")
        .args([
            "--target", init, "--net", "ip", "-oneline", "link", "show", "eth0",
        ])
        .output()
        .unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let (peer, _) = line.split_once("eth0@if").unwrap().1.split_once(':').unwrap();
    let path = fs::read_dir("/sys/class/net")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|interface| index(interface).is_some_and(|index| index == peer))
        .unwrap();
    Interface {
        path,
        index: peer.to_owned(),
    }
}
