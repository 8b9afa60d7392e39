//! A jump host, its nodes, and the programs that read its files.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use api::{Cluster, SIPCluster};
use k8s_openapi::ByteString;

use crate::jump_host::authorized_keys::{Authority, AuthorizedKey};
use crate::jump_host::host_keys::HostKeys;
use crate::jump_host::nodes::Node;
use crate::jump_host::{Objects, Plan, PowerService};

pub(super) const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHkYbTUdYkDv2VvVb4rB1V9s9yq8VxC0xZ7Tq9m2QyZq ana@shop.example";
pub(super) const AUTHORITY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIITH2+4NvvajjNb8rhZn45/5G+WXGIJgwNNLWjehwsIF authority";

const SITE: &str = "
apiVersion: airship.airshipit.org/v1
kind: SIPCluster
metadata: {name: orders, namespace: shop, uid: 7d1c, generation: 4}
spec:
  services:
    jumpHost:
    - image: quay.io/airshipit/jump-host:latest
      nodeLabels: {kubernetes.io/os: linux}
      nodeInterfaceId: oam-ipv4
      nodePort: 30101
      replicas: 2
      nodeSSHPrivateKeys: orders-keys
      kubeconfigSecret: orders-kubeconfig
";

/// What a plan borrows.
pub(super) struct Scene {
    pub(super) cluster: Cluster,
    pub(super) host_keys: HostKeys,
    pub(super) nodes: Vec<Node>,
    pub(super) keys: Vec<AuthorizedKey>,
    pub(super) authorities: Vec<Authority>,
    power: PowerService,
    tools: api::Image,
}

/// Makes a host key as ssh-keygen does.
pub(super) fn host_key() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let mut command = Command::new("ssh-keygen");
    command
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "host", "-f"])
        .arg(&file);
    assert!(command.status().unwrap().success());
    std::fs::read(file).unwrap()
}

pub(super) fn node(namespace: &str, name: &str, address: &str, control_plane: bool) -> Node {
    let address: IpAddr = address.parse().unwrap();
    Node::new(namespace, name, address, control_plane).unwrap()
}

impl Scene {
    pub(super) fn new() -> Self {
        let object: SIPCluster = serde_saphyr::from_str(SITE).unwrap();
        let data = BTreeMap::from([("ssh_host_ed25519_key".to_owned(), ByteString(host_key()))]);
        Self {
            cluster: Cluster::parse(&object).unwrap(),
            host_keys: HostKeys::read(&data),
            nodes: vec![
                node("metal", "node-1.rack-a", "192.0.2.11", true),
                node("metal", "node-2.rack-a", "2001:db8::12", false),
                node("spare", "node-3", "192.0.2.13", false),
            ],
            keys: vec![AuthorizedKey::parse(KEY).unwrap()],
            authorities: vec![Authority::parse(AUTHORITY).unwrap()],
            power: PowerService {
                address: "power.sip-system.svc:8443".parse().unwrap(),
                ca: Some("certificate".to_owned()),
                namespace: "sip-system".to_owned(),
                app: "sip-jump-host-agent".to_owned(),
            },
            tools: "localhost/sip-jump-host-sidecar:1".parse().unwrap(),
        }
    }

    pub(super) fn without_host_keys() -> Self {
        Self {
            host_keys: HostKeys::default(),
            ..Self::new()
        }
    }

    pub(super) fn plan(&self) -> Plan<'_> {
        const API_SERVERS: &[std::net::SocketAddr] = &[std::net::SocketAddr::new(
            IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1)),
            6_443,
        )];
        const NAME_SERVERS: &[IpAddr] = &[IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 20, 10))];
        Plan {
            cluster: &self.cluster,
            jump_host: &self.cluster.jump_hosts()[0],
            tools: &self.tools,
            power: &self.power,
            keys: self.keys.clone(),
            authorities: self.authorities.clone(),
            host_keys: &self.host_keys,
            nodes: self.nodes.clone(),
            api_endpoints: vec!["203.0.113.5:30100".parse().unwrap()],
            api_balancers: vec!["loadbalancer-controlplane-orders".to_owned()],
            site_api_servers: API_SERVERS,
            name_servers: NAME_SERVERS,
        }
    }

    pub(super) fn objects(&self) -> Objects {
        self.plan().objects()
    }
}

/// What a program of OpenSSH reads from a file: its words, by keyword in lower case.
pub(super) fn read_back(program: &str, arguments: &[&str], text: &str) -> Vec<(String, String)> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    std::fs::write(&file, text).unwrap();
    read_back_file(program, arguments, &file, text)
}

fn read_back_file(program: &str, arguments: &[&str], file: &Path, text: &str) -> Vec<(String, String)> {
    let (flags, rest) = arguments.split_at(1);
    let output = Command::new(program).args(flags).arg(file).args(rest).output();
    let output = output.unwrap_or_else(|error| {
        panic!("these tests need {program} (Debian packages openssh-server and openssh-client; `make setup` installs them): {error}")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}\n{text}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let words = lines
        .lines()
        .map(|line| line.split_once(' ').unwrap_or((line, "")));
    words
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The effective configuration of sshd. It wants host keys at the places that the text names; a test has them elsewhere.
pub(super) fn sshd_reads(text: &str) -> Vec<(String, String)> {
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().display().to_string();
    std::fs::write(directory.path().join("ssh_host_ed25519_key"), host_key()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(directory.path().join("ssh_host_ed25519_key"), mode).unwrap();
    // As root it wants this directory.
    let _ = std::fs::create_dir_all("/run/sshd");
    let text = text.replace("/run/sip/host-keys", &keys);
    read_back("/usr/sbin/sshd", &["-Tf"], &text)
}

/// What ssh does for a destination.
pub(super) fn ssh_reads(text: &str, destination: &str) -> Vec<(String, String)> {
    read_back("ssh", &["-GF", destination], text)
}

pub(super) fn value<'a>(words: &'a [(String, String)], key: &str) -> &'a str {
    let found = words.iter().find(|(word, _)| word == key);
    found.map_or("", |(_, value)| value)
}
