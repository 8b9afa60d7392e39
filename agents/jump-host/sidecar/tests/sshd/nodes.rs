//! From the jump host to a node: a second sshd, which runs as root at port 22 as a node's does.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use render::{jump_host::files::file_digest, running::Running};
use tempfile::TempDir;

use crate::{
    keys::Key,
    rig::{Desired, PATIENCE, Pod, address, greets, possible, ssh},
};

/// A node on which a key may log in.
struct Node {
    address: Ipv4Addr,
    host_key: Key,
    directory: TempDir,
    process: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Node {
    fn start(key: &Key) -> Self {
        Self::start_at(address(), key)
    }

    fn start_at(address: Ipv4Addr, key: &Key) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let host_key = Key::new("node");
        let root = directory.path().display();
        fs::write(directory.path().join("keys"), key.public()).unwrap();
        fs::write(
            directory.path().join("passwd"),
            "root:x:0:0::/root:/bin/sh\nsshd:x:101:65534::/run/sshd:/bin/false\nubuntu:x:1000:1000::/:/bin/sh\n",
        )
        .unwrap();
        let config = format!(
            "ListenAddress {address}\nPort 22\nHostKey {}\nPidFile none\nUsePAM no\nStrictModes no\n\
             AuthorizedKeysFile {root}/keys\nPasswordAuthentication no\nSetEnv NODE={address}\n",
            host_key.file().display()
        );
        fs::write(directory.path().join("sshd_config"), config).unwrap();
        let script = format!(
            "set -e; mount --make-rprivate /; mount --bind {root}/passwd /etc/passwd; mkdir -p /run/sshd
             exec /usr/sbin/sshd -D -e -f {root}/sshd_config"
        );
        let process = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let node = Self {
            address,
            host_key,
            directory,
            process,
        };
        let deadline = Instant::now() + PATIENCE;
        while !greets(SocketAddr::new(IpAddr::V4(address), 22)) {
            let log = fs::read_to_string(node.directory.path().join("log"));
            assert!(Instant::now() < deadline, "the node does not answer: {log:?}");
            sleep(Duration::from_millis(20));
        }
        node
    }
}

fn desired(user: &Key, node_key: &Key, nodes: &[(&str, &Node)]) -> Desired {
    let nodes = nodes.iter();
    Desired {
        nodes: nodes
            .map(|(name, node)| ((*name).to_owned(), IpAddr::V4(node.address)))
            .collect(),
        node_keys: BTreeMap::from([
            ("another".to_owned(), Key::new("another").private()),
            ("id_node".to_owned(), node_key.private()),
        ]),
        ..Desired::with_key(user)
    }
}

#[tokio::test]
async fn ssh_in_the_pod_reaches_nodes_by_name_with_the_tenants_key() {
    if !possible() {
        return;
    }
    let (ana, node_key) = (Key::new("ana"), Key::new("node"));
    let node = Node::start(&node_key);
    let pod = Pod::start(&desired(&ana, &node_key, &[("node-1.rack-a", &node)])).await;
    let expected = format!("ubuntu {}", node.address);
    for name in ["node-1.rack-a", "node-1", "node-1.rack-a.metal"] {
        let command = format!("ssh -o BatchMode=yes {name} 'echo $(id -un) $NODE'");
        assert_eq!(pod.prints(&ana, &command), expected, "{name}");
    }
    // Seen once, the node is known, and another one in its place is refused.
    let known = pod.file("home/.ssh/known_hosts");
    assert!(known.starts_with("metal/node-1.rack-a ssh-ed25519"), "{known}");
    let place = node.address;
    drop(node);
    let impostor = Node::start_at(place, &node_key);
    let output = pod
        .ssh(&ana, &[])
        .arg("ssh -o BatchMode=yes node-1 true")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("REMOTE HOST IDENTIFICATION HAS CHANGED"), "{said}");
    assert!(said.contains(&impostor.host_key.fingerprint()), "{said}");
    let modes = pod.prints(&ana, "stat -c '%a %U' /etc/opt/sip/ssh-private-keys/*");
    assert_eq!(modes, "400 ubuntu\n400 ubuntu");
}

#[tokio::test]
async fn known_host_keys_are_read_from_the_key_secret() {
    if !possible() {
        return;
    }
    let (ana, node_key) = (Key::new("ana"), Key::new("node"));
    let node = Node::start(&node_key);
    let mut desired = desired(&ana, &node_key, &[("node-1", &node)]);
    let wrong = format!("metal/node-1 {}\n", Key::new("wrong").public());
    desired
        .node_keys
        .insert("known_hosts".to_owned(), wrong.into_bytes());
    let pod = Pod::start(&desired).await;
    let output = pod
        .ssh(&ana, &[])
        .arg("ssh -o BatchMode=yes node-1 true")
        .output()
        .unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("HAS CHANGED"));
    let right = format!("metal/node-1 {}\n", node.host_key.public());
    desired
        .node_keys
        .insert("known_hosts".to_owned(), right.into_bytes());
    pod.write(&desired).await;
    pod.prints(
        &ana,
        "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes node-1 true",
    );
}

#[tokio::test]
async fn users_jump_to_nodes_from_their_own_machine() {
    if !possible() {
        return;
    }
    let (ana, node_key) = (Key::new("ana"), Key::new("node"));
    let node = Node::start(&ana);
    let pod = Pod::start(&desired(&ana, &node_key, &[("node-1", &node)])).await;
    let directory = tempfile::tempdir().unwrap();
    let known = directory.path().join("known_hosts");
    fs::write(&known, format!("{} {}\n", node.address, node.host_key.public())).unwrap();
    let proxy = format!("ProxyCommand={}", through(&pod, &ana));
    let output = ssh(&ana, &known)
        .args(["-o", &proxy])
        .arg(format!("ubuntu@{}", node.address))
        .arg("echo $NODE")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}\n{}", pod.log());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().trim(),
        node.address.to_string()
    );
    // By another port nothing is reached, and by another address neither.
    let other = address();
    let _listener = std::net::TcpListener::bind((other, 22)).unwrap();
    for target in [format!("{}:23", node.address), format!("{other}:22")] {
        let refused = pod.ssh(&ana, &["-W", &target]).output().unwrap();
        assert!(String::from_utf8_lossy(&refused.stderr).contains("administratively prohibited"));
    }
}

/// What `ProxyJump` runs, with the options of the test.
fn through(pod: &Pod, key: &Key) -> String {
    let command = pod.ssh(key, &["-W", "%h:%p"]);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| word.to_str().unwrap().to_owned()).collect();
    assert!(
        words.iter().all(|word| !word.contains(char::is_whitespace)),
        "{words:?}"
    );
    words.join(" ")
}

/// Whether a node is reached through the pod.
fn reaches(pod: &Pod, key: &Key, node: &Node) -> bool {
    let target = format!("{}:22", node.address);
    let mut child = pod
        .ssh(key, &["-W", &target])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut greeting = [0; 4];
    let read = std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut greeting);
    let _ = child.kill();
    let _ = child.wait();
    read.is_ok()
}

/// Waits for a report.
fn reported(pod: &Pod, what: &str, is: impl Fn(&Running) -> bool) -> Running {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let report = pod.reports();
        if is(&report) {
            return report;
        }
        assert!(Instant::now() < deadline, "{what} is not reported: {report:?}");
        sleep(Duration::from_millis(100));
    }
}

#[tokio::test]
async fn a_configuration_that_sshd_refuses_is_reported() {
    if !possible() {
        return;
    }
    let (ana, node_key) = (Key::new("ana"), Key::new("node"));
    let (stays, leaves) = (Node::start(&node_key), Node::start(&node_key));
    let desired = |nodes: &[(&str, &Node)]| desired(&ana, &node_key, nodes);
    let both = desired(&[("stays", &stays), ("leaves", &leaves)]);
    for pod in [Pod::start(&both).await, Pod::start_old(&both).await] {
        let written = || file_digest(pod.file("files/sshd_config").as_bytes());
        let first = written();
        let report = reported(&pod, "the first configuration", |report| report.running.is_some());
        assert_eq!((report.running.as_ref(), report.failed), (Some(&first), None));

        // As when somebody changes the jump host's own Secret: with it sshd would not start.
        let host_key = pod.path("host-keys/ssh_host_ed25519_key");
        let good = fs::read(&host_key).unwrap();
        fs::write(&host_key, "broken").unwrap();
        pod.write(&desired(&[("stays", &stays)])).await;
        let report = reported(&pod, "the refusal", |report| report.failed.is_some());
        assert_eq!(report.running.as_ref(), Some(&first));
        let why = report.failed.unwrap();
        assert!(why.contains("ssh_host_ed25519_key"), "{why}");

        // Mended, it is read without another change.
        fs::write(&host_key, good).unwrap();
        let second = written();
        let report = reported(&pod, "the second configuration", |report| {
            report.running.as_ref() == Some(&second)
        });
        assert_eq!(report.failed, None);
        let begin = Instant::now();
        while reaches(&pod, &ana, &leaves) {
            assert!(begin.elapsed() < PATIENCE, "the host is still reached");
        }
        assert!(reaches(&pod, &ana, &stays));
    }
}

#[tokio::test]
async fn a_member_that_leaves_is_out_of_reach_and_sessions_stay() {
    if !possible() {
        return;
    }
    let (ana, node_key) = (Key::new("ana"), Key::new("node"));
    let (stays, leaves) = (Node::start(&node_key), Node::start(&node_key));
    let both = desired(&ana, &node_key, &[("stays", &stays), ("leaves", &leaves)]);
    let pod = Pod::start(&both).await;
    let reach = |node: &Node| reaches(&pod, &ana, node);
    assert!(reach(&stays) && reach(&leaves));
    let mut session = pod
        .ssh(&ana, &[])
        .arg("read line; echo $line")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    pod.logs("session opened");
    pod.write(&desired(&ana, &node_key, &[("stays", &stays)])).await;
    let begin = Instant::now();
    while reach(&leaves) {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "the host is still reached"
        );
    }
    assert!(reach(&stays));
    std::io::Write::write_all(session.stdin.as_mut().unwrap(), b"still here\n").unwrap();
    let output = session.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"still here\n");
}
