//! The bill of materials of a program, in `CycloneDX` 1.5: the crates that it is built from, and the packages of the libraries
//! that it is linked with.

mod crates;
mod debian;
mod golang;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use cyclonedx_bom::{
    errors::JsonWriteError,
    external_models::spdx::SpdxExpression,
    models::{
        bom::{Bom, SpecVersion},
        component::{Classification, Component, Components},
        dependency::{Dependencies, Dependency},
        license::{LicenseChoice, Licenses},
        metadata::Metadata,
    },
    prelude::{Purl, Validate as _},
};
use purl::GenericPurlBuilder;

use crate::libraries;

/// Why there is no bill of materials.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cargo does not describe the workspace.
    #[error("cargo metadata")]
    Metadata(#[from] cargo_metadata::Error),
    /// A command cannot be run.
    #[error("run {command}")]
    Run {
        /// The command.
        command: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// A command failed.
    #[error("{command}: {reason}")]
    Command {
        /// The command.
        command: &'static str,
        /// What it said.
        reason: String,
    },
    /// What a command printed is not understood.
    #[error("{command} printed {line:?}")]
    Line {
        /// The command.
        command: &'static str,
        /// What it printed.
        line: String,
    },
    /// The libraries of a program.
    #[error(transparent)]
    Libraries(#[from] libraries::Error),
    /// A package cannot be named by a package URL.
    #[error("{name} {version} has no package URL: {reason}")]
    Purl {
        /// The package.
        name: String,
        /// Its version.
        version: String,
        /// Why not.
        reason: String,
    },
    /// The document is not valid.
    #[error("the bill of materials breaks the rules of CycloneDX: {0}")]
    Invalid(String),
    /// The document cannot be written.
    #[error("write the bill of materials")]
    Write(#[from] JsonWriteError),
}

/// Something that a program contains or is linked with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// Its package URL, which also names it within the document.
    purl: String,
    name: String,
    version: String,
    /// An SPDX expression, where one is declared.
    license: Option<String>,
    /// Package URLs of what it uses.
    uses: Vec<String>,
}

/// What an image consists of, by where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The workspace's packages that its programs are built from.
    pub packages: &'static [&'static str],
    /// Its programs of this project.
    pub programs: Vec<PathBuf>,
    /// Its programs that are built from Go modules.
    pub go_programs: Vec<PathBuf>,
    /// Its programs of the distribution.
    pub system_programs: Vec<PathBuf>,
    /// Its other files of the distribution.
    pub system_files: Vec<PathBuf>,
}

/// The bill of materials of what one image holds, as JSON. It has no time and no serial number: the same programs make the same
/// text. `workspace` is the folder of the workspace's `Cargo.toml`.
///
/// # Errors
/// When cargo, go, `ldd` or `dpkg-query` cannot be asked, or answer what cannot be described.
pub fn bill(title: &str, version: &str, workspace: &Path, contents: &Contents) -> Result<String, Error> {
    let Contents {
        packages,
        programs,
        go_programs,
        system_programs,
        system_files,
    } = contents;
    let mut parts = BTreeMap::new();
    let mut add = |found: Vec<Part>| parts.extend(found.into_iter().map(|part| (part.purl.clone(), part)));
    if !packages.is_empty() {
        add(crates::parts(workspace, packages)?);
    }
    for program in go_programs {
        add(golang::parts(program)?);
    }
    let mut files: Vec<PathBuf> = system_programs.iter().chain(system_files).cloned().collect();
    for program in programs.iter().chain(go_programs).chain(system_programs) {
        files.extend(libraries::libraries(program)?);
    }
    add(debian::parts(&files)?);
    document(title, version, parts.into_values())
}

fn document(title: &str, version: &str, parts: impl Iterator<Item = Part>) -> Result<String, Error> {
    let subject = Component::new(Classification::Container, title, version, Some(title.to_owned()));
    let (mut components, mut dependencies, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for Part {
        purl,
        name,
        version,
        license,
        uses,
    } in parts
    {
        let mut component = Component::new(Classification::Library, &name, &version, Some(purl.clone()));
        component.purl = purl.parse::<Purl>().ok();
        component.licenses = license
            .and_then(|license| SpdxExpression::parse_lax(license).ok())
            .map(|expression| Licenses(vec![LicenseChoice::Expression(expression)]));
        components.push(component);
        all.push(purl.clone());
        dependencies.push(Dependency {
            dependency_ref: purl,
            dependencies: uses,
        });
    }
    dependencies.push(Dependency {
        dependency_ref: title.to_owned(),
        dependencies: all,
    });
    let bom = Bom {
        version: 1,
        serial_number: None,
        metadata: Some(Metadata {
            component: Some(subject),
            ..Metadata::default()
        }),
        components: Some(Components(components)),
        services: None,
        external_references: None,
        dependencies: Some(Dependencies(dependencies)),
        compositions: None,
        properties: None,
        vulnerabilities: None,
        signature: None,
        annotations: None,
        formulation: None,
        spec_version: SpecVersion::V1_5,
    };
    let checked = bom.validate();
    if checked.has_errors() {
        return Err(Error::Invalid(format!("{checked:?}")));
    }
    let mut text = Vec::new();
    bom.output_as_json_v1_5(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A package URL.
fn package_url(
    kind: &str,
    namespace: Option<&str>,
    (name, version): (&str, &str),
    architecture: Option<&str>,
) -> Result<String, Error> {
    let failed = |reason: purl::ParseError| Error::Purl {
        name: name.to_owned(),
        version: version.to_owned(),
        reason: reason.to_string(),
    };
    let mut url = GenericPurlBuilder::new(kind.to_owned(), name).with_version(version);
    if let Some(namespace) = namespace {
        url = url.with_namespace(namespace);
    }
    if let Some(architecture) = architecture {
        url = url.with_qualifier("arch", architecture).map_err(failed)?;
    }
    Ok(url.build().map_err(failed)?.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn part(name: &str, uses: &[&str]) -> Part {
        let url = |name: &str| format!("pkg:cargo/{name}@1.0.0");
        Part {
            purl: url(name),
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: Some("MIT/Apache-2.0".to_owned()),
            uses: uses.iter().map(|used| url(used)).collect(),
        }
    }

    #[test]
    fn a_document_lists_parts_and_what_they_use() {
        let parts = || [part("a", &["b"]), part("b", &[])].into_iter();

        let text = document("sip-x", "0.1.0", parts()).unwrap();

        let bom: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(bom["specVersion"], "1.5");
        assert_eq!(bom["metadata"]["component"]["name"], "sip-x");
        assert_eq!(bom["components"][0]["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(
            bom["components"][0]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert_eq!(bom["dependencies"][0]["dependsOn"][0], "pkg:cargo/b@1.0.0");
        assert_eq!(text, document("sip-x", "0.1.0", parts()).unwrap());
        assert!(bom.get("serialNumber").is_none() && bom["metadata"].get("timestamp").is_none());
    }

    #[test]
    fn libraries_are_listed_by_the_package_that_has_them() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");

        let contents = Contents {
            packages: &["sip-images"],
            programs: vec![PathBuf::from("/bin/true")],
            ..Contents::default()
        };
        let text = bill("sip-x", "0.1.0", &workspace, &contents).unwrap();

        assert!(text.contains("pkg:cargo/oci-spec@"));
        // Only Debian has this package; other systems list no libraries.
        let debian = Path::new("/var/lib/dpkg/info/libc6:amd64.list").exists();
        assert_eq!(text.contains("pkg:deb/debian/libc6@"), debian);
    }

    #[test]
    fn a_debian_package_is_named_with_its_architecture() {
        let url = package_url("deb", Some("debian"), ("libc6", "2.36-9+deb12u10"), Some("amd64"));

        assert_eq!(url.unwrap(), "pkg:deb/debian/libc6@2.36-9+deb12u10?arch=amd64");
    }
}
