//! What the API server of a site has stored, for other sites to start with.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
};

use super::{Error, Site};
use crate::process::Group;

/// Below a site's directory, and below a store's.
pub(super) const ETCD: &str = "etcd";

/// How long etcd may take to end.
const GRACE: Duration = Duration::from_secs(10);

/// Of a file, what is copied or left out at once. etcd allocates 64 MB for a log of which a site uses two.
const BLOCK: usize = 64 * 1024;

/// Every object of a site that has ended. A site that starts with it need not apply them again, which is most of what an API server does until a
/// site is ready. It is removed with this process at the latest.
#[derive(Debug)]
pub struct Store {
    group: Group,
}

impl Site {
    /// Ends the site, and keeps what it has stored.
    ///
    /// # Errors
    /// When its processes do not end, or its files cannot be copied.
    pub async fn into_store(mut self) -> Result<Store, Error> {
        let group = Group::new("store")?;
        // Nobody writes once etcd ends.
        self.control_plane.controller_manager.kill9().await?;
        self.control_plane.apiserver.kill9().await?;
        self.control_plane.etcd.stop(GRACE).await?;
        copy(&self.directory().join(ETCD), &group.directory().join(ETCD))?;
        Ok(Store { group })
    }
}

impl Store {
    /// Gives a site that has not started these objects.
    pub(super) fn copy_to(&self, site: &Path) -> Result<(), Error> {
        copy(&self.group.directory().join(ETCD), &site.join(ETCD))
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    };
    fs::create_dir(to).map_err(failed(to))?;
    for entry in fs::read_dir(from).map_err(failed(from))? {
        let entry = entry.map_err(failed(from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            copy_file(&path, &target).map_err(failed(&path))?;
        }
    }
    // etcd refuses a directory that others can read.
    private(to).map_err(failed(to))
}

fn private(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
}

/// Copies a file, and leaves holes where it has nothing.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut from, mut to) = (File::open(from)?, File::create(to)?);
    let (mut block, nothing) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut length = 0;
    loop {
        let read = from.read(&mut block)?;
        if read == 0 {
            return to.set_len(length);
        }
        length += u64::try_from(read).unwrap_or(u64::MAX);
        let bytes = &block[..read];
        if bytes == &nothing[..read] {
            to.seek(SeekFrom::Start(length))?;
        } else {
            to.write_all(bytes)?;
        }
    }
}
