//! Files that are replaced as a whole: a reader gets all of the previous or all of the new content.

use std::{
    io,
    path::{Path, PathBuf},
};

use tokio::{
    fs::{self, File, OpenOptions},
    io::AsyncWriteExt as _,
};

/// A file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written", file.display())]
pub struct Error {
    file: PathBuf,
    #[source]
    source: io::Error,
}

/// Replaces the content of a file, with these permissions; after a power failure of the node the file has the old or the new content. Returns
/// whether that is a change. Only one program may write to the directory of the file.
///
/// # Errors
/// When the content cannot be written, for example because the disk is full. The file is then unchanged.
pub async fn write(file: &Path, content: &[u8], mode: u32) -> Result<bool, Error> {
    try_write(file, content, mode).await.map_err(|source| Error {
        file: file.to_owned(),
        source,
    })
}

async fn try_write(file: &Path, content: &[u8], mode: u32) -> io::Result<bool> {
    if fs::read(file).await.is_ok_and(|there| there == content) {
        return Ok(false);
    }
    let directory = file.parent().unwrap_or(Path::new("."));
    // No file that is written here has a name with a leading dot, so the temporary name is free.
    let mut new = std::ffi::OsString::from(".");
    new.push(file.file_name().unwrap_or_default());
    new.push(".new");
    let new = directory.join(new);
    // A write that was interrupted may have left a file that cannot be opened for writing.
    match fs::remove_file(&new).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    let mut opened = options.write(true).create_new(true).mode(mode).open(&new).await?;
    opened.write_all(content).await?;
    opened.sync_all().await?;
    fs::rename(&new, file).await?;
    File::open(directory).await?.sync_all().await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_file_is_replaced_as_a_whole_with_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        for (content, changed) in [("first and longer", true), ("second", true), ("second", false)] {
            assert_eq!(write(&file, content.as_bytes(), 0o400).await.unwrap(), changed);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
        }
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
        // A write that was interrupted.
        std::fs::write(directory.path().join(".key.new"), "half").unwrap();
        write(&file, b"third", 0o400).await.unwrap();
        let entries: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(entries.len(), 1, "{entries:?}");
    }

    #[tokio::test]
    async fn what_cannot_be_written_names_the_file() {
        let file = tempfile::tempdir().unwrap().path().join("absent/key");
        let error = write(&file, b"", 0o400).await.unwrap_err().to_string();
        assert!(error.ends_with("absent/key cannot be written"), "{error}");
    }
}
