//! The Debian packages of files.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::{Error, Part, package_url};

const QUERY: &str = "dpkg-query";

/// The packages that these files belong to; none on a machine that is not Debian's, and for files that no package has.
pub(super) fn parts(files: &[PathBuf]) -> Result<Vec<Part>, Error> {
    let mut packages = BTreeSet::new();
    for file in files {
        for path in names(file) {
            let Some(output) = query(&["--search".as_ref(), path.as_os_str()])? else {
                return Ok(Vec::new());
            };
            if output.status.success() {
                packages.extend(owners(&String::from_utf8_lossy(&output.stdout)));
                break;
            }
        }
    }
    let mut parts = Vec::new();
    for package in packages {
        let format = "--showformat=${Package} ${Version} ${Architecture}\n";
        let Some(output) = query(&["--show".as_ref(), format.as_ref(), package.as_ref()])? else {
            return Ok(Vec::new());
        };
        let shown = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let [name, version, architecture] = shown.split(' ').collect::<Vec<_>>()[..] else {
            return Err(Error::Line {
                command: QUERY,
                line: shown,
            });
        };
        parts.push(Part {
            purl: package_url("deb", Some("debian"), (name, version), Some(architecture))?,
            name: name.to_owned(),
            version: version.to_owned(),
            license: None,
            uses: Vec::new(),
        });
    }
    Ok(parts)
}

/// What a file may be called in a package's list: `/lib` leads to `/usr/lib`, and lists have either.
fn names(file: &Path) -> Vec<PathBuf> {
    let mut names = vec![file.to_owned()];
    if let Ok(real) = fs::canonicalize(file) {
        if let Ok(below) = real.strip_prefix("/usr") {
            names.push(Path::new("/").join(below));
        }
        names.push(real);
    }
    names
}

/// `None`: there is no such program here.
fn query(arguments: &[&std::ffi::OsStr]) -> Result<Option<Output>, Error> {
    match Command::new(QUERY).args(arguments).output() {
        Ok(output) => Ok(Some(output)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Run {
            command: QUERY,
            source,
        }),
    }
}

/// `PACKAGE[:ARCHITECTURE][, …]: PATH`
fn owners(listing: &str) -> impl Iterator<Item = String> {
    listing
        .lines()
        .filter(|line| !line.starts_with("diversion by "))
        .filter_map(|line| line.split_once(": "))
        .flat_map(|(packages, _)| packages.split(", "))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_packages_before_the_colon() {
        let listing = "diversion by x from: /bin/sh\nlibc6:amd64, other: /lib/x86_64-linux-gnu/libc.so.6\n";

        assert_eq!(owners(listing).collect::<Vec<_>>(), ["libc6:amd64", "other"]);
    }

    #[test]
    fn a_file_of_nobody_is_left_out() {
        assert_eq!(parts(&[PathBuf::from("/nowhere/lib.so")]).unwrap(), []);
    }
}
