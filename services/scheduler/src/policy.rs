//! Policies of sites: files that an operator of the region writes.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use placement::Policy;

/// Policies by site; [`EVERY`] names all sites that have none of their own.
pub type Policies = BTreeMap<String, Policy>;

/// In the place of a site's name: every site without a policy of its own.
const EVERY: &str = "*";

/// The policy of a site.
#[must_use]
pub fn of(policies: &Policies, site: &str) -> Policy {
    policies
        .get(site)
        .or_else(|| policies.get(EVERY))
        .cloned()
        .unwrap_or_default()
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("the policy {} of site {site} cannot be read", path.display())]
    Read {
        /// Site.
        site: String,
        /// File.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is no policy.
    #[error("the policy {} of site {site} is not of the expected form", path.display())]
    Form {
        /// Site.
        site: String,
        /// File.
        path: PathBuf,
        /// Where and what.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Two files for one site.
    #[error("site {site} has two policies")]
    Twice {
        /// Site.
        site: String,
    },
}

/// Parses `SITE=FILE`.
///
/// # Errors
/// What is expected.
pub fn named(argument: &str) -> Result<(String, PathBuf), String> {
    match argument.split_once('=') {
        Some((site, file)) if !site.is_empty() && !file.is_empty() => Ok((site.to_owned(), file.into())),
        _ => Err("expected SITE=FILE".to_owned()),
    }
}

/// Reads the files.
///
/// # Errors
/// [`Error`] names the site and the file.
pub fn read(files: &[(String, PathBuf)]) -> Result<Policies, Error> {
    let mut policies = Policies::new();
    for (site, path) in files {
        if policies.insert(site.clone(), one(site, path)?).is_some() {
            return Err(Error::Twice { site: site.clone() });
        }
    }
    Ok(policies)
}

fn one(site: &str, path: &Path) -> Result<Policy, Error> {
    let (site, path) = (site.to_owned(), path.to_owned());
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|source| Error::Read {
        site: site.clone(),
        path: path.clone(),
        source,
    })?;
    serde_saphyr::from_str(&text).map_err(|source| Error::Form {
        site,
        path,
        source: source.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_policy_names_the_hierarchy_and_what_is_cordoned() {
        let file = file(
            "hierarchy: [example.org/room, example.org/rack]\ncordoned: [{key: example.org/rack, value: r1}]\n",
        );
        let policies = read(&[("a".to_owned(), file.path().to_owned())]).unwrap();
        let keys: Vec<_> = policies["a"].hierarchy.iter().map(ToString::to_string).collect();
        assert_eq!(keys, ["example.org/room", "example.org/rack"]);
        assert_eq!(policies["a"].cordoned.len(), 1);
    }

    #[test]
    fn a_policy_that_breaks_a_rule_is_refused_with_the_site_and_the_file() {
        for text in ["hierarchie: []", "hierarchy: ['-bad-']", "- list"] {
            let file = file(text);
            let error = read(&[("a".to_owned(), file.path().to_owned())])
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("site a") && error.contains(&*file.path().display().to_string()),
                "{error}"
            );
        }
        assert_eq!(named("a"), Err("expected SITE=FILE".to_owned()));
    }
}
