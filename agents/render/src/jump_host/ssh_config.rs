//! How ssh in the pod reaches the nodes: by their names, with every private key that the tenant has given.

use std::fmt::Write as _;

use super::interface::{DIRECTORY, HOME, IDENTITIES, KNOWN_HOSTS, USER};
use super::nodes::{Node, assign_names};

pub(super) fn text(nodes: &[Node]) -> String {
    let mut text = format!("# The jump-host agent writes this file.\nInclude {DIRECTORY}/{IDENTITIES}\n");
    for (node, names) in assign_names(nodes)
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
    {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\nHost {}\n  HostName {}\n  HostKeyAlias {}\n",
            names.join(" "),
            node.address(),
            node.host_key_alias()
        );
    }
    let _ = write!(
        text,
        "\nHost *\n  User {USER}\n  ConnectTimeout 10\n  # A node whose key is not known is trusted when it is seen first, and never with another key.\n  StrictHostKeyChecking accept-new\n  CheckHostIP no\n  HashKnownHosts no\n  GlobalKnownHostsFile {DIRECTORY}/{KNOWN_HOSTS}\n  UserKnownHostsFile {HOME}/.ssh/known_hosts\n"
    );
    text
}
