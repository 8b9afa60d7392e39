//! A pod: sshd with the rendered files at their places, in mounts of its own, as the pod's user and without any privilege.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU8, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use api::{Cluster, SIPCluster};
use jump_host_sidecar::files::Files;
use k8s_openapi::ByteString;
use render::jump_host::{
    Plan, PowerService,
    authorized_keys::{Authority, AuthorizedKey},
    files::SSHD_CONFIG,
    host_keys::{GENERATED_KEY, HostKeys, is_host_key},
    node_keys::NodeKeys,
    nodes::Node,
};
use render::running::Running;
use tempfile::TempDir;

use crate::{keys::Key, other_sshd};

/// For what takes a second or two on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const USER: u32 = 1_000;

/// Prints why these tests cannot run here. Whether they can.
pub(crate) fn possible() -> bool {
    let root = rustix::process::getuid().is_root();
    if !root {
        println!("skipped: only root can give sshd mounts of its own");
    }
    root
}

/// A loopback address of this process and test alone.
pub(crate) fn address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let process = 32 + (high.wrapping_mul(31) ^ low) % 200;
    Ipv4Addr::new(127, process, 77, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What the spec and the placement say.
pub(crate) struct Desired {
    pub(crate) keys: Vec<String>,
    pub(crate) authorities: Vec<String>,
    pub(crate) nodes: Vec<(String, IpAddr)>,
    pub(crate) node_keys: BTreeMap<String, Vec<u8>>,
}

impl Desired {
    pub(crate) fn with_key(key: &Key) -> Self {
        Self {
            keys: vec![key.public()],
            authorities: Vec::new(),
            nodes: Vec::new(),
            node_keys: BTreeMap::new(),
        }
    }
}

fn cluster() -> Cluster {
    let yaml = "
apiVersion: airship.airshipit.org/v1
kind: SIPCluster
metadata: {name: orders, namespace: shop, uid: 7d1c}
spec: {services: {jumpHost: [{image: 'jump-host:1', nodeInterfaceId: oam}]}}
";
    let object: SIPCluster = serde_saphyr::from_str(yaml).unwrap();
    Cluster::parse(&object).unwrap()
}

/// A running jump host. All its processes end with it.
pub(crate) struct Pod {
    directory: TempDir,
    pub(crate) address: Ipv4Addr,
    /// How long sessions may go on while it ends.
    pub(crate) drain_seconds: u16,
    /// Whether sshd refuses the words that OpenSSH 7.6 does not know.
    is_old: bool,
    host_keys: HostKeys,
    process: Option<Child>,
}

impl Drop for Pod {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // The first process of the namespace: all others end with it. It would outlive `unshare`, whose --kill-child has no effect
            // since setpriv has changed the user.
            let _ = kill(process, "-KILL");
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// Sends a signal to the first process of the namespace that `unshare` made.
fn kill(unshare: &Child, signal: &str) -> io::Result<ExitStatus> {
    let unshare = unshare.id();
    let child = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"))?;
    Command::new("kill")
        .args([signal, child.trim()])
        .stderr(Stdio::null())
        .status()
}

impl Pod {
    /// A pod that is ready.
    pub(crate) async fn start(desired: &Desired) -> Self {
        Self::start_of(desired, false).await
    }

    /// The same, of an image with OpenSSH 7.6.
    pub(crate) async fn start_old(desired: &Desired) -> Self {
        Self::start_of(desired, true).await
    }

    async fn start_of(desired: &Desired, is_old: bool) -> Self {
        let mut pod = Self::prepared(&["ubuntu:x:1000:1000::/home/ubuntu:/bin/sh"]);
        pod.is_old = is_old;
        pod.write(desired).await;
        pod.run();
        pod.is_ready();
        pod
    }

    /// A pod in which nothing runs, of an image with these accounts.
    pub(crate) fn prepared(accounts: &[&str]) -> Self {
        let key = ByteString(Key::new("host").private());
        Self::with_secret(accounts, &BTreeMap::from([(GENERATED_KEY.to_owned(), key)]))
    }

    /// The same with what is in the jump host's own Secret.
    pub(crate) fn with_secret(accounts: &[&str], secret: &BTreeMap<String, ByteString>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for (name, owner) in [("files", USER), ("home", USER), ("host-keys", 0), ("tools", USER)] {
            let path = root.join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            chown(&path, Some(owner), Some(owner)).unwrap();
        }
        // As the kubelet mounts a Secret: root's, for the group of the pod.
        for (name, value) in secret.iter().filter(|(name, _)| is_host_key(name)) {
            let file = root.join("host-keys").join(name);
            fs::write(&file, &value.0).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o440)).unwrap();
            chown(&file, Some(0), Some(USER)).unwrap();
        }
        let accounts = accounts.join("\n");
        fs::write(
            root.join("passwd"),
            format!("root:x:0:0::/root:/bin/sh\n{accounts}\n"),
        )
        .unwrap();
        fs::write(root.join("group"), "root:x:0:\ntty:x:5:\nubuntu:x:1000:\n").unwrap();
        let installed = Command::new(env!("CARGO_BIN_EXE_sip-jump-host-sidecar"))
            .args(["install", "--to"])
            .arg(root.join("tools"))
            .status();
        assert!(installed.unwrap().success());
        Self {
            directory,
            address: address(),
            drain_seconds: 20,
            is_old: false,
            host_keys: HostKeys::read(secret),
            process: None,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What the sidecar does when the agent has rendered this.
    pub(crate) async fn write(&self, desired: &Desired) {
        let cluster = cluster();
        let tools = "tools:1".parse().unwrap();
        let power = PowerService {
            address: "power.example:8443".parse().unwrap(),
            ca: None,
            namespace: "sip-system".to_owned(),
            app: "agent".to_owned(),
        };
        let nodes = desired.nodes.iter();
        let plan = Plan {
            cluster: &cluster,
            jump_host: &cluster.jump_hosts()[0],
            tools: &tools,
            power: &power,
            keys: parsed(&desired.keys, AuthorizedKey::parse),
            authorities: parsed(&desired.authorities, Authority::parse),
            host_keys: &self.host_keys,
            nodes: nodes
                .map(|(name, address)| Node::new("metal", name, *address, false).unwrap())
                .collect(),
            api_endpoints: Vec::new(),
            api_balancers: Vec::new(),
            name_servers: &[],
            site_api_servers: &[],
        };
        let mut files = plan.files();
        // A pod has a network of its own; here all share one.
        let config = files.get_mut(SSHD_CONFIG).unwrap();
        config.extend(["ListenAddress ", &self.address.to_string(), "\n"]);
        let written = Files::within(&self.path("files"));
        let node_keys = desired.node_keys.iter();
        let node_keys = node_keys.map(|(name, key)| (name.clone(), ByteString(key.clone())));
        written
            .write_node_keys(&NodeKeys::read(&node_keys.collect()))
            .await
            .unwrap();
        written.write_configuration(&files).await.unwrap();
        // The sidecar is the pod's user.
        let keys = self.path("files/ssh-private-keys");
        chown(&keys, Some(USER), Some(USER)).unwrap();
        for entry in fs::read_dir(&keys).unwrap() {
            chown(entry.unwrap().path(), Some(USER), Some(USER)).unwrap();
        }
    }

    /// Starts the container of sshd.
    pub(crate) fn run(&mut self) {
        let root = self.directory.path().display().to_string();
        let replaced = other_sshd::replaced(&self.path("old-sshd"), self.is_old);
        let script = format!(
            "set -e; D={root}; mount --make-rprivate /
             mount --bind $D/passwd /etc/passwd; mount --bind $D/group /etc/group
             mkdir -p /etc/opt; mount -t tmpfs tmpfs /etc/opt; mkdir /etc/opt/sip; mount --bind $D/files /etc/opt/sip
             mount -o remount,ro,bind /etc/opt/sip
             mount -t tmpfs tmpfs /opt; mkdir -p /opt/sip/bin; mount --bind $D/tools /opt/sip/bin
             {replaced}
             mount -t tmpfs tmpfs /home; mkdir /home/ubuntu; mount --bind $D/home /home/ubuntu
             mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts /dev/pts
             mount --bind /dev/pts/ptmx /dev/ptmx
             mount -t tmpfs tmpfs /run; mkdir -p /run/sip/host-keys; mount --bind $D/host-keys /run/sip/host-keys
             cd /; exec setpriv --reuid={USER} --regid={USER} --clear-groups --no-new-privs --bounding-set=-all \\
               /opt/sip/bin/sip-jump-host-sidecar run-sshd --directory=/etc/opt/sip --home=/home/ubuntu \\
               --health-listen={}:8406 --drain-seconds={} --log-format=json",
            self.address, self.drain_seconds
        );
        let log = File::create(self.path("log")).unwrap();
        let child = Command::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                &script,
            ])
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            // As the Deployment has them.
            .env("SIP_CLUSTER", "shop/orders")
            .env("SIP_POWER_ADDRESS", "power.example:8443")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.process = Some(child.unwrap());
    }

    /// Where sshd listens.
    pub(crate) fn listens_at(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.address), 2_222)
    }

    pub(crate) fn is_ready(&self) {
        let address = self.listens_at();
        let deadline = Instant::now() + PATIENCE;
        while !greets(address) {
            assert!(Instant::now() < deadline, "sshd does not answer: {}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the container has ended, and returns what it wrote.
    pub(crate) fn ended(&mut self) -> String {
        let status = self.process.as_mut().unwrap().wait().unwrap();
        assert!(!status.success());
        self.log()
    }

    /// Waits until the container has ended after a signal.
    pub(crate) fn ended_well(&mut self) {
        let status = self.process.as_mut().unwrap().wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// Asks the container to end, as the kubelet does. The first process of its namespace gets the signal.
    pub(crate) fn terminate(&self) {
        let status = kill(self.process.as_ref().unwrap(), "-TERM");
        assert!(status.unwrap().success());
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until the log has a text.
    pub(crate) fn logs(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(
                Instant::now() < deadline,
                "{text:?} is not in the log: {}",
                self.log()
            );
            sleep(Duration::from_millis(20));
        }
    }

    /// What the program that runs sshd answers at a path.
    fn answers(&self, path: &str) -> String {
        let address = SocketAddr::new(IpAddr::V4(self.address), 8_406);
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// What the pod reports that sshd has read.
    pub(crate) fn reports(&self) -> Running {
        let answer = self.answers("/config");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// A metric as the pod reports it.
    pub(crate) fn metric(&self, name: &str) -> String {
        let answer = self.answers("/metrics");
        let mut lines = answer.lines();
        let line = lines.find(|line| line.starts_with(name)).unwrap_or_default();
        line.to_owned()
    }

    /// ssh to this jump host, which users trust by the key in the cluster's status.
    pub(crate) fn ssh(&self, key: &Key, more: &[&str]) -> Command {
        self.ssh_as("ubuntu", key, more)
    }

    /// The same as another user.
    pub(crate) fn ssh_as(&self, user: &str, key: &Key, more: &[&str]) -> Command {
        let known = self.path("known_hosts");
        let (algorithm, public) = self.host_keys.public().pop_first().unwrap();
        fs::write(&known, format!("[{}]:2222 {algorithm} {public}\n", self.address)).unwrap();
        let mut command = ssh(key, &known);
        command
            .args(more)
            .args(["-p", "2222"])
            .arg(format!("{user}@{}", self.address));
        command
    }

    /// What a command prints on the jump host.
    pub(crate) fn prints(&self, key: &Key, command: &str) -> String {
        let output = self.ssh(key, &[]).arg(command).output().unwrap();
        assert!(output.status.success(), "{output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Whether this key lets its holder in; otherwise what ssh says.
    pub(crate) fn lets_in(&self, key: &Key) -> Result<(), String> {
        result(&self.ssh(key, &[]).arg("true").output().unwrap())
    }

    /// A file of the pod.
    pub(crate) fn file(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

fn parsed<K, E: std::fmt::Debug>(lines: &[String], parse: impl Fn(&str) -> Result<K, E>) -> Vec<K> {
    lines.iter().map(|line| parse(line).unwrap()).collect()
}

pub(crate) fn result(output: &Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// ssh with one key and nothing of the user who runs the test.
pub(crate) fn ssh(key: &Key, known_hosts: &Path) -> Command {
    let mut command = Command::new("ssh");
    command
        .args([
            "-F",
            "none",
            "-o",
            "BatchMode=yes",
            "-o",
            "IdentitiesOnly=yes",
            "-o",
            "IdentityAgent=none",
        ])
        .args([
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            "ConnectTimeout=10",
            "-o",
            "LogLevel=INFO",
        ])
        .arg("-o")
        .arg(format!("UserKnownHostsFile={}", known_hosts.display()))
        .arg("-i")
        .arg(key.file())
        .stdin(Stdio::null());
    command
}

/// Whether an ssh server answers.
pub(crate) fn greets(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let mut greeting = [0; 4];
    stream.read_exact(&mut greeting).is_ok() && greeting == *b"SSH-"
}
