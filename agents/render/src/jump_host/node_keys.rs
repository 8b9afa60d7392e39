//! The private keys for the nodes: the values of a tenant's Secret.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;

use super::interface::{DIRECTORY, KNOWN_HOSTS, PRIVATE_KEYS};
use super::private_keys::detect_format;

/// What a Secret has for logins from the jump host to the nodes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeKeys {
    /// The private keys, by their names in the Secret.
    pub keys: BTreeMap<String, Vec<u8>>,
    /// Host keys of nodes, as a `known_hosts` file.
    pub known_hosts: Vec<u8>,
    /// The names of values that are no private keys, and names that no file can have.
    pub unusable: Vec<String>,
}

impl NodeKeys {
    /// Parses the values of a Secret.
    #[must_use]
    pub fn read(data: &BTreeMap<String, ByteString>) -> Self {
        let mut read = Self::default();
        for (name, ByteString(content)) in data {
            if name == KNOWN_HOSTS {
                read.known_hosts.clone_from(content);
            } else if is_file_name(name) && detect_format(content).is_some() {
                let mut content = content.clone();
                // Without it ssh reads nothing of the file.
                if content.last() != Some(&b'\n') {
                    content.push(b'\n');
                }
                read.keys.insert(name.clone(), content);
            } else {
                read.unusable.push(name.clone());
            }
        }
        read
    }

    /// Text that makes ssh offer every key.
    #[must_use]
    pub fn identities(&self) -> String {
        let line = |name: &String| format!("IdentityFile {DIRECTORY}/{PRIVATE_KEYS}/{name}\n");
        self.keys.keys().map(line).collect()
    }
}

/// Maximum length of a file's name, in bytes. File systems allow 255, and a file that is being written has a longer name than it has in the end.
const MAX_FILE_NAME_BYTES: usize = 200;

/// The API server allows few characters in names of values. A file that begins with a dot is one that is being written.
fn is_file_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= MAX_FILE_NAME_BYTES && !name.starts_with('.') && name.chars().all(plain)
}
