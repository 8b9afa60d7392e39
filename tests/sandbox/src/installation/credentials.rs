//! Who the pods of an installation are to each other: certificates as `sipctl certs` issues them, in the Secrets and `ConfigMaps` that the
//! manifests name.

use std::{collections::BTreeMap, fs, net::Ipv4Addr, path::Path};

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{ObjectMeta, PostParams},
};

use super::{Error, REGION, SITE, api_error, file_error};
use crate::{
    authority::{Authority, Caller, Identity},
    region::{AGENTS_NAMESPACE, Agent},
    site::Site,
};

/// The name by which grpcurl and agents within the cluster reach the scheduler.
const SCHEDULER: &str = "sip-scheduler.sip-system.svc";
/// The name by which jump hosts verify power control.
const POWER: &str = "sip-jump-host-agent-power.sip-system.svc";
/// The name of the etcd of identity providers.
const STORAGE: &str = "sip-dex-storage.sip-system.svc";
/// The password of the user `root` in that etcd.
const STORAGE_PASSWORD: &str = "password of the storage";

/// The type of a Secret that the API server checks for a certificate and its key.
const TLS: &str = "kubernetes.io/tls";
const OPAQUE: &str = "Opaque";

/// Everything that is issued before the manifests are applied.
pub(super) struct Credentials {
    operator: Identity,
    config_maps: Vec<ConfigMap>,
    secrets: Vec<Secret>,
}

impl Credentials {
    /// Issues them in a directory. As with `sipctl certs`, the region and the site have a CA each; the storage has one too. `address`: where
    /// this machine reaches the scheduler.
    pub(super) fn issue(directory: &Path, address: Ipv4Addr) -> Result<Self, Error> {
        let region = Authority::new(&directory.join("region"), REGION)?;
        let site = Authority::new(&directory.join("site"), REGION)?;
        let storage = Authority::new(&directory.join("storage"), REGION)?;

        let scheduler = region.issue_server_at(&Caller::Scheduler, address.into(), &[SCHEDULER])?;
        let etcd = storage.issue_server(&Caller::Operator("storage"), &[STORAGE])?;
        let mut secrets = vec![
            tls("sip-scheduler", &scheduler)?,
            tls("sip-dex-storage", &etcd)?,
            secret(
                "sip-dex-storage",
                OPAQUE,
                [
                    ("ca.crt", read(storage.certificate())?),
                    ("password", STORAGE_PASSWORD.into()),
                ],
            ),
        ];
        for agent in [Agent::Cluster, Agent::LoadBalancer, Agent::JumpHost, Agent::Dex] {
            let caller = Caller::Agent {
                site: SITE,
                name: agent.name(),
            };
            let identity = match agent {
                Agent::JumpHost => site.issue_server(&caller, &[POWER])?,
                Agent::Cluster | Agent::LoadBalancer | Agent::Dex => site.issue(&caller)?,
            };
            secrets.push(tls(agent.program(), &identity)?);
        }
        let config_maps = vec![
            config_map("sip-region-authority", "region.crt", text(region.certificate())?),
            config_map(
                "sip-site-authorities",
                &format!("{SITE}.crt"),
                text(site.certificate())?,
            ),
            // Nobody is denied.
            config_map("sip-denied", "denied", String::new()),
        ];
        Ok(Self {
            operator: region.issue(&Caller::Operator("sandbox"))?,
            config_maps,
            secrets,
        })
    }

    /// Creates the Secrets and `ConfigMaps`. Returns the certificate of an operator.
    pub(super) async fn create(self, site: &Site) -> Result<Identity, Error> {
        let Self {
            operator,
            config_maps,
            secrets,
        } = self;
        let params = PostParams::default();
        let api: Api<ConfigMap> = Api::namespaced(site.client(), AGENTS_NAMESPACE);
        for map in &config_maps {
            let failed = api_error(format!("create the ConfigMap {}", map.name_any()));
            api.create(&params, map).await.map_err(failed)?;
        }
        let api: Api<Secret> = Api::namespaced(site.client(), AGENTS_NAMESPACE);
        for secret in &secrets {
            let failed = api_error(format!("create the Secret {}", secret.name_any()));
            api.create(&params, secret).await.map_err(failed)?;
        }
        Ok(operator)
    }

    /// The names of the Secrets and `ConfigMaps`.
    #[cfg(test)]
    pub(super) fn names(&self) -> Vec<String> {
        let secrets = self.secrets.iter().map(kube::ResourceExt::name_any);
        let maps = self.config_maps.iter().map(kube::ResourceExt::name_any);
        secrets.chain(maps).collect()
    }
}

/// The Secret `NAME-tls`, with the CA certificate too, as cert-manager makes it.
fn tls(name: &str, identity: &Identity) -> Result<Secret, Error> {
    let Identity {
        uri: _,
        certificate,
        key,
        authority,
    } = identity;
    let files = [
        ("tls.crt", read(certificate)?),
        ("tls.key", read(key)?),
        ("ca.crt", read(authority)?),
    ];
    Ok(secret(&format!("{name}-tls"), TLS, files))
}

fn secret<const N: usize>(name: &str, kind: &str, files: [(&str, Vec<u8>); N]) -> Secret {
    let data = files.map(|(key, content)| (key.to_owned(), ByteString(content)));
    Secret {
        metadata: named(name),
        type_: Some(kind.to_owned()),
        data: Some(BTreeMap::from(data)),
        ..Secret::default()
    }
}

fn config_map(name: &str, key: &str, content: String) -> ConfigMap {
    ConfigMap {
        metadata: named(name),
        data: Some(BTreeMap::from([(key.to_owned(), content)])),
        ..ConfigMap::default()
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(file_error("read", path))
}

fn text(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(file_error("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_and_site_certify_apart_and_each_key_has_its_ca() {
        let directory = tempfile::tempdir().unwrap();

        let credentials = Credentials::issue(directory.path(), Ipv4Addr::new(198, 18, 0, 2)).unwrap();

        let secret = |name: &str| {
            let found = credentials.secrets.iter().find(|one| one.name_any() == name);
            found.unwrap().data.clone().unwrap()
        };
        let map = |name: &str| {
            let found = credentials.config_maps.iter().find(|one| one.name_any() == name);
            let data = found.unwrap().data.clone().unwrap();
            data.into_values().next().unwrap().into_bytes()
        };
        let (region, site) = (map("sip-region-authority"), map("sip-site-authorities"));
        assert_ne!(region, site);
        assert_eq!(secret("sip-scheduler-tls")["ca.crt"].0, region);
        for agent in ["cluster", "load-balancer", "jump-host", "dex"] {
            assert_eq!(
                secret(&format!("sip-{agent}-agent-tls"))["ca.crt"].0,
                site,
                "{agent}"
            );
        }
        let storage = secret("sip-dex-storage-tls");
        assert_eq!(secret("sip-dex-storage")["ca.crt"], storage["ca.crt"]);
        assert_eq!(fs::read(&credentials.operator.authority).unwrap(), region);
    }
}
