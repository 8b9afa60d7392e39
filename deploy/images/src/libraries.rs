//! What a program is linked with, and the program without its symbols.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// What `ldd` answers for a program that needs no library.
const STATIC: &str = "not a dynamic executable";

/// Why the libraries of a program are not known, or its symbols not removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The dynamic linker cannot be asked.
    #[error("list the libraries of {program}")]
    Ask {
        /// The program.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The dynamic linker cannot read the program.
    #[error("list the libraries of {program}: {reason}")]
    Unreadable {
        /// The program.
        program: PathBuf,
        /// What `ldd` said.
        reason: String,
    },
    /// This machine does not have a library.
    #[error("{program} needs {library}, which this machine does not have")]
    Missing {
        /// The program.
        program: PathBuf,
        /// The library.
        library: String,
    },
    /// A file cannot be read or written.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The symbols could not be removed.
    #[error("{command} {program}: {reason}")]
    Strip {
        /// What was run.
        command: String,
        /// The program.
        program: PathBuf,
        /// What it said.
        reason: String,
    },
}

/// The files that the dynamic linker would load for a program, the linker included. Empty for a program that is linked
/// statically.
///
/// # Errors
/// When `ldd` cannot be run or read the program, or a library is missing.
pub fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let output = Command::new("ldd")
        .env("LC_ALL", "C")
        .arg(program)
        .output()
        .map_err(|source| Error::Ask {
            program: program.to_owned(),
            source,
        })?;
    let reason = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        // Of a program that is linked statically, ldd says so and fails.
        return if reason.trim() == STATIC {
            Ok(BTreeSet::new())
        } else {
            Err(Error::Unreadable {
                program: program.to_owned(),
                reason: reason.trim().to_owned(),
            })
        };
    }
    parse(&String::from_utf8_lossy(&output.stdout)).map_err(|library| Error::Missing {
        program: program.to_owned(),
        library,
    })
}

/// Lines are `NAME => PATH (ADDRESS)`, `PATH (ADDRESS)`, or a NAME that the kernel provides. The error is a library that
/// was not found.
fn parse(listing: &str) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    for line in listing.lines() {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        let place = place.trim();
        if place == "not found" {
            return Err(name.trim().to_owned());
        }
        if let Some((path, _)) = place.split_once(" (").filter(|(path, _)| path.starts_with('/')) {
            found.insert(PathBuf::from(path));
        }
    }
    Ok(found)
}

/// The bytes of a program without symbols and debug information, as `tool` (such as `strip`) leaves it.
///
/// # Errors
/// When the tool cannot be run, or refuses the program.
pub fn stripped(program: &Path, tool: &str) -> Result<Vec<u8>, Error> {
    let failed = |reason: String| Error::Strip {
        command: tool.to_owned(),
        program: program.to_owned(),
        reason,
    };
    let target = tempfile::NamedTempFile::new().map_err(|source| failed(source.to_string()))?;
    let output = Command::new(tool)
        .args(["--strip-all", "-o"])
        .arg(target.path())
        .arg(program)
        .output()
        .map_err(|source| failed(source.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    fs::read(target.path()).map_err(|source| Error::Read {
        path: target.path().to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_what_the_dynamic_linker_lists() {
        let listing = "\tlinux-vdso.so.1 (0x00007fcd91406000)\n\
                       \tlibssl.so.3 => /lib/x86_64-linux-gnu/libssl.so.3 (0x00007fcd90f57000)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007fcd91408000)\n";
        let missing = "\tlibnone.so.1 => not found\n";

        assert_eq!(
            parse(listing).unwrap().into_iter().collect::<Vec<_>>(),
            [
                PathBuf::from("/lib/x86_64-linux-gnu/libssl.so.3"),
                PathBuf::from("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        assert_eq!(parse(missing), Err("libnone.so.1".to_owned()));
        assert_eq!(parse("\tstatically linked\n"), Ok(BTreeSet::new()));
    }

    #[test]
    fn a_program_that_ldd_cannot_read_is_an_error() {
        let error = libraries(Path::new("/nowhere/none")).unwrap_err().to_string();

        assert!(
            error.starts_with("list the libraries of /nowhere/none: "),
            "{error}"
        );
    }

    #[test]
    fn a_tool_that_refuses_a_program_is_quoted() {
        let error = stripped(Path::new("/nowhere/none"), "strip")
            .unwrap_err()
            .to_string();

        assert!(error.starts_with("strip /nowhere/none: "), "{error}");
    }
}
