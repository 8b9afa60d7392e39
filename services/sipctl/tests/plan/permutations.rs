//! The same documents in another order give the same bytes.

use proptest::prelude::*;
use serde_json::Value;
use sipctl::cli::Output;
use sipctl::command::print;
use sipctl::report::{Change, Outcome, Report};

use crate::fixtures::{Edit as _, cluster, host, planned, secret};

/// A site with members, failures, statuses, strays and several clusters.
fn site() -> impl Strategy<Value = Vec<Value>> {
    let hosts = prop::collection::vec((0..4_usize, 0..8_usize, 0..4_usize), 1..14);
    let clusters = prop::collection::vec((0..3_u32, 0..3_u32, 0..3_usize), 1..4);
    (hosts, clusters, any::<bool>()).prop_map(|(hosts, clusters, addresses)| {
        let mut objects = Vec::new();
        for (index, (rack, kind, owner)) in hosts.into_iter().enumerate() {
            let name = format!("h{index}");
            let host = host(&name, &format!("r{rack}"));
            let owner = format!("c{owner}");
            objects.push(match kind {
                0 | 1 => host.member_of(&owner, "Worker"),
                2 => host
                    .member_of(&owner, "Worker")
                    .annotated("sip.airshipit.org/failed"),
                3 => host.label("sip.airshipit.org/cluster-name", &owner),
                4 => host.annotated("baremetalhost.metal3.io/paused"),
                _ => host,
            });
            if addresses && kind % 2 == 0 {
                objects.push(secret(&name, "192.0.2.1"));
            }
        }
        for (index, (control_plane, workers, status)) in clusters.into_iter().enumerate() {
            let cluster = cluster(
                &format!("c{index}"),
                &[("ControlPlane", control_plane), ("Worker", workers)],
            );
            objects.push(match status {
                0 => cluster
                    .claims("gone", "Worker", "Bound")
                    .claims("h0", "Worker", "Claimed"),
                1 => cluster.claims("h1", "Worker", "Releasing"),
                _ => cluster,
            });
        }
        objects
    })
}

fn shuffled() -> impl Strategy<Value = (Vec<Value>, Vec<Value>)> {
    site().prop_flat_map(|objects| (Just(objects.clone()), Just(objects).prop_shuffle()))
}

/// What the contract promises of every report.
fn check(report: &Report) {
    let mut taken = std::collections::BTreeSet::new();
    for cluster in &report.clusters {
        assert_eq!(
            cluster.refusal.is_none(),
            cluster.outcome == Outcome::Placed,
            "{cluster:#?}"
        );
        assert!(
            cluster.reports.is_sorted_by(|a, b| a.order() <= b.order()) && cluster.release.is_sorted(),
            "{cluster:#?}"
        );
        for role in cluster.roles.values() {
            assert!(role.hosts.is_sorted(), "{cluster:#?}");
            let takes = role.hosts.iter().filter(|host| host.change == Change::Take);
            for host in takes {
                assert!(cluster.outcome != Outcome::Refused, "{cluster:#?}");
                assert!(taken.insert(host.host.clone()), "{} is taken twice", host.host);
            }
            if cluster.outcome == Outcome::Placed {
                assert_eq!(role.hosts.len(), role.want as usize, "{cluster:#?}");
            }
        }
        if cluster.outcome == Outcome::Refused {
            assert!(cluster.release.is_empty(), "{cluster:#?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_order_of_documents_changes_no_byte((objects, shuffled) in shuffled()) {
        let (first, second) = (planned(&objects), planned(&shuffled));
        check(&first.report());
        for output in [Output::Table, Output::Json, Output::Yaml] {
            prop_assert_eq!(print(&first, output).unwrap(), print(&second, output).unwrap());
        }
    }
}
