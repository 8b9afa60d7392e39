//! Log files: written by the processes, read by people when something failed.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
};

use super::Error;

/// As much of a log's end as anybody reads.
const LONGEST_TAIL_BYTES: u64 = 64 * 1024;

pub(super) fn append(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|source| Error::File {
            action: "open the log",
            path: path.to_owned(),
            source,
        })
}

/// The last lines of a log; says so in words when it cannot be read, since this is only shown to people.
pub(super) fn tail(path: &Path, lines: usize) -> String {
    match end_of(path) {
        Ok(text) => {
            let all: Vec<&str> = text.lines().collect();
            all.get(all.len().saturating_sub(lines)..)
                .unwrap_or_default()
                .join("\n")
        }
        Err(error) => format!("({}: {error})", path.display()),
    }
}

fn end_of(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_lines_and_all_of_a_short_log() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();

        for (lines, expected) in [(0, ""), (2, "two\nthree"), (9, "one\ntwo\nthree")] {
            assert_eq!(tail(&path, lines), expected);
        }
    }
}
