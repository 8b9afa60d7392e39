//! What to run: a binary with its arguments and environment.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// A program to run, and to run again after a crash with the very same arguments.
///
/// The environment starts empty, so that a proxy setting or a `KUBECONFIG` of the person who runs the tests
/// changes nothing; only what programs need to run at all is passed on.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    binary: PathBuf,
    arguments: Vec<OsString>,
    environment: BTreeMap<OsString, OsString>,
}

/// Variables that are passed on from our own environment.
const INHERITED: [&str; 7] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "LLVM_PROFILE_FILE",
];

impl Program {
    /// A program without arguments. The name is for people and names the log file.
    #[must_use]
    pub fn new(name: &str, binary: impl Into<PathBuf>) -> Self {
        let environment = INHERITED
            .iter()
            .filter_map(|variable| Some((OsString::from(variable), std::env::var_os(variable)?)))
            .collect();
        Self {
            name: name.to_owned(),
            binary: binary.into(),
            arguments: Vec::new(),
            environment,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds `FLAG=VALUE` as one argument.
    #[must_use]
    pub fn flag(self, flag: &str, value: impl Into<OsString>) -> Self {
        let mut argument = OsString::from(flag);
        argument.push("=");
        argument.push(value.into());
        self.arg(argument)
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, variable: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.insert(variable.into(), value.into());
        self
    }

    /// The same program, where this file is `/etc/hosts`. Only root can start it.
    #[must_use]
    pub fn hosts(mut self, file: &Path) -> Self {
        let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        let mut arguments: Vec<OsString> = ["--mount", "sh", "-c", script].map(OsString::from).into();
        arguments.push(file.into());
        arguments.push(self.binary.into());
        arguments.append(&mut self.arguments);
        self.binary = "unshare".into();
        self.arguments = arguments;
        self
    }

    /// The same, of one that is started again.
    pub(super) fn set(&mut self, variable: &str, value: OsString) {
        self.environment.insert(variable.into(), value);
    }

    /// What people call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that is executed.
    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Executes another file from now on.
    pub(super) fn run(&mut self, binary: PathBuf) {
        self.binary = binary;
    }

    /// As a person would type it, for messages.
    pub(crate) fn line(&self) -> String {
        let mut line = self.binary.display().to_string();
        for argument in &self.arguments {
            line.push(' ');
            line.push_str(&argument.to_string_lossy());
        }
        line
    }

    /// The command that registers with the watchdog behind its standard input, then becomes the program.
    pub(super) fn registered(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("/bin/sh");
        command
            .args([
                "-c",
                "echo \"+ $$\" >&0 || exit 125; exec \"$@\" </dev/null",
                "sh",
            ])
            .arg(&self.binary)
            .args(&self.arguments)
            .env_clear()
            .envs(&self.environment)
            // Its own process group: Ctrl-C on the terminal reaches us, and we decide in which order things end.
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    /// The command as it is, for programs that answer and end by themselves.
    pub(crate) fn command(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.binary);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(&self.environment)
            .kill_on_drop(true);
        command
    }
}
