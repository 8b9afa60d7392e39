//! The jump host as a service of the framework.

use std::{num::NonZeroU16, path::PathBuf};

use api::{Cluster, Image, JumpHost, PortSet, conditions::jump_host::NO_KEYS};
use http::uri::Authority;
use kit::service::{
    Applied, Error, Identity, Objects, Probe, Remark, Rendered, Scope, Service, Stores, Watches,
};
use kube::Client;
use render::jump_host::{PowerService, plan::instance};

use crate::{
    api_servers,
    host_keys::Keeper,
    identity::{IDENTITY, MANAGER},
    pod_files,
    rendering::{self, Found},
    tenant_secrets,
};

/// Where pods reach the power service.
#[derive(Clone, Debug)]
pub(crate) struct Power {
    pub(crate) address: Authority,
    /// A file with the certificates that its certificate is issued from; it is read again in each pass.
    pub(crate) ca: Option<PathBuf>,
    /// Namespace of its pods.
    pub(crate) namespace: String,
}

/// The jump hosts of a site's clusters.
pub(crate) struct JumpHosts {
    client: Client,
    stores: Stores,
    tools: Image,
    power: Power,
    host_keys: Keeper,
}

impl JumpHosts {
    pub(crate) fn new(tools: Image, power: Power, watches: &Watches) -> Self {
        Self {
            client: watches.client().clone(),
            stores: watches.stores().clone(),
            tools,
            power,
            host_keys: Keeper::new(watches.client().clone()),
        }
    }

    async fn power_service(&self) -> PowerService {
        let Power {
            address,
            ca,
            namespace,
        } = &self.power;
        let ca = match ca {
            None => None,
            Some(file) => match tokio::fs::read_to_string(file).await {
                Ok(ca) => Some(ca),
                Err(error) => {
                    tracing::warn!(file = %file.display(), %error, "the CA of the power service cannot be read");
                    None
                }
            },
        };
        PowerService {
            address: address.clone(),
            ca,
            namespace: namespace.clone(),
            app: MANAGER.0.to_owned(),
        }
    }
}

impl Service for JumpHosts {
    const IDENTITY: &'static Identity = IDENTITY;
    type Entry = JumpHost;
    type Prepared = Found;

    fn entries(cluster: &Cluster) -> Vec<JumpHost> {
        cluster.jump_hosts().to_vec()
    }

    fn common(entry: &JumpHost) -> &api::Service {
        entry.service()
    }

    fn node_ports(cluster: &Cluster) -> PortSet {
        let ports = cluster.jump_hosts().iter().filter_map(JumpHost::node_port);
        ports.map(NonZeroU16::get).collect()
    }

    fn protocol(_: i32) -> &'static str {
        "ssh"
    }

    async fn prepare(&self, scope: Scope<'_>, entry: &JumpHost) -> Result<Found, Error> {
        let instance = instance(scope.cluster, entry);
        let (host_keys, api_servers, problems, power) = tokio::join!(
            self.host_keys.ensure(&instance),
            api_servers::addresses(&self.client),
            tenant_secrets::problems(&self.client, scope.cluster.namespace(), entry),
            self.power_service(),
        );
        Ok(Found {
            host_keys: host_keys?,
            api_servers: api_servers?,
            power,
            problems: problems?,
        })
    }

    fn render(&self, scope: Scope<'_>, entry: &JumpHost, found: Found) -> Rendered {
        rendering::render(scope, entry, &self.tools, found)
    }

    async fn probe(
        &self,
        _: Scope<'_>,
        entry: &JumpHost,
        objects: &Objects<Applied>,
        confirmed: bool,
    ) -> Probe {
        let nobody = entry.ssh_authorized_keys().is_empty() && entry.ssh_user_ca().is_empty();
        let probe = if confirmed {
            Probe {
                confirmed,
                ..Probe::default()
            }
        } else {
            pod_files::probe(&self.stores.pods, objects).await
        };
        Probe {
            remark: nobody.then_some(Remark {
                reason: NO_KEYS,
                text: "the spec names nobody who may log in to",
            }),
            ..probe
        }
    }

    fn forget(&self, namespace: &str, name: &str) {
        self.host_keys.forget(namespace, name);
    }
}
