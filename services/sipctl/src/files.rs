//! Reads what a command line names.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use placement::Policy;

use crate::input::{self, Document};
use crate::line::one_line;

/// Names standard input.
const STANDARD_INPUT: &str = "-";
/// Extensions of the files that are read in a directory.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// Maximum number of characters of a path in a message.
const MAX_PATH_CHARACTERS: usize = 256;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read: it is not there, may not be read, or is not UTF-8.
    #[error("{path} cannot be read")]
    Read {
        /// Which.
        path: String,
        /// The error of the read.
        #[source]
        source: std::io::Error,
    },
    /// Its text cannot be read as documents.
    #[error(transparent)]
    Documents(#[from] input::Error),
    /// It is no policy of a site.
    #[error("the policy {path} is not of the expected form")]
    Policy {
        /// Which.
        path: String,
        /// Where and what.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
}

/// All documents of some files and directories. A directory means its `*.yaml`, `*.yml` and `*.json`, not those of
/// directories in it; `-` means standard input.
///
/// # Errors
/// The first file that cannot be read.
pub fn documents(paths: &[PathBuf]) -> Result<Vec<Document>, Error> {
    let mut found = Vec::new();
    for path in paths {
        for file in files(path)? {
            found.extend(input::documents(&file.to_string_lossy(), &text(&file)?)?);
        }
    }
    Ok(found)
}

/// The policy in a file, or that of a site without one.
///
/// # Errors
/// The file cannot be read, or breaks a rule.
pub fn policy_or_default(path: Option<&Path>) -> Result<Policy, Error> {
    Ok(path.map(policy).transpose()?.unwrap_or_default())
}

/// A site's policy, of the same form as the scheduler's.
///
/// # Errors
/// The file cannot be read, or breaks a rule.
pub fn policy(path: &Path) -> Result<Policy, Error> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(&text(path)?, options).map_err(|source| Error::Policy {
        path: display(path),
        source: Box::new(source),
    })
}

fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |source| Error::Read {
        path: display(path),
        source,
    };
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let extension = file
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default();
        if EXTENSIONS.contains(&extension) && !file.is_dir() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn text(path: &Path) -> Result<String, Error> {
    let text = if path.as_os_str() == STANDARD_INPUT {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|source| Error::Read {
        path: display(path),
        source,
    })
}

fn display(path: &Path) -> String {
    one_line(&path.to_string_lossy(), MAX_PATH_CHARACTERS)
}
