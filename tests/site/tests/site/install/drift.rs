//! The manifests agree with the programs: each container's image, arguments, environment, files and ports are those that its
//! program takes. The program itself is asked: it is started with all of it, and must fail only where a site would begin.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output},
};

use images::catalogue::{IMAGES, LOCAL};
use sandbox::{programs, repository, tools};
use serde_json::Value;

/// The overlays that have all that their containers need, and what their programs miss here.
const OVERLAYS: [&str; 8] = [
    "airship/function/sip",
    "examples/one-site",
    "examples/one-site-with-dex",
    "examples/region-with-two-sites/region",
    "examples/region-with-two-sites/region-networks",
    "examples/region-with-two-sites/region-own-etcd",
    "examples/region-with-two-sites/site-a",
    "examples/region-with-two-sites/site-b",
];
/// Jobs that fill the ledger of a scheduler.
pub(super) const LEDGER_JOBS: [&str; 2] = ["ledger-import", "ledger-to-etcd"];
/// Read last by an agent: its configuration and certificates were accepted.
const NO_API_SERVER: &str = "the API server's configuration cannot be read";
/// Read last by a scheduler that has a place for its backups and none for its ledger.
const NO_LEDGER: &str = "the ledger ";
/// The name by which jump hosts verify power control.
const POWER: &str = "sip-jump-host-agent-power.sip-system.svc";
/// Images carry the version of the programs, which all crates share.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The image of the ledger's etcd, without its tag: `ledger_etcd.rs` runs the program.
pub(super) const ETCD: &str = "quay.io/coreos/etcd";
/// Where programs listen: at all addresses, or only at that of the cluster's network.
const LISTENERS: [&str; 2] = ["0.0.0.0", "$(POD_IP)"];

/// The objects of a kustomization.
pub(super) struct Rendered(Vec<Value>);

impl Rendered {
    pub(super) fn overlay(overlay: &str) -> Self {
        let output = Command::new(tools::path("kubectl").unwrap())
            .arg("kustomize")
            .arg(repository::deploy().join(overlay))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{overlay}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self(serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap())
    }

    pub(super) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    pub(super) fn workloads(&self) -> impl Iterator<Item = &Value> {
        self.of_kind("StatefulSet").chain(self.of_kind("Deployment"))
    }

    /// The object of this kind and name, which the overlay must have.
    pub(super) fn object(&self, kind: &str, name: &str) -> &Value {
        self.of_kind(kind)
            .find(|object| object["metadata"]["name"] == name)
            .unwrap_or_else(|| panic!("there is no {kind} {name}"))
    }

    /// The files of a `ConfigMap` that the overlay makes.
    fn config_map(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let found = self
            .of_kind("ConfigMap")
            .find(|map| map["metadata"]["name"] == name)?;
        Some(serde_json::from_value(found["data"].clone()).unwrap())
    }
}

pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn containers(workload: &Value) -> impl Iterator<Item = &Value> {
    list(&workload["spec"]["template"]["spec"]["containers"])
}

/// The containers that run programs of this project.
fn own_containers(workload: &Value) -> impl Iterator<Item = &Value> {
    containers(workload).filter(|container| {
        let (name, _tag) = text(&container["image"]).split_once(':').unwrap_or_default();
        name != ETCD
    })
}

/// The program that a container runs: the first of its image.
fn program(container: &Value) -> &'static str {
    let image = text(&container["image"]);
    let row = IMAGES.iter().find(|row| row.reference(LOCAL, VERSION) == image);
    row.unwrap_or_else(|| panic!("{image} is no image of `make images`"))
        .programs[0]
}

fn help(program: &str) -> String {
    let output = Command::new(programs::path(program).unwrap())
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// Certificates as docs/install.md makes them, in the directory of `sipctl certs`.
fn certificates(directory: &Path) {
    let sipctl = programs::path("sipctl").unwrap();
    for arguments in [
        vec!["init", "--trust-domain=sip.example", "--region=north"],
        vec!["site", "site-a"],
        vec!["site", "site-b"],
        vec!["issue", "scheduler"],
        vec!["issue", "site/site-a/agent/cluster"],
        vec!["issue", "site/site-a/agent/load-balancer"],
        vec!["issue", "site/site-a/agent/dex"],
        vec!["issue", "site/site-a/agent/jump-host", "--dns", POWER],
    ] {
        let (action, rest) = arguments.split_first().unwrap();
        let output = Command::new(&sipctl)
            .args(["certs", action])
            .arg(directory)
            .args(rest)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// What a volume holds: made by the overlay, or by the commands of the page.
fn files(rendered: &Rendered, volume: &Value, pki: &Path) -> BTreeMap<String, String> {
    let read = |path: &str| fs::read_to_string(pki.join(path)).unwrap();
    let pair = |identity: &str| {
        BTreeMap::from([
            ("tls.crt".to_owned(), read(&format!("issued/{identity}.crt"))),
            ("tls.key".to_owned(), read(&format!("issued/{identity}.key"))),
        ])
    };
    if let Some(name) = volume["configMap"]["name"].as_str() {
        return match name {
            "sip-region-authority" => BTreeMap::from([("region.crt".to_owned(), read("region.crt"))]),
            "sip-denied" => BTreeMap::from([("denied".to_owned(), read("denied"))]),
            "sip-site-authorities" => ["site-a.crt", "site-b.crt"]
                .into_iter()
                .map(|site| (site.to_owned(), read(&format!("sites/{site}"))))
                .collect(),
            made => rendered
                .config_map(made)
                .unwrap_or_else(|| panic!("nobody makes the ConfigMap {made}")),
        };
    }
    match volume["secret"]["secretName"].as_str().unwrap_or_default() {
        "sip-scheduler-tls" => pair("scheduler"),
        // The names within a certificate of another site are the same in form.
        "sip-cluster-agent-tls" => pair("site_site-a_agent_cluster"),
        "sip-load-balancer-agent-tls" => pair("site_site-a_agent_load-balancer"),
        "sip-dex-agent-tls" => pair("site_site-a_agent_dex"),
        "sip-dex-storage" => BTreeMap::from([
            ("ca.crt".to_owned(), read("region.crt")),
            ("password".to_owned(), "of the storage".to_owned()),
        ]),
        "sip-jump-host-agent-tls" => {
            let ca = [("ca.crt".to_owned(), read("sites/site-a.crt"))];
            pair("site_site-a_agent_jump-host")
                .into_iter()
                .chain(ca)
                .collect()
        }
        // Not usable: the scheduler reads it before it asks etcd, and says so.
        "sip-etcd-tls" => ["ca.crt", "tls.crt", "tls.key"]
            .into_iter()
            .map(|key| (key.to_owned(), "no certificate".to_owned()))
            .collect(),
        other => panic!("nobody makes the Secret {other:?} of {volume}"),
    }
}

/// Starts a container's program with its arguments, environment and files.
fn start(rendered: &Rendered, workload: &Value, container: &Value) -> Output {
    let root = tempfile::tempdir().unwrap();
    let pki = root.path().join("pki");
    certificates(&pki);
    let volumes = &workload["spec"]["template"]["spec"]["volumes"];
    for mount in list(&container["volumeMounts"]) {
        let path = root
            .path()
            .join(text(&mount["mountPath"]).trim_start_matches('/'));
        let Some(volume) = list(volumes).find(|volume| volume["name"] == mount["name"]) else {
            let claim = &workload["spec"]["volumeClaimTemplates"][0]["metadata"]["name"];
            assert_eq!(&mount["name"], claim);
            // Without the place of its ledger the scheduler ends when it has read everything else.
            if mount["subPath"] != "ledger" {
                fs::create_dir_all(&path).unwrap();
            }
            continue;
        };
        fs::create_dir_all(&path).unwrap();
        for (name, content) in files(rendered, volume, &pki) {
            fs::write(path.join(name), content).unwrap();
        }
    }
    let environment = environment(rendered, container);
    let arguments = list(&container["args"]).map(|argument| {
        // Ports of this machine may be taken.
        let argument = LISTENERS
            .iter()
            .fold(text(argument).to_owned(), |argument, address| {
                argument.replace(&format!("{address}:"), "127.0.0.1:0")
            })
            .replace(":07443", ":0")
            .replace(":08443", ":0")
            .replace(":08081", ":0");
        argument
            .replace("=/", &format!("={}/", root.path().display()))
            .replace("$(", "(")
    });
    Command::new(programs::path(program(container)).unwrap())
        .args(arguments)
        .env_clear()
        .envs(environment)
        .output()
        .unwrap()
}

/// What a container has from the `ConfigMap`s of the overlay.
pub(super) fn environment(rendered: &Rendered, container: &Value) -> BTreeMap<String, String> {
    let sources = list(&container["envFrom"]).map(|source| text(&source["configMapRef"]["name"]));
    sources
        .flat_map(|name| {
            rendered
                .config_map(name)
                .unwrap_or_else(|| panic!("nobody makes the ConfigMap {name}"))
        })
        .collect()
}

#[test]
fn programs_take_what_their_manifests_give_them() {
    for overlay in OVERLAYS {
        let rendered = Rendered::overlay(overlay);
        let mut started = 0;
        for workload in rendered.workloads() {
            for container in own_containers(workload) {
                let expected = if program(container) == "sip-scheduler" {
                    NO_LEDGER
                } else {
                    NO_API_SERVER
                };

                let ended = start(&rendered, workload, container);

                let said = String::from_utf8_lossy(&ended.stderr);
                assert!(
                    !ended.status.success() && said.contains(expected),
                    "{overlay}: {}: {said}",
                    workload["metadata"]["name"]
                );
                started += 1;
            }
        }
        assert!(started > 0, "{overlay}");
    }
}

#[test]
fn objects_name_their_release_and_who_manages_them() {
    for overlay in OVERLAYS.into_iter().chain(LEDGER_JOBS) {
        // What an overlay generates for its site is the site's own.
        let rendered = Rendered::overlay(overlay);
        let ours = rendered.0.iter().filter(|object| object["kind"] != "ConfigMap");
        for object in ours {
            let metadata = &object["metadata"];
            // In the namespaces of tenants and hosts that is how children of SIPClusters are told.
            let is_elsewhere = metadata["namespace"]
                .as_str()
                .is_some_and(|namespace| !["sip-system", "default"].contains(&namespace));
            let part_of = if is_elsewhere { Value::Null } else { "sip".into() };
            let expected = [
                ("app.kubernetes.io/part-of", part_of),
                ("app.kubernetes.io/managed-by", "kustomize".into()),
                ("app.kubernetes.io/version", VERSION.into()),
            ];
            for (key, value) in expected {
                assert_eq!(metadata["labels"][key], value, "{overlay}: {key} of {object}");
            }
        }
    }
}

#[test]
fn agents_give_pods_the_programs_of_their_release() {
    let named = |field: &str, image: &str| {
        let row = IMAGES.iter().find(|row| row.name == image).unwrap();
        format!("{field}: {}\n", row.reference(LOCAL, VERSION))
    };
    let expected = [
        named("haproxySidecarImage", "sip-haproxy-sidecar"),
        named("jumpHostToolsImage", "sip-jump-host-sidecar"),
    ];
    let mut sites = 0;
    for overlay in OVERLAYS {
        let rendered = Rendered::overlay(overlay);
        for map in rendered.of_kind("ConfigMap") {
            if let Some(config) = map["data"]["site.yaml"].as_str() {
                for expected in &expected {
                    assert!(config.contains(expected), "{overlay}: {config}");
                }
                sites += 1;
            }
        }
    }
    assert_eq!(sites, 5);
}

#[test]
fn environment_and_ports_are_those_of_the_programs() {
    for overlay in OVERLAYS {
        let rendered = Rendered::overlay(overlay);
        for workload in rendered.workloads() {
            for container in own_containers(workload) {
                let help = help(program(container));
                for name in environment(&rendered, container).into_keys() {
                    assert!(help.contains(&format!("[env: {name}=")), "{overlay}: {name}");
                }
                let arguments: Vec<&str> = list(&container["args"]).map(text).collect();
                let listens = |flag: &str, port: &Value| {
                    LISTENERS
                        .iter()
                        .any(|address| arguments.contains(&&*format!("--{flag}={address}:{port}")))
                };
                for port in list(&container["ports"]) {
                    let number = &port["containerPort"];
                    let agrees = match text(&port["name"]) {
                        "grpc" => listens("listen", number),
                        "power" => listens("power-listen", number),
                        // As the program does by itself.
                        "health" => {
                            listens("health-listen", number)
                                && help.contains(&format!("[default: 0.0.0.0:{number}]"))
                        }
                        other => panic!("{other}: no program has such a port"),
                    };
                    assert!(agrees, "{overlay}: {port}: {arguments:?}");
                }
                for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                    assert_eq!(
                        container[probe]["httpGet"]["port"], "health",
                        "{overlay}: {probe}"
                    );
                }
            }
        }
        ports_lead_to_containers(overlay, &rendered);
    }
}

/// Services and network policies name ports of the pods that they select.
fn ports_lead_to_containers(overlay: &str, rendered: &Rendered) {
    let services = rendered.of_kind("Service").flat_map(|service| {
        let selected = &service["spec"]["selector"];
        list(&service["spec"]["ports"]).map(move |port| (selected, &port["targetPort"]))
    });
    let policies = rendered.of_kind("NetworkPolicy").flat_map(|policy| {
        let selected = &policy["spec"]["podSelector"]["matchLabels"];
        let rules = list(&policy["spec"]["ingress"]);
        rules
            .flat_map(|rule| list(&rule["ports"]))
            .map(move |port| (selected, &port["port"]))
    });
    for (selected, port) in services.chain(policies) {
        let selects = |workload: &&Value| {
            let labels = &workload["spec"]["template"]["metadata"]["labels"];
            selected
                .as_object()
                .unwrap()
                .iter()
                .all(|(key, value)| &labels[key] == value)
        };
        let mut pods = rendered.workloads().filter(selects).peekable();
        assert!(pods.peek().is_some(), "{overlay}: {selected} selects nothing");
        for pod in pods {
            let mut ports = containers(pod).flat_map(|container| list(&container["ports"]));
            assert!(
                ports.any(|one| one["name"] == *port),
                "{overlay}: {selected}: {port}"
            );
        }
    }
}
