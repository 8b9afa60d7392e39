//! Samples as people have them: manifests in the form of SIP and of treasuremap, and what SIP leaves on a site.

use std::path::{Path, PathBuf};

use placement::{Namespace, Policy};
use sipctl::input::Input;
use sipctl::region::sip_templates::Templates;
use sipctl::report::{Change, Outcome, Report};
use sipctl::{files, plan};

/// This project's samples.
fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/site/samples")
        .join(name)
}

/// Those of SIP and treasuremap, where a copy lies beside this checkout.
fn beside(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data")
        .join(name);
    folder.is_dir().then_some(folder)
}

fn report(paths: &[PathBuf], namespace: &str) -> Report {
    let documents = files::documents(paths).unwrap();
    plan(&Input::new(documents, &Namespace::new(namespace).unwrap(), Policy::default()).unwrap()).report()
}

fn are_placed(paths: &[PathBuf], left: &str, sample: &str) {
    let (namespace, _) = sample.split_once('/').unwrap();
    let report = report(paths, namespace);
    let names: Vec<_> = report.clusters.iter().map(|cluster| &*cluster.cluster).collect();
    assert_eq!(names, [left, sample]);
    let [left, sample] = &report.clusters[..] else {
        panic!("two clusters")
    };
    assert_eq!((left.outcome, sample.outcome), (Outcome::Placed, Outcome::Placed));
    let hosts = left.roles.values().flat_map(|role| &role.hosts);
    assert!(
        hosts.map(|host| host.change).eq([Change::Keep; 5]),
        "what SIP placed stays"
    );
    assert!(
        sample.reports.iter().all(|report| report.kind == "state-unknown"),
        "{:#?}",
        sample.reports
    );
}

#[test]
fn samples_are_placed_and_what_sip_placed_stays() {
    are_placed(
        &[own("stock"), own("left-by-sip.yaml")],
        "freight/depot",
        "stock/stock",
    );
    if let Some(folder) = beside("sip") {
        are_placed(
            &[folder],
            "sipcluster-system/legacy",
            "sipcluster-system/sipcluster-system",
        );
    }
}

#[test]
fn clusters_are_read_and_refused_without_hosts() {
    for folder in [Some(own("pair")), beside("treasuremap")].into_iter().flatten() {
        let report = report(&[folder], "default");
        assert_eq!(report.clusters.len(), 2);
        assert!(
            report
                .clusters
                .iter()
                .all(|cluster| cluster.outcome == Outcome::Refused)
        );
    }
}

#[test]
fn only_changed_templates_of_sip_are_reported() {
    let changed = |path: PathBuf| {
        let documents = files::documents(&[path]).unwrap();
        let namespace = Namespace::new("default").unwrap();
        let templates = Templates::read(&documents, &namespace);
        assert!(templates.has_config_maps());
        let input = Input::new(documents, &namespace, Policy::default()).unwrap();
        let agents = Namespace::new("sip-system").unwrap();
        let changed = templates.customised(&input, &agents).into_iter();
        changed.map(|template| template.config_map).collect::<Vec<_>>()
    };
    assert_eq!(
        changed(own("left-by-sip.yaml")),
        ["freight/loadbalancercontrolplane", "freight/loadbalancerworker"]
    );
    // Those that a real SIP came with.
    if let Some(folder) = beside("sip") {
        assert_eq!(changed(folder), Vec::<String>::new());
    }
}
