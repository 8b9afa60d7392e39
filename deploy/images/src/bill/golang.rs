//! The Go modules that a program is built from, as the program itself lists them.

use std::{path::Path, process::Command};

use super::{Error, Part, package_url};

const COMMAND: &str = "go version -m";

/// Go's standard library, and every module.
pub(super) fn parts(program: &Path) -> Result<Vec<Part>, Error> {
    let output = Command::new("go")
        .args(["version", "-m"])
        .arg(program)
        // No other toolchain is fetched to read a program.
        .env("GOTOOLCHAIN", "local")
        .output()
        .map_err(|source| Error::Run {
            command: COMMAND,
            source,
        })?;
    if !output.status.success() {
        return Err(Error::Command {
            command: COMMAND,
            reason: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    parse(&String::from_utf8_lossy(&output.stdout))
        .into_iter()
        .map(|(module, version)| part(&module, &version))
        .collect()
}

fn part(module: &str, version: &str) -> Result<Part, Error> {
    let (namespace, name) = match module.rsplit_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, module),
    };
    Ok(Part {
        purl: package_url("golang", namespace, (name, version), None)?,
        name: module.to_owned(),
        version: version.to_owned(),
        license: None,
        uses: Vec::new(),
    })
}

/// The first line is `PATH: goVERSION`. Others begin with a tab: `dep`, a module and its version; and `=>` with what replaces the
/// module of the line before.
fn parse(listing: &str) -> Vec<(String, String)> {
    let mut lines = listing.lines();
    let go = lines.next().and_then(|line| line.rsplit_once(": go"));
    let mut modules: Vec<(String, String)> = go
        .map(|(_, version)| {
            let version = version.split_whitespace().next().unwrap_or(version);
            ("std".to_owned(), version.to_owned())
        })
        .into_iter()
        .collect();
    for line in lines {
        let mut words = line.split_whitespace();
        if let (Some(kind @ ("dep" | "=>")), Some(module), Some(version)) =
            (words.next(), words.next(), words.next())
        {
            if kind == "=>" {
                modules.pop();
            }
            modules.push((module.to_owned(), version.to_owned()));
        }
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_with_what_replaces_them() {
        let listing = "/cache/kubectl: go1.26.8\n\
                       \tpath\tk8s.io/kubernetes/cmd/kubectl\n\
                       \tmod\ttools\t(devel)\n\
                       \tdep\tk8s.io/api\tv0.0.0\n\
                       \t=>\tk8s.io/api\tv0.36.3\th1:a=\n\
                       \tdep\tgopkg.in/inf.v0\tv0.9.1\th1:b=\n\
                       \tbuild\t-compiler=gc\n";

        let modules = parse(listing);

        let named: Vec<String> = modules
            .iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        assert_eq!(
            named,
            ["std 1.26.8", "k8s.io/api v0.36.3", "gopkg.in/inf.v0 v0.9.1"]
        );
        assert_eq!(
            part("k8s.io/api", "v0.36.3").unwrap().purl,
            "pkg:golang/k8s.io/api@v0.36.3"
        );
        assert_eq!(part("std", "1.26.8").unwrap().purl, "pkg:golang/std@1.26.8");
    }
}
