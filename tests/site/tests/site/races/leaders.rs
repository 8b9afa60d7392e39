//! Two agents at once: the one that was elected before is stopped with a write on its way.

use std::time::Duration;

use sandbox::{
    region::{Agent, Replica},
    sip_clusters::holder,
};
use tokio::time::timeout;

use super::writes_a_host_of;
use crate::{
    faults::{ApiProxy, Fault, double_labels},
    fixtures::{PATIENCE, Role, Stage, cluster, host},
};

/// Short enough to wait for it, long enough for a busy machine.
const LEASE: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_deposed_leaders_late_label_changes_nothing() {
    let stage = Stage::start("site-a", &[]).await;
    let (old, new) = (ApiProxy::to(&stage.site).await, ApiProxy::to(&stage.site).await);
    let replica = async |name: &'static str, proxy: &ApiProxy| {
        let mut config = stage.region.site_config(&stage.site);
        config.not_installed.push("loadBalancer".to_owned());
        let replica = Replica {
            name,
            lease: LEASE,
            api_server: proxy.url(),
        };
        let started = stage
            .region
            .start_as(&stage.site, Agent::Cluster, &config, replica);
        let mut started = started.await.unwrap();
        started.is_ready().await.unwrap();
        started
    };
    let mut first = replica("first", &old).await;
    let _second = replica("second", &new).await;
    stage.load(&[host("leaders", "cp", "r1", "only")]).await;
    stage.site.create_tenant_namespace("leaders").await.unwrap();

    let late = old.inject(writes_a_host_of("leaders"), 0, Fault::HeldBefore);
    let before = cluster("leaders", "before").role(Role::ControlPlane, 1);
    stage.create(&before).await;
    late.happens().await;
    first.process().pause().unwrap();

    // The other one takes over, finishes the placement, releases the host, and gives it to the next cluster.
    stage.ready(&before).await;
    assert_eq!(stage.labelled("leaders", &before).await.len(), 1);
    stage.delete(&before).await;
    stage.gone(&before).await;
    let after = cluster("leaders", "after").role(Role::ControlPlane, 1);
    stage.create(&after).await;
    stage.ready(&after).await;
    let labelled = async || {
        let host = stage.hosts().get("leaders-only").await.unwrap();
        let version = host.metadata.resource_version.clone();
        (holder(&host), version)
    };
    let (of, version) = labelled().await;
    assert_eq!(of, Some(("leaders/after".to_owned(), "ControlPlane".to_owned())));

    late.open();
    let refused = async {
        loop {
            let asked = stage.asked_by_agents();
            let writes = asked.iter().filter(|entry| {
                entry.verb == "patch"
                    && entry
                        .object_ref
                        .as_ref()
                        .is_some_and(|object| object.name == "leaders-only")
            });
            if writes.clone().any(|entry| entry.response_status.code == 409) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, refused)
        .await
        .expect("the old leader's write is refused");
    // The old one goes on, and finds that it has lost the Lease.
    first.process().resume().unwrap();
    let ended = timeout(PATIENCE, first.process().ended()).await.unwrap().unwrap();
    assert!(!ended.unwrap().success());
    assert_eq!(labelled().await, (of, version), "the host was written to");
    stage.ready(&after).await;
    assert_eq!(double_labels(&stage.asked_by_agents()), [""; 0]);
}
