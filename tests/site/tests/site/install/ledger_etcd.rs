//! The etcd of the ledger: its members, its certificates and the scheduler agree on names, and real members take what the manifest gives them.

use std::{
    fs, iter,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use sandbox::{
    authority::{Authority, Caller},
    port,
    process::{Group, Program},
    readiness, repository, tools,
};
use serde_json::Value;

use super::{
    commands::blocks,
    drift::{ETCD, Rendered, containers, environment, list, text},
    page::PAGE,
};

const MANIFEST: &str = "scheduler/etcd";
const OVERLAY: &str = "examples/region-with-two-sites/region-own-etcd";
const NAME: &str = "sip-etcd";
/// What Kubernetes replaces by the name of the pod.
const POD: &str = "$(POD_NAME)";
/// Of clients, peers and metrics.
const PORTS: [u16; 3] = [2379, 2380, 2381];
/// A name that every member's certificate has, and no client's.
const ALLOWED: &str = "--peer-cert-allowed-hostname";
const PATIENCE: Duration = Duration::from_secs(30);

/// The DNS names of the members, by ordinal.
fn hosts(etcd: &Value) -> Vec<String> {
    let service = text(&etcd["spec"]["serviceName"]);
    let namespace = text(&etcd["metadata"]["namespace"]);
    let replicas = etcd["spec"]["replicas"].as_u64().unwrap();
    (0..replicas)
        .map(|ordinal| format!("{NAME}-{ordinal}.{service}.{namespace}.svc"))
        .collect()
}

fn command(etcd: &Value) -> impl Iterator<Item = &str> {
    containers(etcd)
        .flat_map(|container| list(&container["command"]))
        .map(text)
}

fn flag<'a>(etcd: &'a Value, name: &str) -> &'a str {
    command(etcd)
        .find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_else(|| panic!("etcd has no {name}"))
}

/// The name of the Secret in a volume.
fn secret<'a>(workload: &'a Value, volume: &str) -> &'a Value {
    let volumes = &workload["spec"]["template"]["spec"]["volumes"];
    let found = list(volumes).find(|one| one["name"] == volume);
    &found.unwrap()["secret"]["secretName"]
}

#[test]
fn members_certificates_and_schedulers_agree_on_names() {
    let rendered = Rendered::overlay(OVERLAY);
    let etcd = rendered.object("StatefulSet", NAME);
    let hosts = hosts(etcd);
    let urls = |port: u16| -> Vec<String> {
        let urls = hosts.iter().map(|host| format!("https://{host}:{port}"));
        urls.collect()
    };
    let [client, peer, _] = PORTS;

    let service = rendered.object("Service", text(&etcd["spec"]["serviceName"]));
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    let cluster: Vec<String> = (0..)
        .zip(urls(peer))
        .map(|(ordinal, url)| format!("{NAME}-{ordinal}={url}"))
        .collect();
    assert_eq!(flag(etcd, "--initial-cluster"), cluster.join(","));
    for (name, port) in [
        ("--advertise-client-urls", client),
        ("--initial-advertise-peer-urls", peer),
    ] {
        let first = flag(etcd, name).replace(POD, &format!("{NAME}-0"));
        assert_eq!(first, urls(port)[0], "{name}");
    }

    let scheduler = rendered.object("StatefulSet", "sip-scheduler");
    let container = containers(scheduler).next().unwrap();
    let environment = environment(&rendered, container);
    assert_eq!(environment["SIP_LEDGER_ETCD"], urls(client).join(","));

    let member = &rendered.object("Certificate", "sip-etcd-member")["spec"];
    let certified: Vec<&str> = list(&member["dnsNames"]).map(text).collect();
    let expected: Vec<&str> = iter::once(flag(etcd, ALLOWED))
        .chain(hosts.iter().map(String::as_str))
        .collect();
    assert_eq!(certified, expected);
    assert_eq!(member["secretName"], *secret(etcd, "tls"));
    let client = &rendered.object("Certificate", "sip-etcd-client")["spec"];
    assert!(client["dnsNames"].is_null(), "a scheduler is no member: {client}");
    assert_eq!(client["secretName"], *secret(scheduler, "etcd"));
    let page = fs::read_to_string(repository::root().join(PAGE)).unwrap();
    for name in certified {
        assert!(page.contains(&format!("DNS:{name}")), "openssl omits {name}");
    }
}

/// Runs a program that must succeed, in a directory. Returns what it prints.
fn printed(directory: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// rustls refuses a certificate of version 1, also as the own one of a client. OpenSSL makes it one if it has no extension.
#[test]
fn openssl_makes_certificates_that_the_scheduler_uses() {
    let page = fs::read_to_string(repository::root().join(PAGE)).unwrap();
    let commands = blocks(&page, "## Several sites", "bash");
    let commands = commands.iter().find(|block| block.contains("openssl req"));
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    // The Secrets are not created here.
    let script = format!("kubectl() {{ cat >/dev/null; }}\n{}", commands.unwrap());

    printed(directory, "bash", &["-euo", "pipefail", "-c", &script]);

    for (name, purpose) in [
        ("etcd-member", "sslserver"),
        ("etcd-member", "sslclient"),
        ("etcd-client", "sslclient"),
    ] {
        let file = format!("{name}.crt");
        let verify = ["verify", "-CAfile", "etcd-ca.crt", "-purpose", purpose, &file];
        printed(directory, "openssl", &verify);
        let certificate = printed(directory, "openssl", &["x509", "-noout", "-text", "-in", &file]);
        assert!(certificate.contains("Version: 3 "), "{certificate}");
    }
}

#[test]
fn the_manifest_names_the_etcd_that_the_tests_run() {
    let rendered = Rendered::overlay(MANIFEST);
    let container = containers(rendered.object("StatefulSet", NAME)).next().unwrap();
    let modules = fs::read_to_string(repository::sandbox().join("tools/etcd/go.mod")).unwrap();
    let version = modules.lines().find_map(|line| {
        line.trim()
            .strip_prefix("go.etcd.io/etcd/server/v3 ")?
            .split(' ')
            .next()
    });

    assert_eq!(text(&container["image"]), format!("{ETCD}:{}", version.unwrap()));
}

/// While etcd defragments, `/livez` has no answer: it reads the database.
#[test]
fn etcd_is_not_restarted_while_it_defragments() {
    let page = fs::read_to_string(repository::root().join(PAGE)).unwrap();
    let (_, after) = page.split_once("etcdctl defrag --command-timeout=").unwrap();
    let (minutes, _) = after.split_once('m').unwrap();
    let wait = 60 * minutes.parse::<u64>().unwrap();
    for folder in [MANIFEST, "agents/dex/storage"] {
        let rendered = Rendered::overlay(folder);
        let container = rendered.workloads().flat_map(containers).next().unwrap();
        let probe = &container["livenessProbe"];
        let number = |key: &str| probe[key].as_u64().unwrap();

        // The last of these probes restarts the container.
        let tolerated = number("periodSeconds") * (number("failureThreshold") - 1);

        assert!(tolerated > wait, "{folder}: {tolerated} s");
    }
}

#[tokio::test]
async fn members_take_the_flags_of_their_manifest() {
    let rendered = Rendered::overlay(MANIFEST);
    let etcd = rendered.object("StatefulSet", NAME);
    let hosts = hosts(etcd);
    let group = Group::new("ledger-etcd").unwrap();
    let authority = Authority::new(&group.directory().join("pki"), "etcd").unwrap();
    let identity = authority
        .issue_server(&Caller::Operator("member"), &[flag(etcd, ALLOWED)])
        .unwrap();
    // Ports of this machine may be taken.
    let ports: Vec<[u16; 3]> = hosts
        .iter()
        .map(|_| PORTS.map(|_| port::reserve().unwrap()))
        .collect();

    let mut members = Vec::new();
    for (ordinal, own) in ports.iter().enumerate() {
        let name = format!("{NAME}-{ordinal}");
        let root = group.directory().join(&name);
        let files = root.join("etc/etcd/tls");
        for directory in [&files, &root.join("var/lib/etcd")] {
            fs::create_dir_all(directory).unwrap();
        }
        for (from, to) in [
            (&identity.certificate, "tls.crt"),
            (&identity.key, "tls.key"),
            (&identity.authority, "ca.crt"),
        ] {
            fs::copy(from, files.join(to)).unwrap();
        }
        let mut arguments = command(etcd);
        let program = Program::new(&name, tools::path(arguments.next().unwrap()).unwrap());
        let flags = arguments.map(|flag| {
            let flag = flag
                .replace("=/", &format!("={}/", root.display()))
                .replace(POD, &name);
            let named = hosts.iter().map(String::as_str).zip(&ports);
            iter::once(("0.0.0.0", own))
                .chain(named)
                .fold(flag, |flag, (host, ports)| {
                    PORTS.iter().zip(ports).fold(flag, |flag, (manifest, port)| {
                        flag.replace(&format!("{host}:{manifest}"), &format!("127.0.0.1:{port}"))
                    })
                })
        });
        let [_, _, metrics] = *own;
        members.push((group.spawn(program.args(flags)).unwrap(), metrics));
    }

    for (member, metrics) in &mut members {
        readiness::http(member, *metrics, "/readyz", PATIENCE)
            .await
            .unwrap();
    }
}
