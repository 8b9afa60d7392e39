//! Every kustomization of `deploy/` is one that the API server accepts, without warnings.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sandbox::{repository, site::Site};

/// Of other projects, as far as `deploy/` uses them.
pub(super) const FOREIGN: &str = "tests/site/samples/install/crds.yaml";
/// Where the manifests put things; they make none of them but the first.
const NAMESPACES: [&str; 6] = ["sip-system", "metal", "metal-1", "metal-2", "shop", "vino-system"];
/// Folders with documents that airshipctl reads, and applies to no API server.
const DOCUMENTS: [&str; 2] = ["replacements", "sip-base-catalogues"];

/// Folders below `deploy/` with a kustomization that can be applied by itself: components cannot.
pub(super) fn kustomizations() -> Vec<PathBuf> {
    let mut found = Vec::new();
    search(&repository::deploy(), &mut found);
    found.sort();
    found
}

fn search(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !DOCUMENTS.iter().any(|name| path.ends_with(name)) {
                search(&path, found);
            }
        } else if path.ends_with("kustomization.yaml")
            && !fs::read_to_string(&path).unwrap().contains("kind: Component")
        {
            found.push(folder.to_owned());
        }
    }
}

#[tokio::test]
async fn every_kustomization_is_accepted_without_warnings() {
    let found = kustomizations();
    assert!(found.len() > 15, "{found:?}");
    let site = NAMESPACES
        .iter()
        .fold(Site::builder("install-manifests"), |site, name| {
            site.namespace(name)
        });
    let definitions = [sandbox::crds::all(), vec![repository::root().join(FOREIGN)]].concat();
    let site = site.crds(definitions).start().await.unwrap();

    for folder in found {
        let shown = folder.display().to_string();
        let answer = site
            .kubectl(&[
                "apply",
                "--server-side",
                "--dry-run=server",
                "--validate=strict",
                "-k",
                &shown,
            ])
            .await
            .unwrap();

        assert!(answer.success, "{shown}: {}", answer.stderr);
        assert_eq!(answer.stderr, "", "{shown}");
    }
}
