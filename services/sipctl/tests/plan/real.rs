//! Real samples, where they are: SIP's own manifests, treasuremap's, and what SIP leaves on a site.

use std::path::{Path, PathBuf};

use placement::{Namespace, Policy};
use sipctl::input::Input;
use sipctl::report::{Change, Outcome, Report};
use sipctl::{files, plan};

fn samples() -> Option<PathBuf> {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    samples.is_dir().then_some(samples)
}

fn report(paths: &[PathBuf], namespace: &str) -> Report {
    let documents = files::documents(paths).unwrap();
    plan(&Input::new(documents, &Namespace::new(namespace).unwrap(), Policy::default()).unwrap()).report()
}

#[test]
fn sips_own_samples_are_placed_with_their_addresses_checked() {
    let Some(samples) = samples() else { return };
    let report = report(&[samples.join("sip")], "sipcluster-system");
    let names: Vec<_> = report.clusters.iter().map(|cluster| &*cluster.cluster).collect();
    assert_eq!(
        names,
        ["sipcluster-system/legacy", "sipcluster-system/sipcluster-system"]
    );
    let [legacy, sample] = &report.clusters[..] else {
        panic!("two clusters")
    };
    assert_eq!(
        (legacy.outcome, sample.outcome),
        (Outcome::Placed, Outcome::Placed)
    );
    let hosts = legacy.roles.values().flat_map(|role| &role.hosts);
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
fn treasuremaps_clusters_are_read_and_refused_without_hosts() {
    let Some(samples) = samples() else { return };
    let report = report(&[samples.join("treasuremap")], "default");
    assert_eq!(report.clusters.len(), 2);
    assert!(
        report
            .clusters
            .iter()
            .all(|cluster| cluster.outcome == Outcome::Refused)
    );
}
