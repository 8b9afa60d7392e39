//! The Debian packages of files.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::{Error, Part, package_url};

const QUERY: &str = "dpkg-query";

/// The packages that these files belong to; none on a machine that is not Debian's, and for files that no package has.
pub(super) fn parts(files: &[PathBuf]) -> Result<Vec<Part>, Error> {
    let paths: BTreeSet<PathBuf> = files.iter().flat_map(|file| names(file)).collect();
    // It fails for paths that no package has, and lists the others.
    let Some(found) = query(&["--search"], paths.iter().map(|path| path.as_os_str()))? else {
        return Ok(Vec::new());
    };
    let packages: BTreeSet<String> = owners(&String::from_utf8_lossy(&found.stdout)).collect();
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let show = ["--show", "--showformat=${Package} ${Version} ${Architecture}\n"];
    let Some(shown) = query(&show, packages.iter().map(OsStr::new))? else {
        return Ok(Vec::new());
    };
    let shown = String::from_utf8_lossy(&shown.stdout);
    shown.lines().map(part).collect()
}

/// `NAME VERSION ARCHITECTURE`
fn part(line: &str) -> Result<Part, Error> {
    let [name, version, architecture] = line.trim().split(' ').collect::<Vec<_>>()[..] else {
        return Err(Error::Line {
            command: QUERY,
            line: line.to_owned(),
        });
    };
    Ok(Part {
        purl: package_url("deb", Some("debian"), (name, version), Some(architecture))?,
        name: name.to_owned(),
        version: version.to_owned(),
        license: None,
        uses: Vec::new(),
    })
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
fn query<'a>(arguments: &[&str], operands: impl Iterator<Item = &'a OsStr>) -> Result<Option<Output>, Error> {
    match Command::new(QUERY)
        .args(arguments)
        .arg("--")
        .args(operands)
        .output()
    {
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
    fn a_file_of_no_package_is_left_out() {
        assert_eq!(parts(&[PathBuf::from("/nowhere/lib.so")]).unwrap(), []);
    }
}
