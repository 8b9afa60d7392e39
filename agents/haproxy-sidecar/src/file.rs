//! The file that HAProxy reads when it starts and when it reloads.

use std::path::{Path, PathBuf};

use kit::whole_file;
use render::load_balancer::CONFIG_FILE;
use tokio::fs;

pub use kit::whole_file::Error;

/// The file, in the directory that HAProxy's container shares. This program alone writes it.
#[derive(Debug)]
pub struct ConfigFile {
    file: PathBuf,
}

impl ConfigFile {
    /// The one in `directory`.
    #[must_use]
    pub fn within(directory: &Path) -> Self {
        Self {
            file: directory.join(CONFIG_FILE),
        }
    }

    /// Whether there is one, such as from before a restart of this program.
    pub async fn exists(&self) -> bool {
        fs::try_exists(&self.file).await.unwrap_or(false)
    }

    /// Makes `text` what is in it: a HAProxy that starts at that time reads all of what was there before or all of this, and a node
    /// that loses its power has one of them.
    ///
    /// # Errors
    /// When the disk is full, for one. What was there before is there still.
    pub async fn write(&self, text: &str) -> Result<(), Error> {
        // Both containers are one user. Other users must not read what an operator's template contains.
        whole_file::write(&self.file, text.as_bytes(), 0o600)
            .await
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn the_file_is_replaced_as_a_whole_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let file = ConfigFile::within(directory.path());
        assert!(!file.exists().await);
        for text in ["first and longer\n", "second\n", "second\n"] {
            file.write(text).await.unwrap();
            assert!(file.exists().await);
            assert_eq!(std::fs::read_to_string(&file.file).unwrap(), text);
        }
        let entries: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(entries.len(), 1, "{entries:?}");
        let mode = std::fs::metadata(&file.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn what_cannot_be_written_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = ConfigFile::within(&directory.path().join("absent"));
        let error = file.write("text\n").await.unwrap_err().to_string();
        assert!(error.ends_with("absent/haproxy.cfg cannot be written"), "{error}");
    }
}
