//! The third-party programs: where the set-up script has put them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::repository;

/// Why a tool cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The set-up script could not be run.
    #[error("{script} --locate did not run: {reason}")]
    Locate {
        /// The script.
        script: String,
        /// What the operating system or the script said.
        reason: String,
    },
    /// The set-up script knows no such tool.
    #[error("{0:?} is none of the tools that the set-up script knows")]
    Unknown(String),
    /// The tool was not built yet.
    #[error("{tool} is not at {path}: run `make setup` first")]
    Missing {
        /// The tool's name.
        tool: String,
        /// Where it should be.
        path: PathBuf,
    },
}

/// The path of a tool, such as `etcd` or `kubectl`.
///
/// The set-up script alone knows where tools live (`KUBEBUILDER_ASSETS`, the cache directory and its hashes), so it is
/// asked, once per process.
///
/// # Errors
/// When the set-up script does not run, knows no such tool, or has not built it.
pub fn path(tool: &str) -> Result<PathBuf, Error> {
    static PATHS: OnceLock<Result<BTreeMap<String, PathBuf>, Error>> = OnceLock::new();
    let paths = PATHS
        .get_or_init(|| locate(&repository::sandbox().join("setup")))
        .as_ref()
        .map_err(Clone::clone)?;
    let path = paths.get(tool).ok_or_else(|| Error::Unknown(tool.to_owned()))?;
    if path.is_file() {
        Ok(path.clone())
    } else {
        Err(Error::Missing {
            tool: tool.to_owned(),
            path: path.clone(),
        })
    }
}

/// A directory that the set-up script has made, such as `dex-web`.
///
/// # Errors
/// As [`path`].
pub fn directory(name: &str) -> Result<PathBuf, Error> {
    let program = path(name);
    match program {
        Err(Error::Missing { tool: _, path }) if path.is_dir() => Ok(path),
        other => other,
    }
}

fn locate(script: &Path) -> Result<BTreeMap<String, PathBuf>, Error> {
    let failed = |reason: String| Error::Locate {
        script: script.display().to_string(),
        reason,
    };
    let output = Command::new(script)
        .arg("--locate")
        .output()
        .map_err(|source| failed(source.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(tool, path)| (tool.to_owned(), PathBuf::from(path)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlisted_tool_is_named_in_the_error() {
        assert_eq!(
            path("minikube").unwrap_err().to_string(),
            "\"minikube\" is none of the tools that the set-up script knows"
        );
    }

    #[test]
    fn a_script_that_cannot_run_is_named_in_the_error() {
        let error = locate(Path::new("/nowhere/setup")).unwrap_err().to_string();

        assert!(
            error.starts_with("/nowhere/setup --locate did not run: "),
            "{error}"
        );
    }
}
