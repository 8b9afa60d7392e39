//! Reads and writes the Secrets in which the agent keeps what it made.

use api::{
    Auth, Cluster,
    conditions::{
        auth::SECRET_INVALID,
        load_balancer::{NAME_CONFLICT, REFUSED},
    },
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, Service as CoreService},
};
use kit::{
    apply,
    service::{self, Error, Kind, foreign_owner},
    shares::OfNamespaces,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use render::metadata::Instance;
use serde_json::{Value, json};

use crate::{
    identity::{IDENTITY, MANAGER},
    inputs::refused,
    key_secret::{self, Keys},
    kubeconfigs::Kubeconfigs,
};

/// Maximum size, in bytes, of the data that the agent keeps: two private keys, and certificates that fit into the status.
const MAX_SECRET_BYTES: usize = 256 * 1024;

/// The Secret in which the agent keeps its data for one provider, as it was read.
pub struct KeptSecret<'a> {
    client: Client,
    cluster: &'a Cluster,
    entry: &'a Auth,
    found: Option<Secret>,
}

impl<'a> KeptSecret<'a> {
    /// Reads the Secret.
    ///
    /// # Errors
    /// [`Error::Refused`] when the Secret, or the Service of the instance, has another owner.
    pub async fn read(
        client: &Client,
        places: &OfNamespaces,
        provider: (&'a Cluster, &'a Auth),
    ) -> Result<Self, Error> {
        let kept = Self::new(client, provider);
        let found = kept.find(places).await?;
        match &found {
            Some(secret) => {
                kept.check_owner(secret)?;
                kept.check_size(secret)?;
            }
            None => kept.check_service_owner().await?,
        }
        Ok(Self { found, ..kept })
    }

    /// The kubeconfigs recorded in the Secret, even if somebody has filled it with other data; none if the Secret has another owner.
    ///
    /// # Errors
    /// When the API server fails.
    pub async fn recorded_kubeconfigs(
        client: &Client,
        places: &OfNamespaces,
        provider: (&'a Cluster, &'a Auth),
    ) -> Result<Kubeconfigs, Error> {
        let kept = Self::new(client, provider);
        let found = kept.find(places).await?;
        let own = found.filter(|secret| kept.check_owner(secret).is_ok());
        Ok(key_secret::read(own.as_ref()).kubeconfigs)
    }

    fn new(client: &Client, (cluster, entry): (&'a Cluster, &'a Auth)) -> Self {
        Self {
            client: client.clone(),
            cluster,
            entry,
            found: None,
        }
    }

    async fn find(&self, places: &OfNamespaces) -> Result<Option<Secret>, Error> {
        let name = self.entry.service().object_name();
        let _place = places.place(self.cluster.namespace()).await;
        let found = self
            .secrets()
            .get_opt(&format!("{name}{}", key_secret::SUFFIX))
            .await;
        found.map_err(Error::kubernetes(
            "read the Secret of the agent's data for a provider",
        ))
    }

    /// The data in the Secret.
    #[must_use]
    pub fn keys(&self) -> Keys {
        key_secret::read(self.found.as_ref())
    }

    /// Whether the Secret exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.found.is_some()
    }

    /// Stores this data unless it is stored already. The caller may use nothing of it before.
    ///
    /// # Errors
    /// When the Secret is no longer as it was read: another replica has written it.
    pub async fn store(&mut self, keys: &Keys) -> Result<(), Error> {
        let instance = Instance::new(self.cluster, self.entry.service(), "auth", "dex");
        let secret = key_secret::secret(&instance, keys);
        let manager = Some(MANAGER.0.to_owned());
        let written = match &self.found {
            None => {
                let params = PostParams {
                    field_manager: manager,
                    ..PostParams::default()
                };
                self.secrets().create(&params, &secret).await
            }
            Some(found)
                if found.data == secret.data && self.owns(found) && made_for(found) == made_for(&secret) =>
            {
                return Ok(());
            }
            Some(found) => {
                let params = PatchParams {
                    field_manager: manager,
                    ..PatchParams::default()
                };
                let change = merge_patch(found, &secret);
                self.secrets()
                    .patch(&secret.name_any(), &params, &Patch::Merge(change))
                    .await
            }
        };
        let written = match written {
            Err(error) if apply::is_refusal(&error) => {
                let why = format!(
                    "the API server refuses the Secret {}: {}",
                    secret.name_any(),
                    apply::reason(&error)
                );
                return Err(refused(self.entry, REFUSED, &why));
            }
            written => written.map_err(Error::kubernetes(
                "write the Secret of the agent's data for a provider",
            ))?,
        };
        self.found = Some(written);
        Ok(())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), self.cluster.namespace())
    }

    /// Refuses a Secret of another cluster. A Secret belongs to the cluster that owns it, unless its label names another one: a policy lets only the
    /// agent, and users that it exempts, set that label. A Secret without an owner belongs to the cluster in its label.
    fn check_owner(&self, secret: &Secret) -> Result<(), Error> {
        let owners = secret.owner_references().iter();
        let of_clusters = owners.filter(|owner| owner.kind == "SIPCluster").count();
        let is_own = match made_for(secret) {
            Some(cluster) => cluster == self.cluster.name() && (self.owns(secret) || of_clusters == 0),
            None => self.owns(secret) && of_clusters == 1,
        };
        if is_own {
            return Ok(());
        }
        let described = format!("Secret {}", secret.name_any());
        let cluster = (self.cluster.uid(), self.cluster.name());
        let kind = (IDENTITY, Kind::Secret);
        let former = service::former_owner(&described, kind, &secret.metadata, cluster);
        let why = former.unwrap_or_else(|| format!("{described} was not made for this SIPCluster"));
        Err(refused(self.entry, NAME_CONFLICT, &why))
    }

    fn owns(&self, secret: &Secret) -> bool {
        let mut owners = secret.owner_references().iter();
        owners.any(|owner| owner.uid == self.cluster.uid())
    }

    /// Refuses a Secret that has more bytes than the agent writes: anybody with the right to write it may have added data.
    fn check_size(&self, secret: &Secret) -> Result<(), Error> {
        let values = secret.data.iter().flat_map(|data| data.values());
        if values.map(|ByteString(bytes)| bytes.len()).sum::<usize>() <= MAX_SECRET_BYTES {
            return Ok(());
        }
        let why = format!(
            "Secret {} has more than {MAX_SECRET_BYTES} bytes, which the agent did not write: remove what was added",
            secret.name_any()
        );
        Err(refused(self.entry, SECRET_INVALID, &why))
    }

    /// Refuses an instance whose Service has another owner before anything is made for it: a later step would refuse it and leave that behind.
    async fn check_service_owner(&self) -> Result<(), Error> {
        match service_owner_conflict(&self.client, self.cluster, self.entry).await? {
            Some(why) => Err(refused(self.entry, NAME_CONFLICT, &why)),
            None => Ok(()),
        }
    }
}

/// Why the objects with an entry's name belong to somebody else, by the Service of that name; `None` if they do not.
///
/// # Errors
/// When the API server fails.
pub async fn service_owner_conflict(
    client: &Client,
    cluster: &Cluster,
    entry: &Auth,
) -> Result<Option<String>, Error> {
    let services: Api<CoreService> = Api::namespaced(client.clone(), cluster.namespace());
    let service = services.get_opt(entry.service().object_name().as_str()).await;
    let service = service.map_err(Error::kubernetes("read the Service"))?;
    Ok(service.and_then(|service| foreign_owner(IDENTITY, (cluster.uid(), cluster.name()), &service)))
}

/// The name of the cluster that a Secret was made for, by its labels: those of earlier builds have none.
fn made_for(secret: &Secret) -> Option<&str> {
    service::made_for(secret.labels())
}

/// The merge patch that replaces data, labels and owners of a Secret. The API server refuses it if the Secret has changed since it was read.
fn merge_patch(found: &Secret, desired: &Secret) -> Value {
    let mut data = json!(desired.data.clone().unwrap_or_default());
    for key in found.data.iter().flat_map(|data| data.keys()) {
        if data.get(key).is_none() {
            data[key] = Value::Null;
        }
    }
    // Others than SIPClusters stay.
    let others = found.owner_references().iter();
    let others = others.filter(|owner| owner.kind != "SIPCluster");
    let owners: Vec<_> = others.chain(desired.owner_references()).collect();
    json!({
        "metadata": {
            "uid": found.uid(),
            "resourceVersion": found.resource_version(),
            "labels": desired.labels(),
            "ownerReferences": owners,
        },
        "data": data,
    })
}
