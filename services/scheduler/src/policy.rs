//! Policies of sites: files that an operator of the region writes.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::{Path, PathBuf},
    time::Duration,
};

use placement::Policy;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use runtime::error_chain::chain;

/// Time between two reads of the files. The kubelet updates the files of a `ConfigMap` within a minute.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Policies by site; [`ANY_SITE`] names all sites that have none of their own.
pub type Policies = BTreeMap<String, Policy>;

/// In the place of a site's name: every site without a policy of its own.
const ANY_SITE: &str = "*";

/// The policy of a site.
#[must_use]
pub fn for_site(policies: &Policies, site: &str) -> Policy {
    policies
        .get(site)
        .or_else(|| policies.get(ANY_SITE))
        .cloned()
        .unwrap_or_default()
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("the policy {} of site {site} cannot be read", path.display())]
    Read {
        /// Name of the site.
        site: String,
        /// Path of the file.
        path: PathBuf,
        /// The error of the read.
        #[source]
        source: std::io::Error,
    },
    /// The file is no policy.
    #[error("the policy {} of site {site} is not of the expected form", path.display())]
    Form {
        /// Name of the site.
        site: String,
        /// Path of the file.
        path: PathBuf,
        /// Where and what.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Two files for one site.
    #[error("--site-policy names site {site} twice")]
    Twice {
        /// Name of the site.
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

/// Reads the files at each interval: the watch has their content from the last time that all could be read.
///
/// # Errors
/// [`Error`], when they cannot be read the first time.
pub fn follow(
    files: Vec<(String, PathBuf)>,
) -> Result<
    (
        watch::Receiver<Policies>,
        impl Future<Output = Result<(), Infallible>> + Send,
    ),
    Error,
> {
    let (sender, policies) = watch::channel(read(&files)?);
    Ok((policies, reload(files, sender)))
}

async fn reload(files: Vec<(String, PathBuf)>, sender: watch::Sender<Policies>) -> Result<(), Infallible> {
    let mut pace = interval(POLL_INTERVAL);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refused = None;
    loop {
        pace.tick().await;
        let again = files.clone();
        match tokio::task::spawn_blocking(move || read(&again)).await {
            Ok(Ok(policies)) => {
                refused = None;
                sender.send_if_modified(|current| {
                    let changed = *current != policies;
                    *current = policies;
                    changed
                });
            }
            Ok(Err(error)) => {
                let why = chain(&error);
                if refused.as_ref() != Some(&why) {
                    tracing::error!(why, "a policy is invalid; the previous one stays in force");
                    refused = Some(why);
                }
            }
            Err(error) => tracing::error!(%error, "the policies were not read"),
        }
    }
}

/// What differs between two policies, for people.
#[must_use]
pub fn difference(before: &Policy, after: &Policy) -> String {
    let Policy {
        hierarchy,
        cordoned,
        quotas,
        namespace_preference,
    } = after;
    let more = cordoned
        .difference(&before.cordoned)
        .map(|domain| format!("{domain} is cordoned"));
    let less = before
        .cordoned
        .difference(cordoned)
        .map(|domain| format!("{domain} is no longer cordoned"));
    let others = [
        (*hierarchy != before.hierarchy, "the hierarchy has changed"),
        (*quotas != before.quotas, "the quotas have changed"),
        (
            *namespace_preference != before.namespace_preference,
            "the preferred namespaces have changed",
        ),
    ];
    let others = others.into_iter().filter(|(changed, _)| *changed);
    let all: Vec<String> = more
        .chain(less)
        .chain(others.map(|(_, what)| what.to_owned()))
        .collect();
    all.join("; ")
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
    fn an_invalid_policy_is_refused_with_site_and_file() {
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
