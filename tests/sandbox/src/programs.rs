//! The project's own programs: where cargo has put them.

use std::path::{Path, PathBuf};

/// Names a directory with the project's programs, instead of the one next to the running program.
pub const DIRECTORY_VARIABLE: &str = "SIP_BIN_DIR";

/// A program that cargo has not built.
#[derive(Debug, thiserror::Error)]
#[error(
    "{program} is in none of {searched}: run `cargo build --workspace --bins` first, or set {DIRECTORY_VARIABLE}"
)]
pub struct Error {
    program: String,
    searched: String,
}

/// The path of one of the project's programs, such as `sip-scheduler`.
///
/// It is looked for in `SIP_BIN_DIR` if that is set, else next to the running program and, since cargo runs tests in
/// `deps`, in the directory above.
///
/// # Errors
/// When it was not built.
pub fn path(program: &str) -> Result<PathBuf, Error> {
    match std::env::var_os(DIRECTORY_VARIABLE) {
        Some(directory) => find(program, &[PathBuf::from(directory)]),
        None => built(program),
    }
}

/// The same of the present build, whatever `SIP_BIN_DIR` is.
///
/// # Errors
/// When it was not built.
pub fn built(program: &str) -> Result<PathBuf, Error> {
    let ours = std::env::current_exe();
    let directories: Vec<PathBuf> = ours
        .map(|ours| ours.ancestors().skip(1).take(2).map(Path::to_owned).collect())
        .unwrap_or_default();
    find(program, &directories)
}

fn find(program: &str, directories: &[PathBuf]) -> Result<PathBuf, Error> {
    directories
        .iter()
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
        .ok_or_else(|| Error {
            program: program.to_owned(),
            searched: directories
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(", "),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_next_to_us_or_one_above() {
        let root = tempfile::tempdir().unwrap();
        let deps = root.path().join("deps");
        std::fs::create_dir(&deps).unwrap();
        std::fs::write(root.path().join("sip-x"), "").unwrap();

        let found = find("sip-x", &[deps.clone(), root.path().to_owned()]).unwrap();

        assert_eq!(found, root.path().join("sip-x"));
        let error = find("sip-y", std::slice::from_ref(&deps))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(&format!("sip-y is in none of {}: run", deps.display())),
            "{error}"
        );
    }
}
