//! What pods of an instance read, since it was applied.

use std::time::Instant;

use super::super::objects::{Objects, Prepared};

/// The objects that pods of an instance read, since they were applied.
#[derive(Clone, Debug)]
pub(in super::super) struct Configuration {
    digest: u64,
    /// In the order of the children.
    pub(super) versions: Vec<Option<String>>,
    pub(super) written: Option<Written>,
    /// When they were applied.
    pub(in super::super) at: Instant,
    /// Whether every pod has confirmed it.
    pub(super) confirmed: bool,
}

impl Configuration {
    /// Of an instance of which only the Service is recorded.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self {
            digest: 0,
            versions: Vec::new(),
            written: None,
            at: Instant::now(),
            confirmed: false,
        }
    }

    /// Applied now, with these versions.
    pub(in super::super) fn applied(
        objects: &Objects<Prepared>,
        versions: Vec<Option<String>>,
        written: Option<Written>,
    ) -> Self {
        Self {
            digest: objects.configuration_digest(),
            versions,
            written,
            at: Instant::now(),
            confirmed: false,
        }
    }

    /// Whether it stands. `shown`: the versions that the watches show.
    pub(super) fn stands(&self, objects: &Objects<Prepared>, shown: &[Option<String>]) -> bool {
        self.digest == objects.configuration_digest()
            && self.versions == shown
            && shown.iter().all(Option::is_some)
    }
}

/// What pods of an instance read, as this process has written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Written {
    /// The version that it had before; `None` if it was not there.
    pub(in super::super) replaced: Option<String>,
    /// The version that the API server gave it.
    pub(in super::super) version: String,
    /// Tells it from any other, as [`Objects::config_digest`] does.
    pub(in super::super) digest: String,
}

impl Written {
    /// Whether this is the newest version known, given the version that a watch shows: this one, or the one that it has replaced.
    pub(super) fn is_newest(&self, shown: Option<&str>) -> bool {
        shown == Some(self.version.as_str()) || shown == self.replaced.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_newest_until_a_watch_shows_another() {
        let written = |replaced: Option<&str>| Written {
            replaced: replaced.map(str::to_owned),
            version: "7".to_owned(),
            digest: "00ff".to_owned(),
        };
        for (replaced, shown, newest) in [
            (Some("5"), Some("7"), true),
            (Some("5"), Some("5"), true),
            (Some("5"), Some("6"), false),
            (Some("5"), Some("8"), false),
            (Some("5"), None, false),
            (None, None, true),
            (None, Some("7"), true),
            (None, Some("6"), false),
        ] {
            assert_eq!(
                written(replaced).is_newest(shown),
                newest,
                "{replaced:?} {shown:?}"
            );
        }
    }
}
