//! Who may log in to a jump host that a former cluster of the same name has left (`kubectl delete --cascade=orphan`).

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kube::ResourceExt as _;
use sandbox::{region::Agent, wait};
use serde_json::json;

use super::{BEN, KEY, NAME, api, deployment, files, scheduler_away::site, with_jump_host};
use crate::fixtures::PATIENCE;

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_a_cluster_made_again_lacks_are_revoked() {
    const SCENARIO: &str = "jump-orphaned";
    let mut stage = site(SCENARIO, Some(1)).await;
    let with_keys = |keys: &[&str]| {
        let entry = json!({"nodePort": 31_571, "sshAuthorizedKeys": keys});
        with_jump_host(SCENARIO, &entry)
    };
    let former = with_keys(&[KEY, BEN]);
    stage.create(&former).await;
    stage.ready(&former).await;

    stage.agent(Agent::JumpHost).kill9().await.unwrap();
    // Without the section, the deletion does not wait for the agent.
    stage.edit(&former, json!({"services": {"jumpHost": []}})).await;
    let delete = ["delete", "sipcluster", "shop", "-n", SCENARIO, "--cascade=orphan"];
    stage.kubectl(&delete).await;
    stage.gone(&former).await;
    let left = api::<ConfigMap>(&stage, SCENARIO).get(NAME).await.unwrap();
    assert_eq!(left.owner_references(), []);
    assert_eq!(left.data.unwrap()["authorized_keys"], format!("{KEY}\n{BEN}\n"));

    // Nobody places the one that is made again.
    stage.region_mut().scheduler().kill9().await.unwrap();
    let again = with_keys(&[BEN]);
    stage.create(&again).await;
    stage.agent(Agent::JumpHost).restart().await.unwrap();
    wait::until(
        api::<ConfigMap>(&stage, SCENARIO),
        NAME,
        "ConfigMap to lack the key that the spec does not name",
        PATIENCE,
        |map: &ConfigMap| {
            let files = map.data.as_ref();
            files.is_some_and(|files| files["authorized_keys"] == format!("{BEN}\n"))
        },
    )
    .await
    .unwrap();
    // The rest waits for the placement.
    let left = deployment(&stage, SCENARIO).await;
    assert_eq!(left.owner_references(), []);

    // A spec that is refused names no key: all that was left is deleted.
    stage
        .edit(&again, json!({"nodes": {"Worker": {"count": {"active": -1}}}}))
        .await;
    wait::until_gone(api::<Deployment>(&stage, SCENARIO), NAME, PATIENCE)
        .await
        .unwrap();
    wait::until_gone(api::<Service>(&stage, SCENARIO), NAME, PATIENCE)
        .await
        .unwrap();

    stage
        .edit(&again, json!({"nodes": {"Worker": {"count": {"active": 1}}}}))
        .await;
    stage.region_mut().scheduler().restart().await.unwrap();
    stage.ready(&again).await;
    let files = files(&stage, SCENARIO).await;
    assert_eq!(files["authorized_keys"], format!("{BEN}\n"));
}
