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

/// What pods together get of the processors when others want them too: as much as this number of processes. A group counts as one
/// otherwise, and beside the servers and tests of a busy machine the pods of a node would stand still.
const PROCESSES: u32 = 16;

/// Files that say how much a group gets, and what one process counts for in them: version 1 and version 2.
const SHARES: [(&str, u32); 2] = [("cpu.shares", 1024), ("cpu.weight", 100)];

/// What the kubelet wants to find in a group of version 2, where the kernel has it.
const WANTED: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

/// Makes a control group of this name in every hierarchy. They go when the group's processes have ended.
pub(super) fn create(owner: &Group, name: &str) -> Result<(), Error> {
    let root = Path::new(ROOT);
    enable(root).map_err(failed(root))?;
    for hierarchy in hierarchies(root).map_err(failed(root))? {
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
        share(&directory)?;
    }
    Ok(())
}

/// Hierarchies without the processor's controller have no such file.
fn share(directory: &Path) -> Result<(), Error> {
    for (file, process) in SHARES {
        let path = directory.join(file);
        if path.is_file() {
            fs::write(&path, (PROCESSES * process).to_string()).map_err(failed(&path))?;
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

/// Version 2 gives a group only the controllers that its parent passes on. The kubelet's own library does the same below.
fn enable(root: &Path) -> io::Result<()> {
    let available = root.join("cgroup.controllers");
    if !available.is_file() {
        return Ok(());
    }
    let passed_on = root.join("cgroup.subtree_control");
    let (available, enabled) = (fs::read_to_string(available)?, fs::read_to_string(&passed_on)?);
    let has = |list: &str, name: &str| list.split_whitespace().any(|one| one == name);
    let missing: Vec<String> = WANTED
        .into_iter()
        .filter(|name| has(&available, name) && !has(&enabled, name))
        .map(|name| format!("+{name}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    fs::write(passed_on, missing.join(" "))
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
    fn cgroup_hierarchies_of_both_versions_are_parsed() {
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

    #[test]
    fn pods_share_processors_like_sixteen_processes() {
        for (file, expected) in [("cpu.shares", "16384"), ("cpu.weight", "1600")] {
            let group = tempfile::tempdir().unwrap();
            fs::write(group.path().join(file), "").unwrap();

            share(group.path()).unwrap();

            assert_eq!(fs::read_to_string(group.path().join(file)).unwrap(), expected);
            assert_eq!(fs::read_dir(group.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn version_2_delegates_only_missing_controllers() {
        let cases = [
            (
                "cpuset cpu io memory pids rdma",
                "cpu memory",
                "+cpuset +io +pids",
            ),
            ("cpu memory", "cpu memory", "cpu memory"),
        ];

        for (available, enabled, expected) in cases {
            let root = tempfile::tempdir().unwrap();
            let passed_on = root.path().join("cgroup.subtree_control");
            fs::write(root.path().join("cgroup.controllers"), available).unwrap();
            fs::write(&passed_on, enabled).unwrap();

            enable(root.path()).unwrap();

            assert_eq!(fs::read_to_string(passed_on).unwrap(), expected);
        }
        let version_1 = tempfile::tempdir().unwrap();
        enable(version_1.path()).unwrap();
        assert_eq!(fs::read_dir(version_1.path()).unwrap().count(), 0);
    }
}
