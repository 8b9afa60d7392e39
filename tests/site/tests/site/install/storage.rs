//! The etcd of identity providers takes what its manifest gives it, and is where the agent looks for it.

use std::{fs, time::Duration};

use rcgen::{CertificateParams, KeyPair};
use sandbox::{
    port,
    process::{Group, Program},
    readiness, tools,
};

use super::drift::{Rendered, containers, list, text};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn etcd_takes_the_flags_of_its_manifest() {
    let rendered = Rendered::overlay("agents/dex/storage");
    let workload = rendered.workloads().next().unwrap();
    let container = containers(workload).next().unwrap();
    let command: Vec<&str> = list(&container["command"]).map(text).collect();
    let (program, flags) = command.split_first().unwrap();

    let group = Group::new("storage").unwrap();
    let root = group.directory().join("root");
    let files = root.join("etc/etcd/tls");
    for directory in [&files, &root.join("var/lib/etcd")] {
        fs::create_dir_all(directory).unwrap();
    }
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    fs::write(files.join("tls.crt"), certificate.pem()).unwrap();
    fs::write(files.join("tls.key"), key.serialize_pem()).unwrap();

    // Ports of this machine may be taken.
    let [client, metrics, peer] = [(); 3].map(|()| port::reserve().unwrap());
    let mut etcd = Program::new("etcd", tools::path(program).unwrap());
    for flag in flags {
        let flag = flag.replace("=/", &format!("={}/", root.display()));
        let flag = flag.replace("0.0.0.0:2379", &format!("127.0.0.1:{client}"));
        etcd = etcd.arg(flag.replace("0.0.0.0:2381", &format!("127.0.0.1:{metrics}")));
    }
    let peer = format!("http://127.0.0.1:{peer}");
    let etcd = etcd
        .flag("--listen-peer-urls", &peer)
        .flag("--initial-advertise-peer-urls", &peer)
        .flag("--initial-cluster", format!("sip-dex-storage={peer}"));
    let mut etcd = group.spawn(etcd).unwrap();
    readiness::http(&mut etcd, metrics, "/readyz", PATIENCE)
        .await
        .unwrap();

    let agent = Rendered::overlay("agents/dex");
    let agent = agent.workloads().next().unwrap();
    let arguments = &containers(agent).next().unwrap()["args"];
    let published = flags
        .iter()
        .find_map(|flag| flag.strip_prefix("--advertise-client-urls="));
    let expected = format!("--storage-endpoint={}", published.unwrap());
    assert!(
        list(arguments).any(|argument| text(argument) == expected),
        "{arguments}"
    );
}
