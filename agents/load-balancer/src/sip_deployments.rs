//! Deployments of the Airship SIP operator that were not taken over, for example since their entry is refused, and every `ReplicaSet` of one that
//! was. They may start pods at any time, which read the hosts that the operator has written.

use std::pin::pin;

use api::labels;
use futures::{TryStreamExt as _, future};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kit::{
    load_balancers::{SIP_PREFIXES, belongs_to, selector, starts_pods, starts_pods_of_sip},
    pages,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

/// The first such object of a cluster, for messages. Deployments are listed first: one that is deleted by then has made no `ReplicaSet` that the
/// second list could miss.
///
/// # Errors
/// The API server's answer; whether there are such objects is then not known.
pub(crate) async fn find_first(
    client: &Client,
    namespace: &str,
    cluster: &str,
) -> kube::Result<Option<String>> {
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    for prefix in SIP_PREFIXES {
        let name = format!("{prefix}{cluster}");
        let found = deployments.get_opt(&name).await?;
        if found.is_some_and(|found| starts_pods_of_sip(&found, cluster)) {
            return Ok(Some(format!(
                "Deployment {name} of the Airship SIP operator is not adopted, and its pods start with the configuration of that operator"
            )));
        }
    }
    let sets = Api::<ReplicaSet>::namespaced(client.clone(), namespace);
    let sets = pages::objects(sets, ListParams::default().labels(&selector()));
    let is_of_sip = |set: &ReplicaSet| {
        let is_ours = set.labels().contains_key(labels::CLUSTER_NAME);
        !is_ours && belongs_to(set, cluster) && starts_pods(set)
    };
    let found = pin!(sets.try_filter(|set| future::ready(is_of_sip(set))))
        .try_next()
        .await?;
    Ok(found.map(|set| {
        format!(
            "ReplicaSet {} of the Airship SIP operator may start pods, with the configuration of that operator",
            set.name_any()
        )
    }))
}
