//! The node's own part of every control group hierarchy, whichever version the machine uses.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::Error;
use crate::process::Group;

const ROOT: &str = "/sys/fs/cgroup";

/// What a new group of version 1 must be told before a process may join it.
const INHERITED: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];

/// Makes a control group of this name in every hierarchy. They go when the group's processes have ended.
pub(super) fn create(owner: &Group, name: &str) -> Result<(), Error> {
    for hierarchy in hierarchies(Path::new(ROOT)).map_err(failed(Path::new(ROOT)))? {
        let directory = hierarchy.join(name);
        owner.owns_cgroup(&directory);
        fs::create_dir(&directory).map_err(failed(&directory))?;
        for file in INHERITED {
            let (from, to) = (hierarchy.join(file), directory.join(file));
            if from.is_file() {
                let value = fs::read(&from).map_err(failed(&from))?;
                fs::write(&to, value).map_err(failed(&to))?;
            }
        }
    }
    Ok(())
}

/// Version 2 is one hierarchy, version 1 one per set of controllers; names of the same one are links.
fn hierarchies(root: &Path) -> io::Result<Vec<PathBuf>> {
    if root.join("cgroup.controllers").is_file() {
        return Ok(vec![root.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.path().join("cgroup.procs").is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File {
        action: "make the node's control group at",
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn version_1_has_a_hierarchy_per_controller_and_version_2_one_in_all() {
        let root = tempfile::tempdir().unwrap();
        for controller in ["cpu,cpuacct", "memory"] {
            fs::create_dir(root.path().join(controller)).unwrap();
            fs::write(root.path().join(controller).join("cgroup.procs"), "").unwrap();
        }
        fs::create_dir(root.path().join("empty")).unwrap();
        symlink("cpu,cpuacct", root.path().join("cpu")).unwrap();

        let first = hierarchies(root.path()).unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory").unwrap();
        let second = hierarchies(root.path()).unwrap();

        assert_eq!(
            first,
            [root.path().join("cpu,cpuacct"), root.path().join("memory")]
        );
        assert_eq!(second, [root.path()]);
    }
}
