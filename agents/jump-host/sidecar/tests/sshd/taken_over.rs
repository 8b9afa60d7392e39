//! Users of SIP's jump host log in to the one that takes it over as before: its host keys are the same.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use k8s_openapi::ByteString;

use crate::{
    keys::Key,
    rig::{Desired, PATIENCE, Pod, greets, possible, ssh},
};

/// The host keys of SIP's image, by the names that they have there.
const KINDS: [(&str, &str); 3] = [
    ("ssh_host_ecdsa_key", "ecdsa"),
    ("ssh_host_ed25519_key", "ed25519"),
    ("ssh_host_rsa_key", "rsa"),
];

/// An sshd that runs as root, as that of SIP's image does.
struct Before(Child);

impl Before {
    fn start(address: SocketAddr, keys: &[(&str, Key)], directory: &Path) -> Self {
        let mut config = format!(
            "ListenAddress {}\nPort {}\nPidFile none\nUsePAM no\nStrictModes no\n",
            address.ip(),
            address.port()
        );
        for (_, key) in keys {
            config.extend(["HostKey ", &key.file().display().to_string(), "\n"]);
        }
        let file = directory.join("sshd_config");
        fs::write(&file, config).unwrap();
        let script = format!(
            "set -e; mount --make-rprivate /; mount -t tmpfs tmpfs /run; mkdir /run/sshd
             exec /usr/sbin/sshd -D -e -f {}",
            file.display()
        );
        let child = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let before = Self(child.unwrap());
        let deadline = Instant::now() + PATIENCE;
        while !greets(address) {
            assert!(Instant::now() < deadline, "SIP's sshd does not answer");
            sleep(Duration::from_millis(20));
        }
        before
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// ssh by one of the host's keys alone.
fn login(user: &Key, known_hosts: &Path, address: IpAddr, algorithms: &str, checking: &str) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-o", &format!("StrictHostKeyChecking={checking}")]);
    command.args(["-o", &format!("HostKeyAlgorithms={algorithms}"), "-p", "2222"]);
    // The first value of an option counts.
    command.args(ssh(user, known_hosts).get_args());
    command.arg(format!("ubuntu@{address}")).arg("true");
    command.stdin(Stdio::null());
    command
}

#[tokio::test]
async fn users_of_sips_jump_host_see_no_warning_when_it_is_taken_over() {
    if !possible() {
        return;
    }
    let ana = Key::new("ana");
    let keys = KINDS.map(|(name, kind)| (name, Key::of_type(kind, "sip")));
    let mut secret: BTreeMap<String, ByteString> = keys
        .iter()
        .map(|(name, key)| ((*name).to_owned(), ByteString(key.private())))
        .collect();
    // What else SIP has in this Secret.
    secret.insert("hosts".to_owned(), ByteString(b"[]".to_vec()));
    secret.insert("ssh_config".to_owned(), ByteString(b"Host *\n".to_vec()));
    let mut pod = Pod::with_secret(&["ubuntu:x:1000:1000::/home/ubuntu:/bin/sh"], &secret);
    let directory = tempfile::tempdir().unwrap();
    let algorithms = ["ecdsa-sha2-nistp256", "ssh-ed25519", "rsa-sha2-512,rsa-sha2-256"];
    let known = |algorithm: &str| directory.path().join(algorithm);

    // Each user's ssh has stored one of the keys.
    let before = Before::start(pod.listens_at(), &keys, directory.path());
    for algorithm in algorithms {
        let mut command = login(
            &ana,
            &known(algorithm),
            pod.address.into(),
            algorithm,
            "accept-new",
        );
        let output = command.output().unwrap();
        assert!(known(algorithm).exists(), "{algorithm}: {output:?}");
    }
    drop(before);

    pod.write(&Desired::with_key(&ana)).await;
    pod.run();
    pod.is_ready();
    for algorithm in algorithms {
        let stored = fs::read_to_string(known(algorithm)).unwrap();
        let mut command = login(&ana, &known(algorithm), pod.address.into(), algorithm, "yes");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{algorithm}: {output:?}\n{}", pod.log());
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(printed, "", "{algorithm}");
        assert_eq!(
            fs::read_to_string(known(algorithm)).unwrap(),
            stored,
            "{algorithm}"
        );
    }
    // A host key that is not stored is refused.
    fs::write(
        known("ssh-ed25519"),
        format!("[{}]:2222 {}\n", pod.address, ana.public()),
    )
    .unwrap();
    let refused = login(
        &ana,
        &known("ssh-ed25519"),
        pod.address.into(),
        "ssh-ed25519",
        "yes",
    )
    .output();
    let refused = refused.unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert!(
        printed.contains("REMOTE HOST IDENTIFICATION HAS CHANGED"),
        "{printed}"
    );
}
