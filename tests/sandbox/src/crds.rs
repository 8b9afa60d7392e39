//! The custom resource definitions of a site.

use std::path::PathBuf;

use crate::repository;

const BARE_METAL_HOST: &str = "metal3.io_baremetalhosts.yaml";

/// Every definition that this project ships, in `deploy/crd`, in the order of their names.
///
/// metal3's own definition of BareMetalHost takes the place of ours where a checkout of it lies next to the
/// repository: ours has only the fields that the agents read.
#[must_use]
pub fn all() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(repository::deploy().join("crd")) else {
        return vec![bare_metal_host()];
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().contains('_'))
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .filter(|path| !path.ends_with(BARE_METAL_HOST))
        .chain([bare_metal_host()])
        .collect();
    files.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    files
}

/// The definition of BareMetalHost: metal3's own if it is there, else ours.
#[must_use]
pub fn bare_metal_host() -> PathBuf {
    let metal3 = repository::root()
        .join("../shared/data/metal3")
        .join(BARE_METAL_HOST);
    if metal3.is_file() {
        metal3
    } else {
        repository::deploy().join("crd").join(BARE_METAL_HOST)
    }
}
