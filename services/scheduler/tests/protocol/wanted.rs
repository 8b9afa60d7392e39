//! A cluster wants no more members than a status has room for.

use std::sync::Arc;

use placement::{HostId, HostName, MemberState, RoleName, Uid};
use proto::inventory::v1 as wire;
use redb::backends::InMemoryBackend;
use scheduler::{
    convert,
    error::Error,
    ledger::{Change, Commit, Ledger, RecordKey, redb::Redb},
    record::{Member, Record},
    spec::MAX_MEMBERS,
};

use crate::fixtures::{SITE, Stage, cluster, host, labelled, observed, spec, used};

/// So many roles that want as many members each.
fn roles(roles: u32, each: u32) -> wire::ClusterSpec {
    let mut wanted = spec(each);
    let role = wanted.roles.remove(0);
    wanted.roles = (0..roles)
        .map(|number| wire::Role {
            name: format!("Role{number}"),
            ..role.clone()
        })
        .collect();
    wanted
}

#[tokio::test]
async fn what_no_status_can_hold_is_refused_undecided() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2"), host("h3")]).await;
    let most = u32::try_from(MAX_MEMBERS).unwrap();
    for (wanted, sum, most) in [
        (spec(most + 1), most + 1, most),
        (roles(4, 600), 2_400, most),
        (roles(32, 10), 320, 312),
        (roles(64, 100_000), 6_400_000, 156),
    ] {
        let refused = stage.apply_spec("huge", "uid", 1, wanted).await.unwrap_err();
        let Error::Invalid(violations) = &refused else {
            panic!("{refused}")
        };
        assert_eq!(violations[0].field, "spec.roles");
        for part in [
            format!("{sum} hosts are wanted"),
            format!("at most {most}"),
            "divide the cluster".to_owned(),
        ] {
            assert!(violations[0].rule.contains(&part), "{refused}");
        }
    }
    assert!(stage.ledger.load().unwrap().records.is_empty());
    for (generation, wanted) in [(1, spec(most)), (2, roles(4, 578)), (3, roles(32, 9))] {
        let waits = stage.apply_spec("huge", "uid", generation, wanted).await.unwrap();
        assert!(waits.refusal.is_some());
    }
}

/// A ledger of an earlier version, in which a cluster has `members` of the hosts that it wants.
fn earlier(wanted: u32, members: &[&str]) -> Arc<dyn Ledger> {
    let spec = convert::parse_spec(spec(wanted), "spec").unwrap();
    let mut record = Record::new(cluster("huge"), "uid".to_owned(), None, 1, spec);
    record.revision = 1;
    record.members = members
        .iter()
        .map(|name| {
            let id = HostId {
                name: HostName::new("metal", *name).unwrap(),
                uid: Uid::new(host(name).r#ref.unwrap().uid).unwrap(),
            };
            let role = RoleName::new("Worker").unwrap();
            (id, Member::new(role, None, MemberState::Bound))
        })
        .collect();
    let ledger = Redb::on(InMemoryBackend::new()).unwrap();
    let stored = Change::Record {
        key: RecordKey {
            site: SITE.to_owned(),
            cluster: cluster("huge"),
        },
        record: Some(Arc::new(record)),
        decision: Box::default(),
        commit: Commit::new(1),
    };
    ledger.commit(&[stored]).unwrap();
    Arc::new(ledger)
}

#[tokio::test]
async fn a_larger_cluster_of_an_earlier_version_can_only_shrink() {
    let names = ["h1", "h2", "h3"];
    let stage = Stage::on(earlier(5_000, &names));
    let hosts: Vec<_> = names.map(|name| used(labelled(name, "huge"))).into();
    let free = ["h4", "h5"].map(host);
    let all = [&hosts[..], &free].concat();
    stage.sync_with(&all, &[observed("huge")], None).await;
    let size = |record: &Record| record.members.len();
    stage.retry().await;
    assert_eq!(size(&stage.record("huge").await.unwrap()), 3);

    // Declared again, with more, with less.
    assert_eq!(size(&stage.apply("huge", 1, 5_000).await.unwrap()), 3);
    let refused = stage.apply("huge", 2, 5_001).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    assert_eq!(size(&stage.apply("huge", 3, 4_000).await.unwrap()), 3);
    assert_eq!(size(&stage.apply("huge", 4, 5).await.unwrap()), 5);
    let released = stage.release("huge").await.unwrap();
    assert!(released.releasing);
}

#[tokio::test]
async fn a_failed_member_of_a_larger_cluster_is_replaced() {
    let stage = Stage::on(earlier(3_000, &["h1", "h2"]));
    let failed = wire::Host {
        marked_failed: true,
        ..used(labelled("h1", "huge"))
    };
    let hosts = [failed, used(labelled("h2", "huge")), host("h3"), host("h4")];
    stage.sync_with(&hosts, &[observed("huge")], None).await;
    stage.retry().await;
    let record = stage.record("huge").await.unwrap();
    let names: Vec<_> = record.members.keys().map(|id| id.name.name()).collect();
    assert_eq!(names, ["h1", "h2", "h3"], "one in the place of the failed one");
}
