//! Files as a layer of an image.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
};

use flate2::{Compression as Level, GzBuilder};

/// How layers are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As small as gzip makes them: for images that go over a network.
    #[default]
    Gzip,
    /// Not at all: for images that this machine imports at once.
    None,
}

/// A file or directory of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, content: Vec<u8> },
}

/// The files of one layer, by their paths without a leading `/`. All belong to root and are as old as 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer(BTreeMap<String, Entry>);

impl Layer {
    /// Adds a file that everybody may read.
    pub fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, 0o644, content.into());
    }

    /// Adds a file that everybody may run.
    pub fn program(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, 0o755, content.into());
    }

    /// Adds a directory.
    pub fn directory(&mut self, path: &str, mode: u32) {
        let path = format!("{}/", path.trim_matches('/'));
        self.0.insert(path, Entry::Directory { mode });
    }

    fn add(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        let path = path.trim_start_matches('/').to_owned();
        self.0.insert(path, Entry::File { mode, content });
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The layer as a tar archive. The same files make the same bytes.
    ///
    /// # Errors
    /// When a path does not fit into a tar archive.
    pub fn tar(&self) -> io::Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            match entry {
                Entry::Directory { mode } => {
                    tar.append_data(
                        &mut header(*mode, tar::EntryType::Directory, 0),
                        path,
                        io::empty(),
                    )?;
                }
                Entry::File { mode, content } => append(&mut tar, path, *mode, content)?,
            }
        }
        tar.into_inner()
    }
}

/// Adds a file of root's to an archive, with the time zero.
pub(crate) fn append(
    tar: &mut tar::Builder<impl io::Write>,
    path: &str,
    mode: u32,
    content: &[u8],
) -> io::Result<()> {
    let size = u64::try_from(content.len()).map_err(io::Error::other)?;
    tar.append_data(&mut header(mode, tar::EntryType::Regular, size), path, content)
}

fn header(mode: u32, kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

/// The bytes as a gzip member without a name and without a time.
pub(crate) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Level::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}
