//! The configuration that HAProxy is to run, parsed from the `ConfigMap` into types that need no further checks.

use std::fmt;

use render::load_balancer::without_placement;
use sha2::{Digest as _, Sha256};

use crate::members::{self, Members};

/// The environment variable with what a worker was started from. A worker answers with its own value, whatever the file holds
/// by then.
pub const ORIGIN_VARIABLE: &str = "SIP_ORIGIN";

/// Why what the `ConfigMap` holds cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The servers are no servers.
    #[error("membership.json cannot be used")]
    Membership(#[source] members::Error),
}

/// What a worker was started from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Origin {
    /// SHA-256 of the configuration's text, without the line that names the placement: HAProxy runs the same with another one.
    pub digest: String,
    /// Its shape; `None` without `membership.json`, which lists the servers.
    pub shape: Option<String>,
}

impl Origin {
    const NO_SHAPE: &str = "none";

    /// Parses the value of [`ORIGIN_VARIABLE`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (digest, shape) = text.split_once('.')?;
        Some(Self {
            digest: digest.to_owned(),
            shape: (shape != Self::NO_SHAPE).then(|| shape.to_owned()),
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digest, shape } = self;
        write!(f, "{digest}.{}", shape.as_deref().unwrap_or(Self::NO_SHAPE))
    }
}

/// A configuration, with its servers if they are known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wanted {
    text: String,
    digest: String,
    origin: Origin,
    members: Option<Members>,
}

impl Wanted {
    /// Reads what the `ConfigMap` holds.
    ///
    /// # Errors
    /// What is wrong with it: nothing of it can be used then.
    pub fn parse(config: &str, membership: Option<&str>) -> Result<Self, Error> {
        let members = membership
            .map(|membership| Members::parse(membership.as_bytes()))
            .transpose()
            .map_err(Error::Membership)?;
        Ok(Self {
            text: config.to_owned(),
            digest: hex(config.as_bytes()),
            origin: Origin {
                digest: hex(without_placement(config).as_bytes()),
                shape: members.as_ref().map(|members| members.shape().to_owned()),
            },
            members,
        })
    }

    /// SHA-256 of the text, in hexadecimal digits.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Its servers, if that is known.
    #[must_use]
    pub fn members(&self) -> Option<&Members> {
        self.members.as_ref()
    }

    /// Whether a worker that was started from `origin` can run this without being started anew.
    #[must_use]
    pub fn fits(&self, origin: &Origin) -> bool {
        match (&self.origin.shape, &origin.shape) {
            (Some(mine), Some(its)) => mine == its,
            // Servers of such a worker are never changed, so it runs what it was started from.
            (None, None) => self.origin.digest == origin.digest,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// The file that HAProxy reads: the text, and behind it, so that its lines keep their numbers, by what its workers are
    /// recognised.
    #[must_use]
    pub fn file(&self) -> String {
        let Self {
            text,
            digest: _,
            origin,
            members: _,
        } = self;
        let end = if text.ends_with('\n') { "" } else { "\n" };
        format!(
            "{text}{end}
# By this variable the sidecar recognises the configuration that a worker was started with.
global
  setenv {ORIGIN_VARIABLE} {origin}
"
        )
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(text: &str, membership: Option<&str>) -> Wanted {
        Wanted::parse(text, membership).unwrap()
    }

    const SERVERS: &str = r#"{"frame":"00","keywords":"check","backends":[],"servers":[]}"#;
    const OTHER: &str = r#"{"frame":"01","keywords":"check","backends":[],"servers":[]}"#;

    #[test]
    fn the_file_is_the_text_and_sets_the_origin() {
        for text in ["global\n  maxconn 1\n", "global\n  maxconn 1"] {
            let wanted = wanted(text, Some(SERVERS));
            let file = wanted.file();
            assert!(file.starts_with("global\n  maxconn 1\n\n# By this"), "{file}");
            let said = file.split_once(&format!("setenv {ORIGIN_VARIABLE} ")).unwrap().1;
            let origin = Origin::parse(said.trim_end()).unwrap();
            assert_eq!(origin.digest, hex(text.as_bytes()));
            assert!(wanted.fits(&origin));
        }
    }

    #[test]
    fn a_worker_fits_where_only_servers_differ() {
        let origin = |wanted: &Wanted| wanted.origin.clone();
        let first = wanted("first\n", Some(SERVERS));
        let template = wanted("first\n", None);
        assert!(wanted("second\n", Some(SERVERS)).fits(&origin(&first)));
        assert!(!wanted("first\n", Some(OTHER)).fits(&origin(&first)));
        assert!(template.fits(&origin(&template)));
        let later = wanted("first\n# placement 1.8\n", None);
        assert!(
            later.fits(&origin(&template)),
            "it runs the same for another placement"
        );
        assert_ne!(later.digest(), template.digest(), "it has read another one");
        assert!(!wanted("second\n", None).fits(&origin(&template)));
        // Its servers may have been changed since, and to what is unknown.
        assert!(!template.fits(&origin(&first)));
        assert!(!first.fits(&origin(&template)));
    }
}
