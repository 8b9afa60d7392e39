//! What the agent keeps is never replaced by a replica that has not read it.

use std::time::SystemTime;

use api::{Cluster, SIPCluster};
use dex_agent::{
    certificates::{self, CertificateSet, Names},
    kept_secrets::KeptSecret,
    key_secret::Keys,
};
use k8s_openapi::api::core::v1::Secret;
use kit::shares::OfNamespaces;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use sandbox::site::Site;
use serde_json::{Value, json};

const NAMESPACE: &str = "tenants";

fn cluster(uid: &str) -> Cluster {
    let object: SIPCluster = serde_json::from_value(json!({
        "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
        "metadata": {"namespace": NAMESPACE, "name": "shop", "uid": uid},
        "spec": {"services": {"auth": [{"image": "dex:2", "nodeInterfaceId": "oam"}]}},
    }))
    .unwrap();
    Cluster::parse(&object).unwrap()
}

/// Keys with a CA that was made now.
fn made() -> Keys {
    let made = certificates::renew(
        CertificateSet::default(),
        None,
        &Names::default(),
        SystemTime::now(),
    );
    Keys {
        certificates: made.unwrap().0,
        ..Keys::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_replica_replaces_no_authority() {
    let site = Site::builder("kept").start().await.unwrap();
    site.create_namespace(NAMESPACE).await.unwrap();
    let client = site.client();
    let cluster = cluster("5a1e");
    let entry = &cluster.auth()[0];
    let places = OfNamespaces::new(1);
    let read = || KeptSecret::read(&client, &places, (&cluster, entry));

    // Both find nothing and make a CA; the second to write it is refused.
    let (mut deposed, mut holder) = (read().await.unwrap(), read().await.unwrap());
    let keys = made();
    holder.store(&keys).await.unwrap();
    assert!(deposed.store(&made()).await.is_err());
    assert!(read().await.unwrap().keys() == keys);

    // The same with a change.
    let (mut deposed, mut holder) = (read().await.unwrap(), read().await.unwrap());
    let mut next = keys.clone();
    next.storage_password = Some("password".to_owned());
    holder.store(&next).await.unwrap();
    assert!(deposed.store(&made()).await.is_err());
    assert!(read().await.unwrap().keys() == next);

    // What is no longer kept is gone, and what is the same is not written.
    read().await.unwrap().store(&keys).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let before = secrets.get("auth-shop.keys").await.unwrap();
    assert!(!before.data.unwrap().contains_key("storage-password"));
    read().await.unwrap().store(&keys).await.unwrap();
    let after = secrets.get("auth-shop.keys").await.unwrap();
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);

    // A SIPCluster of the same name that was made later does not get them.
    let heir = self::cluster("4e18");
    let taken = KeptSecret::read(&client, &places, (&heir, &heir.auth()[0]))
        .await
        .err()
        .unwrap();
    assert_eq!(
        taken.to_string(),
        "auth-shop: Secret auth-shop.keys belongs to a former SIPCluster shop, which is gone: the agent deletes it within 120 s"
    );

    // One of an earlier build gets its labels.
    let label = "sip.airshipit.org/cluster-name";
    let change = async |change: Value| {
        let change = Patch::Merge(change);
        let params = PatchParams::default();
        let patched = secrets.patch("auth-shop.keys", &params, &change).await;
        patched.unwrap();
    };
    change(json!({"metadata": {"labels": {label: null}}})).await;
    read().await.unwrap().store(&keys).await.unwrap();
    let labelled = secrets.get("auth-shop.keys").await.unwrap();
    assert_eq!(labelled.labels()[label], "shop");

    // One that was made for another cluster is of that, whether a SIPCluster owns it or none.
    for owners in [json!(labelled.owner_references()), Value::Null] {
        change(json!({"metadata": {"labels": {label: "bank"}, "ownerReferences": owners}})).await;
        assert!(read().await.is_err());
    }

    // A SIPCluster of the same name gets them if nobody owns them, as after the deletion of the first one with --cascade=orphan.
    let other = json!({"apiVersion": "example.org/v1", "kind": "Other", "name": "other", "uid": "0c"});
    change(json!({"metadata": {"labels": {label: "shop"}, "ownerReferences": [other]}})).await;
    let taken = KeptSecret::read(&client, &places, (&heir, &heir.auth()[0])).await;
    taken.unwrap().store(&keys).await.unwrap();
    let taken = secrets.get("auth-shop.keys").await.unwrap();
    // Other owners stay.
    let owners = taken.owner_references().iter().map(|owner| &*owner.uid);
    assert_eq!(owners.collect::<Vec<_>>(), ["0c", "4e18"]);
    assert_eq!(taken.data, labelled.data);
    let former = read().await.err().unwrap();
    assert!(
        former.to_string().contains("was not made for this SIPCluster"),
        "{former}"
    );
}
