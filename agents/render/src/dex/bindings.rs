//! The bindings that give groups rights in the tenant's cluster.

use std::collections::{BTreeMap, BTreeSet};

use api::{Auth, BoundRole, Cluster, GroupBinding};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::outputs::IDENTITY_PREFIX;

const API_GROUP: &str = "rbac.authorization.k8s.io";
/// Label that identifies the bindings of one provider.
const PROVIDER_LABEL: &str = "sip.airshipit.org/identity-provider";
/// Label that identifies the bindings of all providers of one SIPCluster.
const CLUSTER_LABEL: &str = "sip.airshipit.org/identity-provider-cluster";

/// The bindings of one provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupBindings {
    /// The label, with its value, that they have and no others.
    pub selector: String,
    /// Selects the bindings of providers that the SIPCluster does not have any more.
    pub stale: String,
    /// In the whole cluster, by unique names.
    pub cluster: Vec<ClusterRoleBinding>,
    /// In namespaces, by unique namespaces and names.
    pub namespaced: Vec<RoleBinding>,
}

/// The bindings of a provider's groups. `site`: the site's name, unique among sites: two sites may have providers of the same name whose clusters
/// name the same API server, and each has its own bindings there.
#[must_use]
pub fn group_bindings(site: &str, cluster: &Cluster, entry: &Auth) -> GroupBindings {
    let instance = entry.service().object_name().as_str();
    let provider_of = |instance: &str| digest(&json!([site, cluster.namespace(), instance]));
    let provider = provider_of(instance);
    let of_cluster = digest(&json!([site, cluster.namespace(), cluster.name(), "SIPCluster"]));
    let labels: BTreeMap<String, String> = [
        (
            api::labels::PART_OF.to_owned(),
            api::labels::PART_OF_SIP.to_owned(),
        ),
        (PROVIDER_LABEL.to_owned(), provider.clone()),
        (CLUSTER_LABEL.to_owned(), of_cluster.clone()),
    ]
    .into();
    let providers = cluster.auth().iter();
    let providers: BTreeSet<String> = providers
        .map(|entry| provider_of(entry.service().object_name().as_str()))
        .collect();
    let providers: Vec<String> = providers.into_iter().collect();
    let mut bindings = GroupBindings {
        selector: format!("{PROVIDER_LABEL}={provider}"),
        stale: format!(
            "{CLUSTER_LABEL}={of_cluster},{PROVIDER_LABEL} notin ({})",
            providers.join(",")
        ),
        ..GroupBindings::default()
    };
    let mut groups: Vec<&GroupBinding> = Vec::new();
    for binding in entry.provider().groups() {
        if !groups.contains(&binding) {
            groups.push(binding);
        }
    }
    for binding in groups {
        let (kind, role) = match binding.role() {
            BoundRole::Cluster(name) => ("ClusterRole", name),
            BoundRole::Namespaced(name) => ("Role", name),
        };
        let namespace = binding.namespace().as_deref();
        // A group's name may not be valid as the name of an object, so the name is a digest. It includes the role, since the role of a binding
        // cannot be changed.
        let name = digest(&json!([provider, binding.group(), kind, role, namespace]));
        let metadata = ObjectMeta {
            name: Some(format!("sip-oidc-{name}")),
            namespace: namespace.map(str::to_owned),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        };
        let role_ref = RoleRef {
            api_group: Some(API_GROUP.to_owned()),
            kind: kind.to_owned(),
            name: role.clone(),
        };
        let subjects = Some(vec![Subject {
            api_group: Some(API_GROUP.to_owned()),
            kind: "Group".to_owned(),
            name: format!("{IDENTITY_PREFIX}{}", binding.group()),
            namespace: None,
        }]);
        if namespace.is_some() {
            bindings.namespaced.push(RoleBinding {
                metadata,
                role_ref,
                subjects,
            });
        } else {
            bindings.cluster.push(ClusterRoleBinding {
                metadata,
                role_ref,
                subjects,
            });
        }
    }
    bindings
}

impl GroupBindings {
    /// One List with all of them.
    pub(super) fn manifest(&self) -> Value {
        let Self {
            selector: _,
            stale: _,
            cluster,
            namespaced,
        } = self;
        let cluster = cluster.iter().map(|binding| json!(binding));
        let namespaced = namespaced.iter().map(|binding| json!(binding));
        let items: Vec<Value> = cluster.chain(namespaced).collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items})
    }
}

fn digest(value: &Value) -> String {
    hex::encode(&Sha256::digest(value.to_string())[..8])
}
