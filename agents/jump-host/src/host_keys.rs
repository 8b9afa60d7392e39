//! The host keys of jump hosts, in the Secret with the jump host's name. Users' ssh clients have stored them, so the agent never replaces one:
//! existing keys stay, whatever created them, and the agent makes none without an answer of the API server. It does not change a Secret that belongs
//! to another object.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use api::{SIPCluster, conditions::load_balancer::NAME_CONFLICT, labels};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret, Service},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kit::{
    apply,
    service::{self, Error, Kind, Problem, SIP_MANAGER, foreign_owner},
    takeover,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    core::ObjectMeta,
};
use render::{
    jump_host::host_keys::{GENERATED_KEY, HostKeys, is_host_key},
    metadata::Instance,
};
use serde_json::{Value, json};
use ssh_key::{Algorithm, LineEnding, PrivateKey, rand_core::OsRng};

use crate::identity::{IDENTITY, MANAGER};

/// Namespace and name of a jump host, and the uid of its cluster.
type Key = (String, String, String);
/// Keys and values of a Secret.
type Data = BTreeMap<String, ByteString>;

/// The host keys of the site's jump hosts.
pub(crate) struct HostKeyStore {
    client: Client,
    /// The keys as they were read last: if the Secret is deleted, the agent creates it again with the same keys.
    known: Mutex<BTreeMap<Key, Data>>,
}

impl HostKeyStore {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    /// Makes the host keys of a jump host if its Secret has none, and returns the keys in the Secret. Returns no keys, and changes nothing, if
    /// the Service of that name has another owner. Refuses, and changes nothing, if the Secret does.
    pub(crate) async fn ensure(&self, instance: &Instance<'_>) -> Result<HostKeys, Error> {
        let namespace = instance.cluster().namespace();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = read(&secrets, instance.name()).await?;
        let cluster = (instance.cluster().uid(), instance.cluster().name());
        if let Some(message) = found.as_ref().and_then(|secret| foreign(secret, cluster)) {
            return Err(Error::Refused(Problem::new(NAME_CONFLICT, message)));
        }
        let is_complete = found
            .as_ref()
            .is_some_and(|secret| needs(secret, instance).is_none());
        if !is_complete && self.is_foreign(instance).await? {
            return Ok(HostKeys::default());
        }
        let data = match found {
            Some(secret) if is_complete => secret.data.unwrap_or_default(),
            Some(secret) => self.complete(&secrets, instance, secret).await?,
            None => self.create(&secrets, instance).await?,
        };
        self.remember(instance, &data);
        Ok(HostKeys::read(&data))
    }

    /// Forgets the keys of a deleted jump host of a cluster. Those of another cluster with this name stay.
    pub(crate) fn forget(&self, cluster: &SIPCluster, name: &str) {
        let (namespace, uid) = (cluster.namespace(), cluster.uid());
        let key = (
            namespace.unwrap_or_default(),
            name.to_owned(),
            uid.unwrap_or_default(),
        );
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&key);
    }

    fn remember(&self, instance: &Instance<'_>, data: &Data) {
        let keys = data.iter().filter(|(name, _)| name.starts_with("ssh_host_"));
        let keys: Data = keys.map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key(instance), keys);
    }

    /// Those that were known, or new ones.
    fn keys(&self, instance: &Instance<'_>) -> Data {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .get(&key(instance))
            .cloned()
            .unwrap_or_else(|| generate(instance))
    }

    /// Whether the name has another owner: its Service represents all objects of an instance.
    async fn is_foreign(&self, instance: &Instance<'_>) -> Result<bool, Error> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), instance.cluster().namespace());
        let found = services.get_opt(instance.name()).await;
        let found = found.map_err(Error::kubernetes("read the Service"))?;
        Ok(found.is_some_and(|service| {
            let cluster = instance.cluster();
            foreign_owner(IDENTITY, (cluster.uid(), cluster.name()), &service).is_some()
        }))
    }

    /// Creates the Secret. If another replica has created it first, its keys are the ones to use.
    async fn create(&self, secrets: &Api<Secret>, instance: &Instance<'_>) -> Result<Data, Error> {
        let secret = Secret {
            metadata: instance.metadata(),
            type_: Some("Opaque".to_owned()),
            data: Some(self.keys(instance)),
            ..Secret::default()
        };
        let params = PostParams {
            field_manager: Some(MANAGER.0.to_owned()),
            ..PostParams::default()
        };
        let created = secrets.create(&params, &secret).await;
        let created = created.map_err(Error::kubernetes("create the Secret with the host keys"))?;
        tracing::info!(
            namespace = created.namespace(),
            name = created.name_any(),
            "made a host key"
        );
        Ok(created.data.unwrap_or_default())
    }

    /// Takes over a Secret of SIP's, or completes one that lacks something, on the condition that it is still as it was read.
    async fn complete(
        &self,
        secrets: &Api<Secret>,
        instance: &Instance<'_>,
        secret: Secret,
    ) -> Result<Data, Error> {
        self.take_over_script(instance).await?;
        let Some(change) = needs(&secret, instance) else {
            return Ok(secret.data.unwrap_or_default());
        };
        let keys = change.lacks_host_key.then(|| self.keys(instance));
        let patch = merge_patch(&secret, instance, change, keys.unwrap_or_default());
        let params = PatchParams {
            field_manager: Some(MANAGER.0.to_owned()),
            ..PatchParams::default()
        };
        let patched = secrets
            .patch(instance.name(), &params, &Patch::Merge(patch))
            .await;
        let patched = patched.map_err(Error::kubernetes("complete the Secret with the host keys"))?;
        Ok(patched.data.unwrap_or_default())
    }

    /// Makes the fields that SIP wrote to its `ConfigMap` this agent's own, so that the next apply removes those that it lacks, such as SIP's
    /// script.
    async fn take_over_script(&self, instance: &Instance<'_>) -> Result<(), Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), instance.cluster().namespace());
        let failed = || Error::kubernetes("take over the ConfigMap that Airship SIP made");
        if let Some(map) = maps.get_metadata_opt(instance.name()).await.map_err(failed())? {
            takeover::take_over(&maps, &map.metadata, SIP_MANAGER, MANAGER)
                .await
                .map_err(failed())?;
        }
        Ok(())
    }
}

fn key(instance: &Instance<'_>) -> Key {
    let cluster = instance.cluster();
    (
        cluster.namespace().to_owned(),
        instance.name().to_owned(),
        cluster.uid().to_owned(),
    )
}

async fn read(secrets: &Api<Secret>, name: &str) -> Result<Option<Secret>, Error> {
    match secrets.get(name).await {
        Ok(secret) => Ok(Some(secret)),
        Err(error) if apply::code(&error) == Some(404) => Ok(None),
        Err(error) => Err(Error::kubernetes("read the Secret with the host keys")(error)),
    }
}

/// What to change in a Secret.
#[derive(Debug, PartialEq)]
struct Change {
    /// Whether the agent adds a host key, since the Secret has none.
    lacks_host_key: bool,
    /// Keys that are removed, with `null`: SIP kept the passwords of the hosts' BMCs beside its ssh configuration.
    removed: serde_json::Map<String, Value>,
}

/// To whom a Secret belongs, if it cannot belong to the cluster with this uid and name. A Secret without an owner belongs to the cluster for
/// which it was made: that cluster's pods may still run, with its host key.
fn foreign(secret: &Secret, (uid, cluster): (&str, &str)) -> Option<String> {
    let described = || {
        let namespace = secret.namespace().unwrap_or_default();
        format!("Secret {namespace}/{}", secret.name_any())
    };
    let mut owners = secret.owner_references().iter();
    let is_other = |owner: &&OwnerReference| {
        owner.uid != uid && (owner.kind == "SIPCluster" || owner.controller == Some(true))
    };
    if let Some(owner) = owners.find(is_other) {
        let kind = (IDENTITY, Kind::Secret);
        let former = service::former_owner(&described(), kind, &secret.metadata, (uid, cluster));
        return Some(former.unwrap_or_else(|| {
            let OwnerReference { kind, name, .. } = owner;
            format!("{} belongs to {kind} {name}", described())
        }));
    }
    if secret.owner_references().iter().any(|owner| owner.uid == uid) {
        return None;
    }
    let made_for = kit::service::made_for(secret.labels()).filter(|made_for| *made_for != cluster)?;
    Some(format!("{} was made for SIPCluster {made_for}", described()))
}

/// What to change in a Secret; `None` if it needs no change.
fn needs(secret: &Secret, instance: &Instance<'_>) -> Option<Change> {
    let owned = secret
        .owner_references()
        .iter()
        .any(|owner| owner.uid == instance.cluster().uid());
    let data = secret.data.iter().flatten();
    let removed: serde_json::Map<String, Value> = data
        .map(|(name, _)| name)
        .filter(|name| ["hosts", "ssh_config"].contains(&name.as_str()) && is_made_by_sip(secret, owned))
        .map(|name| (name.clone(), Value::Null))
        .collect();
    let lacks_host_key = !secret.data.iter().flatten().any(|(name, _)| is_host_key(name));
    let labelled = instance
        .pod_labels()
        .iter()
        .all(|(label, value)| secret.labels().get(label) == Some(value));
    (lacks_host_key || !removed.is_empty() || !owned || !labelled).then_some(Change {
        lacks_host_key,
        removed,
    })
}

/// Whether SIP made the Secret: SIP's field manager has written it, or it has SIP's label and no owner. This agent sets both.
fn is_made_by_sip(secret: &Secret, owned: bool) -> bool {
    let labelled = secret
        .labels()
        .get(labels::PART_OF)
        .is_some_and(|part| part == labels::PART_OF_SIP);
    let written = secret
        .managed_fields()
        .iter()
        .any(|entry| entry.manager.as_deref() == Some(SIP_MANAGER));
    written || (labelled && !owned)
}

/// The change of a Secret that lacks something, as a merge patch. Other owners stay.
fn merge_patch(secret: &Secret, instance: &Instance<'_>, change: Change, keys: Data) -> Value {
    let ObjectMeta {
        labels,
        owner_references: ours,
        ..
    } = instance.metadata();
    let others = secret.owner_references().iter();
    let others = others.filter(|owner| owner.uid != instance.cluster().uid());
    let owners: Vec<OwnerReference> = others.cloned().chain(ours.into_iter().flatten()).collect();
    let mut data = change.removed;
    data.extend(keys.into_iter().map(|(name, value)| (name, json!(value))));
    json!({
        "metadata": {
            "uid": secret.uid(), "resourceVersion": secret.resource_version(),
            "labels": labels, "ownerReferences": owners,
        },
        "data": data,
    })
}

/// A new key, with the jump host's name as its comment.
fn generate(instance: &Instance<'_>) -> Data {
    let made = PrivateKey::random(&mut OsRng, Algorithm::Ed25519).and_then(|mut key| {
        key.set_comment(format!("{}/{}", instance.cluster().namespace(), instance.name()));
        key.to_openssh(LineEnding::LF)
    });
    match made {
        Ok(key) => [(GENERATED_KEY.to_owned(), ByteString(key.as_bytes().to_vec()))].into(),
        Err(error) => {
            tracing::error!(%error, "a host key cannot be made");
            Data::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use ::api::{Cluster, SIPCluster};
    use render::jump_host::plan::instance;

    use super::*;

    fn cluster() -> Cluster {
        let object: SIPCluster = serde_json::from_value(json!({
            "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
            "metadata": {"name": "orders", "namespace": "shop", "uid": "ours"},
            "spec": {"services": {"jumpHost": [{"image": "jump-host:1", "nodeInterfaceId": "oam"}]}},
        }))
        .unwrap();
        Cluster::parse(&object).unwrap()
    }

    fn owner(kind: &str, uid: &str, controller: bool) -> Value {
        json!({"apiVersion": "v1", "kind": kind, "name": "x", "uid": uid, "controller": controller})
    }

    fn secret(metadata: Value) -> Secret {
        let mut secret = json!({"data": {"hosts": "W10=", "ssh_host_ed25519_key": "eA=="}});
        secret["metadata"] = metadata;
        secret["metadata"]["name"] = json!("jumphost-orders");
        secret["metadata"]["namespace"] = json!("shop");
        serde_json::from_value(secret).unwrap()
    }

    #[test]
    fn a_foreign_secret_is_not_adopted() {
        for (owner, expected) in [
            (owner("SIPCluster", "theirs", true), Some("SIPCluster x")),
            (owner("SIPCluster", "theirs", false), Some("SIPCluster x")),
            (owner("Certificate", "theirs", true), Some("Certificate x")),
            (owner("ConfigMap", "theirs", false), None),
            (owner("SIPCluster", "ours", true), None),
        ] {
            let found = foreign(&secret(json!({"ownerReferences": [owner]})), ("ours", "orders"));
            let expected = expected.map(|owner| format!("Secret shop/jumphost-orders belongs to {owner}"));
            assert_eq!(found, expected);
        }
        assert_eq!(foreign(&secret(json!({})), ("ours", "orders")), None);
        let labelled = |cluster: &str, owners: &Value| {
            let labels = json!({
                (labels::PART_OF): labels::PART_OF_SIP, (labels::CLUSTER_NAME): cluster,
                (labels::INSTANCE): "jumphost-orders",
            });
            foreign(
                &secret(json!({"labels": labels, "ownerReferences": owners})),
                ("ours", "orders"),
            )
        };
        let ours = json!([owner("SIPCluster", "ours", true)]);
        assert_eq!(labelled("orders", &json!([])), None);
        assert_eq!(labelled("bank", &ours), None);
        let former = json!({
            "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": "orders", "uid": "before",
        });
        let expected = "Secret shop/jumphost-orders belongs to a former SIPCluster orders, which is gone: the agent deletes it within 120 s";
        let message = labelled("orders", &json!([former]));
        assert_eq!(message.as_deref(), Some(expected));
        let expected = "Secret shop/jumphost-orders was made for SIPCluster bank".to_owned();
        assert_eq!(labelled("bank", &json!([])), Some(expected));
    }

    #[test]
    fn other_owners_and_values_stay() {
        let cluster = cluster();
        let instance = instance(&cluster, &cluster.jump_hosts()[0]);
        let before = secret(json!({"ownerReferences": [owner("ConfigMap", "theirs", false)]}));
        let change = needs(&before, &instance).unwrap();
        assert!(!change.lacks_host_key && change.removed.is_empty(), "{change:?}");
        let patch = merge_patch(&before, &instance, change, Data::new());
        let owners = patch["metadata"]["ownerReferences"].as_array().unwrap();
        let owners: Vec<_> = owners.iter().map(|owner| &owner["uid"]).collect();
        assert_eq!(owners, ["theirs", "ours"]);
        assert_eq!(patch["data"], json!({}));

        // Ours by now, with our labels: the values are still somebody else's.
        let ours = secret(patch["metadata"].clone());
        assert_eq!(needs(&ours, &instance), None);
    }

    #[test]
    fn passwords_that_sip_left_are_removed() {
        let cluster = cluster();
        let instance = instance(&cluster, &cluster.jump_hosts()[0]);
        for metadata in [
            json!({"managedFields": [{"manager": "manager", "operation": "Update"}]}),
            json!({"labels": {"app.kubernetes.io/part-of": "sip"}}),
        ] {
            let change = needs(&secret(metadata), &instance).unwrap();
            assert_eq!(change.removed.keys().collect::<Vec<_>>(), ["hosts"]);
        }
    }
}
