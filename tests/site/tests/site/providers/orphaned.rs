//! What `kubectl delete --cascade=orphan` leaves of a provider, while its agent does not run.

use api::conditions::AUTH_READY;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::ResourceExt as _;
use serde_json::json;

use super::{NAMESPACE, Scene};

#[tokio::test]
async fn a_cluster_made_again_takes_over_its_orphaned_provider() {
    let mut scene = Scene::start("orphaned", |_| {}).await;
    let port = 31_743;
    let shop = Scene::cluster("shop", port, &json!({}));
    scene.stage.create(&shop).await;
    let is = async |scene: &Scene, status: &str, reason: &str| {
        let stage = &scene.stage;
        stage
            .condition_is(&shop, AUTH_READY.as_str(), status, reason)
            .await;
    };
    is(&scene, "False", "IssuerUnreachable").await;
    let former = scene.run("auth-shop", "dex", port).await;
    is(&scene, "True", "StaticPasswords").await;
    let secrets = scene.api::<Secret>();
    let before = secrets.get("auth-shop.keys").await.unwrap();

    scene.agent.process().kill9().await.unwrap();
    // Without the section, the deletion does not wait for the agent.
    scene.stage.edit(&shop, json!({"services": {"auth": null}})).await;
    let delete = [
        "delete",
        "sipcluster",
        "shop",
        "-n",
        NAMESPACE,
        "--cascade=orphan",
    ];
    scene.stage.kubectl(&delete).await;
    scene.stage.gone(&shop).await;
    let left = secrets.get("auth-shop.keys").await.unwrap();
    assert_eq!((left.owner_references(), left.uid()), (&[][..], before.uid()));

    scene.stage.create(&shop).await;
    scene.agent.process().restart().await.unwrap();
    // It has the CA of the former provider, and storage of its own: a pod of that one does not pass for it.
    is(&scene, "False", "IssuerConflict").await;
    drop(former);
    let _dex = scene.run("auth-shop", "dex-again", port).await;
    is(&scene, "True", "StaticPasswords").await;
    let object = scene.stage.clusters(NAMESPACE).get("shop").await.unwrap();
    let taken = secrets.get("auth-shop.keys").await.unwrap();
    assert_eq!((taken.uid(), &taken.data), (before.uid(), &before.data));
    let service = scene.api::<Service>().get("auth-shop").await.unwrap();
    for owners in [taken.owner_references(), service.owner_references()] {
        assert_eq!(owners[0].uid, object.uid().unwrap());
    }
}
