//! Cluster API deletes Machines of its own choice while a cluster shrinks.

use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::fixtures::{
    Role, cluster, given_back, host, in_role, members, on_shared_site, set_consumer, sip_labels,
};

#[test]
fn a_shrink_releases_the_host_whose_machine_is_deleted() {
    on_shared_site("other-machine", async |stage| {
        let hosts = ["a", "b", "c"].map(|name| host("other-machine", "worker", name, name));
        stage.load(&hosts).await;
        let shop = cluster("other-machine", "shop").role(Role::Worker, 3);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        for host in &hosts {
            let machine = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
                                 "namespace": "other-machine", "name": format!("m-{}", host.name)});
            set_consumer(stage, &host.name, machine).await;
        }
        stage
            .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 2}}}}))
            .await;
        let releasing = |object: &kube::api::DynamicObject| -> Vec<String> {
            let members = members(object).into_iter();
            let releasing = members.filter(|member| member.state == "Releasing");
            releasing.map(|member| member.name).collect()
        };
        let shrinking = stage
            .until(&shop, "have chosen one to go", |object| {
                releasing(object).len() == 1
            })
            .await;
        let chosen = releasing(&shrinking).remove(0);
        stage
            .condition_mentions(
                &shop,
                "HostsLabeled",
                "False",
                "Waiting",
                &format!("metal/{chosen}: to be released"),
            )
            .await;

        let other = hosts
            .iter()
            .map(|host| &*host.name)
            .find(|name| *name != chosen)
            .unwrap();
        set_consumer(stage, other, Value::Null).await;
        stage.ready(&shop).await;
        let held = stage.labelled("other-machine", &shop).await;
        assert_eq!(in_role(&held, "Worker").len(), 2);
        assert!(
            held.contains_key(&chosen) && !held.contains_key(other),
            "{held:?}"
        );
        for host in stage.hosts_of("other-machine").await {
            let goes = host.name_any() == other;
            assert_eq!(given_back(&host), goes, "{:?}", host.metadata);
            assert_eq!(sip_labels(&host).is_empty(), goes);
        }
    });
}
