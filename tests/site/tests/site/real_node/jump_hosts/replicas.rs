//! Two pods of one jump host: whichever takes a connection shows the same host key, and serves the same hosts.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::json;
use tokio::sync::watch;

use super::{client::Key, on_site, shop};
use crate::fixtures::{PATIENCE, Role};

/// So many logins reach both of two pods but once in 2^49.
const LOGINS: usize = 50;
/// From one connection to the next.
const BETWEEN: Duration = Duration::from_millis(10);

/// Running pods that are not being deleted.
async fn running(pods: &Api<Pod>) -> Vec<String> {
    let own = ListParams::default().labels("app.kubernetes.io/name=jumphost");
    let found = pods.list(&own).await.unwrap();
    let running = found.iter().filter(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        pod.metadata.deletion_timestamp.is_none() && phase == Some("Running")
    });
    running.map(ResourceExt::name_any).collect()
}

#[test]
fn two_pods_are_one_jump_host_also_when_one_is_deleted() {
    on_site("jump-replicas", async |scene| {
        let (ana, stage) = (Key::new("ana"), &scene.stage);
        let host = scene.host("jump-replicas", "a", "worker");
        stage.load(&[host]).await;
        let entry = json!({"nodePort": 31_528, "replicas": 2});
        let wanted = shop("jump-replicas", &ana, &entry).role(Role::Worker, 1);
        // Each of these logins fails unless the host key is the one of the status.
        let login = scene.jump_host(&wanted, &ana).await;
        let pods: Api<Pod> = Api::namespaced(stage.site.client(), "jump-replicas");
        let names = running(&pods).await;
        assert_eq!(names.len(), 2, "{names:?}");
        let mut lists: BTreeMap<String, String> = BTreeMap::new();
        for _ in 0..LOGINS {
            let printed = login.prints("echo $HOSTNAME; host list").await;
            let (pod, list) = printed.split_once('\n').unwrap();
            lists.insert(pod.to_owned(), list.to_owned());
        }
        let served: Vec<&String> = lists.keys().collect();
        assert_eq!(served.len(), 2, "{lists:?}");
        assert!(
            names.iter().all(|name| served.contains(&name)),
            "{names:?} {served:?}"
        );
        assert!(
            lists.values().all(|list| list.contains("jump-replicas-a")),
            "{lists:?}"
        );

        let (ended, end) = watch::channel(false);
        let logins = async {
            let mut logins = 0;
            while !*end.borrow() {
                login.prints("true").await;
                logins += 1;
            }
            logins
        };
        // Nodes go on sending connections to a pod for some milliseconds after its deletion.
        let connections = async {
            let (mut pace, mut connections) = (tokio::time::interval(BETWEEN), 0);
            while !*end.borrow() {
                pace.tick().await;
                assert_eq!(login.greeted().await, Ok(()), "connection {connections}");
                connections += 1;
            }
            connections
        };
        let deletion = async {
            let deleted = &names[0];
            pods.delete(deleted, &DeleteParams::default()).await.unwrap();
            let gone = sandbox::wait::until_gone(pods.clone(), deleted, PATIENCE);
            gone.await.unwrap();
            stage.ready(&wanted).await;
            ended.send(true).unwrap();
        };
        let (logins, connections, ()) = tokio::join!(logins, connections, deletion);
        println!("{logins} logins and {connections} connections while a pod was replaced, none refused");
        let now = running(&pods).await;
        assert!(now.len() == 2 && !now.contains(&names[0]), "{now:?}");
    });
}
