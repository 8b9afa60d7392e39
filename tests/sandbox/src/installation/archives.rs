//! The images as `make images` writes them, but of programs that are built for tests and not compressed: this machine imports them at once.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use images::catalogue::{IMAGES, JUMP_HOST, LOCAL};

use super::{Error, file_error};
use crate::{jump_host, programs, repository, tools};

/// Writes an archive of each image to a directory, which is made if it does not exist. Takes some seconds of processor time.
///
/// # Errors
/// When a program was not built, or an image cannot be written.
pub fn make_archives(directory: &Path) -> Result<(), Error> {
    let program = programs::path("sip-images")?;
    let mut making = Command::new(&program);
    making
        .args(["--uncompressed", "--workspace"])
        .arg(repository::root());
    for found in [programs::path("sipctl")?, tools::path("kubectl")?] {
        making.arg("--programs").args(found.parent());
    }
    let names = IMAGES.iter().map(|row| row.name);
    let made = making
        .arg("--output")
        .arg(directory)
        .args(names.filter(|name| *name != JUMP_HOST.name))
        .output()
        .map_err(file_error("run", &program))?;
    if !made.status.success() {
        return Err(Error::Images(String::from_utf8_lossy(&made.stderr).into_owned()));
    }
    // `make images` links the programs statically that run in it; those of tests bring their libraries along.
    let name = JUMP_HOST.reference(LOCAL, env!("CARGO_PKG_VERSION"));
    let archive = directory.join(format!("{}.tar", JUMP_HOST.name));
    jump_host::image(&name)?.write(&archive)?;
    Ok(())
}

/// The archives in a directory, in the order of their names.
pub(super) fn in_directory(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = || file_error("read", directory);
    let mut archives = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        if path.extension().is_some_and(|ending| ending == "tar") {
            archives.push(path);
        }
    }
    archives.sort();
    Ok(archives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_found_beside_other_files() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.tar", "a.tar", "a.cdx.json"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        fs::create_dir(directory.path().join("logs")).unwrap();

        let found = in_directory(directory.path()).unwrap();

        assert_eq!(found, ["a.tar", "b.tar"].map(|name| directory.path().join(name)));
        assert!(in_directory(&directory.path().join("none")).is_err());
    }
}
