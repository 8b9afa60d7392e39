//! Hosts that are deleted and made again under the same name: to the API server a status may name each only once.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _, api::DeleteParams};
use sandbox::{region::HOSTS_NAMESPACE, wait};
use serde_json::Value;

use crate::fixtures::{PATIENCE, Role, Stage, cluster, host, members, on_shared_site, sip_labels};

/// Every placement that the agents wrote names each host once, and no status was refused. A conflict is no refusal: a status is
/// written to the object as it was observed, and another agent may have written in between.
fn no_status_named_a_host_twice(stage: &Stage, namespace: &str) {
    let written = stage.asked_by_agents().into_iter().filter(|entry| {
        let object = entry.object_ref.clone().unwrap_or_default();
        (&*object.resource, &*object.subresource, &*object.namespace) == ("sipclusters", "status", namespace)
    });
    let mut seen = 0;
    for entry in written {
        let code = entry.response_status.code;
        assert!(code < 400 || code == 409, "{entry:#?}");
        let members = entry.request_object.pointer("/status/placement/members");
        let members = members
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let names: BTreeSet<&str> = members
            .iter()
            .filter_map(|member| member["name"].as_str())
            .collect();
        assert_eq!(names.len(), members.len(), "{entry:#?}");
        seen += members.len();
    }
    assert!(seen > 2, "the audit log has the statuses");
}

#[test]
fn a_recreated_host_replaces_the_deleted_one() {
    on_shared_site("again", async |stage| {
        let only = host("again", "worker", "r1", "only");
        stage.load(std::slice::from_ref(&only)).await;
        let shop = cluster("again", "shop").role(Role::Worker, 1);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let before = stage.hosts().get(&only.name).await.unwrap();

        stage
            .hosts()
            .delete(&only.name, &DeleteParams::default())
            .await
            .unwrap();
        wait::until_gone(stage.hosts(), &only.name, PATIENCE)
            .await
            .unwrap();
        let secrets: Api<Secret> = Api::namespaced(stage.site.client(), HOSTS_NAMESPACE);
        let network_data = format!("{}-network-data", only.name);
        secrets
            .delete(&network_data, &DeleteParams::default())
            .await
            .unwrap();
        stage.load(std::slice::from_ref(&only)).await;

        let made = stage.hosts().get(&only.name).await.unwrap();
        assert_ne!(made.uid(), before.uid());
        let whose = made.uid().unwrap();
        let now = stage
            .until(&shop, "hold the new host, and it alone", |object| {
                let members = members(object);
                members.len() == 1 && members[0].uid == whose && members[0].state == "Bound"
            })
            .await;
        stage.ready(&shop).await;
        assert_eq!(members(&now)[0].name, only.name);
        let host = stage.hosts().get(&only.name).await.unwrap();
        assert_eq!(sip_labels(&host).len(), 3);
        no_status_named_a_host_twice(stage, "again");
    });
}
