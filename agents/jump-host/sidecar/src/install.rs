//! Copies programs to where the container of sshd finds them: its image is the user's, and has none of ours.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Programs of the image; those that it does not have are left out.
const COPIED_PROGRAMS: [&str; 2] = ["host", "kubectl"];

/// Where programs are copied to.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Directory to copy to
    #[arg(long, value_name = "PATH")]
    to: PathBuf,
    /// Directory with the programs of this image
    #[arg(long, value_name = "PATH", default_value = "/usr/local/bin")]
    from: PathBuf,
}

/// A program cannot be copied.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be copied to {}", from.display(), to.display())]
pub struct Error {
    from: PathBuf,
    to: PathBuf,
    #[source]
    source: io::Error,
}

/// Copies this program and the others.
///
/// # Errors
/// Which one cannot be copied.
pub fn run(args: &Args) -> Result<(), Error> {
    let Args { to, from } = args;
    copy(
        Path::new("/proc/self/exe"),
        &to.join(render::jump_host::interface::PROGRAM),
    )?;
    for program in COPIED_PROGRAMS {
        let source = from.join(program);
        if source.exists() {
            copy(&source, &to.join(program))?;
        }
    }
    Ok(())
}

/// A program that is there already is replaced, since a container may be started again.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let new = to.with_extension("new");
    let copied = fs::copy(from, &new)
        .and_then(|_| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&new, to));
    copied.map_err(|source| Error {
        from: from.to_owned(),
        to: to.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_copied_and_can_be_run() {
        let _turn = crate::orphans::CHILD_LOCK.blocking_lock();
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("host"), "#!/bin/sh\necho host\n").unwrap();
        let args = Args {
            to: to.path().to_owned(),
            from: from.path().to_owned(),
        };
        for _ in 0..2 {
            run(&args).unwrap();
        }
        let host = std::process::Command::new(to.path().join("host"))
            .output()
            .unwrap();
        assert_eq!(host.stdout, b"host\n");
        let mut names: Vec<_> = fs::read_dir(to.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["host", "sip-jump-host-sidecar"]);
    }
}
