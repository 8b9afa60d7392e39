//! No namespace takes the room of the others in a site, however many `SIPCluster`s it has and however large they are.

use placement::ClusterName;
use proptest::prelude::*;
use proto::inventory::v1 as wire;
use scheduler::{
    convert,
    error::Error,
    site::{Apply, Limits, SessionId},
};

use crate::fixtures::{CALLER, SITE, Stage, host, labelled, observed, spec};

fn limited(limits: Limits) -> Stage {
    let stage = Stage::empty();
    let _ = stage.region.clone().limited(limits);
    stage
}

/// A spec that wants so many hosts and has a selector of so many values.
fn selecting(workers: u32, values: usize) -> wire::ClusterSpec {
    let mut spec = spec(workers);
    spec.roles[0].label_selector = Some(wire::LabelSelector {
        match_expressions: vec![wire::LabelSelectorRequirement {
            key: "rack".to_owned(),
            operator: "NotIn".to_owned(),
            values: (0..=values).map(|value| format!("none-{value}")).collect(),
        }],
        ..wire::LabelSelector::default()
    });
    spec
}

/// Declares `namespace/name`.
async fn declare(
    stage: &Stage,
    cluster: &str,
    generation: i64,
    spec: wire::ClusterSpec,
) -> Result<(), Error> {
    let apply = Apply {
        cluster: cluster.parse().unwrap(),
        uid: "uid".to_owned(),
        generation,
        created: None,
        spec: convert::parse_spec(spec, "spec").unwrap(),
    };
    stage.region.apply(SITE, apply, CALLER).await.map(drop)
}

/// Declares clusters of namespace `a` until one is refused. Returns how many were taken, and the refusal.
async fn declare_many(stage: &Stage, values: usize) -> (usize, &'static str, String) {
    for number in 0..1000 {
        match declare(stage, &format!("a/c{number}"), 1, selecting(0, values)).await {
            Ok(()) => {}
            Err(Error::SiteFull { site: _, limit, why }) => return (number, limit, why),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("nothing is refused")
}

#[tokio::test]
async fn one_namespace_does_not_take_all_records() {
    let stage = limited(Limits {
        clusters: 20,
        ..Limits::default()
    });
    let _session = stage.sync(&[host("h1")]).await;
    let (taken, limit, why) = declare_many(&stage, 1).await;
    assert_eq!((taken, limit), (10, "records"));
    assert!(why.contains("namespace a has more than its share"), "{why}");
    assert!(why.contains("delete SIPClusters of namespace a"), "{why}");
    for number in 0..5 {
        declare(&stage, &format!("b/c{number}"), 1, spec(1))
            .await
            .unwrap();
    }
    // What is there can change and go.
    declare(&stage, "a/c0", 2, spec(0)).await.unwrap();
}

#[tokio::test]
async fn one_namespace_does_not_take_all_bytes_of_records() {
    let stage = limited(Limits {
        records: 256 << 10,
        ..Limits::default()
    });
    let _session = stage.sync(&[host("h1"), host("h2")]).await;
    let (taken, limit, why) = declare_many(&stage, 50).await;
    assert!(taken > 1 && limit == "record-bytes", "{taken} {limit}");
    assert!(why.contains("namespace a has more than its share"), "{why}");
    let summary = stage.region.site(SITE).unwrap().read().summary();
    assert!(summary.record_bytes <= 128 << 10, "{summary:?}");
    declare(&stage, "b/one", 1, selecting(1, 50)).await.unwrap();
    declare(&stage, "b/one", 2, selecting(2, 50)).await.unwrap();
}

#[tokio::test]
async fn a_full_site_says_that_others_fill_it() {
    let stage = limited(Limits {
        clusters: 8,
        ..Limits::default()
    });
    let _session = stage.sync(&[host("h1")]).await;
    for cluster in ["a/1", "a/2", "a/3", "a/4", "b/1", "b/2", "c/1", "d/1"] {
        let _ = declare(&stage, cluster, 1, spec(0)).await;
    }
    let refused = declare(&stage, "e/1", 1, spec(0)).await.unwrap_err().to_string();
    assert!(refused.contains("7 of them in other namespaces"), "{refused}");
}

/// What namespace `a` does: it declares one of its clusters with so large a selector, or gives it back.
#[derive(Clone, Debug)]
enum Move {
    Declare { cluster: u8, values: u8 },
    Release { cluster: u8 },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let declare = (0_u8..24, 0_u8..200).prop_map(|(cluster, values)| Move::Declare { cluster, values });
    let release = (0_u8..24).prop_map(|cluster| Move::Release { cluster });
    proptest::collection::vec(prop_oneof![6 => declare, 1 => release], 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_order_of_declarations_refuses_the_first_ones_of_others(moves in moves()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stage = limited(Limits { clusters: 16, records: 192 << 10, ..Limits::default() });
            let _session = stage.sync(&[host("h1")]).await;
            for (step, generation) in moves.into_iter().zip(1..) {
                match step {
                    Move::Declare { cluster, values } => {
                        let spec = selecting(0, values.into());
                        let _ = declare(&stage, &format!("a/c{cluster}"), generation, spec).await;
                    }
                    Move::Release { cluster } => {
                        let name: ClusterName = format!("a/c{cluster}").parse().unwrap();
                        let _ = stage.region.release(SITE, &name, "uid", CALLER).await;
                    }
                }
            }
            for first in ["b/one", "b/two", "c/one", "c/two"] {
                declare(&stage, first, 1, selecting(0, 20)).await.unwrap();
            }
        });
    }
}

/// A `SIPCluster` without status.
fn existing(cluster: &str) -> wire::ObservedCluster {
    let name: ClusterName = cluster.parse().unwrap();
    let mut existing = observed(name.name());
    if let Some(reference) = &mut existing.r#ref {
        name.namespace().as_str().clone_into(&mut reference.namespace);
    }
    existing
}

/// The same, with a status that names a host.
fn holding(cluster: &str, host_name: &str) -> wire::ObservedCluster {
    wire::ObservedCluster {
        members: vec![wire::ObservedMember {
            host: host(host_name).r#ref,
            role: "Worker".to_owned(),
            state: wire::MemberState::Bound.into(),
            revision: 1,
            ..wire::ObservedMember::default()
        }],
        ..existing(cluster)
    }
}

async fn report(
    stage: &Stage,
    session: &SessionId,
    clusters: Vec<wire::ObservedCluster>,
    hosts: Vec<wire::Host>,
) {
    let changes = wire::HostChanges {
        clusters,
        hosts,
        ..wire::HostChanges::default()
    };
    let changes = convert::changes(SITE, changes);
    stage.region.report(SITE, session, changes).await.unwrap();
}

fn empty_ones(count: usize) -> Vec<wire::ObservedCluster> {
    (0..count)
        .map(|number| existing(&format!("a/c{number:02}")))
        .collect()
}

fn is_observed(stage: &Stage, cluster: &str) -> bool {
    let site = stage.region.site(SITE).unwrap();
    site.read().clusters().contains_key(&cluster.parse().unwrap())
}

fn observed_clusters(stage: &Stage) -> usize {
    stage.region.site(SITE).unwrap().read().clusters().len()
}

const CLUSTERS: Limits = Limits {
    sites: 4,
    hosts: 100,
    clusters: 8,
    members: 100,
    inventory: 512 << 20,
    records: 256 << 20,
};

#[tokio::test]
async fn empty_clusters_beyond_the_limit_end_no_stream() {
    let stage = limited(CLUSTERS);
    let reporter = stage.open("lease", 1).await.unwrap();
    let session = reporter.session().id.clone();
    report(&stage, &session, empty_ones(30), vec![host("h1"), host("h2")]).await;
    stage.region.complete_snapshot(SITE, &session).await.unwrap();
    assert_eq!(observed_clusters(&stage), 4, "half of the room");
    report(&stage, &session, empty_ones(40), Vec::new()).await;
    report(&stage, &session, vec![existing("b/one")], Vec::new()).await;
    assert!(is_observed(&stage, "b/one") && observed_clusters(&stage) == 5);
    declare(&stage, "b/one", 1, spec(1)).await.unwrap();
    match declare(&stage, "a/c29", 1, spec(1)).await {
        Err(Error::SiteFull { site: _, limit, why }) => {
            assert_eq!(limit, "clusters");
            assert!(why.contains("namespace a has more than its share"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    declare(&stage, "a/c00", 1, spec(1)).await.unwrap();

    // When others of its namespace are gone, it is taken.
    let deleted = empty_ones(4)
        .into_iter()
        .skip(1)
        .filter_map(|cluster| cluster.r#ref);
    let changes = wire::HostChanges {
        deleted_clusters: deleted.collect(),
        ..wire::HostChanges::default()
    };
    let changes = convert::changes(SITE, changes);
    stage.region.report(SITE, &session, changes).await.unwrap();
    report(&stage, &session, vec![existing("a/c29")], Vec::new()).await;
    assert!(is_observed(&stage, "a/c29"));
    declare(&stage, "a/c29", 1, spec(0)).await.unwrap();
}

#[tokio::test]
async fn clusters_that_hold_hosts_are_never_left_out() {
    let stage = limited(CLUSTERS);
    let reporter = stage.open("lease", 1).await.unwrap();
    let session = reporter.session().id.clone();
    report(
        &stage,
        &session,
        empty_ones(30),
        vec![host("h1"), labelled("h2", "old")],
    )
    .await;
    // By its labels, by its record, and by their statuses.
    report(&stage, &session, vec![existing("tenant/old")], Vec::new()).await;
    stage.region.complete_snapshot(SITE, &session).await.unwrap();
    declare(&stage, "a/c00", 1, spec(0)).await.unwrap();
    let hosts = (3..9).map(|number| host(&format!("h{number}"))).collect();
    report(&stage, &session, Vec::new(), hosts).await;
    let names: Vec<_> = (3..9).map(|number| format!("a/holds-{number}")).collect();
    let holding = names
        .iter()
        .zip(3..)
        .map(|(name, number)| holding(name, &format!("h{number}")));
    report(&stage, &session, holding.collect(), Vec::new()).await;
    let stay = names.iter().map(String::as_str).chain(["tenant/old", "a/c00"]);
    for name in stay {
        assert!(is_observed(&stage, name), "{name}");
    }
    assert_eq!(observed_clusters(&stage), 8, "empty ones have made room");
    // A new stream names them in another order.
    drop(reporter);
    let reporter = stage.open("lease", 1).await.unwrap();
    let session = reporter.session().id.clone();
    report(&stage, &session, vec![existing("b/one")], Vec::new()).await;
    report(&stage, &session, empty_ones(30), Vec::new()).await;
    let holding = names
        .iter()
        .zip(3..)
        .map(|(name, number)| self::holding(name, &format!("h{number}")));
    report(&stage, &session, holding.collect(), Vec::new()).await;
    stage.region.complete_snapshot(SITE, &session).await.unwrap();
    for name in names.iter().map(String::as_str).chain(["a/c00"]) {
        assert!(is_observed(&stage, name), "{name}");
    }
}

#[tokio::test]
async fn hosts_of_clusters_left_out_are_not_orphaned() {
    let stage = limited(CLUSTERS);
    let reporter = stage.open("lease", 1).await.unwrap();
    let session = reporter.session().id.clone();
    let many = (0..30)
        .map(|number| existing(&format!("tenant/c{number:02}")))
        .collect();
    report(&stage, &session, many, Vec::new()).await;
    report(
        &stage,
        &session,
        Vec::new(),
        vec![labelled("h1", "c29"), host("h2")],
    )
    .await;
    stage.region.complete_snapshot(SITE, &session).await.unwrap();
    assert!(!is_observed(&stage, "tenant/c29"));
    assert!(stage.release_orphan(&host("h1")).await.is_err());
    // It holds a host, so it can be declared, and takes it over.
    declare(&stage, "tenant/c29", 1, spec(1)).await.unwrap();
    let site = stage.region.site(SITE).unwrap();
    let record = site
        .read()
        .record(&"tenant/c29".parse().unwrap())
        .cloned()
        .unwrap();
    assert_eq!(record.members.len(), 1);
    assert_eq!(record.members.keys().next().unwrap().name.name(), "h1");
}
