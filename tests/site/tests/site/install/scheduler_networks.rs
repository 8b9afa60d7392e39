//! The overlay with networks and names of the scheduler: its certificate has the names of its Services, and its health port is only on the
//! network that `NetworkPolicy`s cover.

use std::{collections::BTreeSet, fs};

use sandbox::repository;
use serde_json::Value;

use super::drift::{Rendered, containers, list, text};

const EXAMPLE: &str = "examples/region-with-two-sites";
const HOSTNAME: &str = "external-dns.alpha.kubernetes.io/hostname";
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

#[test]
fn the_certificate_has_the_names_of_all_services() {
    let rendered = Rendered::overlay(&format!("{EXAMPLE}/region-networks"));
    let selected = &rendered.object("StatefulSet", "sip-scheduler")["spec"]["selector"]["matchLabels"];
    let mut names = BTreeSet::new();
    for service in rendered.of_kind("Service") {
        assert_eq!(service["spec"]["selector"], *selected);
        names.insert(text(&service["metadata"]["annotations"][HOSTNAME]));
    }
    assert_eq!(names.len(), 2, "{names:?}");

    let certificate = rendered.object("Certificate", "sip-scheduler");
    let certified: BTreeSet<&str> = list(&certificate["spec"]["dnsNames"]).map(text).collect();
    assert!(names.is_subset(&certified), "{names:?} {certified:?}");
    for site in ["site-a", "site-b"] {
        let file = repository::deploy().join(format!("{EXAMPLE}/{site}/site.yaml"));
        let config = fs::read_to_string(file).unwrap();
        let mut endpoints = names
            .iter()
            .map(|name| format!("endpoint: https://{name}:7443\n"));
        assert!(endpoints.any(|endpoint| config.contains(&endpoint)), "{config}");
    }
}

#[test]
fn other_networks_do_not_reach_the_health_port() {
    let rendered = Rendered::overlay(&format!("{EXAMPLE}/region-networks"));
    let scheduler = rendered.object("StatefulSet", "sip-scheduler");
    let annotations = &scheduler["spec"]["template"]["metadata"]["annotations"];
    let networks: Vec<Value> = serde_json::from_str(text(&annotations[NETWORKS])).unwrap();
    assert!(!networks.is_empty() && networks.iter().all(|network| network["name"].is_string()));

    let container = containers(scheduler).next().unwrap();
    let listeners: Vec<&str> = list(&container["args"])
        .map(text)
        .filter(|argument| argument.contains("listen="))
        .collect();
    assert_eq!(
        listeners,
        ["--listen=0.0.0.0:7443", "--health-listen=$(POD_IP):8081"]
    );
}
