//! Where this repository's own files are: the sandbox runs from a checkout, never from an installed package.

use std::path::{Path, PathBuf};

/// The root of the checkout that this crate was compiled in.
#[must_use]
pub fn root() -> PathBuf {
    let here = sandbox();
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The manifests that a site's administrator applies.
#[must_use]
pub fn deploy() -> PathBuf {
    root().join("deploy")
}

/// The sample manifests of the demonstration.
#[must_use]
pub fn samples() -> PathBuf {
    sandbox().join("samples")
}

/// This crate's own folder.
#[must_use]
pub fn sandbox() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
