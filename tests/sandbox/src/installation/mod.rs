//! An installed region: the scheduler and the agents are pods of a site's real node, made of this project's images by the manifests of
//! `deploy/`, as `docs/install.md` installs them.
//!
//! The tests of that page run its commands one by one. They share with [`Installation`] what a machine beside the cluster provides: archives
//! of the images, volumes, and a name server.

mod archives;
mod credentials;
mod names;
mod pods;
mod rollout;
mod volumes;

use std::path::Path;

pub use archives::make_archives;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
pub use names::{Names, Target};
pub use pods::describe_pods;
pub use volumes::make_volumes;

use self::credentials::Credentials;
use crate::{
    node::Node,
    region::{AGENTS_NAMESPACE, Error, Grpcurl, api_error, file_error},
    repository,
    site::Site,
};

/// The region in the kustomizations of `deploy/examples/one-site` and of the folders that build on it.
pub const REGION: &str = "north";
/// The site in the same kustomizations.
pub const SITE: &str = "site-a";

/// The Service of the scheduler.
const SCHEDULER: &str = "sip-scheduler";
/// The scheduler's ledger is on one volume, the keys and tokens of identity providers are on another one.
const VOLUMES: usize = 2;

/// An installed region with one site. It ends with the site.
#[derive(Debug)]
pub struct Installation {
    grpcurl: Grpcurl,
    _names: Names,
}

impl Installation {
    /// Installs the region [`REGION`] in a site of the name [`SITE`] whose node runs pods, and waits until every pod is ready. `archives`: the
    /// directory that [`make_archives`] has filled. The node also needs an image `etcd:3.6`.
    ///
    /// # Errors
    /// When the site has no real node, refuses a manifest, or a pod does not become ready.
    pub async fn start(site: &Site, archives: &Path) -> Result<Self, Error> {
        let node = node_of(site)?;
        for archive in archives::in_directory(archives)? {
            node.import_archive(&archive).await?;
        }
        make_volumes(site, VOLUMES).await?;
        let names = Names::serve(site, Vec::new()).await?;
        // The namespace first: pods whose Secrets do not exist yet would start later.
        apply(site, "namespace").await?;
        let directory = site.directory().join("region");
        let credentials = Credentials::issue(&directory, node.address())?;
        let operator = credentials.create(site).await?;
        apply(site, "sandbox/pods").await?;
        rollout::wait_until_ready(site).await?;
        // Only now has the Dex agent turned on authentication in the storage.
        apply(site, "agents/dex/storage/providers").await?;
        let address = format!("{}:{}", node.address(), scheduler_port(site).await?);
        Ok(Self {
            grpcurl: Grpcurl::new(address, operator),
            _names: names,
        })
    }

    /// Calls of an operator to the scheduler, at a port of the node.
    #[must_use]
    pub fn grpcurl(&self) -> Grpcurl {
        self.grpcurl.clone()
    }
}

/// The node that runs the site's pods.
fn node_of(site: &Site) -> Result<&Node, Error> {
    site.node().ok_or_else(|| Error::NoNode {
        site: site.name().to_owned(),
    })
}

/// Applies a folder of `deploy/`.
async fn apply(site: &Site, folder: &str) -> Result<(), Error> {
    site.apply_kustomization(&repository::deploy().join(folder))
        .await?;
    Ok(())
}

async fn scheduler_port(site: &Site) -> Result<i32, Error> {
    let services: Api<Service> = Api::namespaced(site.client(), AGENTS_NAMESPACE);
    let service = services.get(SCHEDULER).await;
    let service = service.map_err(api_error("get the Service of the scheduler"))?;
    node_port(&service).ok_or_else(|| Error::NoPort {
        service: format!("{AGENTS_NAMESPACE}/{SCHEDULER}"),
    })
}

/// The first port of the nodes that leads to a Service.
fn node_port(service: &Service) -> Option<i32> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    ports.iter().find_map(|port| port.node_port)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::Ipv4Addr, process::Command};

    use serde_json::Value;

    use super::*;
    use crate::tools;

    /// The objects that the installation applies.
    fn rendered() -> Vec<Value> {
        let output = Command::new(tools::path("kubectl").unwrap())
            .arg("kustomize")
            .arg(repository::deploy().join("sandbox/pods"))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
    }

    /// The names of the `ConfigMaps` and Secrets that pods of these objects have files or variables of.
    fn needed(objects: &[Value]) -> BTreeSet<String> {
        let pods = objects.iter().map(|object| &object["spec"]["template"]["spec"]);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let named = |value: &Value| value.as_str().map(str::to_owned);
        let names = pods.flat_map(|pod| {
            let volumes = list(&pod["volumes"]);
            let volumes = volumes.iter().flat_map(|one| {
                [
                    named(&one["configMap"]["name"]),
                    named(&one["secret"]["secretName"]),
                ]
            });
            let containers = list(&pod["containers"]);
            let sources = containers.iter().flat_map(|one| list(&one["envFrom"]));
            let variables = sources.map(|source| named(&source["configMapRef"]["name"]));
            volumes.chain(variables).flatten().collect::<Vec<_>>()
        });
        names.collect()
    }

    /// What the `ConfigMaps` among these objects have under a key.
    fn values<'a>(objects: &'a [Value], key: &str) -> Vec<&'a str> {
        let data = objects.iter().map(|object| &object["data"][key]);
        data.filter_map(Value::as_str).collect()
    }

    #[test]
    fn pods_mount_only_what_the_installation_creates() {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::issue(directory.path(), Ipv4Addr::new(198, 18, 0, 2)).unwrap();
        let objects = rendered();
        let generated = objects
            .iter()
            .filter(|object| object["kind"] == "ConfigMap")
            .filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned));

        let created: BTreeSet<String> = credentials.names().into_iter().chain(generated).collect();

        let needed = needed(&objects);
        assert!(needed.len() > 10, "{needed:?}");
        assert_eq!(needed, created);
    }

    #[test]
    fn the_scheduler_has_a_port_of_the_nodes() {
        let objects = rendered();
        let service = |name: &str| {
            let found = objects
                .iter()
                .find(|object| object["kind"] == "Service" && object["metadata"]["name"] == name);
            serde_json::from_value::<Service>(found.unwrap().clone()).unwrap()
        };

        assert_eq!(node_port(&service(SCHEDULER)), Some(30_743));
        assert_eq!(node_port(&service("sip-jump-host-agent-power")), None);
    }

    #[test]
    fn the_names_are_those_of_the_kustomization() {
        let objects = rendered();
        let sites = values(&objects, "site.yaml");

        assert_eq!(values(&objects, "SIP_REGION"), [REGION]);
        assert_eq!(sites.len(), 1, "{sites:?}");
        assert!(sites[0].contains(&format!("\nsite: {SITE}\n")), "{sites:?}");
    }
}
