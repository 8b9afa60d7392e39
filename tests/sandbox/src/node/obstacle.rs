//! Why there can be no real node here, and the machine's own programs that one is made of.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::tools;

/// Why no real node can be run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Namespaces and control groups are Linux's.
    #[error("a real node needs Linux, and this is {0}")]
    NotLinux(&'static str),
    /// Mounts, interfaces and control groups are root's.
    #[error("a real node needs root")]
    NotRoot,
    /// Root of a container that may make no namespaces.
    #[error("a real node needs namespaces of its own, which root may not make here: {0}")]
    NotPermitted(String),
    /// Something is not installed.
    #[error("a real node needs what is not installed here: {}; `make setup` installs it", .0.join(", "))]
    Missing(Vec<String>),
}

/// The programs that a node is made of: every one of them is there.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) catatonit: PathBuf,
    pub(super) containerd: PathBuf,
    pub(super) ctr: PathBuf,
    pub(super) ip: PathBuf,
    pub(super) kube_proxy: PathBuf,
    pub(super) kubelet: PathBuf,
    pub(super) nsenter: PathBuf,
    pub(super) unshare: PathBuf,
}

/// Where programs of the system are looked for, whatever the person's `PATH` is.
pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where containerd and the kubelet look for them by themselves.
const USED_BY_OTHERS: [&str; 6] = [
    "containerd-shim-runc-v2",
    "runc",
    "iptables",
    "conntrack",
    "mount",
    "sh",
];
const CNI_PLUGINS: [&str; 4] = ["host-local", "loopback", "portmap", "ptp"];

/// Why no real node can be run here; `None`: it can.
#[must_use]
pub fn obstacle() -> Option<Obstacle> {
    Programs::find().err()
}

/// A program of the system, such as `haproxy`.
///
/// # Errors
/// When it is not installed.
pub fn system_program(name: &str) -> Result<PathBuf, Obstacle> {
    env::split_paths(SYSTEM_PATH)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| Obstacle::Missing(vec![name.to_owned()]))
}

impl Programs {
    /// Finds all of them, or says what is in the way.
    pub(super) fn find() -> Result<Self, Obstacle> {
        if env::consts::OS != "linux" {
            return Err(Obstacle::NotLinux(env::consts::OS));
        }
        if !rustix::process::geteuid().is_root() {
            return Err(Obstacle::NotRoot);
        }
        let mut missing = Vec::new();
        let mut system = |name: &str| {
            system_program(name).unwrap_or_else(|_| {
                missing.push(name.to_owned());
                PathBuf::new()
            })
        };
        for name in USED_BY_OTHERS {
            system(name);
        }
        let [catatonit, containerd, ctr, ip, nsenter, unshare] =
            ["catatonit", "containerd", "ctr", "ip", "nsenter", "unshare"].map(&mut system);
        for plugin in CNI_PLUGINS {
            let path = Path::new("/usr/lib/cni").join(plugin);
            if !path.is_file() {
                missing.push(path.display().to_string());
            }
        }
        let mut tool = |name: &str| {
            tools::path(name).unwrap_or_else(|_| {
                missing.push(name.to_owned());
                PathBuf::new()
            })
        };
        let [kubelet, kube_proxy] = ["kubelet", "kube-proxy"].map(&mut tool);
        if !missing.is_empty() {
            return Err(Obstacle::Missing(missing));
        }
        may_unshare(&unshare)?;
        Ok(Self {
            catatonit,
            containerd,
            ctr,
            ip,
            kube_proxy,
            kubelet,
            nsenter,
            unshare,
        })
    }
}

/// Tried rather than derived from capabilities: seccomp and sysctls have a say in it too.
fn may_unshare(unshare: &Path) -> Result<(), Obstacle> {
    let tried = Command::new(unshare)
        .args([
            "--net", "--pid", "--mount", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/run",
        ])
        .output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(Obstacle::NotPermitted(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
        Err(error) => Err(Obstacle::NotPermitted(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_obstacle_says_what_is_missing() {
        let cases = [
            (
                Obstacle::NotLinux("macos"),
                "a real node needs Linux, and this is macos",
            ),
            (Obstacle::NotRoot, "a real node needs root"),
            (
                Obstacle::NotPermitted("unshare failed: Operation not permitted".to_owned()),
                "a real node needs namespaces of its own, which root may not make here: unshare failed: Operation not permitted",
            ),
            (
                Obstacle::Missing(vec!["runc".to_owned(), "kubelet".to_owned()]),
                "a real node needs what is not installed here: runc, kubelet; `make setup` installs it",
            ),
        ];

        for (obstacle, expected) in cases {
            assert_eq!(obstacle.to_string(), expected);
        }
    }

    #[test]
    fn a_program_that_is_nowhere_is_named() {
        assert_eq!(
            system_program("no-such-program"),
            Err(Obstacle::Missing(vec!["no-such-program".to_owned()]))
        );
        assert!(system_program("sh").is_ok());
    }
}
