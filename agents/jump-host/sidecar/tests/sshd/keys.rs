//! Keys and certificates, as ssh-keygen makes them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// Runs ssh-keygen, which must succeed.
fn ssh_keygen(arguments: &[&str]) -> Output {
    let output = Command::new("ssh-keygen").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output
}

/// A key pair.
pub(crate) struct Key {
    directory: TempDir,
}

impl Key {
    pub(crate) fn new(comment: &str) -> Self {
        Self::of_type("ed25519", comment)
    }

    pub(crate) fn of_type(kind: &str, comment: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        let file = file.to_str().unwrap();
        ssh_keygen(&["-q", "-t", kind, "-N", "", "-C", comment, "-f", file]);
        Self { directory }
    }

    /// The file of the private key.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("key")
    }

    pub(crate) fn private(&self) -> Vec<u8> {
        std::fs::read(self.file()).unwrap()
    }

    /// The line of the public key.
    pub(crate) fn public(&self) -> String {
        let text = std::fs::read_to_string(self.directory.path().join("key.pub")).unwrap();
        text.trim_end().to_owned()
    }

    /// As ssh shows it.
    pub(crate) fn fingerprint(&self) -> String {
        let output = ssh_keygen(&["-l", "-f", self.file().to_str().unwrap()]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.split(' ').nth(1).unwrap().to_owned()
    }

    /// A certificate for a key of its own, which an authority of this key issues. ssh finds it beside the private key.
    pub(crate) fn issues(&self, id: &str, principals: &str, more: &[&str]) -> Key {
        let holder = Self::new(id);
        let public = holder.directory.path().join("key.pub");
        let authority = self.file();
        let mut arguments = vec![
            "-q",
            "-s",
            path(&authority),
            "-I",
            id,
            "-n",
            principals,
            "-z",
            "7",
        ];
        arguments.extend(more);
        arguments.push(path(&public));
        ssh_keygen(&arguments);
        holder
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
