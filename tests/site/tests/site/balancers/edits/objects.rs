//! What there is in a namespace of load balancers: every kind of object that an agent makes for one.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        batch::v1::Job,
        core::v1::{ConfigMap, Pod, Secret, ServiceAccount},
        rbac::v1::{Role, RoleBinding},
    },
};
use kube::{Api, Resource, ResourceExt as _, api::ListParams};
use serde::de::DeserializeOwned;

use super::Form;
use crate::{balancers::objects, fixtures::Stage};

/// The Services of a namespace by their node port: name, uid, and how often the Deployment's spec has changed.
pub(super) type Made = BTreeMap<u16, (String, String, Option<i64>)>;

/// Names of the objects of a kind that an agent has made; those that were installed have another manager.
async fn names<K>(api: Api<K>) -> BTreeSet<String>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let of_sip =
        ListParams::default().labels("app.kubernetes.io/part-of=sip,app.kubernetes.io/managed-by=sip");
    let found = api.list(&of_sip).await.unwrap();
    found.iter().map(kube::ResourceExt::name_any).collect()
}

/// What there is in a namespace, if it is complete and nothing else is there.
pub(super) async fn made(stage: &Stage, namespace: &str, form: &Form) -> Result<Made, String> {
    let of = objects(stage, namespace);
    let mut made = Made::new();
    for service in of.services.list(&ListParams::default()).await.unwrap() {
        let name = service.name_any();
        // One of several that exchange their ports gives its own up first.
        let Some(port) = service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].node_port else {
            return Err(format!("Service {name} has no node port"));
        };
        let deployment = of.deployments.get_opt(&name).await.unwrap();
        let generation = deployment.and_then(|deployment| deployment.metadata.generation);
        let port = u16::try_from(port).unwrap();
        made.insert(port, (name, service.uid().unwrap(), generation));
    }
    let services: BTreeSet<String> = made.values().map(|(name, _, _)| name.clone()).collect();
    let client = || stage.site.client();
    let pods = of.pods.list(&ListParams::default()).await.unwrap();
    let instance = |pod: &Pod| {
        let instance = pod.labels().get("app.kubernetes.io/instance");
        instance.cloned().unwrap_or_default()
    };
    let of_sidecar = form.sidecar.is_some();
    for (what, found, is_wanted) in [
        ("Deployments", names(of.deployments).await, true),
        (
            "ConfigMaps",
            names::<ConfigMap>(Api::namespaced(client(), namespace)).await,
            true,
        ),
        ("NetworkPolicies", names(of.policies).await, true),
        ("PodDisruptionBudgets", names(of.budgets).await, form.replicas > 1),
        ("pods", pods.iter().map(instance).collect(), form.replicas > 0),
        (
            "ServiceAccounts",
            names::<ServiceAccount>(Api::namespaced(client(), namespace)).await,
            of_sidecar,
        ),
        (
            "Roles",
            names::<Role>(Api::namespaced(client(), namespace)).await,
            of_sidecar,
        ),
        (
            "RoleBindings",
            names::<RoleBinding>(Api::namespaced(client(), namespace)).await,
            of_sidecar,
        ),
        // Checks of templates have them, and there is no template.
        (
            "Jobs",
            names::<Job>(Api::namespaced(client(), namespace)).await,
            false,
        ),
        (
            "Secrets",
            names::<Secret>(Api::namespaced(client(), namespace)).await,
            false,
        ),
    ] {
        let wanted = if is_wanted {
            services.clone()
        } else {
            BTreeSet::new()
        };
        if found != wanted {
            return Err(format!("{what} {found:?}, Services {services:?}"));
        }
    }
    Ok(made)
}
