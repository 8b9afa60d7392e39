//! A status that somebody wrote by hand, in the words of the ledger that is there.

use proto::inventory::v1 as wire;
use scheduler::convert;

use super::{Site, forged_status};
use crate::fixtures::{Stage, host, observed};

#[tokio::test]
async fn status_written_by_hand_holds_no_host() {
    let stage = Stage::empty();
    let hosts = ["h1", "h2", "h3"].map(host);
    let a = Site::sync(&stage, "a", &hosts, None).await;
    let one = a.apply("one", 1, 1).await;
    let two = a.apply("two", 1, 1).await;
    assert!(two.revision > one.revision);
    let free = hosts.iter().filter_map(|host| {
        let id = convert::host_id(host.r#ref.as_ref()?).ok()?;
        let is_held = one.members.contains_key(&id) || two.members.contains_key(&id);
        (!is_held).then(|| host.clone())
    });
    let free: Vec<_> = free.collect();
    let [free] = &*free else { panic!("{free:?}") };
    let name = free.r#ref.clone().unwrap().name;
    // The cluster has one host, and its status names the free one, at a revision that the site has been given.
    for (cluster, revision) in [("one", two.revision), ("stranger", two.revision)] {
        let mut status = forged_status(1, revision, revision);
        status.members[0].host = free.r#ref.clone();
        status.members[0].state = wire::MemberState::Bound.into();
        let changes = wire::HostChanges {
            clusters: vec![wire::ObservedCluster {
                revision: status.revision,
                members: status.members,
                ..observed(cluster)
            }],
            ..wire::HostChanges::default()
        };
        let session = &a.reporter.session().id;
        let changes = scheduler::convert::changes("a", changes);
        stage.region.report("a", session, changes).await.unwrap();
        assert_eq!(stage.why_not(&name), [""; 0], "held for {cluster}");
    }
    let again = a.apply("one", 2, 1).await;
    assert_eq!(again.members.len(), 1, "{again:?}");
    assert_eq!(
        a.apply("three", 1, 1).await.members.len(),
        1,
        "another cluster gets it"
    );
}
