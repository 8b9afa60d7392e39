//! Files and directories of a node, with errors that name them.

use std::{fs, path::Path};

use super::Error;

pub(super) fn create(directory: &Path) -> Result<(), Error> {
    fs::create_dir_all(directory).map_err(failed("make", directory))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(failed("write", path))
}

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}
