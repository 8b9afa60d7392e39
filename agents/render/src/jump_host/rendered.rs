//! Everything that one jump host consists of.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::interface::{LISTEN_PORT, POWER_CA_KEY, SSH_PORT, SSH_PORT_NAME, USER};
use super::plan::Plan;
use super::{destinations, files, pods, ssh_config, sshd_config};
use crate::api_access::{self, Access, ReadableObjects};
use crate::exposure::{self, ExposedPort};
use crate::guards;

/// Everything that one jump host consists of besides its Secret. Apply the `ConfigMap` and the access first: the pods need them.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// Holds [`files::ALL`].
    pub config: ConfigMap,
    /// Runs sshd.
    pub deployment: Deployment,
    /// Routes to the pods.
    pub service: Service,
    /// Limits evictions while nodes drain. `None` with fewer than two pods: it would block the drain.
    pub budget: Option<PodDisruptionBudget>,
    /// Who may connect to the pods, and where these may connect to.
    pub policy: NetworkPolicy,
    /// What the sidecar may do.
    pub access: Access,
    /// Digest of the files.
    pub digest: String,
}

impl Plan<'_> {
    /// All objects of the jump host.
    #[must_use]
    pub fn objects(&self) -> Objects {
        let files = self.files();
        let digest = files::digest(&files);
        let instance = self.instance();
        let port = ExposedPort {
            name: SSH_PORT_NAME,
            number: SSH_PORT,
            target: LISTEN_PORT,
            node_port: self.jump_host.node_port().map(NonZeroU16::get),
        };
        Objects {
            deployment: pods::deployment(self),
            service: exposure::service(&instance, std::iter::once(port)),
            budget: guards::budget(&instance),
            policy: destinations::policy(self),
            access: self.access(),
            config: self.config(files),
            digest,
        }
    }

    /// The files that sshd and ssh read, by name.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, String> {
        let principals = format!("{USER}\n{}\n", self.cluster.name());
        [
            (files::SSHD_CONFIG, sshd_config::text(self)),
            (files::SSH_CONFIG, ssh_config::text(&self.nodes)),
            (files::AUTHORIZED_KEYS, lines(&self.keys)),
            (files::AUTHORITIES, lines(&self.authorities)),
            (files::PRINCIPALS, principals),
        ]
        .map(|(name, text)| (name.to_owned(), text))
        .into()
    }

    fn config(&self, mut data: BTreeMap<String, String>) -> ConfigMap {
        data.extend(self.power.ca.clone().map(|ca| (POWER_CA_KEY.to_owned(), ca)));
        ConfigMap {
            metadata: self.instance().metadata(),
            data: Some(data),
            ..ConfigMap::default()
        }
    }

    fn access(&self) -> Access {
        let instance = self.instance();
        let files = ReadableObjects {
            resource: "configmaps",
            names: vec![instance.name().to_owned()],
        };
        let node_keys = self
            .jump_host
            .node_ssh_private_keys()
            .map(|name| ReadableObjects {
                resource: "secrets",
                names: vec![name.to_owned()],
            });
        api_access::access(&instance, std::iter::once(files).chain(node_keys))
    }
}

fn lines(items: &[impl ToString]) -> String {
    items.iter().fold(String::new(), |mut text, item| {
        text.push_str(&item.to_string());
        text.push('\n');
        text
    })
}
