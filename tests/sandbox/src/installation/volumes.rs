//! Volumes of a node: a site of the sandbox has no storage that makes them.

use std::{fs, path::Path};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, api::PostParams};
use serde_json::json;

use super::{Error, api_error, file_error, node_of};
use crate::site::Site;

/// Makes so many volumes of 10 GiB, each a folder in the site's directory that claims without a class are bound to.
///
/// # Errors
/// When the site has no real node, or the API server refuses one.
pub async fn make_volumes(site: &Site, count: usize) -> Result<(), Error> {
    let node = node_of(site)?;
    let volumes: Api<PersistentVolume> = Api::all(site.client());
    for index in 0..count {
        let name = format!("disk-{index}");
        let directory = site.directory().join(&name);
        fs::create_dir(&directory).map_err(file_error("make", &directory))?;
        let described = volume(&name, &directory, node.name());
        let described = described.map_err(kube::Error::SerdeError);
        let described = described.map_err(api_error(format!("describe the volume {name}")))?;
        let created = volumes.create(&PostParams::default(), &described).await;
        created.map_err(api_error(format!("create the volume {name}")))?;
    }
    Ok(())
}

fn volume(name: &str, directory: &Path, node: &str) -> Result<PersistentVolume, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "10Gi"},
            "local": {"path": directory},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
            ]}]}},
        },
    }))
}
