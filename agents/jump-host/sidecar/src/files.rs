//! The files that sshd and ssh read. Only this program writes them; the container of sshd cannot.

use std::{
    collections::BTreeMap,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use kit::whole_file;
use render::jump_host::{
    files,
    interface::{IDENTITIES, KNOWN_HOSTS, PRIVATE_KEYS},
    node_keys::NodeKeys,
};
use tokio::fs;

/// Mode of files without secrets.
const PUBLIC_MODE: u32 = 0o444;
/// Mode of private keys: ssh refuses keys that other users can read.
const PRIVATE_MODE: u32 = 0o400;

/// A file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One file.
    #[error(transparent)]
    File(#[from] whole_file::Error),
    /// The directory of the private keys.
    #[error("the directory {} cannot be changed", path.display())]
    Directory {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The directory with the files.
#[derive(Clone, Debug)]
pub struct Files {
    directory: PathBuf,
}

impl Files {
    /// Those in a directory.
    #[must_use]
    pub fn within(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Writes the files of a `ConfigMap`; those that it lacks become empty. The configuration of sshd is written last, since it names the others.
    ///
    /// # Errors
    /// The first that cannot be written. Those before it are.
    pub async fn write_configuration(&self, data: &BTreeMap<String, String>) -> Result<(), Error> {
        let last_first = files::ALL.into_iter().rev();
        for name in last_first {
            let content = data.get(name).map_or("", String::as_str);
            whole_file::write(&self.directory.join(name), content.as_bytes(), PUBLIC_MODE).await?;
        }
        Ok(())
    }

    /// Writes the private keys for the nodes, and removes those that are no longer there.
    ///
    /// # Errors
    /// The first that cannot be written or removed.
    pub async fn write_node_keys(&self, keys: &NodeKeys) -> Result<(), Error> {
        let directory = self.directory.join(PRIVATE_KEYS);
        let failed = |source| Error::Directory {
            path: directory.clone(),
            source,
        };
        self.make(&directory).await.map_err(failed)?;
        for (name, content) in &keys.keys {
            whole_file::write(&directory.join(name), content, PRIVATE_MODE).await?;
        }
        let known_hosts = self.directory.join(KNOWN_HOSTS);
        whole_file::write(&known_hosts, &keys.known_hosts, PUBLIC_MODE).await?;
        let identities = self.directory.join(IDENTITIES);
        whole_file::write(&identities, keys.identities().as_bytes(), PUBLIC_MODE).await?;
        let mut entries = fs::read_dir(&directory).await.map_err(failed)?;
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            let name = entry.file_name();
            if !name.to_str().is_some_and(|name| keys.keys.contains_key(name)) {
                fs::remove_file(entry.path()).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    async fn make(&self, directory: &Path) -> io::Result<()> {
        match fs::create_dir(directory).await {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        fs::set_permissions(directory, PermissionsExt::from_mode(0o700)).await
    }
}
