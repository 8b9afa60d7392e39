//! A machine beside the node that plays a member: sshd, as root at port 22.

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::client::{Key, greets};

/// A running sshd. It ends when it is dropped.
pub(super) struct Machine {
    pub(super) host_key: Key,
    process: Child,
    _directory: TempDir,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Machine {
    /// Starts sshd at an address of this machine, for the user `ubuntu` with a key. Sessions have the address in `NODE`.
    pub(super) async fn start(address: Ipv4Addr, key: &Key) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let host_key = Key::new("machine");
        let root = directory.path().display();
        let file = |name: &str, content: String| fs::write(directory.path().join(name), content).unwrap();
        file("keys", key.public());
        file(
            "passwd",
            "root:x:0:0::/root:/bin/sh\nsshd:x:101:65534::/run/sshd:/bin/false\nubuntu:x:1000:1000::/:/bin/sh\n".to_owned(),
        );
        file(
            "sshd_config",
            format!(
                "ListenAddress {address}\nPort 22\nHostKey {}\nPidFile none\nUsePAM no\nStrictModes no\n\
                 AuthorizedKeysFile {root}/keys\nPasswordAuthentication no\nSetEnv NODE={address}\n",
                host_key.file().display()
            ),
        );
        let script = format!(
            "set -e; mount --make-rprivate /; mount --bind {root}/passwd /etc/passwd; mkdir -p /run/sshd
             exec /usr/sbin/sshd -D -e -f {root}/sshd_config"
        );
        let process = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let machine = Self {
            host_key,
            process,
            _directory: directory,
        };
        greets(address, 22).await;
        machine
    }
}
