//! The crates that a program is built from.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Node, Package, PackageId};

use super::{Error, Part, package_url};

const TREE: &str = "cargo tree";

/// The crates whose code is in the programs of these packages: neither build scripts nor procedural macros, nor what only
/// other packages of the workspace turn on.
pub(super) fn parts(workspace: &Path, packages: &[&str]) -> Result<Vec<Part>, Error> {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace.join("Cargo.toml"))
        .other_options(["--locked", "--offline", "--filter-platform", &platform()].map(str::to_owned))
        .exec()?;
    let mut built_from = BTreeSet::new();
    for package in packages {
        built_from.extend(tree(workspace, package)?);
    }
    let found: BTreeMap<&PackageId, &Package> = metadata
        .packages
        .iter()
        .filter(|package| built_from.contains(&(package.name.to_string(), package.version.to_string())))
        .map(|package| (&package.id, package))
        .collect();
    let mut parts = Vec::new();
    for (id, package) in &found {
        let mut uses = Vec::new();
        for used in node(&metadata, id).into_iter().flat_map(used) {
            if let Some(used) = found.get(used) {
                uses.push(url(used)?);
            }
        }
        uses.sort();
        uses.dedup();
        parts.push(Part {
            purl: url(package)?,
            name: package.name.to_string(),
            version: package.version.to_string(),
            license: package.license.clone(),
            uses,
        });
    }
    Ok(parts)
}

/// What programs of this machine are compiled for: other platforms use other crates.
fn platform() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn url(package: &Package) -> Result<String, Error> {
    package_url("cargo", None, (&package.name, &package.version.to_string()), None)
}

fn node<'a>(metadata: &'a Metadata, id: &PackageId) -> Option<&'a Node> {
    metadata
        .resolve
        .as_ref()?
        .nodes
        .iter()
        .find(|node| node.id == *id)
}

fn used(node: &Node) -> impl Iterator<Item = &PackageId> {
    let normal =
        |kinds: &[cargo_metadata::DepKindInfo]| kinds.iter().any(|one| one.kind == DependencyKind::Normal);
    node.deps
        .iter()
        .filter(move |used| normal(&used.dep_kinds))
        .map(|used| &used.pkg)
}

/// Names and versions, as cargo resolves them for this package alone.
fn tree(workspace: &Path, package: &str) -> Result<BTreeSet<(String, String)>, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--offline", "--quiet"])
        .args([
            "--edges",
            "normal,no-proc-macro",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .args(["--package", package, "--target", &platform()])
        .current_dir(workspace)
        .output()
        .map_err(|source| Error::Run {
            command: TREE,
            source,
        })?;
    if !output.status.success() {
        return Err(Error::Command {
            command: TREE,
            reason: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    let listing = String::from_utf8_lossy(&output.stdout);
    listing
        .lines()
        .filter(|line| !line.is_empty())
        .map(parse)
        .collect()
}

/// `NAME vVERSION`, and sometimes more.
fn parse(line: &str) -> Result<(String, String), Error> {
    let mut words = line.split_whitespace();
    match (words.next(), words.next().and_then(|word| word.strip_prefix('v'))) {
        (Some(name), Some(version)) => Ok((name.to_owned(), version.to_owned())),
        (Some(_) | None, _) => Err(Error::Line {
            command: TREE,
            line: line.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cargo_name_a_crate_and_its_version() {
        let named = |name: &str, version: &str| (name.to_owned(), version.to_owned());

        assert_eq!(parse("serde v1.0.2 (*)").unwrap(), named("serde", "1.0.2"));
        assert_eq!(parse("sip-x v0.1.0 (/a/b)").unwrap(), named("sip-x", "0.1.0"));
        assert_eq!(
            parse("what").unwrap_err().to_string(),
            "cargo tree printed \"what\""
        );
    }

    #[test]
    fn a_program_is_built_from_what_it_links_and_nothing_else() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");

        let parts = parts(&workspace, &["sip-haproxy-sidecar"]).unwrap();

        let of = |name: &str| parts.iter().find(|part| part.name == name);
        let own = of("sip-haproxy-sidecar").unwrap();
        assert!(
            own.uses.iter().any(|used| used.starts_with("pkg:cargo/sip-kit@")),
            "{own:?}"
        );
        assert_eq!(
            of("rustls").unwrap().license.as_deref(),
            Some("Apache-2.0 OR ISC OR MIT")
        );
        for absent in ["redb", "sip-scheduler", "tonic-prost-build", "serde_derive"] {
            assert!(of(absent).is_none(), "{absent}");
        }
    }
}
